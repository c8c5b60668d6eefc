package chaos

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"savepoint/orchestrator"
)

// report is what became of a round.
type report struct {
	schedule
	hit        bool
	state      orchestrator.State // of the transaction; "" when none had begun
	stuck      []string           // reasons, also of what recover mended later
	unlocked   bool               // the operator had to take a killed task's lock away
	cleared    bool               // the operator had to delete a foreign snapshot
	woken      bool               // the VM was off afterwards, and the next command started it
	took       time.Duration
	moment     time.Duration // when the fault came
	proofs     int           // how often the journal was proved after a recovery
	apart      bool          // the bystander was not touched
	violations []string
	broken     bool     // the sandbox is of no use to the rounds that follow
	trail      []string // what the commands said, for violations
}

func (r *report) violate(format string, args ...any) {
	r.violations = append(r.violations, fmt.Sprintf(format, args...))
}

func (r *report) note(res result) result {
	r.trail = append(r.trail, res.String())
	return res
}

// play plays a round. Without a fault it measures the transaction.
func (w *world) play(s schedule) (r report) {
	r = report{schedule: s}
	began := time.Now()
	defer func() {
		w.checkBystander(&r)
		r.took = time.Since(began)
	}()
	before, processes, err := w.read()
	if err != nil || len(processes) > 0 {
		r.violate("before the transaction: %v, processes %q", err, processes)
		r.broken = true
		return r
	}
	n := s.round
	after := before.after(s.plan.user(w.agent), s.plan.changes(n, w.agent))
	d, struck := w.disturb(&r, s.plan.orders(n, w.agent))
	for _, res := range d.results {
		r.note(res)
	}
	if w.ctx.Err() != nil {
		return r
	}

	tx, err := w.last()
	if err != nil {
		r.violate("look at the transaction: %v", err)
		return r
	}
	checkExit(&r, d, tx)
	if s.fault == faultTwice {
		p := w.start(nil, "recover")
		killAt := time.AfterFunc(time.Duration(s.again*float64(w.took[s.plan.name])), p.kill)
		r.note(p.wait(patience))
		killAt.Stop()
		w.prove(&r)
	}
	w.settle(&r)
	if tx.ID != "" {
		if tx, err = w.show(tx.ID); err != nil {
			r.violate("look at the transaction: %v", err)
			return r
		}
		w.newest = tx.ID
	}
	if tx.State == orchestrator.StateOpen { // waits for its owner, who gives it up
		if res := r.note(w.savepoint("tx", "rollback", string(tx.ID))); res.code != 0 {
			r.violate("roll the open transaction back: exit code %d", res.code)
		}
		w.settle(&r)
		if tx, err = w.show(tx.ID); err != nil {
			r.violate("look at the transaction: %v", err)
			return r
		}
	}
	r.state = tx.State
	r.trail = append(r.trail, tx.history())
	if s.fault == faultForeign { // it is in nobody's way any more
		if err := w.checkForeign(&r); err != nil {
			r.violate("delete the foreign snapshot: %v", err)
		}
	}
	w.checkVM(&r, tx, struck)
	want := before
	switch tx.State {
	case orchestrator.StateCommitted:
		if want = after; !s.plan.commits {
			r.violate("it is committed, and must never be")
		}
	case orchestrator.StateRolledBack, "":
		if s.fault == "" && s.plan.commits {
			r.violate("undisturbed, it is %q: %s", tx.State, tx.Reason)
		}
	default:
		r.violate("it is %s: %s", tx.State, tx.Reason)
	}
	w.checkGuest(&r, tx.State, before, after, want)
	if res := r.note(w.savepoint("run", box, "--", fmt.Sprintf("echo %d > /workspace/next", n))); res.code != 0 {
		r.violate("the next transaction: exit code %d", res.code)
		r.broken = true
	}
	if next, err := w.last(); err != nil {
		r.violate("look at the next transaction: %v", err)
	} else if next.ID != "" {
		w.newest = next.ID
	}
	return r
}

