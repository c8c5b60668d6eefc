package sim_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/sim"
	"savepoint/testbed/sim/world"
)

// lab is a cluster, its journal, and the orchestrator process of the moment.
type lab struct {
	c        *world.Cluster
	disk     *sim.Journal
	boxes    []orchestrator.Sandbox
	check    *world.Checker
	sc       scenario
	p        *world.Process
	e        *orchestrator.Engine
	mu       sync.Mutex // over told and ends: callers that slept until the same moment come out of a call together
	told     map[orchestrator.TxID]orchestrator.State
	found    []world.Finding
	log      func(string)
	n        int  // processes so far
	careless bool // it resets without asking whether somebody is at work
	reg      registry
	ends     []orchestrator.State // what run was told, in order
	calmly   bool                 // nothing goes wrong but deaths
	// faults, when not nil, are for every process that boot starts.
	faults *world.Faults
	full   func() bool // whether the journal has no room for what is written now; nil: it has
	skew   time.Duration
	old    int64 // transactions of processes up to this one were compared and are final
}

// recent is the journal without what was compared before.
func (l *lab) recent() orchestrator.Journal { return recent{l.disk, l.old} }

type recent struct {
	orchestrator.Journal
	old int64
}

// Session is the present one.
func (r recent) Session(ctx context.Context, sb orchestrator.SandboxID) ([]byte, error) {
	return r.Journal.(orchestrator.SessionKeeper).Session(ctx, sb)
}

func (r recent) Records(ctx context.Context, tx orchestrator.TxID) iter.Seq2[orchestrator.Record, error] {
	return func(yield func(orchestrator.Record, error) bool) {
		for rec, err := range r.Journal.Records(ctx, tx) {
			if fenceOf(rec.Tx) > r.old && !yield(rec, err) {
				return
			}
		}
	}
}

func newLab(sc scenario, log func(string)) *lab {
	o := world.Usual(max(1, sc.boxes))
	o.NewestOnly = !sc.anySnapshot
	l := &lab{c: world.New(o), sc: sc, told: map[orchestrator.TxID]orchestrator.State{}, log: log}
	for i := range o.Sandboxes {
		l.boxes = append(l.boxes, world.Box(i))
	}
	l.check = world.NewChecker(l.c, l.boxes)
	l.reg = newRegistry(l.boxes)
	return l
}

// boot starts a new process, as after a crash.
func (l *lab) boot(at func(world.Point) error) {
	if l.disk == nil {
		l.disk = sim.NewJournal("sim", l.room)
		if l.sc.prepare != nil {
			l.sc.prepare(l)
		}
	} else {
		l.disk = l.disk.Reopen(l.room)
	}
	l.n++
	l.p = &world.Process{C: l.c, Disk: l.disk, At: at, Log: l.log, Skew: l.skew}
	if l.faults != nil {
		l.p.At, l.p.Fate = l.faults.At, l.faults.Fate
	}
	if l.log != nil {
		l.log(fmt.Sprintf("-- process %d", l.n))
	}
	if len(l.boxes) > 1 || l.sc.ahead {
		l.p.Turns = world.NewTurns(uint64(l.sc.seed+l.n), synctest.Wait)
	}
	d, err := world.Policy()
	if err != nil {
		panic(err)
	}
	cfg := l.p.Config(d)
	cfg.Ahead = l.sc.ahead
	if l.sc.single {
		cfg.Journal = cfg.Journal.(world.Journal).OneByOne()
	}
	if l.sc.wrap != nil {
		l.sc.wrap(l, &cfg)
	}
	if l.e, err = orchestrator.New(cfg); err != nil {
		panic(err)
	}
}

// together runs callers of this process, one at a time if there are turns.
func (l *lab) together(callers ...func()) {
	if l.p.Turns != nil {
		l.p.Turns.Run(callers...)
		return
	}
	for _, f := range callers {
		f()
	}
}

func (l *lab) tell(o orchestrator.Outcome, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && o.Transaction != "" && !o.Replayed && o.State.Final() {
		l.told[o.Transaction] = o.State
	}
}

