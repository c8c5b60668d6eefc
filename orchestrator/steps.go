package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"savepoint/policy"
)

// order makes the transaction ready for its next order: what was known of the
// one before is forgotten. A journal that failed and wrote nothing may have
// room again.
func (t *tx) order(s Spec) {
	t.spec, t.started = s, t.e.c.Now()
	t.verdict, t.permit, t.probes, t.spends = policy.Verdict{}, policy.Permit{}, nil, nil
	t.result, t.leaves, t.stdout, t.stderr, t.detail = nil, nil, "", "", ""
	t.policyTook, t.commitTook = 0, 0
	t.was, t.changed, t.noted, t.secrets = nil, nil, 0, nil
	if !t.uncertain {
		t.broken, t.pending = nil, nil
	}
}

// plain is the spec of an order that is no command.
func (t *tx) plain() Spec {
	v := t.view
	return Spec{Sandbox: v.Sandbox, As: v.As, OnFailure: v.OnFailure, Profile: v.Profile, Session: v.Session, By: v.By}
}

// exec runs one command in the open transaction. Two writes: the intent before
// it, its end together with the return to open.
func (t *tx) exec(ctx context.Context, s Spec) (Outcome, error) {
	t.order(s)
	t.slept()
	t.enter()
	if err := t.judge(ctx); err != nil {
		return t.outcome(), err
	}
	if t.verdict.Decision == policy.Deny {
		return t.denyStep(ctx)
	}
	if err := errors.Join(t.covered(), t.askable()); err != nil {
		return t.outcome(), err
	}
	if err := ctx.Err(); err != nil {
		return t.outcome(), fmt.Errorf("run in transaction %s: nothing was run: %w: %w", t.view.ID, ErrUnavailable, err)
	}
	if out, gone, err := t.look(ctx); gone {
		return out, err
	}
	if err := t.before(ctx); err != nil {
		return t.outcome(), t.unnotedStep(err)
	}
	if err := t.append(ctx, entry{event: evRun, data: t.stepData(), spends: t.spends, key: s.Key}); err != nil {
		if lostGrant(err) {
			return t.overtakenStep(ctx, err)
		}
		return t.outcome(), err // open: nothing was run
	}
	err := t.execute(ctx)
	if err == nil {
		err = t.endStep(ctx)
	}
	var back *failure
	switch {
	case err == nil:
		return t.stepOutcome(), nil
	case errors.As(err, &back) && back.report != nil && t.result == nil:
		return t.notStarted(ctx, back)
	case errors.As(err, &back):
		err = errors.Join(t.rollBack(ctx, *back), back.report)
	}
	return t.stepOutcome(), err
}

// covered refuses a command that may do more than a return to the newest point
// would undo. Points never cover more than older ones, so what that one covers
// all do.
func (t *tx) covered() error {
	p := t.view.top()
	if p.Boundary.covers() >= t.cover() {
		return nil
	}
	if p.N > 0 && t.view.Boundary.covers() >= t.cover() {
		return &UsageError{
			What: fmt.Sprintf("savepoint %s covers the %s only, which is not all that the command or a validation may change", p.Name, p.Boundary),
			Mend: fmt.Sprintf("take savepoints with boundary %s in this transaction", t.view.Boundary),
		}
	}
	return &UsageError{
		What: fmt.Sprintf("boundary %s of transaction %s does not cover what the command or a validation may do as %s", t.view.Boundary, t.view.ID, t.spec.As),
		Mend: "begin another one with boundary disk or machine",
	}
}

// lookAgain is how long a transaction may rest before its guest is asked again
// whether it is what the last order left.
const lookAgain = time.Minute

// rested notes that an order has ended.
func (t *tx) rested() { t.ended = t.e.c.Now() }

// slept makes the guest be looked at again after a rest.
func (t *tx) slept() {
	// Without the monotonic clock, which stands still while the machine sleeps.
	if t.e.c.Now().Round(0).Sub(t.ended.Round(0)) > lookAgain {
		t.seen = false
	}
}