// disturb plays the orders and injects the fault. It returns when both have
// ended, and when the fault came.
func (w *world) disturb(r *report, orders [][]string) (*driver, time.Time) {
	whole := w.took[r.plan.name]
	begun := time.Now()
	d := w.drive(orders)
	if r.fault == "" {
		<-d.over
		w.took[r.plan.name] = time.Since(begun)
		return d, time.Time{}
	}
	r.moment = time.Duration(r.at * float64(whole))
	w.pause(r.moment)
	struck := time.Now()
	hit, err := w.inject(r.schedule, d)
	if err != nil {
		r.violate("inject the fault: %v", err)
	}
	select {
	case <-d.over:
		// A fault that found everything done was none.
		ended := begun
		for _, res := range d.results {
			ended = ended.Add(res.took)
		}
		hit = hit && ended.After(struck)
		if !hit { // the machine has become faster
			w.took[r.plan.name] = min(whole, ended.Sub(begun))
		}
	case <-time.After(2 * patience):
		r.violate("the transaction does not end")
		d.kill()
		<-d.over
	}
	r.hit = hit
	return d, struck
}

// settle calls savepoint recover as an operator's script would: again while the
// cluster cannot be used, and a few times more when something is stuck. A lock
// that a killed task left is taken away as the reason asks for.
func (w *world) settle(r *report) {
	for try := range 8 {
		res := r.note(w.savepoint("recover", "--output", "json"))
		w.prove(r)
		switch res.code {
		case 0:
			return
		case 5:
			why := reasons(res.stdout)
			r.stuck = append(r.stuck, why...)
			if try < 3 {
				w.operate(r, why)
			} else {
				r.violate("recover leaves it stuck")
				return
			}
		case 7: // what was killed is not there yet
		default:
			r.violate("recover: exit code %d", res.code)
			return
		}
		w.pause(500 * time.Millisecond)
	}
	r.violate("recover does not come to an end")
}

// prove asks for the proof that no record was changed or lost: whatever was
// killed, the journal is what was written, and goes on from where it was proved
// before.
func (w *world) prove(r *report) {
	args := []string{"tx", "verify", "--output", "json"}
	if w.head != "" {
		args = append(args, "--head", w.head)
	}
	res := w.savepoint(args...)
	if w.ctx.Err() != nil {
		return
	}
	head, problem := proof(res)
	if problem != "" {
		r.note(res)
		r.violate("after recovery, the journal is not proved: %s", problem)
		return
	}
	w.head = head
	r.proofs++
}

// proof reads what tx verify printed: the journal's head, or what is wrong.
func proof(res result) (head, problem string) {
	var said struct {
		Sound   bool   `json:"sound"`
		Records int64  `json:"records"`
		Record  int64  `json:"record"`
		Problem string `json:"problem"`
		Head    string `json:"head"`
	}
	err := json.Unmarshal([]byte(res.stdout), &said)
	switch {
	case said.Problem != "":
		return "", fmt.Sprintf("record %d: %s", said.Record, said.Problem)
	case res.code != 0:
		return "", fmt.Sprintf("exit code %d", res.code)
	case err != nil:
		return "", fmt.Sprintf("the answer is not understood: %v", err)
	case !said.Sound || said.Records == 0 || said.Head == "":
		return "", "the answer proves nothing: " + strings.TrimSpace(res.stdout)
	}
	return said.Head, ""
}

// operate does what a reason tells an operator to do, where an operator is
// right: the fault ended a task of the cluster in the middle, and with the task
// nobody is left to take its lock away.
func (w *world) operate(r *report, reasons []string) {
	if r.fault == faultForeign && slices.ContainsFunc(reasons, func(why string) bool { return strings.Contains(why, foreignName) }) {
		r.cleared = true
		if err := w.dropForeign(); err != nil {
			r.violate("delete the foreign snapshot: %v", err)
		}
		return
	}
	asked := slices.ContainsFunc(reasons, func(why string) bool {
		return strings.Contains(why, fmt.Sprintf("qm unlock %d", w.sandbox.VM.ID))
	})
	if !asked {
		return
	}
	vm, err := w.vm()
	switch {
	case err != nil:
		r.violate("ask for the VM: %v", err)
	case vm.Lock == "" || !r.fault.killsTasks():
		r.violate("an operator is asked to unlock the VM, which is locked by %q after fault %s", vm.Lock, r.fault)
	default:
		r.unlocked = true
		if err := w.unlock(); err != nil {
			r.violate("unlock the VM: %v", err)
		}
	}
}

