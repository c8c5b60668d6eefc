package sim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// What a caller relies on who comes back after a crash.
const (
	repeated = "a request that comes again with its key has the first one's result and no second effect"
	spent    = "a grant is spent by what it lifted and lifts one command"
	sessions = "a command begins where the session is"
	told     = "a scenario does what it is there for"
)

// promises are scenarios whose callers come back.
func promises() (all []scenario) {
	for _, b := range boundaries {
		all = append(all, keyed(b), guarded(b))
	}
	all = append(all, keyedFails(), keyedSteps("workspace"), keyedSteps("disk"), moves(), movesInSteps("workspace"), movesInSteps("machine"),
		granted(), grantedSteps("disk"), guardedOnly(), guardedSteps(), guardedRoot(), kept(), lazyRollback("workspace"), lazyRollback("machine"))
	return all
}

// logs adds to a file: what was done twice can be seen.
func logs(b orchestrator.Boundary, rest string) orchestrator.Spec {
	return orchestrator.Spec{Command: "echo once, >> /workspace/log && echo done" + rest, Boundary: b, Key: "the-run"}
}

func keyed(b orchestrator.Boundary) scenario {
	s := logs(b, "")
	return scenario{
		name: string(b) + "-key", do: func(ctx context.Context, l *lab) { l.run(ctx, s) },
		again: func(ctx context.Context, l *lab) { l.repeat(ctx, s) }, ends: []orchestrator.State{orchestrator.StateCommitted},
	}
}

func keyedFails() scenario {
	s := logs("disk", " && rm /workspace/none")
	return scenario{
		name: "disk-key-fail", do: func(ctx context.Context, l *lab) { l.run(ctx, s) },
		again: func(ctx context.Context, l *lab) { l.repeat(ctx, s) }, ends: []orchestrator.State{orchestrator.StateRolledBack},
	}
}

// repeat asks again for what was asked for, and compares.
func (l *lab) repeat(ctx context.Context, s orchestrator.Spec) {
	s.Sandbox = l.boxes[0]
	first, used := l.byKey(ctx, s.Key)
	began := l.c.Runs(s.Sandbox)[s.Command]
	o, err := l.e.Run(ctx, s)
	l.tell(o, err)
	switch runs := l.c.Runs(s.Sandbox)[s.Command]; {
	case err != nil:
		l.finding(repeated, "the first is %s, %s; the second: %v", first.ID, first.State, err)
	case !used && (o.Replayed || !o.State.Final()):
		l.finding(repeated, "nobody has the key and the answer is %s (replayed: %t)", o.State, o.Replayed)
	case used && (!o.Replayed || o.Transaction != first.ID || o.State != first.State || runs != began || !sameResult(o, first.Result)):
		l.finding(repeated, "the first is %s, %s, %+v; the second ran %d times and is %+v", first.ID, first.State, first.Result, runs-began, o)
	}
	want := 0
	if o.State == orchestrator.StateCommitted {
		want = 1
	}
	l.wantLog(strings.Repeat("once,", want))
	other := s
	other.Command = "echo other >> /workspace/log"
	l.refuses(l.e.Run(ctx, other))
}

func sameResult(o orchestrator.Outcome, r *orchestrator.RanView) bool {
	if r == nil || o.ExitCode == nil {
		return r == nil && o.ExitCode == nil
	}
	return *o.ExitCode == r.Exit && o.Stdout == r.Stdout
}

// byKey is the transaction that has the key.
func (l *lab) byKey(ctx context.Context, key string) (t orchestrator.Transaction, used bool) {
	id, used, err := l.disk.ByKey(ctx, l.boxes[0].ID, key)
	if err == nil && used {
		t, err = orchestrator.Show(ctx, l.disk, id)
	}
	if err != nil {
		l.finding(repeated, "look for key %s: %v", key, err)
	}
	return t, used
}

func (l *lab) wantLog(want string) {
	if got := l.c.Files(l.boxes[0])["/workspace/log"]; got != want {
		l.finding(repeated, "the log holds %q instead of %q", got, want)
	}
}

