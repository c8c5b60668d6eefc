package orchestrator_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// examined is a guest that can be looked into.
type examined struct {
	*proc
	free     func() int64 // of 1 GiB
	services map[string]bool
	mounts   map[string]bool
}

func (g examined) Health(ctx context.Context, _ orchestrator.Sandbox) (h orchestrator.GuestHealth, err error) {
	err = g.call(ctx, "health", func() error { h, err = g.health(); return err })
	return h, err
}

func (g examined) health() (h orchestrator.GuestHealth, err error) {
	if h.GuestFacts, err = g.facts(); err != nil {
		return h, err
	}
	free := int64(1 << 29)
	if g.free != nil {
		free = g.free()
	}
	h.Free = []orchestrator.Space{{Mount: "/", Bytes: free, TotalBytes: 1 << 30, Inodes: 5000, TotalInodes: 10000}}
	h.Services = maps.Clone(g.services)
	if _, there := g.w.files["/workspace/nosshd"]; there {
		h.Services = map[string]bool{orchestrator.ServiceAgent: true}
	}
	return h, nil
}

func (g examined) Manifest(ctx context.Context, _ orchestrator.Sandbox, r orchestrator.ManifestRequest) (m orchestrator.Manifest, err error) {
	m.Hash = r.Hash
	err = g.call(ctx, "manifest", func() error {
		if _, err := g.facts(); err != nil {
			return err
		}
		found := map[string]orchestrator.ManifestEntry{}
		for _, root := range r.Roots {
			for p, text := range g.w.files {
				at := strings.HasPrefix(p, strings.TrimSuffix(root, "/")+"/")
				if p != root && !at || slices.ContainsFunc(slices.Collect(maps.Keys(g.mounts)), func(o string) bool {
					return o != root && strings.HasPrefix(o, root) && strings.HasPrefix(p, o+"/")
				}) {
					continue
				}
				sum := sha256.Sum256([]byte(text))
				e := orchestrator.ManifestEntry{Path: p, Type: orchestrator.EntryFile, Mode: 0o644, Size: int64(len(text)), CTime: time.Unix(int64(sum[0])<<8|int64(sum[1]), 0)}
				if r.Hash {
					e.SHA256 = hex.EncodeToString(sum[:])
				}
				found[p] = e
			}
			for o := range g.mounts {
				if o == root || strings.HasPrefix(o, root) {
					found[o] = orchestrator.ManifestEntry{Path: o, Type: orchestrator.EntryDir, Mode: 0o755, Mount: o != root}
				}
			}
		}
		if limit := r.Limit; limit > 0 && len(found) > limit {
			return fmt.Errorf("list: %w", &orchestrator.TooManyError{Limit: limit})
		}
		m.Entries = slices.Collect(maps.Values(found))
		m.Sort()
		return nil
	})
	return m, err
}

// seen boots a lab whose guest can be looked into.
func seen(t testing.TB, w *world, edit func(*examined, *orchestrator.Config)) *lab {
	return boot(t, w, func(c *orchestrator.Config) {
		g := &examined{proc: c.Journal.(*proc), services: map[string]bool{orchestrator.ServiceSSH: true, orchestrator.ServiceAgent: true}}
		if edit != nil {
			edit(g, c)
		}
		c.Guest = g
	})
}

func checksOf(o orchestrator.Outcome) string {
	var names []string
	for _, c := range o.Checks {
		names = append(names, fmt.Sprintf("%s %t", c.Name, c.OK))
	}
	return strings.Join(names, ", ")
}

