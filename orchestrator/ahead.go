package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Between two commands an agent thinks, and the sandbox rests. The snapshot that
// the next command will need is taken then: a transaction without a command,
// which the command adopts if nothing was written since.

// ahead is a snapshot that waits for its command. Only the process that took it
// can use it: what it knows of the guest is not in the journal.
type ahead struct {
	view   *Transaction
	writes string // what the guest said was written when it was complete
}

// work is what the engine does of itself in one sandbox between two orders.
type work struct {
	done   chan struct{}
	wanted bool // somebody waits for the sandbox; guarded by the engine's mu
}

// Ahead asks for the snapshot that the sandbox's next command will need, before
// there is one, and returns at once. The boundary is that of the last command
// that had one when it is "", and what the agent's commands need when there was
// none. Without Config.Ahead, and while the sandbox is at work, it does nothing.
func (e *Engine) Ahead(ctx context.Context, sb Sandbox, b Boundary) error {
	if !e.c.Ahead {
		return nil
	}
	if err := errors.Join(e.load(ctx), usable(sb)); err != nil {
		return err
	}
	if b == "" || b == BoundaryAuto {
		e.mu.Lock()
		b = e.box(sb.ID).last
		e.mu.Unlock()
	}
	if b == "" {
		b = BoundaryAuto
	}
	b, err := e.choose(Spec{Sandbox: sb, Boundary: b}, coverAgent)
	if err != nil {
		return err
	}
	e.prepareNext(ctx, sb, b)
	return nil
}

// Quiet waits for the engine's work in the background and gives up what was
// prepared: at the end of a process that stays. What it could not delete stays
// noted in the journal for Collect.
func (e *Engine) Quiet(ctx context.Context) error {
	e.mu.Lock()
	var ids []SandboxID
	for id, b := range e.boxes {
		if b.work != nil || b.ahead != nil {
			ids = append(ids, id)
		}
	}
	e.mu.Unlock()
	slices.Sort(ids)
	var fails []error
	for _, id := range ids {
		fails = append(fails, e.quiet(ctx, id))
	}
	return errors.Join(fails...)
}

func (e *Engine) quiet(ctx context.Context, sb SandboxID) error {
	if err := e.lockIdle(ctx, sb); err != nil {
		return fmt.Errorf("sandbox %s: %w", sb, err)
	}
	b := e.boxes[sb]
	if b == nil || b.ahead == nil || b.holder != "" { // whoever has it knows of it
		e.mu.Unlock()
		return nil
	}
	view := b.ahead.view
	b.holder = "quiet"
	e.mu.Unlock()
	defer e.unclaim(sb)
	if err := e.dropAhead(ctx, sb, "it was not used"); err != nil {
		return err
	}
	_, err := e.collectOne(ctx, view)
	return err
}

// lockIdle waits until the engine has no work of its own in the sandbox, and
// returns with mu held. The work is told to hurry.
func (e *Engine) lockIdle(ctx context.Context, sb SandboxID) error {
	for {
		e.mu.Lock()
		b := e.boxes[sb]
		if b == nil || b.work == nil {
			return nil
		}
		w := b.work
		w.wanted = true
		e.mu.Unlock()
		select {
		case <-w.done:
		case <-ctx.Done():
			return fmt.Errorf("its next snapshot is being prepared: %w: %w", ErrUnavailable, ctx.Err())
		}
	}
}

// claimAlone is claim for what does not go on with a snapshot taken ahead.
func (e *Engine) claimAlone(ctx context.Context, sb Sandbox, holder TxID) (release func(), err error) {
	if release, err = e.claim(ctx, sb, holder); err != nil {
		return nil, err
	}
	if err := e.dropAhead(ctx, sb.ID, "something else was done to the sandbox"); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// unused is what an earlier preparation has left unfinished: nobody's command
// ran in it, so nobody has to be asked before it is settled.
func (b *box) unused() TxID {
	for _, t := range b.open {
		if t.Unused() && t.State != StateStuck {
			return t.ID
		}
	}
	return ""
}

// takeOut hands over the snapshot that was taken ahead, nil if there is none.
// The caller holds the sandbox.
func (e *Engine) takeOut(sb SandboxID) *ahead {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.boxes[sb]
	a := b.ahead
	b.ahead = nil
	return a
}

func (e *Engine) putBack(a *ahead) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.boxes[a.view.Sandbox.ID].ahead = a
}

// dropAhead gives up the snapshot that was taken ahead, if there is one. The
// caller holds the sandbox.
func (e *Engine) dropAhead(ctx context.Context, sb SandboxID, why string) error {
	a := e.takeOut(sb)
	if a == nil {
		return nil
	}
	t := &tx{e: e, view: a.view, background: true}
	defer t.file()
	return t.shelve(ctx, why, false)
}

// shelve ends a transaction whose snapshot was taken ahead and will not be used.
// The cluster is not asked: the collector deletes the snapshot.
func (t *tx) shelve(ctx context.Context, why string, interrupted bool) error {
	t.pending = nil
	return t.append(ctx,
		entry{event: evRestored, data: restoredData{Reason: why, Interrupted: interrupted}},
		entry{event: evRolledBack})
}

