package orchestrator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"reflect"
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
	out, err := e.runOne(ctx, s)
	if e.c.Ahead && out.State.Final() && !out.Replayed {
		e.prepareNext(ctx, s.Sandbox, "")
	}
	return out, err
}

func (e *Engine) runOne(ctx context.Context, s Spec) (Outcome, error) {
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
	if err := errors.Join(e.grantable(s.Grants), e.harmless(s)); err != nil {
		return Outcome{}, err
	}
	if err := ctx.Err(); err != nil {
		return Outcome{Interrupted: true}, fmt.Errorf("run in sandbox %s: %w: %w", s.Sandbox.Name, ErrUnavailable, err)
	}
	if out, done, err := e.replay(ctx, s); done {
		return out, err
	}
	t := e.newTx(s)
	if s.Session {
		if t.base, err = e.loadSessions(ctx, s.Sandbox); err != nil {
			return Outcome{}, err
		}
	}
	t.enter()
	if err := t.judge(ctx); err != nil {
		return Outcome{}, err
	}
	if t.verdict.Decision == policy.Deny {
		return t.deny(ctx)
	}
	if t.boundary, err = e.choose(s, t.cover()); err != nil {
		return Outcome{}, err
	}
	if err := t.askable(); err != nil {
		return Outcome{}, err
	}
	release, err := e.claim(ctx, s.Sandbox, t.view.ID)
	if err != nil {
		return Outcome{}, err
	}
	defer release()
	defer t.file()
	if out, done, err := e.replay(ctx, s); done { // it may have ended meanwhile
		return out, err
	}
	if err := t.sameSession(ctx); err != nil {
		return Outcome{}, err
	}
	return t.run(ctx)
}