func TestGuards(t *testing.T) {
	none := func(*examined, *orchestrator.Config) {}
	protects := func(paths ...string) func(*examined, *orchestrator.Config) {
		return func(_ *examined, c *orchestrator.Config) { c.Guards.Protected = paths }
	}
	type g = orchestrator.Guard
	for _, c := range []struct {
		name   string
		edit   func(*examined, *orchestrator.Config)
		spec   orchestrator.Spec
		state  orchestrator.State
		reason string // a part of it
		checks string
	}{
		{"nothing is protected", none, orchestrator.Spec{Command: put("x", "/etc/conf"), As: policy.Root}, "committed", "", "exit true, guest true"},
		{"a protected file of root's command", protects("/etc"), orchestrator.Spec{Command: put("x", "/etc/conf"), As: policy.Root},
			"rolled-back", "protected path /etc/conf was changed (size 7 to 1, content); if that is meant", "exit true, protected false"},
		{"a new file in a protected tree", protects("/etc"), orchestrator.Spec{Command: put("x", "/etc/new"), As: policy.Root}, "rolled-back", "/etc/new was added", ""},
		{"a removed one", protects("/opt/tool"), orchestrator.Spec{Command: "rm /opt/tool", As: policy.Root}, "rolled-back", "/opt/tool was removed", ""},
		{"a neighbour with the same beginning", protects("/etc/con"), orchestrator.Spec{Command: put("x", "/etc/conf"), As: policy.Root}, "committed", "", "exit true, protected true, guest true"},
		{"unprotected", protects("/etc"), orchestrator.Spec{Command: put("x", "/etc/conf"), As: policy.Root, Guard: g{Unprotect: []string{"/etc/conf"}}}, "committed", "", ""},
		{"another is unprotected", protects("/etc"), orchestrator.Spec{Command: put("x", "/etc/conf"), As: policy.Root, Guard: g{Unprotect: []string{"/etc/con"}}}, "rolled-back", "/etc/conf", ""},
		{"the agent cannot write there", protects("/etc"), orchestrator.Spec{Command: put("x", "/workspace/a")}, "committed", "", "exit true, guest true"},
		{"the agent can", protects("/etc", "/workspace/a"), orchestrator.Spec{Command: put("x", "/workspace/a")}, "rolled-back", "/workspace/a was changed", ""},
		{"asked for by the caller", none, orchestrator.Spec{Command: put("x", "/workspace/a"), Guard: g{Protect: []string{"/workspace/a/"}}}, "rolled-back", "/workspace/a was changed", ""},
		{"a root validation breaks it", protects("/etc"), orchestrator.Spec{Command: put("x", "/workspace/a"), Validate: []orchestrator.Validation{{Command: put("x", "/etc/conf"), As: policy.Root}}},
			"rolled-back", "/etc/conf was changed", ""},
		{"kept as asked", protects("/etc"), orchestrator.Spec{Command: put("x", "/etc/conf"), As: policy.Root, OnFailure: "keep"}, "committed", "kept as asked: protected path /etc/conf", ""},
		{"only what is allowed", none, orchestrator.Spec{Command: put("x", "/workspace/out/f"), Guard: g{OnlyChange: []string{"/workspace/out"}}}, "committed", "", "exit true, unchanged true, guest true"},
		{"more than allowed", none, orchestrator.Spec{Command: put("x", "/workspace/a") + " && " + put("x", "/workspace/out/f"), Guard: g{OnlyChange: []string{"/workspace/out"}}},
			"rolled-back", "/workspace/a was changed (size 3 to 1, ctime), and only /workspace/out may change", "exit true, unchanged false"},
		{"root is watched everywhere", none, orchestrator.Spec{Command: put("x", "/opt/f"), As: policy.Root, Guard: g{OnlyChange: []string{"/workspace"}}}, "rolled-back", "/opt/f was added", ""},
		{"also what is mounted", func(e *examined, _ *orchestrator.Config) { e.mounts = map[string]bool{"/data": true, "/data/in": true} },
			orchestrator.Spec{Command: put("x", "/data/in/f"), As: policy.Root, Guard: g{OnlyChange: []string{"/workspace"}}}, "rolled-back", "/data/in/f was added", ""},
		{"but not what the guest changes", none, orchestrator.Spec{Command: put("x", "/var/log/syslog") + " && " + put("x", "/run/f"), As: policy.Root, Guard: g{OnlyChange: []string{"/workspace"}}}, "committed", "", ""},
		{"nor what is configured", func(_ *examined, c *orchestrator.Config) { c.Guards.Volatile = []string{"/srv/log"} },
			orchestrator.Spec{Command: put("x", "/srv/log/f"), As: policy.Root, Guard: g{OnlyChange: []string{"/workspace"}}}, "committed", "", ""},
		{"what is watched by name is never volatile", none, orchestrator.Spec{Command: put("x", "/var/log/f"), As: policy.Root, Guard: g{OnlyChange: []string{"/var/log/x"}, Watch: []string{"/var/log"}}},
			"rolled-back", "/var/log/f was added", ""},
		{"too many files are not kept", func(_ *examined, c *orchestrator.Config) {
			c.Guards.MaxEntries = 1
			c.Guards.AgentRoots = []string{"/workspace", "/etc"}
		},
			orchestrator.Spec{Command: put("x", "/workspace/a"), OnFailure: "keep", Guard: g{Changes: true}}, "rolled-back", "more than 1 files below /workspace, /etc; narrow", ""},
		{"too many files afterwards are not kept", func(_ *examined, c *orchestrator.Config) { c.Guards.MaxEntries = 2 },
			orchestrator.Spec{Command: put("x", "/workspace/b") + " && " + put("x", "/workspace/c"), OnFailure: "keep", Guard: g{Changes: true}}, "rolled-back", "could not be looked at after the command", ""},
		{"sshd is gone, and that is not kept", none, orchestrator.Spec{Command: put("x", "/workspace/nosshd"), OnFailure: "keep"}, "rolled-back", "sshd in the guest is gone", "exit true, guest false"},
		{"an agent that was never there", func(e *examined, _ *orchestrator.Config) { e.services = map[string]bool{orchestrator.ServiceSSH: true} },
			orchestrator.Spec{Command: put("x", "/workspace/a")}, "committed", "", ""},
		{"proved read-only: nothing to look at", protects("/workspace"), orchestrator.Spec{Command: "cat /workspace/a", Guard: g{Changes: true}}, "committed", "", "exit true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				w.files["/etc/conf"], w.files["/opt/tool"] = "shipped", "shipped"
				l := seen(t, w, c.edit)
				was := copyFiles(w.files)
				o, err := l.run(c.spec)
				if err != nil || o.State != c.state || !strings.Contains(o.Reason, c.reason) || c.reason == "" && o.Reason != "" {
					t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
				}
				if got := checksOf(o); c.checks != "" && got != c.checks {
					t.Errorf("checks %s, want %s", got, c.checks)
				}
				if c.state == "rolled-back" && c.spec.Boundary != "none" && !maps.Equal(w.files, was) {
					t.Errorf("files %v", w.files)
				}
			})
		})
	}
}

