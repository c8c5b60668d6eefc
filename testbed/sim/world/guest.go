package world

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"
	"time"

	"savepoint/orchestrator"
)

// answers reports whether the guest can be talked to.
func (v *vm) answers() bool {
	return v.running && !v.guest.dead && !time.Now().Before(v.guest.mute)
}

func (v *vm) silent() error {
	return fmt.Errorf("the guest of %s does not answer: %w", v.ref, orchestrator.ErrUnavailable)
}

// talk is a question to the guest, authenticated by its host key.
func (p *Process) talk(ctx context.Context, sb orchestrator.Sandbox, name string, f func(v *vm) error) error {
	return p.call(ctx, sb.ID, name, func(Point) error {
		return p.C.at(sb.VM, func(v *vm) error {
			switch {
			case !v.answers():
				return v.silent()
			case v.guest.key != sb.HostKey:
				return &orchestrator.HostKeyError{Host: sb.Name, Want: sb.HostKey, Got: v.guest.key}
			}
			p.dialled(sb.ID)
			return f(v)
		})
	})
}

func (v *vm) facts() orchestrator.GuestFacts {
	return orchestrator.GuestFacts{
		BootID: fmt.Sprintf("boot-%d", v.guest.boot), Generation: v.files[Marker],
		Clock: time.Now().Add(v.guest.skew), RoundTrip: 20 * time.Millisecond,
	}
}

// Mark writes the generation marker.
func (p *Process) Mark(ctx context.Context, sb orchestrator.Sandbox, generation string) (f orchestrator.GuestFacts, err error) {
	err = p.talk(ctx, sb, "mark", func(v *vm) error {
		v.files[Marker] = generation
		v.writes++
		f = v.facts()
		return nil
	})
	return f, err
}

// Inspect asks the guest what it is.
func (p *Process) Inspect(ctx context.Context, sb orchestrator.Sandbox) (f orchestrator.GuestFacts, err error) {
	err = p.talk(ctx, sb, "inspect", func(v *vm) error {
		f = v.facts()
		f.Writes = fmt.Sprint(v.writes)
		return nil
	})
	return f, err
}

// SetClock sets the guest's clock.
func (p *Process) SetClock(ctx context.Context, sb orchestrator.Sandbox, t time.Time) error {
	return p.talk(ctx, sb, "set clock", func(v *vm) error { v.guest.skew = time.Until(t); return nil })
}

// Health asks the guest how it is: it is well or does not answer.
func (p *Process) Health(ctx context.Context, sb orchestrator.Sandbox) (h orchestrator.GuestHealth, err error) {
	err = p.talk(ctx, sb, "health", func(v *vm) error { h = v.health(); return nil })
	return h, err
}

func (v *vm) health() orchestrator.GuestHealth {
	const total = 10 << 30
	return orchestrator.GuestHealth{
		GuestFacts: v.facts(),
		Free:       []orchestrator.Space{{Mount: "/", Bytes: total / 2, TotalBytes: total, Inodes: 1 << 18, TotalInodes: 1 << 19}},
		Services:   map[string]bool{orchestrator.ServiceSSH: true, orchestrator.ServiceAgent: true},
	}
}

// Manifest lists files. Each is owned by root and has a mode that says
// nothing; its content stands for its inode and times as well.
func (p *Process) Manifest(ctx context.Context, sb orchestrator.Sandbox, r orchestrator.ManifestRequest) (m orchestrator.Manifest, err error) {
	err = p.talk(ctx, sb, "manifest", func(v *vm) error {
		m = orchestrator.Manifest{Hash: r.Hash}
		listed := map[string]bool{}
		for _, root := range r.Roots {
			found := false
			for path, text := range v.files {
				below := strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/")
				if found = found || below || path == root; !listed[path] && (below || path == root) {
					listed[path] = true
					m.Entries = append(m.Entries, entry(path, text))
				}
			}
			switch _, file := v.files[root]; {
			case !found:
				m.Entries = append(m.Entries, orchestrator.ManifestEntry{Path: root, Type: orchestrator.EntryAbsent})
			case !file:
				m.Entries = append(m.Entries, orchestrator.ManifestEntry{Path: root, Type: orchestrator.EntryDir, Mode: 0o755})
			}
		}
		m.Sort()
		return nil
	})
	return m, err
}

func entry(path, text string) orchestrator.ManifestEntry {
	sum := sha256.Sum256([]byte(text))
	return orchestrator.ManifestEntry{
		Path: path, Type: orchestrator.EntryFile, Mode: 0o644, Size: int64(len(text)),
		Inode: binary.BigEndian.Uint64(sum[:]), SHA256: hex.EncodeToString(sum[:]),
	}
}

// Files returns what a sandbox's VM holds, without the marker.
func (c *Cluster) Files(sb orchestrator.Sandbox) (t Tree) {
	_ = c.at(sb.VM, func(v *vm) error { t = maps.Clone(v.files); return nil })
	return t.without()
}

// Runs says how often a command was started in the sandbox.
func (c *Cluster) Runs(sb orchestrator.Sandbox) (n map[string]int) {
	_ = c.at(sb.VM, func(v *vm) error { n = maps.Clone(v.runs); return nil })
	return n
}

// Owned returns the snapshots of the VM with a name of ours.
func (c *Cluster) Owned(sb orchestrator.Sandbox) (names []string) {
	_ = c.at(sb.VM, func(v *vm) error {
		for _, s := range v.snaps {
			if _, ok := orchestrator.TxOf(s.Name); ok && !s.foreign {
				names = append(names, strings.TrimSpace(string(s.Name)+" "+s.Incomplete))
			}
		}
		return nil
	})
	return names
}
