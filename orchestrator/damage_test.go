package orchestrator_test

import (
	"context"
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

// wrecker is a guest in which a command does what a test says, whatever its
// text, and which notes what reached it and what was on the cluster then.
type wrecker struct {
	*proc
	does func(files map[string]string)
	exit int

	sent  []string
	under []orchestrator.SnapshotName // the snapshot that the VM descended from
}

func (x *wrecker) Run(ctx context.Context, sb orchestrator.Sandbox, p policy.Permit, r orchestrator.ExecRequest) (orchestrator.ExecResult, error) {
	x.sent, x.under = append(x.sent, p.Command()), append(x.under, x.w.parent)
	if strings.HasPrefix(p.Command(), "cat ") { // a validation
		return x.proc.Run(ctx, sb, p, r)
	}
	if !p.Valid() {
		return orchestrator.ExecResult{}, fmt.Errorf("no permit: %w", orchestrator.ErrDenied)
	}
	x.does(x.w.files)
	return orchestrator.ExecResult{ExitCode: x.exit, Duration: time.Millisecond}, nil
}

// repository is what agents have destroyed for others: history, staged and
// unstaged work, what no version control knows, and what lies beside it.
func repository() map[string]string {
	return map[string]string{
		"/workspace/.git/refs/heads/main": "c2", "/workspace/.git/refs/heads/topic": "c3", "/workspace/.git/refs/stash": "c4",
		"/workspace/.git/logs/HEAD": "c1 c2", "/workspace/.git/index": "staged",
		"/workspace/.gitignore": ".env", "/workspace/.env": "secret", "/workspace/src/tracked": "edited", "/workspace/src/untracked": "24 of them",
		"/workspace/arbeitsdaten/backup/1": "30 h of work", "/home/agent/.pi/settings": "mine", "/var/lib/postgresql/dev": "rows",
		"/opt/projects/a": "the whole desktop",
	}
}

func without(prefixes ...string) func(map[string]string) {
	return func(files map[string]string) {
		maps.DeleteFunc(files, func(p, _ string) bool {
			return slices.ContainsFunc(prefixes, func(pre string) bool { return strings.HasPrefix(p, pre) })
		})
	}
}

func set(pairs ...string) func(map[string]string) {
	return func(files map[string]string) {
		for i := 0; i < len(pairs); i += 2 {
			files[pairs[i]] = pairs[i+1]
		}
	}
}

func both(fs ...func(map[string]string)) func(map[string]string) {
	return func(files map[string]string) {
		for _, f := range fs {
			f(files)
		}
	}
}

type mishap struct {
	name, command string
	as            policy.User
	does          func(map[string]string)
}

// mishaps are commands that destroyed somebody's work, with what they did.
func mishaps() []mishap {
	const git = "/workspace/.git/"
	unstaged := set("/workspace/src/tracked", "as committed", git+"index", "")
	untracked := without("/workspace/src/untracked")
	return []mishap{
		{"F01 a symlink was meant", "rm -rf ~/.pi", policy.Agent, without("/home/agent/.pi/")},
		{"F02 removed before it was moved", "rm -rf src && mv new src", policy.Agent, without("/workspace/src/")},
		{"F04 called an info check", "rm -rf arbeitsdaten/backup", policy.Agent, without("/workspace/arbeitsdaten/")},
		{"F06 everything of the project", "rm -rf /opt/projects", policy.Root, without("/opt/projects/")},
		{"F07 recovered by removing", "sh build.sh || rm -rf arbeitsdaten", policy.Agent, without("/workspace/arbeitsdaten/")},
		{"F08 a commit less", "git reset --hard HEAD~1", policy.Agent, both(unstaged, set(git+"refs/heads/main", "c1"))},
		{"F09 unstaged changes", "git reset --hard", policy.Agent, unstaged},
		{"F09 checkout", "git checkout -- .", policy.Agent, unstaged},
		{"F09 clean", "git clean -fdx", policy.Agent, both(untracked, without("/workspace/.env"))},
		{"F09 stash drop", "git stash drop", policy.Agent, without(git + "refs/stash")},
		{"F09 branch -D", "git branch -D topic", policy.Agent, without(git + "refs/heads/topic")},
		{"F12 a database in the VM", "sudo -u postgres dropdb dev", policy.Root, without("/var/lib/postgresql/")},
		{"F13 a clean repository", "git add -A && git commit -m clean && git clean -fd", policy.Agent, both(untracked, set(git+"refs/heads/main", "c5", git+"index", ""))},
		{"F16 clean without its ignore list", "git checkout HEAD -- .gitignore && git clean -fd", policy.Agent, both(untracked, set("/workspace/.gitignore", ""), without("/workspace/.env"))},
	}
}

// F01 F02 F04 F06 F07 F08 F09 F12 F13 F16: whatever the caller calls it, a
// command that destroys reaches the guest under a snapshot of its own only.
// Whether it fails, is found out by a validation, or is taken back by the caller
// with one call, everything is there again, files that no version control knows
// included, with nothing added; and nothing but the command itself ever ran in
// the guest: to put things right is not left to another command.
func TestDamageIsCovered(t *testing.T) {
	endings := map[string]func(l *lab, x *wrecker, m mishap) (orchestrator.Outcome, error){
		"fails": func(l *lab, x *wrecker, m mishap) (orchestrator.Outcome, error) {
			x.exit = 1
			return l.run(orchestrator.Spec{Command: m.command, As: m.as, By: "info check"})
		},
		"is found out": func(l *lab, _ *wrecker, m mishap) (orchestrator.Outcome, error) {
			return l.run(orchestrator.Spec{Command: m.command, As: m.as, Validate: []orchestrator.Validation{{Command: "cat /workspace/none"}}})
		},
		"is taken back": func(l *lab, _ *wrecker, m mishap) (orchestrator.Outcome, error) {
			x := l.begin(orchestrator.BeginSpec{As: m.as, By: "read-only"})
			if o, err := x.Exec(context.Background(), orchestrator.StepSpec{Command: m.command}); err != nil || o.State != orchestrator.StateOpen {
				return o, err
			}
			if maps.Equal(l.w.files, repository()) {
				l.t.Error("nothing was damaged")
			}
			return x.Rollback(context.Background(), "")
		},
	}
	for _, m := range mishaps() {
		for ending, run := range endings {
			for _, volume := range []string{"", "tank/dev"} { // without and with a workspace of its own
				t.Run(fmt.Sprintf("%s/%s/volume=%t", m.name, ending, volume != ""), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						w := newWorld()
						w.files, w.box.Workspace = repository(), volume
						x := &wrecker{does: m.does}
						l := boot(t, w, func(c *orchestrator.Config) { x.proc = c.Executor.(*proc); c.Executor = x })
						o, err := run(l, x, m)
						if err != nil || o.State != orchestrator.StateRolledBack {
							t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
						}
						if len(x.sent) == 0 || x.sent[0] != m.command || slices.ContainsFunc(x.sent[1:], func(s string) bool { return s != "cat /workspace/none" }) {
							t.Errorf("what ran in the guest: %q", x.sent)
						}
						if want := orchestrator.SnapshotOf(o.Transaction); x.under[0] != want {
							t.Errorf("it ran in a state that descends from %s, not from %s", x.under[0], want)
						}
						if m.as == policy.Root && o.Boundary != orchestrator.BoundaryMachine {
							t.Errorf("root ran in boundary %s", o.Boundary)
						}
						files(t, w, repository())
					})
				})
			}
		}
	}
}