func (l *lab) run(ctx context.Context, s orchestrator.Spec) orchestrator.Outcome {
	if s.Sandbox.ID == "" {
		s.Sandbox = l.boxes[0]
	}
	o, err := l.e.Run(ctx, s)
	l.tell(o, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = append(l.ends, o.State)
	return o
}

func (l *lab) finding(invariant, format string, args ...any) {
	l.found = append(l.found, world.Finding{Invariant: invariant, Detail: fmt.Sprintf(format, args...)})
}

// checks adds what the checker finds, and what was told wrongly.
func (l *lab) checks(clean bool) {
	ctx := context.Background()
	l.handedOut()
	l.found = append(l.found, l.check.Check(ctx, l.recent(), clean)...)
	for id, state := range l.told {
		i := slices.IndexFunc(l.check.Views, func(t view) bool { return t.ID == id })
		if i < 0 || l.check.Views[i].State != state {
			l.finding(world.Told, "transaction %s was told to be %s: %v", id, state, l.check.Views)
		}
		delete(l.told, id) // final: it does not change any more
	}
	for _, t := range l.check.Views {
		if t.State == orchestrator.StatePrepared && fenceOf(t.ID) != l.disk.Fence() {
			l.finding(world.Ended, "transaction %s is still prepared, for a process that is gone", t.ID)
		}
	}
}

// fenceOf is the number of the process that began the transaction.
func fenceOf(id orchestrator.TxID) int64 {
	fence, _ := strconv.ParseInt(string(id)[4:16], 10, 64)
	return fence
}

// recover asks the process of the moment to settle everything.
func (l *lab) recover() (outs []orchestrator.Outcome, err error) {
	l.together(func() { outs, err = l.e.Recover(context.Background()) })
	for _, o := range outs {
		l.tell(o, err)
	}
	return outs, err
}

func (l *lab) collect() (err error) {
	l.together(func() { _, err = l.e.Collect(context.Background()) })
	return err
}

// quiet ends what the process does of itself.
func (l *lab) quiet() {
	l.together(func() {
		if err := l.e.Quiet(context.Background()); err != nil {
			l.finding(world.Ended, "quiet: %v", err)
		}
	})
}

// settle brings everything to its end with a process that lives, and checks.
func (l *lab) settle() {
	l.boot(nil)
	outs, err := l.recover()
	if err != nil {
		l.finding(world.Ended, "recover: %v", err)
	}
	for _, o := range outs {
		if o.State == orchestrator.StateStuck {
			l.finding(world.Needed, "transaction %s is stuck after nothing but deaths: %s", o.Transaction, o.Reason)
		}
	}
	l.checks(false)
	if len(l.found) > 0 {
		return
	}
	if l.again(); len(l.found) > 0 {
		return
	}
	l.endOpen()
	l.quiet()
	_ = l.collect()         // a deletion that an earlier process ordered may still run
	time.Sleep(time.Minute) // what was ordered late comes by then
	if err := l.collect(); err != nil {
		l.finding(world.Clean, "collect: %v", err)
	}
	l.checks(true)
	if len(l.found) > 0 {
		return
	}
	l.usable()
}

// again lets the scenario's caller come back, who does not know how far he came.
func (l *lab) again() {
	if l.sc.again == nil {
		return
	}
	l.together(func() { l.sc.again(context.Background(), l) })
	l.checks(false)
}

// endOpen takes up what waits for its next order, and ends it: every other
// one with a commit.
func (l *lab) endOpen() { l.together(l.endHere) }

// endHere is endOpen for one of several callers.
func (l *lab) endHere() {
	ctx := context.Background()
	views, _ := orchestrator.List(ctx, l.recent(), orchestrator.Filter{Open: true})
	for i, t := range views {
		if t.State != orchestrator.StateOpen {
			continue
		}
		x, err := l.e.Resume(ctx, t.ID)
		if err != nil {
			l.finding(world.Ended, "resume %s: %v", t.ID, err)
			continue
		}
		var o orchestrator.Outcome
		if (i+len(t.Steps))%2 == 0 {
			o, err = x.Commit(ctx)
		} else {
			o, err = x.Rollback(ctx, "the test ends it")
		}
		if l.tell(o, err); err != nil {
			l.finding(world.Ended, "end %s, which was open: %s, %v", t.ID, o.State, err)
		}
	}
}

// usable runs one more transaction in every sandbox.
func (l *lab) usable() {
	for _, sb := range l.boxes {
		l.together(func() {
			command := fmt.Sprintf("echo usable > /workspace/usable%d", l.n)
			o, err := l.e.Run(context.Background(), orchestrator.Spec{Sandbox: sb, Command: command, Boundary: "machine"})
			if l.tell(o, err); err != nil || o.State != orchestrator.StateCommitted {
				l.finding(world.Usable, "sandbox %s: %s (%s), %v", sb.Name, o.State, o.Reason, err)
			}
		})
	}
	l.checks(false)
}

// dieAt ends the process at its n-th point; 0 = never.
func dieAt(n int) func(world.Point) error {
	return func(at world.Point) error {
		if at.N == n {
			return world.ErrCrash
		}
		return nil
	}
}

// play runs a scenario whose processes die at the given points, one after the
// other, settles what is left and returns what does not hold. alive is the
// first process that did not die of those that should have.
func play(sc scenario, deaths []int, log func(string)) (found []world.Finding, alive int) {
	l := newLab(sc, log)
	l.calmly = sc.wrap == nil
	alive = len(deaths)
	for i, n := range deaths {
		l.boot(dieAt(n))
		if i == 0 {
			l.together(sc.callers(l)...)
			l.undisturbed()
		} else if sc.next != nil {
			l.together(func() { sc.next(context.Background(), l) })
		} else if _, err := l.recover(); err == nil {
			_ = l.collect()
		}
		if !l.p.Gone() {
			alive = i
			break
		}
		if sc.pause > 0 {
			time.Sleep(sc.pause)
		}
	}
	l.settle()
	return l.found, alive
}

// undisturbed checks that the scenario does what it is there for, when its
// process lived.
func (l *lab) undisturbed() {
	if !l.p.Gone() && l.sc.ends != nil && !slices.Equal(l.ends, l.sc.ends) {
		l.finding(told, "undisturbed it ended %v and not %v", l.ends, l.sc.ends)
	}
}

// bubble runs the test on a clock of its own.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func joinLines(lines []string) string {
	text := ""
	for _, s := range lines[max(0, len(lines)-1500):] {
		text += "  " + s + "\n"
	}
	return text
}

var errStop = errors.New("the caller gives up")