// sameSession makes sure that what was judged is what will run: another
// transaction may have left another session before the sandbox was claimed.
func (t *tx) sameSession(ctx context.Context) error {
	if !t.spec.Session {
		return nil
	}
	now, err := t.e.loadSessions(ctx, t.spec.Sandbox)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(now[t.spec.As], t.base[t.spec.As]) {
		return fmt.Errorf("run in sandbox %s: its session was changed by another transaction meanwhile; ask again: %w", t.spec.Sandbox.Name, ErrBusy)
	}
	t.base = now
	return nil
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
// anything is recorded or done. Grants are looked for only when the command is
// denied without them, so that none is spent that is not needed.
func (t *tx) judge(ctx context.Context) (err error) {
	done := t.step(StepPolicy, "")
	defer func() { done(err) }()
	start := t.e.c.Now()
	t.spends = nil
	t.verdict = t.e.c.Decider.Decide(policy.Request{Command: t.spec.Command, User: t.spec.As, Profile: t.spec.Profile, Dir: t.dir, Env: t.env})
	if t.verdict.Decision == policy.Deny {
		if err := t.plead(ctx); err != nil {
			return err
		}
	}
	if t.probes, err = t.judgeProbes(t.spec.Validate); err != nil {
		return err
	}
	t.policyTook = t.e.c.Now().Sub(start)
	if t.verdict.Decision != policy.Deny {
		permit, ok := permitOf(t.verdict, t.spec.Command, t.spec.As)
		if !ok {
			return fmt.Errorf("run: the policy's permit is not for this command: %w", ErrDenied)
		}
		t.permit = permit
	}
	t.detail = t.verdict.Decision.String() + " " + t.verdict.Rule
	return nil
}

// judgeProbes asks the policy about validations. They are the caller's choice:
// one that is denied is a mistake of his.
func (t *tx) judgeProbes(list []Validation) (probes []probe, err error) {
	for _, v := range list {
		verdict := t.e.c.Decider.Decide(policy.Request{Command: v.Command, User: v.As, Profile: t.spec.Profile, Dir: t.spec.Dir, Env: t.spec.Env})
		permit, ok := permitOf(verdict, v.Command, v.As)
		if !ok && verdict.Decision != policy.Deny {
			return nil, fmt.Errorf("run: the policy's permit is not for validation %q: %w", v.Command, ErrDenied)
		}
		if !ok {
			return nil, &UsageError{What: fmt.Sprintf("validation %q is denied (%s: %s)", v.Command, verdict.Rule, verdict.Reason), Mend: "use one that the policy allows (see savepoint policy explain)"}
		}
		probes = append(probes, probe{command: v.Command, as: v.As, timeout: v.Timeout, verdict: verdict, permit: permit})
	}
	return probes, nil
}

// permitOf returns the verdict's permit if it is for this command as this user:
// for its exact bytes, or for the hardened form that the verdict names.
func permitOf(v policy.Verdict, command string, as policy.User) (policy.Permit, bool) {
	permit, ok := v.Permit()
	if !ok || permit.User() != as {
		return policy.Permit{}, false
	}
	if permit.Command() != command {
		if form, hardened := v.Hardened(); !hardened || form != permit.Command() {
			return policy.Permit{}, false
		}
	}
	return permit, true
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
	if !t.adopt(ctx) {
		if err := t.begin(ctx); err != nil {
			if lostGrant(err) {
				return t.overtaken(ctx, err)
			}
			return t.outcome(), err
		}
		if t.boundary != BoundaryNone {
			if err := t.snapshot(ctx, evSnapshot); err != nil {
				return t.giveUpBegun(ctx, "the snapshot could not be taken", err)
			}
			if err := t.before(ctx); err != nil {
				return t.unnoted(ctx, err)
			}
		}
	}
	if err := t.append(ctx, entry{event: evRun}); err != nil {
		if lostGrant(err) { // the begin, or the adoption, waited for this write
			t.giveBack()
			return t.overtaken(ctx, err)
		}
		return t.giveUpBegun(ctx, "the journal could not be written", err)
	}
	err := t.execute(ctx)
	if err == nil {
		err = t.decide(ctx, scope{exit: true, guest: t.boundary != BoundaryNone})
	}
	return t.conclude(ctx, err)
}

// conclude ends the transaction as decided: it is committed, or err is the
// *failure to roll back for, or nobody knows.
func (t *tx) conclude(ctx context.Context, err error) (Outcome, error) {
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
	if err := t.preflight(ctx); err != nil {
		return err
	}
	begin := entry{event: evBegin, data: t.beginData(), spends: t.spends, key: t.spec.Key}
	if t.boundary == BoundaryNone {
		t.queue(begin)
		return nil
	}
	return t.append(ctx, begin)
}

// preflight looks at the VM before a snapshot is begun.
func (t *tx) preflight(ctx context.Context) error {
	if t.boundary == BoundaryNone {
		return nil
	}
	t.e.collectIfMany(ctx, t.spec.Sandbox)
	return t.lookVM(ctx)
}

// lookVM asks whether a snapshot can be taken of the VM as it is.
func (t *tx) lookVM(ctx context.Context) error {
	sb := t.spec.Sandbox
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
	if st.Lock != "" {
		if err := t.e.leftLocked(ctx, sb.ID); err != nil {
			return err
		}
	}
	t.ranAtBegin = st.Running
	return nil
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
	var hung *hungError
	var err error
	switch {
	case t.view.State == StatePrepared:
		err = t.shelve(ctx, reason, interrupted)
	case t.view.State == StateSnapshotted && !t.uncertain: // of records that are not written together
		err = t.rollBack(ctx, failure{reason: reason, interrupted: interrupted})
	case !errors.As(cause, &hung):
		err = t.release(ctx, reason, interrupted)
	default:
		if err = t.append(ctx); err == nil { // the snapshot: without its record nothing proves a restore
			err = t.rollBack(ctx, failure{reason: reason, interrupted: interrupted})
		}
	}
	if err != nil {
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
	limit := min(t.e.c.RecordLimit, int(min(t.e.c.OutputLimit, 1<<30)))
	stdout, stderr := newDigester(t.spec.Stdout, limit+redactOverlap), newDigester(t.spec.Stderr, limit+redactOverlap)
	res, err := t.e.c.Executor.Run(ctx, t.spec.Sandbox, t.permit, ExecRequest{
		Dir: t.dir, Env: t.env, Stdin: t.spec.Stdin, Stdout: stdout, Stderr: stderr,
		Limit: t.e.c.OutputLimit, Timeout: t.spec.Timeout, Capture: t.spec.Session, Health: t.asksAtEnd(),
	})
	t.told = t.e.c.Now()
	t.stdout, t.stderr = string(res.Stdout), string(res.Stderr)
	done(err)
	if err != nil {
		return t.notRun(ctx, err)
	}
	out, outSecrets := t.redactor().recorded(stdout.start(), limit)
	errs, errSecrets := t.redactor().recorded(stderr.start(), limit)
	t.result = &res
	t.leaves = t.left(res.Session)
	ran := ranData{
		Exit: res.ExitCode, Signal: res.Signal, TimedOut: res.TimedOut,
		Truncated: res.Truncated || len(res.Stdout) > t.e.c.RecordLimit || len(res.Stderr) > t.e.c.RecordLimit,
		Stdout:    out, Stderr: errs,
		StdoutBytes: res.StdoutBytes, StderrBytes: res.StderrBytes,
		StdoutDigest: stdout.sum(), StderrDigest: stderr.sum(), Took: res.Duration,
	}
	if t.view.Several {
		ran.Session = t.leaves
	}
	t.queue(entry{event: evRan, data: ran, redacted: outSecrets + errSecrets})
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
func (t *tx) decide(ctx context.Context, of scope) error {
	start := t.e.c.Now()
	checks, bad := t.validate(ctx, of)
	took := t.e.c.Now().Sub(start) + t.noted
	reason := ""
	switch {
	case ctx.Err() != nil:
		return &failure{reason: "interrupted before the commit", interrupted: true, checks: checks, took: took}
	case bad != nil && (bad.unknown || t.spec.OnFailure != OnFailureKeep):
		return &failure{reason: bad.reason, checks: checks, took: took}
	case bad != nil:
		reason = "kept as asked: " + bad.reason
	}
	d := commitData{Reason: reason, Checks: checks, Validate: took}
	d.Changed, d.ChangedN = t.changed.capped()
	return t.commit(ctx, d)
}

// commit passes the commit point: one durable write, no call to the cluster.
func (t *tx) commit(ctx context.Context, d commitData) error {
	done := t.step(StepCommit, "")
	start := t.e.c.Now()
	changed := t.view.session
	if !t.view.Several && t.leaves != nil {
		changed = sessions{t.spec.As: *t.leaves}
	}
	session, err := t.recorded(changed)
	if err != nil {
		return &failure{reason: err.Error(), checks: d.Checks, took: d.Validate, report: err}
	}
	err = t.append(ctx,
		entry{event: evCommit, data: d, session: session},
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
	d := beginData{
		Box: s.Sandbox, By: s.By, Command: []byte(s.Command), Digest: digest(s.Command),
		As: s.As, Dir: t.dir, EnvNames: slices.Sorted(maps.Keys(t.env)), Timeout: s.Timeout,
		OnFailure: s.OnFailure, Profile: s.Profile, Verdict: judgement(t.verdict),
		Boundary: t.boundary, RunState: t.ranAtBegin, Policy: t.policyTook,
		Runs: otherBytes(t.permit, s.Command), Guard: s.Guard.orNil(),
	}
	if t.boundary != "" && t.boundary != BoundaryNone {
		d.Snapshot = SnapshotOf(t.view.ID)
	}
	d.Validate = t.probeNotes()
	if s.Key != "" {
		d.Request = s.asked("run").digest()
	}
	return d
}

func (t *tx) probeNotes() (notes []validateNote) {
	for _, p := range t.probes {
		notes = append(notes, validateNote{
			Command: []byte(p.command), As: p.as, Verdict: judgement(p.verdict), Runs: otherBytes(p.permit, p.command), Timeout: p.timeout,
		})
	}
	return notes
}

func digest(command string) string {
	sum := sha256.Sum256([]byte(command))
	return hex.EncodeToString(sum[:])
}

// otherBytes is what runs in place of what was asked for, nil when it is that.
func otherBytes(p policy.Permit, asked string) []byte {
	if !p.Valid() || p.Command() == asked {
		return nil
	}
	return []byte(p.Command())
}
