package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"
)

// Config is what an Engine works with. All ports are required; a boundary
// without a Snapshotter cannot be taken, and what needs it does not run.
type Config struct {
	Journal      Journal
	Decider      Decider
	Snapshotters map[Boundary]Snapshotter
	Hypervisor   Hypervisor
	Executor     Executor
	Guest        Guest
	Tasks        Tasks
	Prover       Prover // needed where a sandbox has a Tenant

	Observer func(Event)      // may be nil
	Now      func() time.Time // nil = time.Now
	NewID    func() TxID      // nil = NewTxID of Now
	// Wait pauses for d or until ctx ends, whichever is first, and returns
	// ctx's error in the second case. nil = the real clock.
	Wait func(ctx context.Context, d time.Duration) error

	Deadlines Deadlines
	// RootBoundary is what a command that is not confined to the workspace
	// runs in: machine or disk. "" = machine.
	RootBoundary Boundary
	OutputLimit  int64 // bytes per stream in an Outcome; 0 = 1 MiB
	RecordLimit  int   // bytes per stream in the journal; 0 = 64 KiB
	// Keep is how many snapshots of finished transactions a sandbox may carry
	// before Run collects them first, one taken ahead included; 0 = 4. In the
	// background they are collected when there are half as many.
	Keep int
	// Ahead takes the snapshot that a sandbox's next command will need in the
	// background, when a command has ended, and deletes spent snapshots there:
	// for processes that stay, and that call Quiet at their end.
	Ahead bool
	// Go starts work in the background; nil = a goroutine.
	Go func(work func())
	// Parallel is how many sandboxes Recover works on at once; 0 = 16.
	Parallel int
	// Guards are what every transaction is validated by.
	Guards Guards
	// Redact are forms of secrets that are taken out of everything that is
	// recorded, besides the built-in ones. What their groups match is redacted;
	// without groups all that they match.
	Redact []*regexp.Regexp
	// Idle is how long an open transaction may wait for its next order before
	// Recover rolls it back; 0 = 1 h.
	Idle time.Duration
}

// Deadlines bound the steps of a transaction; zero fields get the defaults.
type Deadlines struct {
	Command  time.Duration // of a command without a timeout of its own; 10 min
	Validate time.Duration // of each validation command and each question to a running guest; 2 min
	Snapshot time.Duration // until the snapshot is complete, waiting for locks included; 5 min
	Rollback time.Duration // of the whole rollback, repetitions included; 15 min
	Boot     time.Duration // until a restored guest answers; 5 min
	Collect  time.Duration // of deleting one snapshot; 15 min
}

func (d Deadlines) filled() Deadlines {
	or := func(p *time.Duration, v time.Duration) {
		if *p <= 0 {
			*p = v
		}
	}
	or(&d.Command, 10*time.Minute)
	or(&d.Validate, 2*time.Minute)
	or(&d.Snapshot, 5*time.Minute)
	or(&d.Rollback, 15*time.Minute)
	or(&d.Boot, 5*time.Minute)
	or(&d.Collect, 15*time.Minute)
	return d
}

// Engine runs transactions. It is safe for concurrent use; one sandbox has one
// transaction at a time.
type Engine struct {
	c     Config
	moves moves

	mu     sync.Mutex
	loaded bool
	boxes  map[SandboxID]*box
}

// box is what the engine keeps in memory of one sandbox with something to do.
// A sandbox without anything has none.
type box struct {
	holder TxID                  // the transaction or operation that works on it now
	open   map[TxID]*Transaction // not final: recovery has to settle them
	spent  []*Transaction        // final, snapshot not collected; oldest first
	last   Boundary              // of the last transaction that had one
	work   *work                 // the engine's own, which holds the sandbox
	ahead  *ahead                // the snapshot that waits for its command
}