// F01 F03 F06: what takes away the account's or the system's own ground is
// denied, however it is spelled, whoever runs it, and also by callers who keep
// everything. It does not reach the guest, and no other spelling does.
func TestDamageIsDenied(t *testing.T) {
	for _, command := range []string{
		"rm -rf ~", "rm -rf /home/agent", "cd / && rm -rf *", "ln -s / x; rm -rf x/", "find / -delete", "sh -c 'rm -rf /'",
		"env rm -rf /", "/bin/rm -r -f /", "busybox rm -rf /", "x=/; rm -rf $x", "rm -rf /workspace/../..",
	} {
		for _, as := range []policy.User{policy.Agent, policy.Root} {
			t.Run(command+" "+string(as), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newWorld()
					w.files = repository()
					x := &wrecker{does: without("/")}
					l := boot(t, w, func(c *orchestrator.Config) { x.proc = c.Executor.(*proc); c.Executor = x })
					o, err := l.run(orchestrator.Spec{Command: command, As: as, OnFailure: orchestrator.OnFailureKeep, Boundary: "machine"})
					if err != nil || o.State != orchestrator.StateDenied || len(x.sent) != 0 {
						t.Errorf("got %s by %s, %v; sent %q", o.State, o.Verdict.Rule, err, x.sent)
					}
					files(t, w, repository())
				})
			})
		}
	}
}

