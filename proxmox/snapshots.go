package proxmox

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"savepoint/orchestrator"
)

// Snapshots returns the adapter for snapshots of whole VMs.
func (c *Cluster) Snapshots() *Snapshots { return &Snapshots{c: c} }

// Snapshots implements orchestrator.Snapshotter with the cluster's own VM
// snapshots: with memory for the boundary machine, without for disk.
type Snapshots struct{ c *Cluster }

var _ orchestrator.Snapshotter = (*Snapshots)(nil)

var snapNameRE = regexp.MustCompile(`\A[A-Za-z][A-Za-z0-9_-]{1,39}\z`)

// checkSnapName refuses names that the cluster refuses or reserves.
func checkSnapName(op, subject string, name orchestrator.SnapshotName) error {
	if !snapNameRE.MatchString(string(name)) {
		return refuse(op, subject, orchestrator.ErrDenied, "a snapshot name is 2 to 40 letters, digits, '_' and '-', a letter first", "")
	}
	if l := strings.ToLower(string(name)); l == "current" || l == "pending" {
		return refuse(op, subject, orchestrator.ErrDenied, "the cluster reserves that name", "")
	}
	return nil
}

// Create takes the snapshot. Before asking, it checks that the VM is the
// sandbox's, runs if memory is wanted, and has only disks that can be
// snapshotted. It returns nil only when the snapshot is listed as complete,
// the lock is free and the present state descends from it.
func (s *Snapshots) Create(ctx context.Context, r orchestrator.SnapshotRequest) error {
	op, subject := "create snapshot "+string(r.Name)+" on", r.VM.String()
	if err := checkSnapName(op, subject, r.Name); err != nil {
		return err
	}
	release, err := s.c.exclusive(ctx, op, r.VM)
	if err != nil {
		return err
	}
	defer release()
	return s.c.again(ctx, func() error {
		done, err := s.c.nodeTurn(ctx, op, subject, r.VM.Node)
		if err != nil {
			return err
		}
		defer done()
		return s.create(ctx, op, r)
	})
}

func (s *Snapshots) create(ctx context.Context, op string, r orchestrator.SnapshotRequest) error {
	c, subject := s.c, r.VM.String()
	conf, err := c.owned(ctx, op, r.VM, r.Sandbox, false)
	if err != nil {
		return err
	}
	before, err := c.history(ctx, op, r.VM)
	if err != nil {
		return err
	}
	if e, dup := before.find(r.Name); dup {
		cause := "a snapshot of that name exists"
		if e.SnapState != "" {
			cause = fmt.Sprintf("an incomplete snapshot of that name exists (snapstate = %s)", e.SnapState)
		}
		return refuse(op, subject, orchestrator.ErrExists, cause, "use another name or delete it")
	}
	if r.Memory && !before.running {
		return refuse(op, subject, orchestrator.ErrUnavailable, "the vm is stopped, and the cluster would silently save no memory", "start it first, or take a snapshot without memory")
	}
	if err := c.checkLock(ctx, op, r.VM, conf); err != nil {
		return err
	}
	if err := c.checkSnapshottable(ctx, op, r.VM, conf); err != nil {
		return err
	}
	params := map[string]any{"snapname": string(r.Name)}
	if r.Memory {
		params["vmstate"] = 1
	}
	if r.Description != "" {
		params["description"] = r.Description
	}
	err = c.carryOut(ctx, order{
		op: op, subject: subject, node: r.VM.Node, kind: "qmsnapshot", id: r.VM.ID, started: r.Started,
		send: func(ctx context.Context) (string, error) { return c.postTask(ctx, vmPath(r.VM)+"/snapshot", params) },
	})
	if err != nil {
		return s.afterFailedCreate(ctx, op, r, err)
	}
	return c.verify(ctx, op, subject, func(ctx context.Context) (string, error) {
		h, conf, err := c.look(ctx, op, r.VM)
		if err != nil {
			return "", err
		}
		e, ok := h.find(r.Name)
		switch {
		case !ok:
			return "the snapshot is not listed", nil
		case e.SnapState != "":
			return "the snapshot is incomplete (snapstate = " + e.SnapState + ")", nil
		case conf.text("lock") != "":
			return "vm is locked (" + conf.text("lock") + ")", nil
		case h.parent != string(r.Name):
			return fmt.Sprintf("the present state descends from %q", h.parent), nil
		case r.Memory && e.VMState == 0:
			return "", refuse(op, subject, orchestrator.ErrUnknownOutcome, "the vm stopped meanwhile, the snapshot holds no memory", "delete it, start the vm and take another")
		}
		return "", nil
	})
}

