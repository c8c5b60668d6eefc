package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// forbidden is denied, and what the tiny shell of the world makes of it can be
// seen: the file is gone.
const forbidden = "rm -rf /workspace/a && rm -rf /"

// forbids is the rule that denies it.
func forbids(t testing.TB) string {
	t.Helper()
	v := newDecider(t).Decide(policy.Request{Command: forbidden, User: policy.Agent})
	if v.Decision != policy.Deny {
		t.Fatalf("%q is not denied: %s", forbidden, v.Rule)
	}
	return v.Rule
}

func (w *world) grant(t testing.TB, id string, edit ...func(*orchestrator.Grant)) {
	g := orchestrator.Grant{
		ID: orchestrator.GrantID(id), Sandbox: w.box.ID, Name: w.box.Name, Rules: []string{forbids(t)},
		As: policy.Agent, Made: time.Now(), Expires: time.Now().Add(10 * time.Minute),
	}.For(forbidden, nil)
	for _, f := range edit {
		f(&g)
	}
	w.grants = append(w.grants, g)
}

func used(w *world) (by []orchestrator.TxID) {
	for _, g := range w.grants {
		by = append(by, g.Used)
	}
	return by
}

// A grant lets its command through once, inside a boundary, and the record
// says what was lifted by what.
func TestGrantIsUsedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.grant(t, "gr-1")
		l := boot(t, w)
		o, err := l.run(orchestrator.Spec{Command: forbidden})
		if err != nil || o.State == orchestrator.StateDenied || o.Boundary == orchestrator.BoundaryNone {
			t.Fatalf("with a grant: %s, boundary %s, %v", o.State, o.Boundary, err)
		}
		lifted := o.Verdict.Lifted
		if len(lifted) == 0 || lifted[0].Rule != forbids(t) || lifted[0].By != "grant gr-1" {
			t.Errorf("lifted: %+v", lifted)
		}
		if diff := cmp.Diff([]orchestrator.TxID{o.Transaction}, used(w)); diff != "" {
			t.Errorf("used by (-want +got):\n%s", diff)
		}
		shown, err := orchestrator.Show(context.Background(), l.p, o.Transaction)
		if err != nil || len(shown.Verdict.Lifted) != len(lifted) {
			t.Errorf("the record says %+v, %v", shown.Verdict.Lifted, err)
		}
		if o, err = l.run(orchestrator.Spec{Command: forbidden}); err != nil || o.State != orchestrator.StateDenied {
			t.Errorf("the second time: %s, %v", o.State, err)
		}
	})
}

// What a grant is not for does not use it up.
func TestGrantIsBound(t *testing.T) {
	for name, c := range map[string]struct {
		spec  orchestrator.Spec
		grant func(*orchestrator.Grant)
		want  orchestrator.State
		err   bool
	}{
		"another command":      {spec: orchestrator.Spec{Command: forbidden + " "}, want: "denied"},
		"another account":      {spec: orchestrator.Spec{Command: forbidden, As: policy.Root}, want: "denied"},
		"another sandbox":      {spec: orchestrator.Spec{Command: forbidden}, grant: func(g *orchestrator.Grant) { g.Sandbox = "other" }, want: "denied"},
		"expired":              {spec: orchestrator.Spec{Command: forbidden}, grant: func(g *orchestrator.Grant) { g.Expires = time.Now() }, want: "denied"},
		"revoked":              {spec: orchestrator.Spec{Command: forbidden}, grant: func(g *orchestrator.Grant) { g.Revoked = time.Now() }, want: "denied"},
		"of another rule":      {spec: orchestrator.Spec{Command: forbidden}, grant: func(g *orchestrator.Grant) { g.Rules = []string{"no-such-rule"} }, want: "denied"},
		"not needed":           {spec: orchestrator.Spec{Command: overwrite}, grant: func(g *orchestrator.Grant) { *g = g.For(overwrite, nil) }, want: "committed"},
		"never a validation":   {spec: orchestrator.Spec{Command: overwrite, Validate: []orchestrator.Validation{{Command: forbidden}}}, err: true},
		"a boundary too small": {spec: orchestrator.Spec{Command: forbidden, Boundary: "none"}, err: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				if c.grant == nil {
					c.grant = func(*orchestrator.Grant) {}
				}
				w.grant(t, "gr-1", c.grant)
				o, err := boot(t, w).run(c.spec)
				if o.State != c.want || (err != nil) != c.err {
					t.Errorf("got %q, %v; want %q, an error: %t", o.State, err, c.want, c.err)
				}
				if by := used(w)[0]; by != "" {
					t.Errorf("it was used by %s", by)
				}
			})
		})
	}
}