// F03 F10: a loss can be counted, and so can what an undo took away: the record
// of a transaction that was rolled back has what its command had done.
func TestDamageIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		for i := range 300 {
			w.files[fmt.Sprintf("/workspace/project/%03d", i)] = "x"
		}
		before := copyFiles(w.files)
		x := &wrecker{does: both(without("/workspace/project/"), set("/workspace/left", "by it"))}
		l := seen(t, w, func(_ *examined, c *orchestrator.Config) { x.proc = c.Executor.(*proc); c.Executor = x })
		o, err := l.run(orchestrator.Spec{
			Command: "rmdir /s project", Guard: orchestrator.Guard{Changes: true}, Validate: []orchestrator.Validation{{Command: "cat /workspace/project/000"}},
		})
		if err != nil || o.State != orchestrator.StateRolledBack {
			t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
		}
		files(t, w, before)

		// Its validation ended it before the files were compared; the caller who
		// keeps failures gets the whole count, and can take it back with it.
		y := l.begin(orchestrator.BeginSpec{OnFailure: orchestrator.OnFailureKeep})
		o, err = y.Exec(context.Background(), orchestrator.StepSpec{Command: "rmdir /s project", Guard: orchestrator.Guard{Changes: true}})
		if err != nil || o.State != orchestrator.StateOpen || o.ChangedCount != 301 || o.Changed[0].Path != "/workspace/left" || o.Changed[1].Kind != orchestrator.ChangeRemoved {
			t.Fatalf("got %s (%s), %d changes, %v", o.State, o.Reason, o.ChangedCount, err)
		}
		if o, err = y.Rollback(context.Background(), ""); err != nil || o.State != orchestrator.StateRolledBack {
			t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
		}
		files(t, w, before)
		v, err := orchestrator.Show(context.Background(), l.p, o.Transaction)
		if err != nil || len(v.Commands) != 1 || v.Commands[0].ChangedCount != 301 {
			t.Errorf("the record of what was undone: %+v, %v", v.Commands, err)
		}
	})
}