// afterFailedCreate looks at what a failed task left. Without a known cause
// and without residue, nothing was done and it is safe to try again.
func (s *Snapshots) afterFailedCreate(ctx context.Context, op string, r orchestrator.SnapshotRequest, failed error) error {
	f, busy := halfway(ctx, failed)
	if !busy {
		var ok bool
		if f, ok = unexplained(ctx, failed); !ok {
			return failed
		}
	}
	h, conf, err := s.c.look(ctx, op, r.VM)
	if err != nil {
		return f.with(orchestrator.ErrUnknownOutcome, f.mend) // nobody could see what it left
	}
	e, listed := h.find(r.Name)
	lock := conf.text("lock")
	if busy && !listed && lock != "snapshot" {
		return failed // nothing was done, and another lock is somebody else's
	}
	if listed || lock != "" {
		return f.with(orchestrator.ErrUnknownOutcome, residue(listed, e.SnapState, lock, r.VM))
	}
	return f.with(orchestrator.ErrUnavailable, "nothing was left behind; look at the task's log for the cause, then try again")
}

// with is the same failure with another class and another advice. What may have
// been done is not done again without a look.
func (f *failure) with(class error, mend string) *failure {
	g := *f
	g.class, g.mend = class, mend
	g.retry = g.retry && !errors.Is(class, orchestrator.ErrUnknownOutcome)
	return &g
}

// residue says what an interrupted task left and how to get rid of it.
func residue(listed bool, snapstate, lock string, vm orchestrator.VMRef) string {
	var parts []string
	if lock != "" {
		parts = append(parts, fmt.Sprintf("it left the lock %q: run qm unlock %d on node %s as root", lock, vm.ID, vm.Node))
	}
	if listed {
		parts = append(parts, fmt.Sprintf("it left the snapshot (snapstate = %q): delete it", snapstate))
	}
	return strings.Join(parts, "; ")
}

// Rollback restores the snapshot. The cluster checks whether it can before it
// stops anything, so *NotLatestError leaves the VM as it was. Afterwards the
// VM runs if the snapshot holds memory and is stopped if not. The VM's whole
// configuration becomes the snapshot's, except its description.
func (s *Snapshots) Rollback(ctx context.Context, r orchestrator.SnapshotRequest) error {
	op := "roll back to snapshot " + string(r.Name) + " on"
	if err := checkSnapName(op, r.VM.String(), r.Name); err != nil {
		return err
	}
	release, err := s.c.exclusiveFirst(ctx, op, r.VM)
	if err != nil {
		return err
	}
	defer release()
	return s.c.again(ctx, func() error { return s.rollback(ctx, op, r) })
}

func (s *Snapshots) rollback(ctx context.Context, op string, r orchestrator.SnapshotRequest) error {
	c, subject := s.c, r.VM.String()
	conf, err := c.owned(ctx, op, r.VM, r.Sandbox, false)
	if err != nil {
		return err
	}
	before, err := c.history(ctx, op, r.VM)
	if err != nil {
		return err
	}
	target, ok := before.find(r.Name)
	if !ok {
		return refuse(op, subject, orchestrator.ErrNotFound, "there is no such snapshot", "nothing was changed")
	}
	if target.SnapState != "" {
		what := fmt.Sprintf("the snapshot is incomplete (snapstate = %s)", target.SnapState)
		mend := "an interrupted task left it; delete it"
		return &failure{op: op, subject: subject, cause: what, mend: mend, class: &orchestrator.UnsupportedError{What: what, Mend: mend}}
	}
	if err := c.checkLock(ctx, op, r.VM, conf); err != nil {
		return err
	}
	memory := target.VMState != 0
	err = c.carryOut(ctx, order{
		op: op, subject: subject, node: r.VM.Node, kind: "qmrollback", id: r.VM.ID, started: r.Started,
		send: func(ctx context.Context) (string, error) {
			return c.postTask(ctx, vmPath(r.VM)+"/snapshot/"+url.PathEscape(string(r.Name))+"/rollback", nil)
		},
	})
	if err != nil {
		return s.afterFailedRollback(ctx, op, r, before, err)
	}
	return c.verify(ctx, op, subject, func(ctx context.Context) (string, error) {
		h, conf, err := c.look(ctx, op, r.VM)
		switch {
		case err != nil:
			return "", err
		case conf.text("lock") != "":
			return "vm is locked (" + conf.text("lock") + ")", nil
		case h.parent != string(r.Name):
			return fmt.Sprintf("the present state descends from %q", h.parent), nil
		case memory && !h.running:
			return "the vm does not run although the snapshot holds memory", nil
		case !memory && h.running:
			return "the vm runs although the snapshot holds no memory", nil
		}
		return "", nil
	})
}