// Nobody can say what cannot be looked at: no wish to keep helps.
func TestGuardUnanswered(t *testing.T) {
	for _, call := range []string{"health", "manifest"} {
		for nth := 1; nth <= 2; nth++ {
			t.Run(fmt.Sprint(call, nth), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newWorld()
					l := seen(t, w, func(_ *examined, c *orchestrator.Config) { c.Guards.Protected = []string{"/etc"} })
					n := 0
					w.hooks[call] = func(context.Context) error {
						if n++; n == nth {
							return fmt.Errorf("no answer: %w", orchestrator.ErrUnavailable)
						}
						return nil
					}
					o, err := l.run(orchestrator.Spec{Command: put("x", "/workspace/a"), As: policy.Root, OnFailure: "keep"})
					ran := w.ran[put("x", "/workspace/a")]
					if o.State != orchestrator.StateRolledBack || w.files["/workspace/a"] != "old" || ran != nth-1 || (err == nil) != (nth == 2) {
						t.Errorf("got %s (%s), %v; ran %d times, files %v", o.State, o.Reason, err, ran, w.files)
					}
				})
			})
		}
	}
}

// A guest that cannot be looked into is not asked by default, and what was
// asked for is refused before anything is done.
func TestGuardUnsupported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w, func(c *orchestrator.Config) { c.Guards.Protected = []string{"/etc"} })
		if o, err := l.run(orchestrator.Spec{Command: put("x", "/etc/conf"), As: policy.Root}); err != nil || o.State != orchestrator.StateCommitted {
			t.Errorf("got %+v, %v", o, err)
		}
		n := len(w.records)
		var never *orchestrator.UnsupportedError
		if _, err := l.run(orchestrator.Spec{Command: put("x", "/workspace/a"), Guard: orchestrator.Guard{Changes: true}}); !errors.As(err, &never) || len(w.records) != n {
			t.Errorf("got %v, %d records more", err, len(w.records)-n)
		}
	})
}

