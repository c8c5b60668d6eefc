package orchestrator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"savepoint/policy"
)

// Run runs one transaction and returns how it ended. A denied, failed or
// rolled back command is an Outcome without an error. An error says that the
// command did not run, or that the engine does not know; then Outcome.State
// tells what is known. *UsageError means that nothing was done or recorded.
//
// When ctx ends before the commit point the transaction is rolled back, with
// a deadline of its own, and the Outcome says Interrupted.
func (e *Engine) Run(ctx context.Context, s Spec) (Outcome, error) {
	if err := e.load(ctx); err != nil {
		return Outcome{}, err
	}
	s, err := s.normal(e.c.Deadlines.Command)
	if err != nil {
		return Outcome{}, err
	}
	if err := usable(s.Sandbox); err != nil {
		return Outcome{}, err
	}
	if err := ctx.Err(); err != nil {
		return Outcome{Interrupted: true}, fmt.Errorf("run in sandbox %s: %w: %w", s.Sandbox.Name, ErrUnavailable, err)
	}
	t := e.newTx(s)
	if err := t.judge(); err != nil {
		return Outcome{}, err
	}
	if t.verdict.Decision == policy.Deny {
		return t.deny(ctx)
	}
	if t.boundary, err = e.choose(s, t.cover()); err != nil {
		return Outcome{}, err
	}
	release, err := e.claim(s.Sandbox.ID, s.Sandbox.Name, t.view.ID)
	if err != nil {
		return Outcome{}, err
	}
	defer release()
	defer t.file()
	return t.run(ctx)
}

// usable refuses sandboxes that must not be handed out.
func usable(sb Sandbox) error {
	switch sb.State {
	case SandboxReady:
		return nil
	case SandboxQuarantined:
		return fmt.Errorf("run in sandbox %s: it is quarantined (%s): %w", sb.Name, sb.Reason, ErrDenied)
	case SandboxDestroying, SandboxDestroyed:
		return fmt.Errorf("run in sandbox %s: it is %s: %w", sb.Name, sb.State, ErrNotFound)
	default:
		return fmt.Errorf("run in sandbox %s: it is not ready (%s): %w", sb.Name, sb.State, ErrBusy)
	}
}

// judge asks the policy about the command and every validation, before
// anything is recorded or done.
func (t *tx) judge() error {
	done := t.step(StepPolicy, "")
	start := t.e.c.Now()
	t.verdict = t.e.c.Decider.Decide(policy.Request{Command: t.spec.Command, User: t.spec.As, Profile: t.spec.Profile})
	for _, v := range t.spec.Validate {
		verdict := t.e.c.Decider.Decide(policy.Request{Command: v.Command, User: v.As, Profile: t.spec.Profile})
		permit, ok := verdict.Permit()
		if !ok {
			err := &UsageError{What: fmt.Sprintf("validation %q is denied (%s: %s)", v.Command, verdict.Rule, verdict.Reason), Mend: "use one that the policy allows (see savepoint policy explain)"}
			done(err)
			return err
		}
		t.probes = append(t.probes, probe{command: v.Command, as: v.As, verdict: verdict, permit: permit})
	}
	t.policyTook = t.e.c.Now().Sub(start)
	if t.verdict.Decision != policy.Deny {
		permit, ok := t.verdict.Permit()
		if !ok || permit.Command() != t.spec.Command || permit.User() != t.spec.As {
			err := fmt.Errorf("run: the policy's permit is not for this command: %w", ErrDenied)
			done(err)
			return err
		}
		t.permit = permit
	}
	t.detail = t.verdict.Decision.String() + " " + t.verdict.Rule
	done(nil)
	return nil
}

// deny records the refusal. Nothing else happens.
func (t *tx) deny(ctx context.Context) (Outcome, error) {
	if err := t.append(ctx, entry{event: evDeny, data: t.beginData(), settled: true}); err != nil {
		// The command does not run either way; only the record is missing.
		t.view.Verdict = judgement(t.verdict)
		return t.outcome(), err
	}
	return t.outcome(), nil
}