// afterFailedRollback fills in the newer snapshots of a *NotLatestError, and
// says of a task that failed on its way how far it came.
func (s *Snapshots) afterFailedRollback(ctx context.Context, op string, r orchestrator.SnapshotRequest, before history, failed error) error {
	var f *failure
	if !errors.As(failed, &f) || ctx.Err() != nil {
		return failed
	}
	var notLatest *orchestrator.NotLatestError
	if errors.As(failed, &notLatest) {
		full := &orchestrator.NotLatestError{Name: r.Name, Newer: newerThan(before, r.Name)}
		return f.with(full, f.mend)
	}
	_, busy := halfway(ctx, failed)
	if _, ok := unexplained(ctx, failed); !ok && !busy {
		return failed
	}
	h, conf, err := s.c.look(ctx, op, r.VM)
	if err != nil {
		return f.with(orchestrator.ErrUnknownOutcome, f.mend) // nobody could see what it left
	}
	switch lock := conf.text("lock"); {
	case busy && lock != "rollback":
		return failed
	case lock != "":
		return f.with(orchestrator.ErrUnknownOutcome, fmt.Sprintf("the disks may be mixed: the task left the lock %q; run qm unlock %d on node %s as root, then roll back again", lock, r.VM.ID, r.VM.Node))
	case h.parent == string(r.Name) && !h.running:
		return f.with(orchestrator.ErrUnknownOutcome, "the vm may be rolled back but does not run; roll back again")
	}
	return failed
}

// Delete removes the snapshot; a missing one is no error. One that an
// interrupted task left incomplete is removed by force, once its lock is gone.
func (s *Snapshots) Delete(ctx context.Context, r orchestrator.SnapshotRequest) error {
	op := "delete snapshot " + string(r.Name) + " on"
	if err := checkSnapName(op, r.VM.String(), r.Name); err != nil {
		return err
	}
	release, err := s.c.exclusive(ctx, op, r.VM)
	if err != nil {
		return err
	}
	defer release()
	return s.c.again(ctx, func() error { return s.delete(ctx, op, r) })
}

func (s *Snapshots) delete(ctx context.Context, op string, r orchestrator.SnapshotRequest) error {
	c, subject := s.c, r.VM.String()
	conf, err := c.owned(ctx, op, r.VM, r.Sandbox, false)
	if err != nil {
		return err
	}
	before, err := c.history(ctx, op, r.VM)
	if err != nil {
		return err
	}
	target, ok := before.find(r.Name)
	if !ok {
		return nil
	}
	if err := c.checkLock(ctx, op, r.VM, conf); err != nil {
		return err
	}
	q := url.Values{}
	if target.SnapState != "" {
		q.Set("force", "1")
	}
	err = c.carryOut(ctx, order{
		op: op, subject: subject, node: r.VM.Node, kind: "qmdelsnapshot", id: r.VM.ID, started: r.Started,
		send: func(ctx context.Context) (string, error) {
			return c.deleteTask(ctx, vmPath(r.VM)+"/snapshot/"+url.PathEscape(string(r.Name)), q)
		},
	})
	if err != nil && !says(err, snapMissingRE) {
		return s.afterFailedDelete(ctx, op, r, err)
	}
	return c.verify(ctx, op, subject, func(ctx context.Context) (string, error) {
		h, conf, err := c.look(ctx, op, r.VM)
		if err != nil {
			return "", err
		}
		if _, still := h.find(r.Name); still {
			return "the snapshot is still listed", nil
		}
		if lock := conf.text("lock"); lock != "" {
			return "vm is locked (" + lock + ")", nil
		}
		return "", nil
	})
}

func (s *Snapshots) afterFailedDelete(ctx context.Context, op string, r orchestrator.SnapshotRequest, failed error) error {
	f, busy := halfway(ctx, failed)
	if !busy {
		var ok bool
		if f, ok = unexplained(ctx, failed); !ok {
			return failed
		}
	}
	h, conf, err := s.c.look(ctx, op, r.VM)
	if err != nil {
		return f.with(orchestrator.ErrUnknownOutcome, f.mend) // nobody could see what it left
	}
	e, ok := h.find(r.Name)
	if busy && conf.text("lock") != "snapshot-delete" && e.SnapState == "" {
		return failed
	}
	if lock := conf.text("lock"); lock != "" || (ok && e.SnapState != "") {
		return f.with(orchestrator.ErrUnknownOutcome, residue(ok, e.SnapState, lock, r.VM))
	}
	if ok {
		return f.with(orchestrator.ErrUnavailable, "the snapshot is as it was; look at the task's log for the cause, then try again")
	}
	return nil
}
