package orchestrator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"sync"
	"time"

	"savepoint/policy"
)

// tx is a transaction at work, live or in recovery. One goroutine owns it.
type tx struct {
	e    *Engine
	view *Transaction // the fold of what is on disk

	pending   []entry // to be written with the next append
	uncertain bool    // an append may or may not have reached the disk
	broken    error   // the first append that failed

	// Of a live transaction only.
	spec       Spec
	dir        string            // where the command begins, the session's included
	env        map[string]string // what it begins with, the session's included
	base       sessions          // of the sandbox, before the transaction
	leaves     *sessionData      // what the command left; nil: as before
	verdict    policy.Verdict
	permit     policy.Permit
	probes     []probe
	spends     []GrantID // grants that the begin uses up
	boundary   Boundary
	ranAtBegin bool
	started    time.Time
	policyTook time.Duration
	commitTook time.Duration
	result     *ExecResult
	told       time.Time // when the executor returned it
	stdout     string
	stderr     string
	detail     string       // for the next finished step
	whole      []Validation // of several commands together, as they were asked for
	seen       bool         // the guest was looked at since the transaction was taken up or rested
	ended      time.Time    // when its last order ended

	secrets   *redactor // what must not be recorded of the order
	secretsOf string    // its command

	was     *trees        // the files before the command; nil: not asked for
	noted   time.Duration // how long that took
	changed *changes      // what the command did to them

	own        *Transaction // what the transaction was before it went on with a snapshot taken ahead
	from       *ahead       // and that snapshot
	background bool         // it is the engine's own work, not an order

	undone bool // the guest carried the mark of what is undone when the last rollback was ordered
	// revived: this process restarted the guest because it did not answer.
	revived bool

	created  bool // Create may have been called: a snapshot may exist or appear
	answered bool // and each time it was refused, or its task is known
	doubt    bool // the last order to restore may have got no answer
	loose    bool // an order to restore got none, and may still arrive
	blind    bool // an order to restore has no number in the journal
}

// probe is one validation command, judged.
type probe struct {
	command string
	as      policy.User
	timeout time.Duration // 0 = Deadlines.Validate
	verdict policy.Verdict
	permit  policy.Permit
}

// entry is a record to be.
type entry struct {
	event   string
	data    any
	settled bool
	spends  []GrantID
	key     string
	session json.RawMessage

	redacted int // secrets that were taken out of data already
}

func (e *Engine) newTx(s Spec) *tx {
	return &tx{
		e: e, spec: s, started: e.c.Now(),
		view: &Transaction{ID: e.c.NewID(), Sandbox: s.Sandbox},
	}
}

// queue puts a record off until the next append, with which it becomes durable
// at once. Only for states that no effect separates from the next.
func (t *tx) queue(en entry) { t.pending = append(t.pending, en) }