// run takes the transaction from its begin to its end.
func (t *tx) run(ctx context.Context) (Outcome, error) {
	if err := t.begin(ctx); err != nil {
		return t.outcome(), err
	}
	if t.boundary != BoundaryNone {
		if err := t.snapshot(ctx); err != nil {
			return t.giveUpBegun(ctx, "the snapshot could not be taken", err)
		}
	}
	if err := t.append(ctx, entry{event: evRun}); err != nil {
		return t.giveUpBegun(ctx, "the journal could not be written", err)
	}
	err := t.execute(ctx)
	if err == nil {
		err = t.decide(ctx)
	}
	var back *failure
	switch {
	case err == nil:
		return t.outcome(), nil
	case errors.As(err, &back):
		rerr := t.rollBack(ctx, *back)
		if rerr != nil {
			return t.outcome(), rerr
		}
		return t.outcome(), back.report
	default:
		return t.outcome(), err
	}
}

// begin records the intent. For boundary none the record waits to be written
// together with the next one: nothing happens in between.
func (t *tx) begin(ctx context.Context) error {
	if t.boundary != BoundaryNone {
		sb := t.spec.Sandbox
		t.e.collectIfMany(ctx, sb)
		st, err := t.e.c.Hypervisor.Status(ctx, sb.VM)
		switch {
		case err != nil:
			return fmt.Errorf("begin in sandbox %s: %w", sb.Name, classed(err))
		case st.Owner != sb.ID:
			return fmt.Errorf("begin in sandbox %s: %s belongs to %q: %w", sb.Name, sb.VM, st.Owner, ErrDenied)
		case st.Template:
			return fmt.Errorf("begin in sandbox %s: %s is a template: %w", sb.Name, sb.VM, ErrDenied)
		case !st.Running:
			return fmt.Errorf("begin in sandbox %s: %s is stopped; start it: %w", sb.Name, sb.VM, ErrUnavailable)
		}
		t.ranAtBegin = st.Running
	}
	begin := entry{event: evBegin, data: t.beginData()}
	if t.boundary == BoundaryNone {
		t.queue(begin)
		return nil
	}
	return t.append(ctx, begin)
}

// giveUpBegun ends a transaction in which nothing ran.
func (t *tx) giveUpBegun(ctx context.Context, what string, cause error) (Outcome, error) {
	if t.view.State == "" {
		return t.outcome(), cause // not even the begin is on disk
	}
	interrupted := ctx.Err() != nil && !t.journalFailed()
	reason := fmt.Sprintf("%s, nothing ran: %v", what, cause)
	if interrupted {
		reason = "interrupted before anything ran"
	}
	if err := t.release(ctx, reason, interrupted); err != nil {
		return t.outcome(), errors.Join(cause, err)
	}
	if interrupted {
		cause = nil
	}
	return t.outcome(), classed(cause)
}

// execute runs the command. A *failure means: roll back.
func (t *tx) execute(ctx context.Context) error {
	done := t.step(StepExecute, "")
	stdout, stderr := newDigester(t.spec.Stdout), newDigester(t.spec.Stderr)
	res, err := t.e.c.Executor.Run(ctx, t.spec.Sandbox, t.permit, ExecRequest{
		Dir: t.spec.Dir, Env: t.spec.Env, Stdin: t.spec.Stdin, Stdout: stdout, Stderr: stderr,
		Limit: t.e.c.OutputLimit, Timeout: t.spec.Timeout,
	})
	t.stdout, t.stderr = string(res.Stdout), string(res.Stderr)
	done(err)
	if err != nil {
		return t.notRun(ctx, err)
	}
	capped := func(b []byte) []byte { return b[:min(len(b), t.e.c.RecordLimit)] }
	t.result = &res
	t.queue(entry{event: evRan, data: ranData{
		Exit: res.ExitCode, Signal: res.Signal, TimedOut: res.TimedOut,
		Truncated: res.Truncated || len(res.Stdout) > t.e.c.RecordLimit || len(res.Stderr) > t.e.c.RecordLimit,
		Stdout:    capped(res.Stdout), Stderr: capped(res.Stderr),
		StdoutBytes: res.StdoutBytes, StderrBytes: res.StderrBytes,
		StdoutDigest: stdout.sum(), StderrDigest: stderr.sum(), Took: res.Duration,
	}})
	return nil
}