// refuses is for the answer to another request with a key that is used.
func (l *lab) refuses(o orchestrator.Outcome, err error) {
	var usage *orchestrator.UsageError
	if !errors.As(err, &usage) || !strings.Contains(usage.What, "another request") {
		l.finding(repeated, "another request with the same key: %s, %v", o.State, err)
	}
}

// keyedSteps gives every order a key, so that a caller who comes back gives
// them all again and does not ask what became of the first ones.
func keyedSteps(b orchestrator.Boundary) scenario {
	give := func(ctx context.Context, l *lab) (*orchestrator.Tx, []orchestrator.Outcome) {
		x, err := l.e.Begin(ctx, orchestrator.BeginSpec{Sandbox: l.boxes[0], Boundary: b, Key: "the-begin"})
		if err != nil {
			return nil, nil
		}
		var outs []orchestrator.Outcome
		for i := range 2 {
			o, err := x.Exec(ctx, orchestrator.StepSpec{Command: fmt.Sprintf("echo %d, >> /workspace/log && echo did-%d", i+1, i+1), Key: fmt.Sprint("step-", i+1)})
			if err != nil {
				return x, outs
			}
			outs = append(outs, o)
		}
		if o, err := x.Commit(ctx); err == nil {
			l.tell(o, nil)
			l.ends = append(l.ends, o.State)
		}
		return x, outs
	}
	return scenario{
		name: string(b) + "-key-several", ends: []orchestrator.State{orchestrator.StateCommitted},
		do: func(ctx context.Context, l *lab) {
			if x, _ := give(ctx, l); x != nil {
				_ = x.Close(ctx)
			}
		},
		again: func(ctx context.Context, l *lab) {
			first, used := l.byKey(ctx, "the-begin")
			x, outs := give(ctx, l)
			if x == nil {
				l.finding(repeated, "the begin, which is %s: no answer", first.State)
				return
			}
			now := x.View()
			if used && now.ID != first.ID {
				l.finding(repeated, "the begin is of %s and not of %s", now.ID, first.ID)
			}
			for i, o := range outs {
				ran := i < len(first.Commands)
				if o.Replayed != ran || o.Step != i+1 || ran && !sameResult(o, first.Commands[i].Result) {
					l.finding(repeated, "step %d of %s, which had %d steps, is %+v", i+1, now.ID, len(first.Commands), o)
				}
			}
			want := ""
			for _, part := range []string{"1,", "2,"} {
				did := func(c orchestrator.CommandView) bool { return strings.Contains(c.Command, part) && c.Result != nil }
				if now.State == orchestrator.StateCommitted && slices.ContainsFunc(now.Commands, did) {
					want += part
				}
			}
			l.wantLog(want)
			if !now.State.Final() {
				l.finding(repeated, "the transaction is %s (%s) after all was asked for again", now.State, now.Reason)
			}
			if len(now.Commands) > 0 {
				l.refuses(x.Exec(ctx, orchestrator.StepSpec{Command: "echo other >> /workspace/log", Key: "step-1"}))
			}
			run := logs(b, "")
			run.Sandbox, run.Key = l.boxes[0], "the-begin"
			l.refuses(l.e.Run(ctx, run))
			_ = x.Close(ctx)
		},
	}
}

// moves changes the session, with a commit and with a rollback.
func moves() scenario {
	return scenario{
		name: "workspace-session", again: whereAmI, ends: []orchestrator.State{orchestrator.StateCommitted, orchestrator.StateRolledBack},
		do: func(ctx context.Context, l *lab) {
			l.run(ctx, orchestrator.Spec{Command: "cd /workspace/x && export LEVEL=one && echo one > /workspace/one", Session: true})
			l.run(ctx, orchestrator.Spec{Command: "cd /workspace/bad && export LEVEL=bad && rm /workspace/none", Session: true})
		},
	}
}

// movesInSteps changes it within a transaction, and goes back to a savepoint.
func movesInSteps(b orchestrator.Boundary) scenario {
	return scenario{name: string(b) + "-session-several", again: whereAmI, do: func(ctx context.Context, l *lab) {
		l.run(ctx, orchestrator.Spec{Command: "cd /workspace/x && export LEVEL=zero", Boundary: b, Session: true})
		x, err := l.e.Begin(ctx, orchestrator.BeginSpec{Sandbox: l.boxes[0], Boundary: b, Session: true})
		if err != nil {
			return
		}
		err = orders(ctx, x, "exec cd /workspace/y && export LEVEL=one", "save s1 workspace", "exec cd /workspace/z && export LEVEL=two && export MORE=three", "back s1")
		if err == nil {
			l.tell(x.Commit(ctx))
		}
	}}
}