// adopt goes on with the snapshot that was taken ahead if it serves the command,
// and reports whether it does. The cluster is not asked, the guest once; the
// record is written together with the command's intent.
func (t *tx) adopt(ctx context.Context) bool {
	if t.boundary == BoundaryNone {
		return false // it writes nothing, and what waits goes on waiting
	}
	a := t.e.takeOut(t.spec.Sandbox.ID)
	if a == nil {
		return false
	}
	done := t.step(StepSnapshot, string(a.view.Snapshot))
	start := t.e.c.Now()
	if why := t.unfit(ctx, a); why != "" {
		t.detail = "not used: " + why
		done(nil)
		old := &tx{e: t.e, view: a.view, background: true}
		_ = old.shelve(ctx, why, false) // it stays open when it fails, and the next write fails as well
		old.file()
		return false
	}
	t.own, t.from, t.view = t.view, a, a.view
	t.created, t.answered, t.ranAtBegin = true, true, a.view.RunningAtBegin
	d := t.beginData()
	d.Checked = t.e.c.Now().Sub(start)
	t.queue(entry{event: evAdopt, data: d, spends: t.spends, key: t.spec.Key})
	t.detail = "taken ahead"
	done(nil)
	return true
}

// unfit says why the snapshot does not serve the command; "" if it does. The
// guest is asked last: between its answer and the command nothing is done but
// to write the intent.
func (t *tx) unfit(ctx context.Context, a *ahead) string {
	switch {
	case a.view.Boundary != t.boundary:
		return fmt.Sprintf("the command needs boundary %s", t.boundary)
	case !same(a.view.Sandbox, t.spec.Sandbox):
		return "the sandbox was changed since"
	}
	if err := t.before(ctx); err != nil {
		return fmt.Sprintf("the state before the command could not be noted: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lookInterval)
	defer cancel()
	facts, err := t.e.c.Guest.Inspect(ctx, t.spec.Sandbox)
	if err != nil {
		return fmt.Sprintf("the guest does not answer: %v", err)
	}
	old := &tx{e: t.e, view: a.view}
	if b := old.still(facts); b != nil {
		return b.reason
	}
	if facts.Writes == "" || facts.Writes != a.writes {
		return "something was written in the guest since"
	}
	if skew, doubt := skewOf(facts, t.e.c.Now()); skew.Abs() > t.e.c.Guards.MaxSkew+doubt {
		return fmt.Sprintf("the guest's clock is %s off", skew.Round(time.Millisecond))
	}
	return ""
}

// giveBack undoes an adoption of which nothing was written: the snapshot waits on.
func (t *tx) giveBack() {
	if t.own == nil {
		return
	}
	t.e.putBack(t.from)
	t.view, t.own, t.from, t.created, t.answered = t.own, nil, nil, false, false
}

// prepareNext starts what is to be done before the sandbox's next order, unless
// somebody has it: the caller's boundary, or that of the last command.
func (e *Engine) prepareNext(ctx context.Context, sb Sandbox, want Boundary) {
	b, w, want := e.startWork(sb.ID, want)
	if w == nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	e.c.Go(func() {
		a := e.prepare(ctx, sb, want, w)
		e.mu.Lock() // once: between the two a comer would find the sandbox at work
		b.ahead, b.work = a, nil
		e.vacate(sb.ID)
		e.mu.Unlock()
		close(w.done)
	})
}

// startWork takes the sandbox for the engine's own work; nil if there is none to
// do, or somebody has it.
func (e *Engine) startWork(sb SandboxID, want Boundary) (*box, *work, Boundary) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.boxes[sb]
	if b == nil && want != "" {
		b = e.box(sb)
	}
	if b == nil || b.holder != "" || len(b.open) > 0 {
		return nil, nil, ""
	}
	if want == "" {
		want = b.last
	}
	if want == "" || b.ahead != nil && b.ahead.view.Boundary == want {
		return nil, nil, ""
	}
	b.holder, b.work = "preparing", &work{done: make(chan struct{})}
	return b, b.work, want
}

// prepare deletes spent snapshots when there are several, and takes one ahead;
// nil if it did not come to that. The work holds the sandbox.
func (e *Engine) prepare(ctx context.Context, sb Sandbox, b Boundary, w *work) *ahead {
	if e.dropAhead(ctx, sb.ID, fmt.Sprintf("boundary %s was asked for", b)) != nil {
		return nil
	}
	hurry := func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return w.wanted
	}
	if 2*e.deletable(sb.ID) >= e.c.Keep {
		_, _ = e.collect(ctx, sb.ID, hurry)
	}
	if hurry() || e.deletable(sb.ID) >= e.c.Keep {
		return nil
	}
	t := e.newTx(Spec{Sandbox: sb})
	t.boundary, t.background = b, true
	a, err := t.takeAhead(ctx)
	if err != nil {
		t.file()
	}
	return a
}

// takeAhead takes the snapshot. An error means that there is none to use.
func (t *tx) takeAhead(ctx context.Context) (*ahead, error) {
	if err := t.lookVM(ctx); err != nil {
		return nil, err
	}
	facts, err := t.factsNow(ctx)
	if err == nil && facts.Writes == "" {
		err = &UnsupportedError{What: fmt.Sprintf("sandbox %s does not tell what is written in it", t.spec.Sandbox.Name)}
	}
	if err != nil {
		return nil, err
	}
	if err := t.append(ctx, entry{event: evBegin, data: beginData{
		Box: t.spec.Sandbox, Boundary: t.boundary, Snapshot: SnapshotOf(t.view.ID), RunState: t.ranAtBegin, Ahead: true,
	}}); err != nil {
		return nil, err
	}
	what := "the snapshot could not be taken"
	if err = t.snapshot(ctx, evAhead); err == nil {
		what = "the guest could not be asked what is written in it"
		facts, err = t.factsNow(ctx)
	}
	if err == nil {
		what = "the journal could not be written"
		err = t.append(ctx)
	}
	if err != nil {
		_, gerr := t.giveUpBegun(ctx, what, err)
		return nil, errors.Join(err, gerr)
	}
	return &ahead{view: t.view, writes: strings.Clone(facts.Writes)}, nil
}

// same compares sandboxes, one of which was read from a record: a time is not
// the same value then.
func same(a, b Sandbox) bool {
	a.Created, b.Created = time.Time{}, time.Time{}
	return a == b
}