// A grant of the transaction itself needs no store and leaves none behind.
func TestGrantOfOneTransaction(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := boot(t, newWorld())
		o, err := l.run(orchestrator.Spec{Command: forbidden, Grants: []string{forbids(t), forbids(t)}})
		if err != nil || o.State == orchestrator.StateDenied {
			t.Fatalf("%s, %v", o.State, err)
		}
		if len(o.Verdict.Lifted) == 0 || o.Verdict.Lifted[0].By != "grant tx-"+string(o.Transaction) {
			t.Errorf("lifted: %+v", o.Verdict.Lifted)
		}
		if o, err := l.run(orchestrator.Spec{Command: forbidden}); err != nil || o.State != orchestrator.StateDenied {
			t.Errorf("without it: %s, %v", o.State, err)
		}
		if n := len(l.w.records); n == 0 {
			t.Error("nothing was recorded")
		}
		before := len(l.w.records)
		for _, rule := range []string{"no-such-rule", "", "request.user"} {
			var usage *orchestrator.UsageError
			if _, err := l.run(orchestrator.Spec{Command: forbidden, Grants: []string{rule}}); !errors.As(err, &usage) {
				t.Errorf("a grant of %q: got %v, want a *UsageError", rule, err)
			}
		}
		if len(l.w.records) != before {
			t.Error("a refused grant was recorded")
		}
	})
}

// bare is a policy that has no grants.
type bare struct{ d orchestrator.Decider }

func (b bare) Decide(r policy.Request) policy.Verdict { return b.d.Decide(r) }

func TestPolicyWithoutGrants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := boot(t, newWorld(), func(c *orchestrator.Config) { c.Decider = bare{c.Decider} })
		var usage *orchestrator.UsageError
		if _, err := l.run(orchestrator.Spec{Command: overwrite, Grants: []string{forbids(t)}}); !errors.As(err, &usage) {
			t.Errorf("got %v, want a *UsageError", err)
		}
	})
}

// Between the judgement and the begin the grant is used up, revoked or runs
// out: nothing runs, and the denial is recorded.
func TestGrantIsOvertaken(t *testing.T) {
	for name, spoil := range map[string]func(*orchestrator.Grant){
		"used":    func(g *orchestrator.Grant) { g.Used = "01jx0000000000000000000oth" },
		"revoked": func(g *orchestrator.Grant) { g.Revoked = time.Now() },
		"expired": func(g *orchestrator.Grant) { g.Expires = time.Now() },
	} {
		for _, single := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/single=%t", name, single), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newWorld()
					w.grant(t, "gr-1")
					l := scenario{single: single}.boot(t, w, nil)
					l.p.plan = func(_ int, name string, after bool) error {
						if name == "status" && after {
							spoil(&w.grants[0])
						}
						return nil
					}
					o, err := l.run(orchestrator.Spec{Command: forbidden})
					if err != nil || o.State != orchestrator.StateDenied || o.Message == "" || o.Boundary != orchestrator.BoundaryNone {
						t.Errorf("got %+v, %v; want denied", o, err)
					}
					files(t, w, before())
					if w.ran[forbidden] != 0 || w.counts["create"] != 0 {
						t.Errorf("it ran %d times under %d snapshots", w.ran[forbidden], w.counts["create"])
					}
					if o, err := l.run(orchestrator.Spec{Command: overwrite}); err != nil || o.State != orchestrator.StateCommitted {
						t.Errorf("afterwards: %s, %v", o.State, err)
					}
				})
			})
		}
	}
}