// whereAmI asks the shell where it begins, in the open transaction if there is
// one, and compares with the story that the journal tells.
func whereAmI(ctx context.Context, l *lab) {
	want := l.check.Left(l.boxes[0].ID).Shells[policy.Agent]
	text := fmt.Sprintf("%s\n%s\n%s\n", want.Dir, want.Env["LEVEL"], want.Env["MORE"])
	const ask = "pwd && printenv LEVEL && printenv MORE"
	var o orchestrator.Outcome
	var err error
	if i := slices.IndexFunc(l.check.Views, func(t view) bool { return t.State == orchestrator.StateOpen }); i >= 0 {
		var x *orchestrator.Tx
		if x, err = l.e.Resume(ctx, l.check.Views[i].ID); err == nil {
			o, err = x.Exec(ctx, orchestrator.StepSpec{Command: ask})
			err = joined(err, x.Close(ctx))
		}
	} else {
		o, err = l.e.Run(ctx, orchestrator.Spec{Sandbox: l.boxes[0], Command: ask, Session: true})
		l.tell(o, err)
	}
	if err != nil || o.Stdout != text {
		l.finding(sessions, "it begins in %q instead of %q, %v", o.Stdout, text, err)
	}
}

const (
	theGrant = "gr-1"
	pushes   = "echo pushed, >> /workspace/log && git push"
)

func giveGrant(l *lab) {
	err := l.disk.PutGrant(context.Background(), orchestrator.Grant{
		ID: theGrant, Sandbox: l.boxes[0].ID, Rules: []string{"external.git-push"}, As: policy.Agent,
		Made: time.Now(), Expires: time.Now().Add(24 * 365 * time.Hour),
	}.For(pushes, nil))
	if err != nil {
		panic(err)
	}
}

// granted runs what one grant lifts, twice.
func granted() scenario {
	s := orchestrator.Spec{Command: pushes}
	return scenario{
		name: "workspace-grant", prepare: giveGrant, ends: []orchestrator.State{orchestrator.StateCommitted, orchestrator.StateDenied},
		do: func(ctx context.Context, l *lab) { l.run(ctx, s); l.run(ctx, s) },
		again: func(ctx context.Context, l *lab) {
			l.wantGrant(ctx)
			l.run(ctx, s)
			if o := l.run(ctx, s); o.State != orchestrator.StateDenied {
				l.finding(spent, "once more: %s (%s)", o.State, o.Reason)
			}
			l.wantGrant(ctx)
		},
	}
}

func grantedSteps(b orchestrator.Boundary) scenario {
	return scenario{
		name: string(b) + "-grant-several", prepare: giveGrant,
		do: func(ctx context.Context, l *lab) {
			x, err := l.e.Begin(ctx, orchestrator.BeginSpec{Sandbox: l.boxes[0], Boundary: b, Bound: true})
			if err != nil {
				return
			}
			if orders(ctx, x, "exec "+pushes) == nil {
				if o, err := x.Exec(ctx, orchestrator.StepSpec{Command: pushes}); err == nil && o.State != orchestrator.StateDenied {
					l.finding(spent, "the second step: %s (%s)", o.State, o.Reason)
				}
				l.tell(x.Commit(ctx))
			}
		},
		again: func(ctx context.Context, l *lab) {
			l.wantGrant(ctx)
			l.run(ctx, orchestrator.Spec{Command: pushes, Boundary: b})
			l.wantGrant(ctx)
		},
	}
}