// append makes the queued and the given records durable and folds them in.
// It is not cancelled by ctx: an append that was begun has to have an answer.
// After an error none of them counts; whether they are on disk is unknown if
// the error is ErrUnknownOutcome.
func (t *tx) append(ctx context.Context, entries ...entry) error {
	entries = append(t.pending, entries...)
	t.pending = nil
	switch {
	case t.uncertain:
		return t.broken // what is on disk has to be read again first
	case len(entries) == 0:
		return nil
	}
	state, now := t.view.State, t.e.c.Now()
	records := make([]Record, len(entries))
	for i, en := range entries {
		var err error
		if state, err = t.e.moves.next(t.view.ID, state, en.event); err != nil {
			return err
		}
		records[i] = Record{At: now, Tx: t.view.ID, Sandbox: t.view.Sandbox.ID, State: state, Event: en.event, Settled: en.settled, Spends: en.spends, Key: en.key, Session: en.session}
		if en.data != nil {
			data, n := t.redactor().record(en.data)
			if records[i].Data, err = json.Marshal(data); err != nil {
				return fmt.Errorf("encode %s of transaction %s: %w", en.event, t.view.ID, err)
			}
			records[i].Data = noteRedacted(records[i].Data, n+en.redacted)
		}
	}
	ctx = context.WithoutCancel(ctx)
	if b, ok := t.e.c.Journal.(Batcher); ok {
		return t.written(b.AppendAll(ctx, records), records...)
	}
	for _, r := range records {
		if err := t.written(t.e.c.Journal.Append(ctx, r), r); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) written(err error, records ...Record) error {
	if err != nil {
		if lostGrant(err) {
			return err // the journal is well, and nothing was written
		}
		err = &JournalError{fmt.Errorf("record %s of transaction %s: %w", records[len(records)-1].Event, t.view.ID, classed(err))}
		t.uncertain = t.uncertain || class(err) == ErrUnknownOutcome
		if t.broken == nil {
			t.broken = err
		}
		return err
	}
	for _, r := range records {
		if err := t.view.apply(t.e.moves, r); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) journalFailed() bool { return t.broken != nil }

// noteTask makes the cluster's task id durable before anybody waits for it. A
// snapshot under which something shall run is given up when that fails; an undo
// is waited for all the same: recovery finds its task, or repeats it.
func (t *tx) noteTask(ctx context.Context, action string, p PointView) Started {
	d := taskData{Action: action}
	if p.N > 0 {
		d.Snapshot = p.Snapshot
	}
	return func(id UPID) error {
		d.UPID = id
		err := t.append(ctx, entry{event: evTask, data: d})
		if action == taskCreate {
			return err
		}
		if action == taskRollback && err != nil {
			t.loose = true // its task may be taken for that of another order
		}
		return nil
	}
}

// file leaves the transaction where recovery or collection will find it.
func (t *tx) file() {
	if t.view.State == "" && !t.uncertain {
		return
	}
	t.e.mu.Lock()
	defer t.e.mu.Unlock()
	t.e.file(t.view)
}

// step tells the observer that a step begins; the returned function, that it ended.
func (t *tx) step(s Step, detail string) func(error) {
	start := t.e.c.Now()
	emit := func(ev Event) {
		ev.At, ev.Tx, ev.Sandbox, ev.Step = t.e.c.Now(), t.view.ID, t.view.Sandbox.ID, s
		ev.State, ev.Boundary, ev.Detail = t.view.State, t.boundary, t.clean(ev.Detail)
		if ev.Boundary == "" {
			ev.Boundary = t.view.Boundary
		}
		ev.Background = t.background
		t.e.c.Observer(ev)
	}
	emit(Event{Phase: PhaseStarted, Detail: detail})
	return func(err error) {
		if t.detail != "" {
			detail, t.detail = t.detail, ""
		}
		emit(Event{Phase: PhaseFinished, Detail: detail, Err: err, Duration: t.e.c.Now().Sub(start)})
	}
}

// progress tells the observer something inside a step.
func (t *tx) progress(s Step, detail string, err error) {
	t.e.c.Observer(Event{
		At: t.e.c.Now(), Tx: t.view.ID, Sandbox: t.view.Sandbox.ID, Step: s, Phase: PhaseProgress,
		State: t.view.State, Boundary: t.view.Boundary, Detail: t.clean(detail), Err: err, Background: t.background,
	})
}

// outcome reports what is known.
func (t *tx) outcome() Outcome {
	v := t.view
	o := Outcome{
		Transaction: v.ID, SandboxID: v.Sandbox.ID, Sandbox: v.Sandbox.Name, State: v.State,
		Verdict: v.Verdict, Boundary: v.Boundary, Reason: v.Reason, Checks: v.Checks,
		Changed: v.Changed, ChangedCount: v.ChangedCount,
		Timings: v.Timings, Snapshot: string(v.Snapshot), Interrupted: v.Interrupted,
	}
	if v.State == StateDenied {
		o.Message = t.verdict.Message()
	}
	if o.Boundary == "" { // denied before one was chosen
		o.Boundary = BoundaryNone
	}
	if v.State == StateCommitting {
		o.State = StateCommitted // what recovery will say
	}
	if v.State == StateStuck {
		o.Reason = v.Reason + "; " + v.Mend
	}
	for _, k := range v.Tasks {
		o.Tasks = append(o.Tasks, k.UPID)
	}
	switch {
	case t.result != nil:
		exit := t.result.ExitCode
		o.ExitCode, o.Signal, o.Truncated = &exit, t.result.Signal, t.result.Truncated
	case v.Result != nil && !v.Several: // of several commands each has its own outcome
		o.answered(*v.Result)
	}
	o.Dir = t.at()
	if t.stdout != "" || t.stderr != "" {
		o.Stdout, o.Stderr = t.stdout, t.stderr
	}
	if !t.started.IsZero() {
		o.Timings.Commit = t.commitTook
		o.Timings.Total = t.e.c.Now().Sub(t.started)
	}
	return o
}

// answered takes over how a command ended, as it is recorded.
func (o *Outcome) answered(r RanView) {
	o.ExitCode, o.Signal, o.Truncated, o.Stdout, o.Stderr = &r.Exit, r.Signal, r.Truncated, r.Stdout, r.Stderr
}

// digester hashes a whole stream, keeps its beginning and passes it on. A reader
// that went away does not disturb the command.
type digester struct {
	mu   sync.Mutex // an executor may still copy while the engine asks for the sum
	h    hash.Hash
	head []byte
	room int // of head
	next io.Writer
}

func newDigester(next io.Writer, room int) *digester {
	return &digester{h: sha256.New(), room: room, next: next}
}

func (d *digester) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.h.Write(p)
	d.head = append(d.head, p[:min(len(p), d.room-len(d.head))]...)
	if d.next != nil {
		if _, err := d.next.Write(p); err != nil {
			d.next = nil
		}
	}
	return len(p), nil
}

// start is the beginning of what was written.
func (d *digester) start() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.head[:len(d.head):len(d.head)]
}

func (d *digester) sum() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return hex.EncodeToString(d.h.Sum(nil))
}