// reasons are those of the stuck transactions, and of the snapshots that cannot
// be deleted, that recover printed.
func reasons(text string) []string {
	var all struct {
		Transactions []struct {
			State  orchestrator.State `json:"state"`
			Reason string             `json:"reason"`
		} `json:"transactions"`
		Snapshots []struct {
			Reason string `json:"reason"`
		} `json:"snapshots_left"`
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return []string{"not understood: " + text}
	}
	var out []string
	for _, t := range all.Transactions {
		if t.State == orchestrator.StateStuck {
			out = append(out, t.Reason)
		}
	}
	for _, s := range all.Snapshots {
		out = append(out, s.Reason)
	}
	return out
}

// checkExit holds the exit code and the printed result against the journal.
func checkExit(r *report, d *driver, tx transaction) {
	res := d.last()
	complete := len(d.results) > 0 && (!r.plan.several || res.args[1] == "commit")
	ok := false
	switch res.code {
	case 0:
		ok = complete && tx.State == orchestrator.StateCommitted
	case 4:
		ok = tx.State == orchestrator.StateRolledBack
	case 5:
		ok = tx.State == orchestrator.StateStuck
		r.stuck = append(r.stuck, tx.Reason)
	case 7: // nothing begun, or left open, or undone because of the cluster
		ok = tx.State != orchestrator.StateCommitted
	case -1:
		ok = r.fault.killsSavepoint()
	}
	if !ok {
		r.violate("exit code %d, but the journal says %q", res.code, tx.State)
	}
	if r.plan.several || strings.TrimSpace(res.stdout) == "" || res.code < 0 {
		return
	}
	var said transaction
	if err := json.Unmarshal([]byte(res.stdout), &said); err != nil {
		r.violate("the result is not understood: %v", err)
	} else if said.ID != tx.ID || said.State != tx.State {
		r.violate("it says that %s is %s, the journal that %s is %s", said.ID, said.State, tx.ID, tx.State)
	}
}

// checkVM looks at the VM as the cluster sees it, after recovery. A VM that was
// killed when all was done stays off until the next command starts it.
func (w *world) checkVM(r *report, tx transaction, struck time.Time) {
	vm, err := w.vm()
	if err != nil {
		r.violate("ask for the VM: %v", err)
		return
	}
	if vm.Lock != "" {
		r.violate("the VM is locked: %s", vm.Lock)
	}
	names, err := w.snapshots()
	if own, err := w.ofVolume(); err != nil || len(own) > 0 {
		r.violate("snapshots %q, %v on the workspace volume; want none", own, err)
	}
	if err != nil || !slices.Equal(names, []string{pristine}) {
		r.violate("snapshots %q, %v; want only %s", names, err, pristine)
	}
	files, err := w.volumes()
	for _, f := range files {
		if strings.Contains(f, "-state-") && !strings.Contains(f, "-state-"+pristine) {
			r.violate("saved memory %s is left", f)
		}
	}
	if err != nil {
		r.violate("look for saved memory: %v", err)
	}
	if vm.Status == "running" {
		return
	}
	if tx.State == orchestrator.StateRolledBack && tx.RunningAtBegin && struck.Before(tx.Ended) {
		r.violate("the VM is %s: it ran at the begin, and it was rolled back after the fault", vm.Status)
	}
	r.woken = true
	if res := r.note(w.savepoint("run", box, "--", "true")); res.code != 0 {
		r.violate("wake the sandbox: exit code %d", res.code)
	}
}

// pristine is the snapshot that a sandbox keeps.
const pristine = "sp-pristine"

// checkGuest reads the guest and compares.
func (w *world) checkGuest(r *report, state orchestrator.State, before, after, want tree) {
	got, processes, err := w.read()
	if err != nil {
		r.violate("read the guest: %v", err)
		r.broken = true
		return
	}
	if len(processes) > 0 {
		r.violate("processes of the command live: %q", processes)
	}
	if !w.zfs {
		if own, err := w.inGuest("ls -A /srv/savepoint/snap"); err != nil || own != "" {
			r.violate("snapshots %q, %v of the workspace in the guest; want none", own, err)
		}
	}
	d := diff(want, got)
	if d == "" {
		return
	}
	kind := "half of it is there"
	switch {
	case diff(before, got) == "":
		kind = "the files are those before it"
	case diff(after, got) == "":
		kind = "the files are those after it"
	}
	r.violate("the journal says %q, but %s: %s", state, kind, d)
}