// wantGrant compares the grant with the records that say it was used, and with
// the commands that ran.
func (l *lab) wantGrant(ctx context.Context) {
	views, err := orchestrator.List(ctx, l.disk, orchestrator.Filter{})
	open, oerr := l.disk.OpenGrants(ctx, l.boxes[0].ID, time.Now())
	if err = joined(err, oerr); err != nil {
		l.finding(spent, "%v", err)
		return
	}
	lifted := 0
	count := func(j orchestrator.Judgement) {
		for _, lift := range j.Lifted {
			if id, ok := orchestrator.GrantOf(lift); ok && id == theGrant {
				lifted++
			}
		}
	}
	for _, t := range views {
		count(t.Verdict)
		for _, c := range t.Commands {
			count(c.Verdict)
		}
	}
	runs := l.c.Runs(l.boxes[0])[pushes]
	if lifted > 1 || runs > lifted || len(open) != 1-lifted {
		l.finding(spent, "%d records say that it lifted something, %d commands ran, %d grants are open", lifted, runs, len(open))
	}
}

// guarded damages what is protected.
func guarded(b orchestrator.Boundary) scenario {
	s := orchestrator.Spec{Command: "echo new > /workspace/a && echo bad > /workspace/keep", Boundary: b, Guard: orchestrator.Guard{Protect: []string{"/workspace/keep"}}}
	return scenario{name: string(b) + "-guard", do: func(ctx context.Context, l *lab) { l.run(ctx, s) }, ends: []orchestrator.State{orchestrator.StateRolledBack}}
}

// kept changes only what it may.
func kept() scenario {
	return scenario{name: "workspace-guard-kept", do: func(ctx context.Context, l *lab) { l.run(ctx, behaves()) }, ends: []orchestrator.State{orchestrator.StateCommitted}}
}

func behaves() orchestrator.Spec {
	return orchestrator.Spec{Command: "echo new > /workspace/a", Guard: orchestrator.Guard{Protect: []string{"/workspace/keep"}, OnlyChange: []string{"/workspace/a"}}}
}

func guardedOnly() scenario {
	s := orchestrator.Spec{Command: "echo new > /workspace/a && rm /workspace/keep", Guard: orchestrator.Guard{OnlyChange: []string{"/workspace/a"}}}
	return scenario{name: "workspace-guard-only", do: func(ctx context.Context, l *lab) { l.run(ctx, s) }, ends: []orchestrator.State{orchestrator.StateRolledBack}}
}

func guardedRoot() scenario {
	s := orchestrator.Spec{Command: "echo bad > /etc/conf", As: policy.Root, Boundary: "disk", Guard: orchestrator.Guard{Protect: []string{"/etc"}},
		Validate: []orchestrator.Validation{{Command: "cat /workspace/a"}}}
	return scenario{name: "root-guard", do: func(ctx context.Context, l *lab) { l.run(ctx, s) }, ends: []orchestrator.State{orchestrator.StateRolledBack}}
}

// guardedSteps damages in the last of several steps.
func guardedSteps() scenario {
	return scenario{name: "machine-guard-several", do: func(ctx context.Context, l *lab) {
		x, err := l.e.Begin(ctx, orchestrator.BeginSpec{Sandbox: l.boxes[0], Boundary: "machine"})
		if err != nil || orders(ctx, x, "exec echo one > /workspace/one") != nil {
			return
		}
		o, err := x.Exec(ctx, orchestrator.StepSpec{Command: "echo bad > /workspace/keep", Guard: orchestrator.Guard{Protect: []string{"/workspace/keep"}}})
		l.ends = append(l.ends, o.State)
		l.tell(o, err)
	}, ends: []orchestrator.State{orchestrator.StateRolledBack}}
}

// lazyRollback is on a cluster whose first rollback of every process does
// nothing and says that it did. F21, F27.
func lazyRollback(b orchestrator.Boundary) scenario {
	s := single(b)["fail"]
	return scenario{
		name: string(b) + "-lazy-rollback", do: func(ctx context.Context, l *lab) { l.run(ctx, s) }, ends: []orchestrator.State{orchestrator.StateRolledBack},
		wrap: func(_ *lab, c *orchestrator.Config) { c.Snapshotters[b] = &lazy{Snapshotter: c.Snapshotters[b]} },
	}
}

type lazy struct {
	orchestrator.Snapshotter
	awake bool
}

func (d *lazy) Rollback(ctx context.Context, r orchestrator.SnapshotRequest) error {
	if !d.awake {
		d.awake = true
		return nil
	}
	return d.Snapshotter.Rollback(ctx, r)
}
