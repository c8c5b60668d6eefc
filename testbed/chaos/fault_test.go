package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"savepoint/testbed/lab"
	"savepoint/testbed/notes"
)

// fault is what happens to a transaction.
type fault string

const (
	faultSavepoint fault = "savepoint"
	faultTwice     fault = "twice"
	faultGuest     fault = "guest"
	faultAPI       fault = "api"
	faultNode      fault = "node"
	faultSSH       fault = "ssh"
	faultForeign   fault = "foreign" // on ZFS only
	faultFull      fault = "full"    // on ZFS only
)

var (
	faults    = []fault{faultSavepoint, faultGuest, faultAPI, faultSSH, faultTwice, faultNode}
	zfsFaults = []fault{faultForeign, faultSavepoint, faultFull, faultNode, faultGuest, faultAPI, faultSSH, faultTwice}
)

// killsSavepoint reports whether the fault ends the savepoint process itself.
func (f fault) killsSavepoint() bool { return f == faultSavepoint || f == faultTwice }

// killsTasks reports whether the fault ends the cluster's tasks.
func (f fault) killsTasks() bool { return f == faultAPI || f == faultNode }

// schedule is a round's plan, all of it from the seed.
type schedule struct {
	seed, round uint64
	fault       fault
	plan        plan
	at          float64       // when, as a fraction of the undisturbed duration
	again       float64       // the second kill, as a fraction of the same
	outage      time.Duration // how long API and SSH are away
	// stall: the SSH path carries nothing, instead of being cut; the foreign
	// snapshot is one of the whole VM, instead of its volume's alone.
	stall bool
}

// newSchedule makes the plan of a round. Every kind of fault has its turn; all
// else is drawn.
func newSchedule(seed, round uint64, faults []fault, plans []plan) schedule {
	r := rand.New(rand.NewPCG(seed, round)) // has to be repeatable
	return schedule{
		seed: seed, round: round, fault: faults[round%uint64(len(faults))],
		plan: plans[r.IntN(len(plans))], at: r.Float64(), again: r.Float64(),
		outage: time.Duration(r.Int64N(int64(3 * time.Second))), stall: r.IntN(2) == 0,
	}
}

func (s schedule) String() string {
	text := fmt.Sprintf("fault %s at %.3f of %s", s.fault, s.at, s.plan.name)
	switch {
	case s.fault == faultTwice:
		text += fmt.Sprintf(", again at %.3f of recovery", s.again)
	case s.fault == faultSSH && s.stall:
		text += fmt.Sprintf(", stalled for %d ms", s.outage.Milliseconds())
	case s.fault == faultForeign && s.stall:
		text += ", of the whole VM"
	case s.fault == faultSSH, s.fault == faultFull, s.fault == faultAPI, s.fault == faultNode:
		text += fmt.Sprintf(", away for %d ms", s.outage.Milliseconds())
	}
	return text
}

// inject does it and returns when everything but savepoint is there again. It
// reports whether the fault met what it was meant for.
func (w *world) inject(s schedule, d *driver) (hit bool, err error) {
	switch s.fault {
	case faultSavepoint, faultTwice:
		return d.kill(), nil
	case faultGuest:
		return w.killGuest(d.over)
	case faultAPI:
		return true, w.killLab(s.outage)
	case faultNode:
		// The lab first: it must not see its guest go.
		return true, w.killLab(s.outage, func() error {
			_, err := w.killGuest(nil)
			return err
		})
	case faultSSH:
		for _, way := range []*relay{w.jump, w.node} {
			if s.stall {
				way.stall()
			} else {
				way.cut()
			}
		}
		w.pause(s.outage)
		w.jump.mend()
		w.node.mend()
		return true, nil
	case faultForeign:
		return w.takeForeign(s.stall, d.over)
	case faultFull:
		return true, w.fillPool(s.outage)
	}
	return false, fmt.Errorf("there is no fault %q", s.fault)
}

// pause lets a time pass that the seed chose.
func (w *world) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.ctx.Done():
	}
}

// killGuest kills the guest's QEMU. While none runs, because the VM is being
// restarted, it waits for the next one until over is closed, if there is an over.
func (w *world) killGuest(over <-chan struct{}) (bool, error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		hit, err := w.killRecorded(filepath.Join(w.labDir(), "qemu", fmt.Sprintf("vm-%d", w.sandbox.VM.ID), "record.json"))
		if hit || err != nil || over == nil {
			return hit, err
		}
		select {
		case <-over:
			return false, nil
		case <-w.ctx.Done():
			return false, w.ctx.Err()
		case <-tick.C:
		}
	}
}

// killLab kills the lab, does what is to be done while it is away, and starts
// it again.
func (w *world) killLab(outage time.Duration, meanwhile ...func() error) error {
	hit, err := w.killRecorded(filepath.Join(w.labDir(), "process.json"))
	if err != nil || !hit {
		return errors.Join(err, fmt.Errorf("kill the lab: hit %t", hit))
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
		st, err := lab.Read(w.labDir())
		if err != nil {
			return err
		}
		if !st.Running {
			break
		}
		if time.Now().After(deadline) {
			return errors.New("the lab lives on after SIGKILL")
		}
	}
	for _, do := range meanwhile {
		if err := do(); err != nil {
			return err
		}
	}
	w.pause(outage)
	w.labUp()
	return nil
}

// killRecorded kills the process of a record if it is proved to be that: the
// start time is compared once the pidfd fixes what the id means.
func (w *world) killRecorded(path string) (bool, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var r struct {
		PID     int         `json:"pid"`
		Start   string      `json:"start"`   // the lab's record
		Started json.Number `json:"started"` // a guest's record
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	if r.PID == 0 { // not started yet
		return false, nil
	}
	h, err := notes.Open(r.PID, func() bool {
		at, err := notes.System.Started(r.PID)
		return err == nil && strconv.FormatUint(at, 10) == r.Start+string(r.Started)
	})
	if errors.Is(err, os.ErrProcessDone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer h.Close()
	if err := h.Signal(unix.SIGKILL); err != nil {
		return false, err
	}
	return true, nil
}