// F76: what was wrong before is no command's fault; what it makes worse is.
func TestGuardBaseline(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name       string
		was, now   int64
		skew, more time.Duration
		state      orchestrator.State
		reason     string
	}{
		{"well", 100 * mib, 50 * mib, 0, 0, "committed", ""},
		{"filled", 100 * mib, mib, 0, 0, "rolled-back", "1048576 bytes are left on /, fewer than 16777216"},
		{"full before", 10 * mib, mib, 0, 0, "committed", ""},
		{"clock moved", 100 * mib, 100 * mib, 0, time.Hour, "rolled-back", "clock is 1h0m0.01s off"},
		{"clock moved back", 100 * mib, 100 * mib, 0, -2 * time.Second, "rolled-back", "clock is -1.99s off"},
		{"clock behind after the snapshot is set (F96)", 100 * mib, 100 * mib, -40 * time.Second, 0, "committed", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				left := c.was
				l := seen(t, w, func(e *examined, _ *orchestrator.Config) { e.free = func() int64 { return left } })
				w.hooks["create"] = func(context.Context) error { w.skew = c.skew; return nil }
				w.hooks["command"] = func(context.Context) error {
					if w.skew.Abs() > time.Second {
						t.Errorf("the command runs with a clock %s off", w.skew)
					}
					left = c.now
					w.skew += c.more
					return nil
				}
				o, err := l.run(orchestrator.Spec{Command: put("x", "/workspace/a")})
				if err != nil || o.State != c.state || !strings.Contains(o.Reason, c.reason) || c.reason == "" && o.Reason != "" {
					t.Errorf("got %s (%s), %v", o.State, o.Reason, err)
				}
			})
		})
	}
}

// F03: what a command changed is enumerated, in the record too, and capped.
func TestGuardChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := seen(t, w, nil)
		var many []string
		for i := range 250 {
			many = append(many, put("x", fmt.Sprintf("/workspace/f%03d", i)))
		}
		many = append(many, put("x", "/workspace/a"), "rm /workspace/f000")
		o, err := l.run(orchestrator.Spec{Command: strings.Join(many, " && "), Guard: orchestrator.Guard{Changes: true}})
		if err != nil || o.State != orchestrator.StateCommitted || o.ChangedCount != 250 || len(o.Changed) != 200 {
			t.Fatalf("got %s (%s), %v: %d of %d", o.State, o.Reason, err, len(o.Changed), o.ChangedCount)
		}
		if c := o.Changed[0]; c.Path != "/workspace/a" || c.Kind != orchestrator.ChangeChanged || o.Changed[1].Kind != orchestrator.ChangeAdded {
			t.Errorf("got %+v", o.Changed[:2])
		}
		tx, err := orchestrator.Show(context.Background(), l.p, o.Transaction)
		if err != nil || tx.ChangedCount != 250 || len(tx.Changed) != 200 || tx.Guard == nil || !tx.Guard.Changes {
			t.Errorf("recorded: %d of %d, %+v, %v", len(tx.Changed), tx.ChangedCount, tx.Guard, err)
		}
	})
}