// notRun turns an executor's error into the reason for a rollback. Only an
// unknown outcome is settled by the rollback; otherwise the caller has to
// learn that the command did not run.
func (t *tx) notRun(ctx context.Context, err error) *failure {
	switch {
	case ctx.Err() != nil:
		return &failure{reason: "interrupted while the command ran", interrupted: true}
	case class(err) == ErrUnknownOutcome:
		return &failure{reason: fmt.Sprintf("the command's end is not known: %v", err)}
	default:
		return &failure{reason: fmt.Sprintf("the command did not run: %v", err), report: fmt.Errorf("run in sandbox %s: %w", t.spec.Sandbox.Name, err)}
	}
}

// failure is why a transaction is rolled back.
type failure struct {
	reason      string
	interrupted bool
	checks      []Check
	took        time.Duration // of the validation
	report      error         // what Run returns besides the Outcome
}

func (f *failure) Error() string { return f.reason }

// decide validates and commits, or returns the *failure to roll back for.
func (t *tx) decide(ctx context.Context) error {
	start := t.e.c.Now()
	checks, bad := t.validate(ctx)
	took := t.e.c.Now().Sub(start)
	reason := ""
	switch {
	case ctx.Err() != nil:
		return &failure{reason: "interrupted before the commit", interrupted: true, checks: checks, took: took}
	case bad != nil && (bad.unknown || t.spec.OnFailure != OnFailureKeep):
		return &failure{reason: bad.reason, checks: checks, took: took}
	case bad != nil:
		reason = "kept as asked: " + bad.reason
	}
	return t.commit(ctx, commitData{Reason: reason, Checks: checks, Validate: took})
}

// commit passes the commit point: one durable write, no call to the cluster.
func (t *tx) commit(ctx context.Context, d commitData) error {
	done := t.step(StepCommit, "")
	start := t.e.c.Now()
	err := t.append(ctx,
		entry{event: evCommit, data: d},
		entry{event: evCommitted, settled: t.boundary == BoundaryNone})
	t.commitTook = t.e.c.Now().Sub(start)
	done(err)
	switch {
	case err == nil, t.view.State == StateCommitting:
		return nil // the commit point is on disk; recovery adds the last word
	case class(err) == ErrUnknownOutcome:
		// The commit point may be on disk. Neither undoing nor going on is
		// safe before the journal has been read again.
		return fmt.Errorf("commit transaction %s: %w; restart savepoint and run savepoint recover", t.view.ID, err)
	default:
		return &failure{reason: fmt.Sprintf("the commit could not be recorded: %v", err), checks: d.Checks, took: d.Validate, report: err}
	}
}

// beginData is what recovery and a reader need to know of the transaction.
func (t *tx) beginData() beginData {
	s := t.spec
	sum := sha256.Sum256([]byte(s.Command))
	d := beginData{
		Box: s.Sandbox, By: s.By, Command: []byte(s.Command), Digest: hex.EncodeToString(sum[:]),
		As: s.As, Dir: s.Dir, EnvNames: slices.Sorted(maps.Keys(s.Env)), Timeout: s.Timeout,
		OnFailure: s.OnFailure, Profile: s.Profile, Verdict: judgement(t.verdict),
		Boundary: t.boundary, RunState: t.ranAtBegin, Policy: t.policyTook,
	}
	if t.boundary != "" && t.boundary != BoundaryNone {
		d.Snapshot = SnapshotOf(t.view.ID)
	}
	for _, p := range t.probes {
		d.Validate = append(d.Validate, validateNote{Command: []byte(p.command), As: p.as, Verdict: judgement(p.verdict)})
	}
	return d
}
