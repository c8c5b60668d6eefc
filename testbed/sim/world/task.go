package world

import (
	"fmt"
	"slices"
	"time"

	"savepoint/orchestrator"
)

// Fate is what becomes of an order to the cluster.
type Fate int

// The fates. A task that dies leaves its lock and a half-made thing; one that
// fails leaves nothing; one that hangs holds its lock until an operator ends it.
const (
	FateDone Fate = iota
	FateSlow      // takes four minutes
	FateFails
	FateDies
	FateHangs
	FateNoWorker // is refused, nothing was started
	FateLate     // gets no answer, and arrives 20 seconds later
)

var fates = []string{"done", "slow", "fails", "dies", "hangs", "no worker", "late"}

func (f Fate) String() string { return fates[f] }

const (
	slowTask = 4 * time.Minute
	lateness = 20 * time.Second
	kept     = 8 // finished tasks of a VM that the cluster still knows
)

// task is one task of the cluster.
type task struct {
	orchestrator.Task
	ends time.Time // zero: never
	err  error
	job  job
}

// job is what a task does.
type job struct {
	kind, lock string
	start      func() error // when it begins: an error and it has done nothing
	finish     func() error
	half       func() // what is left when it dies on the way
	undo       func() // when it fails: as if it had never been
}

// order starts a task on the VM, or does what its fate says. The caller holds mu.
func (c *Cluster) order(v *vm, fate Fate, j job) (*task, error) {
	if fate == FateLate && c.Task > 0 {
		c.later(c.now().Add(lateness), func() {
			if c.vms[v.ref.ID] != v {
				return
			}
			_, _ = c.order(v, FateDone, j)
		})
		return nil, fmt.Errorf("%s %s: no answer: %w", j.kind, v.ref, orchestrator.ErrUnknownOutcome)
	}
	switch {
	case fate == FateNoWorker:
		return nil, fmt.Errorf("%s %s: got no worker upid: %w", j.kind, v.ref, orchestrator.ErrUnavailable)
	case v.lock != "":
		return nil, fmt.Errorf("%s %s: VM is locked (%s): %w", j.kind, v.ref, v.lock, orchestrator.ErrBusy)
	}
	if err := j.start(); err != nil {
		return nil, fmt.Errorf("%s %s: %w", j.kind, v.ref, err)
	}
	now := c.now()
	k := &task{job: j, Task: orchestrator.Task{
		UPID: orchestrator.UPID(fmt.Sprintf("UPID:%s:%08X:%s:%d:", v.ref.Node, c.next(), j.kind, v.ref.ID)), Type: j.kind, VM: v.ref,
		Started: now.Truncate(time.Second), Running: true,
	}}
	if j.lock != "" {
		v.lock, v.holder = j.lock, k
	}
	v.tasks = append(v.tasks, k)
	if len(v.tasks) > 2*kept {
		v.tasks = slices.DeleteFunc(v.tasks, func(o *task) bool { return !o.Running && len(v.tasks) > kept && o != k })
	}
	switch {
	case c.Task == 0:
		c.end(v, k, FateDone)
		return k, nil
	case fate == FateHangs:
		return k, nil
	case fate == FateSlow:
		k.ends = now.Add(slowTask)
	default:
		k.ends = now.Add(c.Task)
	}
	c.later(k.ends, func() { c.end(v, k, fate) })
	return k, nil
}

// end is the end of a task. The caller holds mu.
func (c *Cluster) end(v *vm, k *task, fate Fate) {
	if !k.Running {
		return
	}
	k.Running = false
	switch fate {
	case FateDies:
		if k.job.half != nil {
			k.job.half()
		}
		k.err = fmt.Errorf("%s %s: unexpected status: %w", k.Type, v.ref, orchestrator.ErrUnknownOutcome)
	case FateFails:
		if k.job.undo != nil {
			k.job.undo()
		}
		v.unlock(k)
		k.err = fmt.Errorf("%s %s: storage error: %w", k.Type, v.ref, orchestrator.ErrUnavailable)
	default:
		v.unlock(k)
		k.err = k.job.finish()
	}
	if k.err != nil {
		k.Failure = k.err.Error()
	}
}

// unlock takes away the lock that the task holds, and no other's: a task that
// needs none may run beside one that does. The caller holds mu.
func (v *vm) unlock(k *task) {
	if v.holder == k {
		v.lock, v.holder = "", nil
	}
}

// task returns a task of any VM. The caller holds mu.
func (v *vm) task(id orchestrator.UPID) *task {
	for _, k := range slices.Backward(v.tasks) {
		if k.UPID == id {
			return k
		}
	}
	return nil
}
