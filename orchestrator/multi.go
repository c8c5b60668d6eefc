package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"savepoint/policy"
)

// Tx is a transaction of several commands, as Begin and Resume hand it out. It
// holds its sandbox until it ends or is closed: meanwhile Run, Hold and Begin
// answer ErrBusy. Its methods may be called from several goroutines; they take
// turns.
//
// An Outcome says in State what became of the transaction: open when it goes
// on. A step whose command is denied is StateDenied, and the transaction goes
// on. When a step's end is not known, when it was interrupted, and when it
// failed with OnFailureRollback, the whole is rolled back.
type Tx struct {
	e *Engine

	mu      sync.Mutex
	t       *tx
	release func() // nil when the sandbox is not held any more
}

// Begin takes the snapshot and returns the open transaction. The caller must
// end it, or Close it. With the key of an earlier begin it returns that one.
func (e *Engine) Begin(ctx context.Context, b BeginSpec) (*Tx, error) {
	if err := e.load(ctx); err != nil {
		return nil, err
	}
	b, err := b.normal(e.c.Idle)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(usable(b.Sandbox), e.harmless(b.spec())); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("begin in sandbox %s: %w: %w", b.Sandbox.Name, ErrUnavailable, err)
	}
	if x, done, err := e.begun(ctx, b); done {
		return x, err
	}
	t := e.newTx(b.spec())
	t.whole = b.Validate
	if err := t.judgeWhole(b); err != nil {
		return nil, err
	}
	release, err := e.claimAlone(ctx, b.Sandbox, t.view.ID)
	if err != nil {
		return nil, err
	}
	x := &Tx{e: e, t: t, release: release}
	if _, done, err := e.begun(ctx, b); done { // by somebody else meanwhile
		x.letGo()
		return nil, errors.Join(err, fmt.Errorf("begin in sandbox %s: ask again: %w", b.Sandbox.Name, ErrBusy))
	}
	if err := t.beginWhole(ctx, b); err != nil {
		x.letGo()
		return nil, err
	}
	return x, nil
}

// judgeWhole asks the policy about the validations and chooses the boundary.
func (t *tx) judgeWhole(b BeginSpec) (err error) {
	done := t.step(StepPolicy, "")
	defer func() { done(err) }()
	start := t.e.c.Now()
	if t.probes, err = t.judgeProbes(b.Validate); err != nil {
		return err
	}
	for i, v := range b.Validate {
		if t.clean(v.Command) != v.Command { // the commit may have to read it back
			return &UsageError{What: fmt.Sprintf("begin: validation %d holds a secret, which the record does not keep", i+1), Mend: "let it read the secret from a file in the sandbox"}
		}
	}
	t.policyTook = t.e.c.Now().Sub(start)
	need := coverAgent
	if b.As != policy.Agent {
		need = coverVM
	}
	for _, p := range t.probes {
		if p.permit.NeedsBoundary() && p.as != policy.Agent {
			need = coverVM
		}
	}
	t.boundary, err = t.e.choose(t.spec, need)
	return err
}

// beginWhole takes the transaction from nothing to open.
func (t *tx) beginWhole(ctx context.Context, b BeginSpec) (err error) {
	if b.Session {
		if t.base, err = t.e.loadSessions(ctx, b.Sandbox); err != nil {
			return err
		}
	}
	if err := t.preflight(ctx); err != nil {
		return err
	}
	d := beginData{
		Box: b.Sandbox, By: b.By, As: b.As, OnFailure: b.OnFailure, Profile: b.Profile,
		Verdict: Judgement{Decision: "snapshot", Reason: "every command is judged on its own"}, Validate: t.probeNotes(),
		Boundary: t.boundary, Snapshot: SnapshotOf(t.view.ID), RunState: t.ranAtBegin, Policy: t.policyTook,
		Several: &severalData{Bound: b.Bound, Idle: b.Idle, Session: b.Session},
	}
	if b.Key != "" {
		d.Request = b.asked().digest()
	}
	if err := t.append(ctx, entry{event: evBegin, data: d, key: b.Key}); err != nil {
		return err
	}
	what := "the snapshot could not be taken"
	if err = t.snapshot(ctx, evSnapshot); err == nil {
		what = "the journal could not be written"
		err = t.append(ctx, entry{event: evOpen})
	}
	if err == nil {
		t.seen = true
		t.rested()
		return nil
	}
	out, gerr := t.giveUpBegun(ctx, what, err)
	if gerr == nil {
		gerr = fmt.Errorf("begin in sandbox %s: %s: %w: %w", b.Sandbox.Name, out.Reason, ErrUnavailable, context.Cause(ctx))
	}
	return gerr
}

