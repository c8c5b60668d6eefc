package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"savepoint/orchestrator/sshexec/wire"
)

// The disk's file system, as df and Health tell it.
const (
	diskKiB    = 1 << 20
	diskInodes = 1 << 16
)

// health is the second part of the answer to wire.Health.
func (g *guest) health() []string {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	g.tree.mu.RLock()
	nodes := int64(len(g.tree.nodes))
	g.tree.mu.RUnlock()
	g.mu.Lock()
	killed := maps.Clone(g.killed)
	g.mu.Unlock()
	sshd, agent := "1", ""
	if killed["sshd"] {
		sshd = ""
	}
	if g.machine.Agent && !g.b.behaviour(g.machine.VMID).AgentSilent && !killed["qemu-ga"] {
		agent = "1"
	}
	return []string{
		"space", "/", n(max(0, diskKiB-g.tree.used()/1024) * 1024), n(diskKiB * 1024), n(max(0, diskInodes-nodes)), n(diskInodes),
		"service", "sshd", sshd, "service", "qemu-guest-agent", agent,
	}
}

// list serves wire.List.
func (h *helper) list(payload []byte) {
	f, err := wire.DecodeFields(payload)
	if err != nil || len(f) < 3 {
		h.refuse("unavailable", "malformed order")
		return
	}
	limit, err := strconv.Atoi(f[0])
	if err != nil {
		h.refuse("unavailable", "malformed order")
		return
	}
	entries := h.g.tree.manifest(f[2:], f[1] != "")
	if len(entries) > limit {
		h.refuse("limit", f[0])
		return
	}
	for part := range slices.Chunk(entries, 100) {
		h.g.gate.pass(h.g.ctx.Done())
		select {
		case f := <-h.in: // the end of the session, too
			if f.Kind == wire.Kill || f.Kind == 0 {
				h.refuse("unavailable", "the walk was ended")
				return
			}
		default:
		}
		h.fields(wire.Entries, slices.Concat(part...)...)
	}
	h.fields(wire.Done, strconv.Itoa(len(entries)))
}

// manifest lists the trees at the roots: one instant of them, six fields each.
func (t *tree) manifest(roots []string, hash bool) [][]string {
	still := t.snapshot()
	found := map[string][]string{}
	for _, root := range roots {
		dir, err := still.resolve(rootUser, path.Dir(root), true)
		at := path.Join(dir, path.Base(root))
		if n, ok := still.nodes[at]; err != nil || !ok {
			found[root] = []string{root, "", "", "", "absent", ""}
			continue
		} else if !n.mode.IsDir() {
			found[root] = n.entry(root, hash)
			continue
		}
		below := strings.TrimSuffix(at, "/") + "/"
		for p, n := range still.nodes {
			if p == at || strings.HasPrefix(p, below) {
				named := path.Join(root, strings.TrimPrefix(p, at))
				found[named] = n.entry(named, hash)
			}
		}
	}
	var out [][]string
	for _, e := range found {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return out
}

// entry is a node as six fields of wire.Entries. The owner's group has the
// owner's number.
func (n node) entry(name string, hash bool) []string {
	kind, size, target, sum := uint32(0o100000), len(n.data), "", ""
	switch {
	case n.mode.IsDir():
		kind = 0o040000
	case n.mode&fs.ModeSymlink != 0:
		kind, target = 0o120000, n.data
	case hash:
		digest := sha256.Sum256([]byte(n.data))
		sum = hex.EncodeToString(digest[:])
	}
	meta := fmt.Sprintf("%d %d %d %d %d %d %d %d %d 0 0:0 0", kind|toUnix(n.mode), n.uid, n.uid, size, n.mtime.Unix(), n.mtime.Nanosecond(), n.inode, 0, n.change)
	return []string{name, meta, target, sum, "", ""}
}

var specialBits = map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000}

func toUnix(m fs.FileMode) uint32 {
	out := uint32(m.Perm())
	for bit, unix := range specialBits {
		if m&bit != 0 {
			out |= unix
		}
	}
	return out
}

func fromUnix(m uint32) fs.FileMode {
	out := fs.FileMode(m) & fs.ModePerm
	for bit, unix := range specialBits {
		if m&unix != 0 {
			out |= bit
		}
	}
	return out
}
