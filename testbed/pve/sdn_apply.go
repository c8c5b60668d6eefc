package pve

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/task"
)

// applySDN is PUT /cluster/sdn: it commits everything that is pending, whoever
// wrote it, before the answer. The task then only sets the nodes' reloads
// going, and ends well whatever becomes of them.
func applySDN(c *call) (any, error) {
	s := c.s
	err := wrapSDN("could not commit SDN config", s.changeSDN(func(k *sdnKept) error {
		if err := c.checkToken(k); err != nil {
			return err
		}
		k.Running = k.Config.clone()
		k.Version++
		c.mayRelease(k)
		return nil
	}))
	if err != nil {
		return nil, err
	}
	return s.startTask("reloadnetworkall", "", c.who.name, func(w *task.Worker) error {
		for _, node := range s.nodeNames() {
			if !w.Alive() {
				return task.ErrKilled
			}
			w.Log("%s: reloading network config", node)
			upid, err := s.startReload(node, access.Superuser)
			if err != nil {
				w.Log("%v", err)
				continue
			}
			if s.member(node) == s { // the others are not waited for
				s.waitReload(w.Context(), upid)
			}
		}
		return nil
	})
}

// mayRelease gives the lock back if the call asks for it; what is left out is
// not asked for.
func (c *call) mayRelease(k *sdnKept) {
	if c.p.Bool("release-lock") {
		k.Lock = ""
	}
}

// waitReload waits for the end of a reload, but no longer than configured.
func (s *Server) waitReload(ctx context.Context, upid string) {
	if s.cfg.ReloadWait < 0 {
		return
	}
	if s.cfg.ReloadWait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.cfg.ReloadWait)
		defer cancel()
	}
	_ = s.tasks.Wait(ctx, upid) // how it ended is not looked at
}

// reloadNetwork is PUT /nodes/{node}/network: one node's reload alone.
func reloadNetwork(c *call) (any, error) { return c.s.startReload(c.p.Str("node"), c.who.name) }

// startReload starts a node's reload. It brings the node to what runs when its
// turn comes, which may be newer than what it was started for.
func (s *Server) startReload(node, user string) (string, error) {
	m := s.member(node)
	if m == nil || !m.up() {
		return "", fail("%s: 595 No route to host", node)
	}
	node = m.cfg.Node
	return m.startTask("srvreload", "networking", user, func(w *task.Worker) error {
		release, err := s.reloadLock(node).acquire(w.Context(), true, reloadTimeout, func() { w.Log("trying to acquire lock...") })
		if errors.Is(err, errLockTimeout) {
			return fail("can't lock file '/var/lock/pve-network' - got timeout")
		}
		if err != nil {
			return err
		}
		defer release()
		return s.reload(w, node)
	})
}

// reloadTimeout is how long a reload waits for the one before it.
const reloadTimeout = 10 * time.Minute

func (s *Server) reloadLock(node string) *flock {
	s.sdn.mu.Lock()
	defer s.sdn.mu.Unlock()
	if s.sdn.reload[node] == nil {
		s.sdn.reload[node] = newFlock()
	}
	return s.sdn.reload[node]
}

// reload makes a node's network what the running configuration says. Once the
// node's files are written the node no longer waits: what goes wrong after
// that is an error of its zones.
func (s *Server) reload(w *task.Worker, node string) error {
	var now SDN
	err := s.changeNode(w, node, func(k *sdnKept, n *sdnNode) { n.Version, now = k.Version, k.snapshot() })
	if err != nil {
		return err
	}
	err = s.build(w, node, now)
	if err != nil {
		return errors.Join(err, s.changeNode(w, node, func(_ *sdnKept, n *sdnNode) { n.Failed = true }))
	}
	return s.changeNode(w, node, func(_ *sdnKept, n *sdnNode) {
		n.Failed, n.Bridges = false, nil
		for _, v := range now.VNets {
			if now.zoneOn(v.Zone, node) {
				n.Bridges = append(n.Bridges, v.ID)
			}
		}
	})
}

func (s *Server) build(w *task.Worker, node string, now SDN) error {
	if err := w.Step("written"); err != nil || s.cfg.Fabric == nil {
		return err
	}
	if err := s.cfg.Fabric.Apply(w.Context(), node, now); err != nil {
		if cause := context.Cause(w.Context()); cause != nil {
			return cause
		}
		w.Log("%v", err)
		return fail("command 'ifreload -a' failed: exit code 1")
	}
	return nil
}

// zoneOn reports whether a zone exists and is on a node.
func (n SDN) zoneOn(zone, node string) bool {
	return slices.ContainsFunc(n.Zones, func(z SDNZone) bool { return z.ID == zone && z.On(node) })
}

// changeNode changes what is kept of a node, unless the worker was killed.
func (s *Server) changeNode(w *task.Worker, node string, f func(*sdnKept, *sdnNode)) error {
	return s.changeSDN(func(k *sdnKept) error {
		if !w.Alive() {
			return task.ErrKilled
		}
		n := k.Nodes[node]
		f(k, &n)
		k.Nodes[node] = n
		return nil
	})
}

// lockSDN is POST /cluster/sdn/lock. The lock belongs to whoever knows its
// token and never expires.
func lockSDN(c *call) (any, error) {
	token := newUUIDv7(c.s.cfg.Now())
	err := wrapSDN("could not acquire lock for SDN config", c.s.changeSDN(func(k *sdnKept) error {
		if k.Lock != "" {
			return fail("invalid lock token provided!%s", place)
		}
		if !c.p.Bool("allow-pending") && !k.Config.equal(k.Running) {
			return fail("configuration has pending changes%s", place)
		}
		k.Lock = token
		return nil
	}))
	if err != nil {
		return nil, err
	}
	return token, nil
}

// releaseSDN is DELETE /cluster/sdn/lock; when nobody holds it any token will do.
func releaseSDN(c *call) (any, error) {
	return nil, wrapSDN("could not release lock", c.s.changeSDN(func(k *sdnKept) error {
		if !c.p.Bool("force") {
			if err := c.checkToken(k); err != nil {
				return err
			}
		}
		k.Lock = ""
		return nil
	}))
}

// rollbackSDN is POST /cluster/sdn/rollback: everybody's pending changes are gone.
func rollbackSDN(c *call) (any, error) {
	return nil, wrapSDN("could not rollback SDN configuration", c.s.changeSDN(func(k *sdnKept) error {
		if err := c.checkToken(k); err != nil {
			return err
		}
		k.Config = k.Running.clone()
		c.mayRelease(k)
		return nil
	}))
}

// newUUIDv7 makes a UUID that begins with the time.
func newUUIDv7(now time.Time) string {
	b := make([]byte, 16)
	rand.Read(b)
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(now.UnixMilli()))
	copy(b, ms[2:])
	b[6], b[8] = b[6]&0x0f|0x70, b[8]&0x3f|0x80
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