// Another grant came while the first was lost: nothing runs on its strength
// without being asked for.
func TestGrantIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.grant(t, "gr-1")
		l := boot(t, w)
		l.p.plan = func(_ int, name string, after bool) error {
			if name == "status" && after && len(w.grants) == 1 {
				w.grants[0].Revoked = time.Now()
				w.grant(t, "gr-2")
			}
			return nil
		}
		if _, err := l.run(orchestrator.Spec{Command: forbidden}); !errors.Is(err, orchestrator.ErrDenied) || w.ran[forbidden] != 0 {
			t.Errorf("got %v, ran %d times", err, w.ran[forbidden])
		}
		o, err := l.run(orchestrator.Spec{Command: forbidden})
		if err != nil || o.State == orchestrator.StateDenied || w.grants[1].Used != o.Transaction {
			t.Errorf("asked again: %s, %v, %v", o.State, err, used(w))
		}
	})
}

// The process dies at every point of a transaction with a grant, the one that
// recovers at every point of the recovery. A grant is used if and only if its
// transaction was begun, and never by a second one.
func TestCrashWithGrant(t *testing.T) {
	for _, single := range []bool{false, true} {
		for _, b := range []orchestrator.Boundary{"workspace", "disk", "machine"} {
			s := scenario{spec: orchestrator.Spec{Command: forbidden, Boundary: b}, single: single}
			t.Run(fmt.Sprintf("%s/single=%t", b, single), func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) {
					for n := 1; ; n++ {
						for m := 1; ; m++ {
							w := newWorld()
							w.grant(t, "gr-1")
							first := s.boot(t, w, dieAt(n))
							_, _ = first.run(s.spec)
							if !first.p.gone {
								if n < 6 {
									t.Fatalf("only %d points", n)
								}
								return
							}
							second := s.boot(t, w, dieAt(m))
							_, _ = second.e.Recover(context.Background())
							usedWhenBegun(t, w, fmt.Sprintf("crashes %d and %d", n, m))
							third := s.boot(t, w, nil)
							if _, err := third.e.Recover(context.Background()); err != nil {
								t.Fatalf("crashes %d and %d: recover: %v", n, m, err)
							}
							again, err := third.run(s.spec)
							if err != nil {
								t.Fatalf("crashes %d and %d: once more: %v", n, m, err)
							}
							usedWhenBegun(t, w, fmt.Sprintf("crashes %d and %d, once more", n, m))
							if w.ran[forbidden] > 1 || (again.State == orchestrator.StateDenied) == (w.grants[0].Used == again.Transaction) {
								t.Errorf("crashes %d and %d: ran %d times, at last %s, grant used by %q", n, m, w.ran[forbidden], again.State, w.grants[0].Used)
							}
							if !second.p.gone || t.Failed() {
								break
							}
						}
						if t.Failed() {
							return
						}
					}
				})
			})
		}
	}
}

// usedWhenBegun checks what is on disk.
func usedWhenBegun(t *testing.T, w *world, when string) {
	t.Helper()
	var begun []orchestrator.TxID
	for _, r := range w.records {
		if r.Event == "begin" && strings.Contains(string(r.Data), "grant gr-1") {
			begun = append(begun, r.Tx)
		}
	}
	switch by := w.grants[0].Used; {
	case len(begun) > 1:
		t.Errorf("%s: begun with one grant: %v", when, begun)
	case len(begun) == 0 && by != "", len(begun) == 1 && by != begun[0]:
		t.Errorf("%s: begun %v, the grant is used by %q", when, begun, by)
	}
}