// Each of several commands has its own guard; a violated one takes all back.
func TestGuardSteps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := seen(t, w, func(_ *examined, c *orchestrator.Config) {
			c.Guards.Protected = []string{"/etc"}
			c.Guards.MaxEntries = 50
		})
		x := l.begin(orchestrator.BeginSpec{As: policy.Root, OnFailure: "keep", Validate: []orchestrator.Validation{{Command: "cat /workspace/a"}}})
		o, err := x.Exec(context.Background(), orchestrator.StepSpec{Command: put("x", "/workspace/b"), Guard: orchestrator.Guard{Changes: true}})
		if err != nil || o.State != orchestrator.StateOpen || o.ChangedCount != 1 || o.Changed[0].Path != "/workspace/b" {
			t.Fatalf("got %+v, %v", o, err)
		}
		o, err = x.Exec(context.Background(), orchestrator.StepSpec{Command: put("x", "/etc/conf"), Guard: orchestrator.Guard{Unprotect: []string{"/"}}})
		if err != nil || o.State != orchestrator.StateOpen || o.Reason != "" || o.ChangedCount != 0 {
			t.Fatalf("got %+v, %v", o, err)
		}
		for i := range 60 {
			w.files[fmt.Sprint("/srv/", i)] = "x"
		}
		var refused *orchestrator.UsageError
		if _, err = x.Exec(context.Background(), orchestrator.StepSpec{Command: put("x", "/opt/f"), Guard: orchestrator.Guard{Changes: true}}); !errors.As(err, &refused) || w.files["/opt/f"] != "" {
			t.Fatalf("got %v", err)
		}
		if o, err = x.Commit(context.Background()); err != nil || o.State != orchestrator.StateCommitted {
			t.Fatalf("got %+v, %v", o, err)
		}
		y := l.begin(orchestrator.BeginSpec{As: policy.Root})
		exec(t, y, put("y", "/workspace/b"))
		o, err = y.Exec(context.Background(), orchestrator.StepSpec{Command: put("y", "/etc/conf")})
		if err != nil || o.State != orchestrator.StateRolledBack || !strings.Contains(o.Reason, "step 2: protected path /etc/conf") || w.files["/workspace/b"] != "x" {
			t.Errorf("got %s (%s), %v, %v", o.State, o.Reason, err, w.files)
		}
		if v := y.View().Commands; len(v) != 2 || v[1].ChangedCount != 1 {
			t.Errorf("recorded %+v", v)
		}
	})
}

// The process dies at every point of transactions whose guest is looked into.
func TestGuardCrashEverywhere(t *testing.T) {
	for _, s := range telling(scenarios()) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				s.spec.Guard = orchestrator.Guard{Protect: []string{"/workspace/none"}, Changes: true}
				for n := 1; !t.Failed(); n++ {
					w := newWorld()
					l := seen(t, w, nil)
					if s.grant {
						w.grant(t, "gr-1")
					}
					if s.slow {
						w.hooks["run"] = func(context.Context) error { time.Sleep(3 * time.Second); return nil }
					}
					l.p.plan = dieAt(n)
					_, _ = l.run(s.spec)
					if !l.p.gone {
						if n < 4 {
							t.Fatalf("only %d points", n)
						}
						return
					}
					settled(t, s, w, l.p.log)
				}
			})
		})
	}
}

// A request with a key is another one when it may change something else.
func TestGuardKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := seen(t, w, nil)
		s := orchestrator.Spec{Command: put("x", "/workspace/b"), Key: "k"}
		if o, err := l.run(s); err != nil || o.State != orchestrator.StateCommitted {
			t.Fatalf("got %+v, %v", o, err)
		}
		if o, err := l.run(s); err != nil || !o.Replayed {
			t.Errorf("got %+v, %v", o, err)
		}
		s.Guard.OnlyChange = []string{"/workspace/b"}
		var refused *orchestrator.UsageError
		if _, err := l.run(s); !errors.As(err, &refused) {
			t.Errorf("got %v", err)
		}
	})
}