// begun returns the transaction that an earlier begin with the same key began.
func (e *Engine) begun(ctx context.Context, b BeginSpec) (x *Tx, done bool, err error) {
	view, step, err := e.used(ctx, b.Sandbox, b.Key)
	switch {
	case err != nil || view == nil:
		return nil, err != nil, err
	case step > 0 || view.request != b.asked().digest():
		return nil, true, otherRequest(b.Key, view, step, "this begin")
	}
	x, err = e.handle(ctx, view)
	return x, true, err
}

// Resume takes an open transaction up where its last order left it. One that
// has ended is returned as well: its View and the results of its keys can be
// asked for, and Commit and Rollback say again what they did. ErrNotFound: the
// journal does not know it. ErrBusy: somebody works on it, or recovery has to
// settle it first.
func (e *Engine) Resume(ctx context.Context, id TxID) (*Tx, error) {
	if err := e.load(ctx); err != nil {
		return nil, err
	}
	id = TxID(strings.ToLower(string(id)))
	if id == "" {
		return nil, &UsageError{What: "resume transaction: no id", Mend: "see savepoint tx list"}
	}
	view, err := e.read(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case view.State == "":
		return nil, fmt.Errorf("resume transaction %s: %w; see savepoint tx list", id, ErrNotFound)
	case !view.Several:
		return nil, &UsageError{What: fmt.Sprintf("transaction %s has one command only and is %s", id, view.State), Mend: "begin one with savepoint tx begin"}
	}
	return e.handle(ctx, view)
}

// handle hands out a transaction that is on disk.
func (e *Engine) handle(ctx context.Context, view *Transaction) (*Tx, error) {
	switch {
	case view.State.Final():
		return &Tx{e: e, t: &tx{e: e, view: view, boundary: view.Boundary}}, nil
	case view.State == StateStuck:
		return nil, &StuckError{Sandbox: view.Sandbox.Name, Tx: view.ID, Reason: view.Reason, Mend: view.Mend}
	}
	id := view.ID
	release, err := e.take(view.Sandbox.ID, id)
	if err != nil {
		return nil, err
	}
	if view, err = e.read(ctx, id); err == nil && !view.waits(e.c.Now()) {
		if view.State == StateOpen && !view.Bound {
			err = &UsageError{What: fmt.Sprintf("transaction %s got no order for %s and is at its end", id, view.idle), Mend: "savepoint recover rolls it back; begin another one"}
		} else {
			err = fmt.Errorf("resume: %w", unfinishedError(view))
		}
	}
	t := &tx{e: e, view: view, created: true}
	if err == nil {
		t.boundary = view.Boundary
		if view.Session {
			t.base, err = e.loadSessions(ctx, view.Sandbox)
		}
	}
	if err != nil {
		release()
		return nil, err
	}
	return &Tx{e: e, t: t, release: release}, nil
}

// Do runs f in a transaction that is bound to this process. It commits when f
// returns nil, and rolls back when f returns an error, which Do returns, or
// panics, which goes on. When a step has ended the transaction before, Do only
// reports it. With the key of an earlier Do that has ended f is not called.
func (e *Engine) Do(ctx context.Context, b BeginSpec, f func(*Tx) error) (out Outcome, err error) {
	b.Bound = true
	x, err := e.Begin(ctx, b)
	if err != nil {
		return Outcome{}, err
	}
	if out, ended := x.ended(); ended {
		out.Replayed = true
		return out, nil
	}
	returned := false
	defer func() {
		if !returned { // a panic, or the end of the goroutine
			_, _ = x.Rollback(ctx, "the function that ran it panicked")
		}
	}()
	ferr := f(x)
	returned = true
	if out, ended := x.ended(); ended {
		return out, ferr
	}
	if ferr != nil {
		out, err = x.Rollback(ctx, ferr.Error())
		return out, errors.Join(ferr, err)
	}
	return x.Commit(ctx)
}

// ended reports the outcome of a transaction that is not held any more.
func (x *Tx) ended() (Outcome, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.t.outcome(), x.release == nil
}

// Exec runs one command: judged on its own, covered by the transaction's
// snapshot, validated by its exit and its own validations. *UsageError when the
// boundary does not cover what it may do; then nothing ran.
func (x *Tx) Exec(ctx context.Context, s StepSpec) (Outcome, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	spec, err := x.t.stepSpec(s)
	if err != nil {
		return x.t.outcome(), err
	}
	if out, done, err := x.t.again(ctx, spec); done {
		return out, err
	}
	return x.give("run", func() (Outcome, error) { return x.t.exec(ctx, spec) })
}

// Savepoint notes the present state under a name, to roll back to. The boundary
// is that of the newest savepoint when it is "", and never a larger one: what
// runs afterwards has to be covered by it. When it cannot be taken the
// transaction goes on without it.
func (x *Tx) Savepoint(ctx context.Context, name string, b Boundary) (Outcome, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.give("savepoint", func() (Outcome, error) { return x.t.save(ctx, name, b) })
}