// F11 F12: what changes something outside is denied and does not reach the
// guest, and the record says that no rollback would have undone it. An operator
// can let one exact command through, once: it runs inside a boundary, and the
// record still says so.
func TestDamageOutside(t *testing.T) {
	for _, command := range []string{
		"npx prisma db push --accept-data-loss",
		"DATABASE_URL=postgres://u@db.example.com/prod npx prisma db push --accept-data-loss",
		"npx prisma migrate reset --force",
		"psql postgres://u@db.example.com/prod -c 'drop table users'",
		"mysql -h db.example.com -e 'drop database x'",
		"curl -X DELETE https://api.example.com/users",
	} {
		t.Run(command, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				x := &wrecker{does: func(map[string]string) {}}
				l := boot(t, w, func(c *orchestrator.Config) { x.proc = c.Executor.(*proc); c.Executor = x })
				lost := func(o orchestrator.Outcome) {
					t.Helper()
					v, err := orchestrator.Show(context.Background(), l.p, o.Transaction)
					outside := slices.ContainsFunc(v.Verdict.Effects, func(e policy.Effect) bool { return e.Locus == policy.External && !e.Reversible })
					if err != nil || v.Verdict.Recoverable || !outside {
						t.Errorf("the record says recoverable %t, effects %+v, %v", v.Verdict.Recoverable, v.Verdict.Effects, err)
					}
				}
				o, err := l.run(orchestrator.Spec{Command: command, OnFailure: orchestrator.OnFailureKeep})
				if err != nil || o.State != orchestrator.StateDenied || len(x.sent) != 0 {
					t.Fatalf("got %s by %s, %v; sent %q", o.State, o.Verdict.Rule, err, x.sent)
				}
				lost(o)
				rules := []string{o.Verdict.Rule}
				for range 3 { // a command may meet more than one rule
					w.grants = nil
					w.grant(t, "gr-1", func(g *orchestrator.Grant) { *g = g.For(command, nil); g.Rules = rules })
					if o, err = l.run(orchestrator.Spec{Command: command}); err != nil || o.State != orchestrator.StateDenied {
						break
					}
					rules = append(rules, o.Verdict.Rule)
				}
				if err != nil || o.State != orchestrator.StateCommitted || o.Boundary == orchestrator.BoundaryNone || len(o.Verdict.Lifted) == 0 {
					t.Fatalf("with a grant for %q: %s by %s in %s, %v", rules, o.State, o.Verdict.Rule, o.Boundary, err)
				}
				lost(o)
				if o, err := l.run(orchestrator.Spec{Command: command}); err != nil || o.State != orchestrator.StateDenied || len(x.sent) != 1 {
					t.Errorf("a second time: %s, %v; sent %q", o.State, err, x.sent)
				}
			})
		})
	}
}

// F14: a sandbox with work that is not settled is not given to whoever destroys
// or resets it, nor is the work forgotten, in this process or the next. What
// lets it go is to end the transaction, or to have seen that it is stuck.
func TestUnsettledWorkIsKept(t *testing.T) {
	ctx := context.Background()
	refused := func(t *testing.T, l *lab, x orchestrator.TxID) {
		t.Helper()
		for _, l := range []*lab{l, boot(t, l.w)} {
			for _, what := range []string{"destroy", "reset", "release"} {
				if _, err := l.e.Hold(ctx, l.w.box, what); !errors.Is(err, orchestrator.ErrBusy) || !strings.Contains(err.Error(), string(x)) {
					t.Errorf("%s: %v; want it refused with the transaction's name", what, err)
				}
			}
		}
	}
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		x := l.begin(orchestrator.BeginSpec{Boundary: "disk"})
		exec(t, x, put("twelve", "/workspace/dirty"))
		id := x.View().ID
		refused(t, l, id)
		_ = x.Close(ctx)
		refused(t, l, id)
		if err := boot(t, w).e.Forget(ctx, w.box.ID); !errors.Is(err, orchestrator.ErrBusy) {
			t.Errorf("forget: %v", err)
		}
		l = boot(t, w)
		x, err := l.e.Resume(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		commit(t, x)
		files(t, w, map[string]string{"/workspace/a": "old", "/workspace/dirty": "twelve"})
		release, err := l.e.Hold(ctx, w.box, "destroy")
		if err != nil {
			t.Fatalf("after the commit: %v", err)
		}
		release()

		w.hooks["rollback"] = func(context.Context) error { w.key = "ssh-ed25519 BBBB"; return nil }
		o, err := l.run(root)
		if err != nil || o.State != orchestrator.StateStuck {
			t.Fatalf("got %s (%s), %v", o.State, o.Reason, err)
		}
		refused(t, l, o.Transaction)
		var stuck *orchestrator.StuckError
		if _, err := l.e.Hold(ctx, w.box, "destroy"); !errors.As(err, &stuck) {
			t.Errorf("a stuck one: %v; want what tells it from one that is merely open", err)
		}
	})
}