// look asks the guest, once after a transaction was taken up or has rested,
// whether it is still what the last order left. F23: a guest that was restored
// or booted by others meanwhile is not gone on with. One that does not answer
// may come back: nothing is run then, and the transaction stays open.
func (t *tx) look(ctx context.Context) (out Outcome, gone bool, err error) {
	if t.seen {
		return Outcome{}, false, nil
	}
	facts, err := t.factsNow(ctx)
	why := ""
	switch {
	case err == nil:
		if b := t.still(facts); b != nil {
			why = b.reason
		} else {
			err = t.wake(ctx, facts)
		}
	case ctx.Err() == nil && (errors.Is(err, errOff) || permanent(err) || class(err) == ErrDenied):
		why = err.Error()
	}
	switch {
	case why != "":
		err := t.rollBack(ctx, failure{reason: "the guest is not as the transaction left it: " + why})
		return t.outcome(), true, err
	case err != nil:
		return t.outcome(), true, fmt.Errorf("transaction %s: nothing was done: ask sandbox %s: %w", t.view.ID, t.view.Sandbox.Name, classed(err))
	}
	t.seen = true
	return Outcome{}, false, nil
}

// wake sets the clock of a guest that slept, with its host, before a command or
// a validation sees it (F97): to set it once more changes nothing, so it needs
// no record.
func (t *tx) wake(ctx context.Context, facts GuestFacts) error {
	if skew, doubt := skewOf(facts, t.e.c.Now()); skew.Abs() <= t.e.c.Guards.MaxSkew+doubt {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.e.c.Deadlines.Validate)
	defer cancel()
	if err := t.e.c.Guest.SetClock(ctx, t.view.Sandbox, t.e.c.Now()); err != nil {
		return fmt.Errorf("set its clock: %w", err)
	}
	return nil
}

// denyStep records the refusal of one command; the transaction stays open.
func (t *tx) denyStep(ctx context.Context) (Outcome, error) {
	err := t.append(ctx, entry{event: evDeny, data: t.stepData()})
	o := t.stepOutcome()
	if err != nil { // the record's last command is the one before
		o = t.outcome()
		o.Verdict, o.Timings.Policy, o.Timings.Snapshot = judgement(t.verdict), t.policyTook, 0
	}
	o.State, o.Reason, o.Message = StateDenied, t.verdict.Reason, t.verdict.Message()
	return o, err
}

// overtakenStep judges a command again whose grant was used up meanwhile.
func (t *tx) overtakenStep(ctx context.Context, cause error) (Outcome, error) {
	if err := t.judge(ctx); err != nil {
		return t.outcome(), errors.Join(cause, err)
	}
	if t.verdict.Decision == policy.Deny {
		return t.denyStep(ctx)
	}
	return t.outcome(), fmt.Errorf("run in transaction %s: %w; ask again", t.view.ID, cause)
}

// notStarted notes that a command provably never started: nothing was changed,
// so the transaction goes on.
func (t *tx) notStarted(ctx context.Context, why *failure) (Outcome, error) {
	if err := t.append(ctx, entry{event: evNotRun, data: reasonData{Reason: why.reason}}); err != nil {
		if t.uncertain {
			return t.stepOutcome(), errors.Join(why.report, err)
		}
		return t.stepOutcome(), errors.Join(why.report, err, t.rollBack(ctx, *why))
	}
	o := t.stepOutcome()
	o.Reason = why.reason
	return o, why.report
}

