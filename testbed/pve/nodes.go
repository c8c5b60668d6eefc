package pve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/httpd"
	"savepoint/testbed/pve/task"
)

// cluster is what the nodes share. Each node is a Server of its own that has
// its tasks, its own storages and the VMs whose configuration it holds.
type cluster struct {
	root    string // directory of what is the cluster's
	members []*Server
	access  *access.Directory
	routes  *routeTree
	vmOpts  *vmOptions
	http    *httpd.Server
	tls     *tls.Config
	print   string // fingerprint of the server's certificate
	lock    *os.File

	sdnKinds map[string]sdnKind
	sdn      sdnState
	guards   guards
	facts    nodeFacts

	mu     sync.Mutex
	vms    map[int]*vmEntry
	shared map[string]volume // of shared storages
	pools  map[string]*pool
	walls  map[string]*firewall
}

// newMember makes one node, with what its directory holds.
func (s *Server) newMember(cfg Config) (*Server, error) {
	m := &Server{cluster: s.cluster, Faults: s.Faults, cfg: cfg, volumes: map[string]volume{}, online: true, down: make(chan struct{})}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open api state: %w", err)
	}
	// Uploads that the last server did not come to the end of.
	if err := os.RemoveAll(uploadDir(cfg.Dir)); err != nil {
		return nil, fmt.Errorf("open api state: %w", err)
	}
	for _, st := range cfg.Storages {
		st, err := st.prepared(cfg)
		if err != nil {
			return nil, err
		}
		if st.on(cfg.Node) {
			m.storages = append(m.storages, st)
		}
	}
	return m, nil
}

// of is the configuration of one of the nodes. The first one's own state lies
// in the cluster's directory.
func (c Config) of(node string) Config {
	if node != c.Node {
		c.Dir = filepath.Join(c.Dir, "nodes", node)
	}
	if b, ok := c.Backends[node]; ok {
		c.Machines, c.Disks = b.Machines, b.Disks
	}
	c.Node = node
	return c
}

// nodeNames lists the nodes of the cluster; the server's own is the first.
func (s *Server) nodeNames() []string { return s.cfg.Nodes }

// member returns a node, nil when there is none of that name.
func (s *Server) member(node string) *Server {
	if node == "localhost" || node == s.cfg.Node {
		return s
	}
	for _, m := range s.members {
		if m.cfg.Node == node {
			return m
		}
	}
	return nil
}

// owner returns the node that holds a VM's configuration; this one when there
// is no such VM.
func (s *Server) owner(vmid int) *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.vms[vmid]; e != nil && e.conf != nil {
		return e.node
	}
	return s
}

// Nodes lists the names of the cluster's nodes, the serving one first.
func (s *Server) Nodes() []string { return slices.Clone(s.nodeNames()) }

// up reports whether the node can be reached.
func (s *Server) up() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.online
}

// quorate reports whether more than half of the nodes are there.
func (s *Server) quorate() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quorateLocked()
}

func (s *Server) quorateLocked() bool {
	n := 0
	for _, m := range s.members {
		if m.online {
			n++
		}
	}
	return n > len(s.members)/2
}

// SetNode takes a node out of the cluster as a loss of power would, or brings
// it back: its VMs and tasks end at once, what it holds stays, and calls that
// belong to it answer 595 (596 when it was at them). VMs do not start by
// themselves when it comes back. The first node serves the API and cannot go.
func (s *Server) SetNode(name string, online bool) error {
	m := s.member(name)
	if m == nil || name == "localhost" {
		return fmt.Errorf("set node %s: no such node; there are %v", name, s.nodeNames())
	}
	if m == s.members[0] {
		if online {
			return nil
		}
		return fmt.Errorf("set node %s: it serves the api; close the server instead", name)
	}
	s.mu.Lock()
	changed := m.online != online
	m.online = online
	switch {
	case changed && online:
		m.down = make(chan struct{})
	case changed:
		close(m.down)
	}
	s.mu.Unlock()
	if !changed || online {
		return nil
	}
	for _, t := range m.tasks.Running() {
		m.tasks.Kill(t.Name)
	}
	return m.cutPower(s.http.Context())
}

// errNodeDown ends the calls that a dying node was at.
var errNodeDown = errors.New("node is down")

// cutPower ends every VM of the node. Each one's backend may be busy with it
// until it notices that its task was killed.
func (s *Server) cutPower(ctx context.Context) error {
	for _, vmid := range s.vmids() {
		e := s.entry(vmid)
		e.backend.Lock()
		var err error
		if s.cfg.Machines.Status(vmid).Running {
			err = s.cfg.Machines.Stop(ctx, vmid, false)
		}
		e.backend.Unlock()
		if err != nil {
			return fmt.Errorf("set node %s: end vm %d: %w", s.cfg.Node, vmid, err)
		}
	}
	return nil
}

// proxied passes a call on to the node it is for.
func (s *Server) proxied(c *call, node string) error {
	m := s.member(node)
	switch {
	case m == nil:
		return fail("hostname lookup '%s' failed - failed to get address info for: %s: Temporary failure in name resolution", node, node)
	case !m.up():
		return &apiError{code: 595, text: "No route to host"}
	}
	c.s = m
	return nil
}

// guarded runs a proxied call, which has no answer when its node dies meanwhile.
func (s *Server) guarded(c *call, run func() (any, error)) (any, error) {
	s.mu.Lock()
	down := s.down
	s.mu.Unlock()
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-down:
			cancel(errNodeDown)
		case <-ctx.Done():
		}
	}()
	c.ctx = ctx
	data, err := run()
	select {
	case <-down:
		return nil, &apiError{code: 596, text: "Connection timed out"}
	default:
		return data, err
	}
}

// errNoQuorum refuses changes while most of the cluster is missing.
var errNoQuorum = &apiError{code: 500, text: "cluster not ready - no quorum?"}

// readOnly is the complaint about a file of the cluster that cannot be written.
func (s *Server) readOnly(vmid int, w *task.Worker) error {
	pid := int64(1)
	if w != nil {
		pid = w.UPID.PID
	}
	return fail("unable to open file '/etc/pve/nodes/%s/qemu-server/%d.conf.tmp.%d' - Permission denied", s.cfg.Node, vmid, pid)
}