// New returns an engine. It reads nothing yet: Recover should be called before
// the first Run, which refuses sandboxes with an open transaction anyway.
func New(c Config) (*Engine, error) {
	for name, missing := range map[string]bool{
		"Journal": c.Journal == nil, "Decider": c.Decider == nil, "Hypervisor": c.Hypervisor == nil,
		"Executor": c.Executor == nil, "Guest": c.Guest == nil, "Tasks": c.Tasks == nil,
	} {
		if missing {
			return nil, &UsageError{What: "new engine: no " + name}
		}
	}
	switch c.RootBoundary {
	case "":
		c.RootBoundary = BoundaryMachine
	case BoundaryMachine, BoundaryDisk:
	default:
		return nil, &UsageError{What: "new engine: boundary for root " + string(c.RootBoundary), Mend: "use machine or disk"}
	}
	if c.Observer == nil {
		c.Observer = func(Event) {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NewID == nil {
		now := c.Now
		c.NewID = func() TxID { return NewTxID(now()) }
	}
	if c.Wait == nil {
		c.Wait = wait
	}
	if c.OutputLimit <= 0 {
		c.OutputLimit = 1 << 20
	}
	if c.RecordLimit <= 0 {
		c.RecordLimit = 64 << 10
	}
	if c.Keep <= 0 {
		c.Keep = 4
	}
	if c.Go == nil {
		c.Go = func(work func()) { go work() }
	}
	if c.Parallel <= 0 {
		c.Parallel = 16
	}
	if c.Idle <= 0 {
		c.Idle = time.Hour
	}
	c.Deadlines, c.Guards = c.Deadlines.filled(), c.Guards.filled()
	return &Engine{c: c, moves: newMoves(), boxes: map[SandboxID]*box{}}, nil
}

// wait pauses on the real clock.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// load reads, once, what earlier processes left unsettled.
func (e *Engine) load(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.loaded {
		return nil
	}
	records := e.c.Journal.Records(ctx, "")
	if u, ok := e.c.Journal.(Unsettler); ok {
		records = u.Unsettled(ctx)
	}
	txs, err := foldAll(e.moves, records, func(t *Transaction) bool { return !t.Settled })
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	for _, t := range txs {
		e.file(t)
	}
	e.loaded = true
	return nil
}

// file puts an unsettled transaction where Recover or Collect will find it.
// The caller holds mu.
func (e *Engine) file(t *Transaction) {
	b := e.box(t.Sandbox.ID)
	if t.Boundary.covers() > coverNothing {
		b.last = t.Boundary
	}
	delete(b.open, t.ID)
	switch {
	case t.Settled:
	case t.State.Final():
		b.spent = append(b.spent, slim(t))
	default:
		b.open[t.ID] = t
	}
}

// slim drops what collection does not need, so that memory stays flat.
func slim(t *Transaction) *Transaction {
	return &Transaction{
		ID: t.ID, Sandbox: t.Sandbox, State: t.State, Boundary: t.Boundary, Snapshot: t.Snapshot, Points: slices.Clone(t.Points),
		Began: t.Began, Ended: t.Ended,
	}
}

// box returns the sandbox's, a new one if it has none. The caller holds mu.
func (e *Engine) box(sb SandboxID) *box {
	b := e.boxes[sb]
	if b == nil {
		b = &box{open: map[TxID]*Transaction{}}
		e.boxes[sb] = b
	}
	return b
}

// claim takes the sandbox for one transaction or operation, so that nothing
// else touches its VM meanwhile. It waits for the engine's own work, and settles
// what an earlier one has left. ErrBusy says who holds the sandbox and what to
// do; *StuckError if that is an operator's turn.
func (e *Engine) claim(ctx context.Context, sb Sandbox, holder TxID) (release func(), err error) {
	for {
		if err := e.lockIdle(ctx, sb.ID); err != nil {
			return nil, fmt.Errorf("sandbox %s: %w", sb.Name, err)
		}
		b := e.box(sb.ID)
		unused := b.unused()
		if unused == "" || b.holder != "" {
			defer e.mu.Unlock()
			return e.claimNow(b, sb, holder)
		}
		e.mu.Unlock()
		if _, _, err := e.settle(ctx, sb.ID, unused, ""); err != nil {
			return nil, err
		}
	}
}

// claimNow is claim of a sandbox without work of the engine's own. The caller
// holds mu.
func (e *Engine) claimNow(b *box, sb Sandbox, holder TxID) (release func(), err error) {
	if b.holder != "" {
		return nil, fmt.Errorf("sandbox %s is at work (%s); wait for its end: %w", sb.Name, b.holder, ErrBusy)
	}
	for _, t := range b.open {
		if t.State == StateStuck {
			return nil, &StuckError{Sandbox: sb.Name, Tx: t.ID, Reason: t.Reason, Mend: t.Mend}
		}
		return nil, fmt.Errorf("sandbox %s: %w", sb.Name, unfinishedError(t))
	}
	b.holder = holder
	return func() { e.unclaim(sb.ID) }, nil
}

// claimIdle takes a sandbox that has nothing else to do.
func (e *Engine) claimIdle(sb SandboxID, holder TxID) (release func(), ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.box(sb)
	if b.holder != "" || len(b.open) > 0 {
		return nil, false
	}
	b.holder = holder
	return func() { e.unclaim(sb) }, true
}

// unfinishedError says how a transaction that holds its sandbox can be ended.
func unfinishedError(t *Transaction) error {
	if t.State == StateOpen && !t.Bound {
		return &OpenError{Tx: t.ID}
	}
	return fmt.Errorf("transaction %s is unfinished (%s); run savepoint recover: %w", t.ID, t.State, ErrBusy)
}

func (e *Engine) unclaim(sb SandboxID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.vacate(sb)
}

// vacate is unclaim for a caller that holds mu.
func (e *Engine) vacate(sb SandboxID) {
	b := e.boxes[sb]
	b.holder = ""
	if len(b.open) == 0 && len(b.spent) == 0 && b.ahead == nil {
		delete(e.boxes, sb)
	}
}

// Hold reserves the sandbox for an operation outside of transactions, such as
// a reset or its removal. ErrBusy while a transaction runs or is open,
// *StuckError while one is stuck. A snapshot that was taken ahead is not used any
// more. The caller must call release.
func (e *Engine) Hold(ctx context.Context, sb Sandbox, what string) (release func(), err error) {
	if err := e.load(ctx); err != nil {
		return nil, err
	}
	return e.claimAlone(ctx, sb, TxID(what))
}

// class returns the class of failure that err wraps. Without one the outcome
// counts as unknown.
func class(err error) error {
	for _, c := range []error{ErrNotFound, ErrExists, ErrBusy, ErrUnavailable, ErrUnknownOutcome, ErrDenied} {
		if errors.Is(err, c) {
			return c
		}
	}
	return ErrUnknownOutcome
}

// permanent reports whether err is one of the errors that say more than a
// class: no repetition and no look changes them.
func permanent(err error) bool {
	var newer *NotLatestError
	var never *UnsupportedError
	return errors.As(err, &newer) || errors.As(err, &never)
}

// classed makes sure that an error handed to a caller says what it means.
func classed(err error) error {
	if err == nil || permanent(err) || errors.Is(err, class(err)) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
}