// endStep validates the step and returns to open, or says why the whole has to
// be rolled back.
func (t *tx) endStep(ctx context.Context) error {
	start := t.e.c.Now()
	checks, bad := t.validate(ctx, scope{exit: true, guest: len(t.probes) > 0})
	took := t.e.c.Now().Sub(start) + t.noted
	d := openData{Checks: checks, Validate: took}
	d.Changed, d.ChangedN = t.changed.capped()
	switch {
	case ctx.Err() != nil && len(t.probes) > 0:
		return &failure{reason: "interrupted while a step was validated", interrupted: true, checks: checks, took: took}
	case bad != nil && (bad.unknown || t.spec.OnFailure != OnFailureKeep):
		return &failure{reason: fmt.Sprintf("step %d: %s", len(t.view.Commands), bad.reason), checks: checks, took: took}
	case bad != nil:
		d.Reason = "kept as asked: " + bad.reason
	}
	err := t.append(ctx, entry{event: evOpen, data: d})
	if err != nil && !t.uncertain {
		return &failure{reason: fmt.Sprintf("the step's end could not be recorded: %v", err), checks: checks, took: took, report: err}
	}
	return err
}

// stepData is what recovery and a reader need to know of the step.
func (t *tx) stepData() stepData {
	s := t.spec
	d := stepData{
		N: len(t.view.Commands) + 1, Box: boxNote{s.Sandbox.Name}, Command: []byte(s.Command), Runs: otherBytes(t.permit, s.Command),
		Digest: digest(s.Command), As: s.As, Dir: t.dir, EnvNames: slices.Sorted(maps.Keys(t.env)), Timeout: s.Timeout,
		Profile: s.Profile, Verdict: judgement(t.verdict), Validate: t.probeNotes(), Policy: t.policyTook,
		Guard: s.Guard.orNil(),
	}
	if s.Key != "" {
		d.Request = s.asked("step").digest()
	}
	return d
}

// stepOutcome is the outcome as the caller of the step sees it.
func (t *tx) stepOutcome() Outcome {
	o := t.outcome()
	c := t.view.Commands
	if len(c) == 0 {
		return o
	}
	last := c[len(c)-1]
	o.Step, o.Verdict, o.Checks = last.N, last.Verdict, last.Checks
	o.Changed, o.ChangedCount = last.Changed, last.ChangedCount
	if t.view.State == StateOpen {
		o.Reason = last.Reason
	}
	o.Timings.Policy, o.Timings.Snapshot, o.Timings.Commit = t.policyTook, 0, 0
	if t.result != nil {
		o.Timings.Execute = t.result.Duration
	}
	return o
}

// again returns the result of an earlier step with the same key.
func (t *tx) again(ctx context.Context, s Spec) (o Outcome, done bool, err error) {
	view, step, err := t.e.used(ctx, t.view.Sandbox, s.Key)
	switch {
	case err != nil || view == nil:
		return Outcome{}, err != nil, err
	case step == 0 || view.ID != t.view.ID || view.Commands[step-1].request != s.asked("step").digest():
		return t.outcome(), true, otherRequest(s.Key, view, step, short(s.Command))
	}
	c := view.Commands[step-1]
	o = (&tx{e: t.e, view: view}).outcome()
	o.Replayed, o.Step, o.Verdict, o.Checks = true, c.N, c.Verdict, c.Checks
	o.Changed, o.ChangedCount = c.Changed, c.ChangedCount
	o.ExitCode, o.Signal, o.Stdout, o.Stderr, o.Truncated = nil, "", "", "", false
	if c.Result != nil {
		o.answered(*c.Result)
	}
	if view.State == StateOpen {
		o.Reason = c.Reason
	}
	switch {
	case c.State == StateRunning:
		return o, true, fmt.Errorf("idempotency key %q: step %d of transaction %s is unfinished; run savepoint recover: %w", s.Key, c.N, view.ID, ErrBusy)
	case c.State == StateOpen && c.Result == nil:
		return o, true, fmt.Errorf("idempotency key %q: step %d of transaction %s did not run (%s); ask with a new key: %w", s.Key, c.N, view.ID, c.Reason, ErrUnavailable)
	}
	return o, true, nil
}