// RollbackTo restores the state at a savepoint; PointBegin is the state at
// begin. The savepoint stays, newer ones are gone, the transaction goes on.
func (x *Tx) RollbackTo(ctx context.Context, name string) (Outcome, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.give("roll back", func() (Outcome, error) { return x.t.goBack(ctx, name) })
}

// Rollback ends the transaction with the state at begin. It is not stopped by
// ctx. The reason is for the record; "" = it was asked for.
func (x *Tx) Rollback(ctx context.Context, reason string) (Outcome, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.t.view.State == StateRolledBack {
		return x.repeated()
	}
	if reason == "" {
		reason = "rolled back as asked"
	}
	return x.give("roll back", func() (Outcome, error) {
		x.t.order(x.t.plain())
		err := x.t.rollBack(ctx, failure{reason: reason})
		return x.t.outcome(), err
	})
}

// Commit validates the whole and ends the transaction with what its steps did,
// or rolls it back.
func (x *Tx) Commit(ctx context.Context) (Outcome, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.t.view.State == StateCommitted {
		return x.repeated()
	}
	return x.give("commit", func() (Outcome, error) { return x.t.commitWhole(ctx) })
}

// commitWhole runs the validations that the begin asked for, and commits. They
// are commands too: their intent is recorded, so that a crash among them undoes
// what they did.
func (t *tx) commitWhole(ctx context.Context) (Outcome, error) {
	t.order(t.plain())
	t.slept()
	if !t.seen { // whether the guest may be kept is for the health check
		if facts, err := t.factsNow(ctx); err == nil && t.still(facts) == nil {
			_ = t.wake(ctx, facts)
		}
	}
	list := t.whole
	if list == nil { // taken up: the record has them
		for _, v := range t.view.Validate {
			list = append(list, Validation{Command: v.Command, As: v.As, Timeout: v.Timeout})
		}
	}
	var err error
	if t.probes, err = t.judgeProbes(list); err != nil { // the rules may have changed since
		return t.conclude(ctx, &failure{reason: fmt.Sprintf("a validation could not be evaluated: %v", err)})
	}
	if len(t.probes) > 0 {
		if err := t.before(ctx); err != nil {
			return t.conclude(ctx, &failure{reason: fmt.Sprintf("the state before the validations could not be noted: %v", err)})
		}
		if err := t.append(ctx, entry{event: evValidate}); err != nil {
			return t.outcome(), err
		}
	}
	return t.conclude(ctx, t.decide(ctx, scope{guest: true}))
}

// Close lets the sandbox go. A bound transaction is rolled back; another stays
// open for Resume. After its end Close does nothing.
func (x *Tx) Close(ctx context.Context) error {
	x.mu.Lock()
	bound := x.release != nil && x.t.view.Bound
	if !bound {
		x.letGo()
	}
	x.mu.Unlock()
	if !bound {
		return nil
	}
	_, err := x.Rollback(ctx, "it was closed before its commit")
	return err
}

// Outcome is the transaction as it is now, without the result of any command.
func (x *Tx) Outcome() Outcome {
	o, _ := x.ended()
	return o
}

// View returns what the journal says of it.
func (x *Tx) View() Transaction {
	x.mu.Lock()
	defer x.mu.Unlock()
	v := *x.t.view
	v.Commands, v.Points = slices.Clone(v.Commands), slices.Clone(v.Points)
	v.Steps, v.Tasks, v.Checks = slices.Clone(v.Steps), slices.Clone(v.Tasks), slices.Clone(v.Checks)
	return v
}

// give carries out one order. The caller holds mu.
func (x *Tx) give(what string, order func() (Outcome, error)) (Outcome, error) {
	if x.release == nil {
		v := x.t.view
		if v.State == StateOpen {
			return x.t.outcome(), &UsageError{What: fmt.Sprintf("%s: transaction %s was closed", what, v.ID), Mend: "resume it first"}
		}
		return x.t.outcome(), &UsageError{What: fmt.Sprintf("%s: transaction %s is %s", what, v.ID, v.State), Mend: "begin another one"}
	}
	out, err := order()
	x.t.rested()
	if x.t.view.State != StateOpen || x.t.uncertain {
		x.letGo()
	}
	return out, err
}

// letGo leaves the transaction where the next one finds it. The caller holds mu.
func (x *Tx) letGo() {
	if x.release != nil {
		x.t.file()
		x.release()
		x.release = nil
	}
}

// repeated is the answer to an order that was carried out before.
func (x *Tx) repeated() (Outcome, error) {
	o := x.t.outcome()
	o.Replayed = true
	return o, nil
}
