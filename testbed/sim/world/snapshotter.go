package world

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"savepoint/orchestrator"
)

// Driver is the snapshotter of one boundary. The workspace's snapshots are
// made at once and need the guest's help to come back; the others are tasks of
// the cluster.
func (p *Process) Driver(kind orchestrator.Boundary) orchestrator.Snapshotter {
	return driver{p, kind}
}

type driver struct {
	p    *Process
	kind orchestrator.Boundary
}

func (d driver) inWorkspace() bool { return d.kind == orchestrator.BoundaryWorkspace }

var snapshotName = regexp.MustCompile(`\A[A-Za-z][A-Za-z0-9_-]{1,39}\z`)

func named(name orchestrator.SnapshotName) error {
	if !snapshotName.MatchString(string(name)) || strings.EqualFold(string(name), "current") || strings.EqualFold(string(name), "pending") {
		return fmt.Errorf("snapshot name %q: %w", name, orchestrator.ErrDenied)
	}
	return nil
}

// carryOut orders the task, hands its name over and waits for its end.
func (d driver) carryOut(ctx context.Context, name string, r orchestrator.SnapshotRequest, prepare func(v *vm) (job, error)) error {
	p := d.p
	var k *task
	err := p.call(ctx, r.Sandbox, name, func(at Point) error {
		return p.C.owned(r.VM, r.Sandbox, func(v *vm) error {
			j, err := prepare(v)
			if err != nil {
				return err
			}
			k, err = p.C.order(v, p.fate(at), j)
			return err
		})
	})
	if err != nil {
		return err
	}
	return p.follow(ctx, r.Sandbox, name, k, r.Started)
}

// follow notes a task that was ordered and waits for its end.
func (p *Process) follow(ctx context.Context, sb orchestrator.SandboxID, name string, k *task, started orchestrator.Started) error {
	if started != nil {
		if err := started(k.UPID); err != nil {
			return fmt.Errorf("note the task: %w: %w", orchestrator.ErrUnknownOutcome, err)
		}
	}
	if _, err := p.point(sb, name+" wait", false); err != nil {
		return err
	}
	err := p.awaitTask(ctx, k.VM, k.UPID)
	if _, perr := p.point(sb, name+" wait", true); perr != nil {
		return perr
	}
	return err
}

// Create takes a snapshot.
func (d driver) Create(ctx context.Context, r orchestrator.SnapshotRequest) error {
	if err := named(r.Name); err != nil {
		return err
	}
	prepare := func(v *vm) (job, error) {
		if v.find(r.Name) != nil {
			return job{}, fmt.Errorf("snapshot %s of %s: %w", r.Name, r.VM, orchestrator.ErrExists)
		}
		if r.Memory && !v.running {
			return job{}, fmt.Errorf("snapshot %s of %s with memory: it is stopped: %w", r.Name, r.VM, orchestrator.ErrUnavailable)
		}
		s := &snap{kind: d.kind}
		s.Snapshot = orchestrator.Snapshot{Name: r.Name, Memory: r.Memory, Description: r.Description, Incomplete: "prepare"}
		return job{
			kind: "qmsnapshot", lock: "snapshot",
			start: func() error {
				if v.find(r.Name) != nil {
					return fmt.Errorf("snapshot %s of %s: %w", r.Name, r.VM, orchestrator.ErrExists)
				}
				s.Parent, s.Taken = v.parent, d.p.C.now().Truncate(time.Second)
				v.snaps = append(v.snaps, s)
				return nil
			},
			finish: func() error { d.p.C.capture(v, s); return nil },
			undo:   func() { v.remove(s) },
		}, nil
	}
	if !d.inWorkspace() {
		return d.carryOut(ctx, "create", r, prepare)
	}
	return d.p.call(ctx, r.Sandbox, "create", func(at Point) error {
		return d.p.C.owned(r.VM, r.Sandbox, func(v *vm) error {
			j, err := prepare(v)
			if err != nil {
				return err
			}
			return d.atOnce(v, d.p.fate(at), "create", j)
		})
	})
}

// atOnce does without a task what a workspace needs.
func (d driver) atOnce(v *vm, fate Fate, what string, j job) error {
	switch fate {
	case FateNoWorker, FateFails, FateHangs, FateDies: // ZFS commands happen or do not
		return fmt.Errorf("%s %s: dataset is busy: %w", what, v.ref, orchestrator.ErrBusy)
	case FateLate:
		d.p.C.later(d.p.C.now().Add(lateness), func() {
			if d.p.C.vms[v.ref.ID] == v && j.start() == nil {
				_ = j.finish()
			}
		})
		return fmt.Errorf("%s %s: no answer: %w", what, v.ref, orchestrator.ErrUnknownOutcome)
	case FateDone, FateSlow: // without a task there is nothing to wait for
	}
	if err := j.start(); err != nil {
		return err
	}
	return j.finish()
}

// capture completes a snapshot.
func (c *Cluster) capture(v *vm, s *snap) {
	s.Incomplete, s.owner = "", v.owner
	if s.kind == orchestrator.BoundaryWorkspace {
		s.files, s.Parent = v.files.part(true), v.work
		v.work = s.Name
		return
	}
	s.work = v.work
	s.files, s.boot, s.clock = maps.Clone(v.files), v.guest.boot, c.now().Add(v.guest.skew)
	if s.Memory {
		for _, q := range v.guest.procs {
			s.procs = append(s.procs, q.copy())
		}
	}
	v.parent = s.Name
}

// Rollback restores a snapshot.
func (d driver) Rollback(ctx context.Context, r orchestrator.SnapshotRequest) error {
	possible := func(v *vm) (*snap, error) {
		s := v.find(r.Name)
		switch {
		case s == nil || s.kind != d.kind && (d.inWorkspace() || s.kind == orchestrator.BoundaryWorkspace):
			return nil, fmt.Errorf("snapshot %s of %s: %w", r.Name, r.VM, orchestrator.ErrNotFound)
		case s.Incomplete != "":
			return nil, &orchestrator.UnsupportedError{What: fmt.Sprintf("snapshot %s of %s is incomplete (%s)", r.Name, r.VM, s.Incomplete), Mend: "delete it"}
		}
		if newer := v.newer(s); d.p.C.NewestOnly && len(newer) > 0 {
			return nil, &orchestrator.NotLatestError{Name: r.Name, Newer: newer}
		}
		return s, nil
	}
	prepare := func(v *vm) (job, error) {
		d.p.restores(r.Sandbox)
		s, err := possible(v)
		return job{
			kind: "qmrollback", lock: "rollback",
			start: func() error { // which may be long after it was ordered
				if _, err := possible(v); err != nil {
					return err
				}
				d.p.C.powerOff(v)
				return nil
			},
			finish: func() error { d.p.C.revert(v, s); return nil },
			half: func() { // disks are reverted one by one
				for path := range v.files.part(false) {
					delete(v.files, path)
				}
				maps.Copy(v.files, s.files.part(false))
			},
		}, err
	}
	if !d.inWorkspace() {
		return d.carryOut(ctx, "rollback", r, prepare)
	}
	return d.p.call(ctx, r.Sandbox, "rollback", func(at Point) error {
		return d.p.C.owned(r.VM, r.Sandbox, func(v *vm) error {
			j, err := prepare(v)
			if err != nil {
				return err
			}
			j.start = func() error {
				if !v.answers() {
					return fmt.Errorf("the guest of %s does not answer: %w", v.ref, orchestrator.ErrUnavailable)
				}
				_, err := possible(v)
				return err
			}
			j.finish = func() error { d.p.C.revertWorkspace(v, r.Name); return nil }
			return d.atOnce(v, d.p.fate(at), "rollback", j)
		})
	})
}

// revert restores a snapshot of the VM: with memory it runs on, without it is
// stopped. Its configuration becomes the snapshot's, its owner's tag included.
func (c *Cluster) revert(v *vm, s *snap) {
	v.files, v.parent, v.work, v.owner = maps.Clone(s.files), s.Name, s.work, s.owner
	v.guest.procs, v.running = nil, false
	v.writes++
	if !c.NewestOnly { // the workspace's snapshots are inside the disk
		v.snaps = slices.DeleteFunc(v.snaps, func(o *snap) bool {
			return o.kind == orchestrator.BoundaryWorkspace && slices.Index(v.snaps, o) > slices.Index(v.snaps, s)
		})
	}
	if !s.Memory {
		return
	}
	v.running = true
	v.guest.dead, v.guest.boot, v.guest.skew, v.guest.mute = false, s.boot, s.clock.Sub(c.now()), time.Time{}
	for _, q := range s.procs {
		c.goOn(v, q.copy())
	}
}

// revertWorkspace restores the workspace and ends what the agent runs.
func (c *Cluster) revertWorkspace(v *vm, name orchestrator.SnapshotName) {
	s := v.find(name)
	if s == nil {
		return
	}
	v.guest.procs = slices.DeleteFunc(v.guest.procs, func(q *process) bool { q.over = q.over || !q.root; return !q.root })
	v.files, v.work = v.files.part(false), name
	maps.Copy(v.files, s.files)
	v.writes++
}

// Delete removes a snapshot.
func (d driver) Delete(ctx context.Context, r orchestrator.SnapshotRequest) error {
	missing := false
	prepare := func(v *vm) (job, error) {
		s := v.find(r.Name)
		if s == nil {
			missing = true
			return job{}, orchestrator.ErrNotFound
		}
		if s.foreign {
			d.p.C.crime(Foreign, "snapshot %s of %s, which is not ours, was deleted", r.Name, r.VM)
		}
		return job{
			kind: "qmdelsnapshot", lock: "snapshot-delete",
			start:  func() error { s.Incomplete = "delete"; return nil },
			finish: func() error { v.remove(s); return nil },
			undo:   func() { s.Incomplete = "" },
		}, nil
	}
	var err error
	if d.inWorkspace() {
		err = d.p.call(ctx, r.Sandbox, "delete", func(at Point) error {
			return d.p.C.owned(r.VM, r.Sandbox, func(v *vm) error {
				j, err := prepare(v)
				if err != nil {
					return err
				}
				return d.atOnce(v, d.p.fate(at), "delete", j)
			})
		})
	} else {
		err = d.carryOut(ctx, "delete", r, prepare)
	}
	if missing && err == orchestrator.ErrNotFound { //nolint:errorlint // exactly ours
		return nil
	}
	return err
}

// List returns the snapshots of this kind's chain, oldest first.
func (d driver) List(ctx context.Context, ref orchestrator.VMRef) (all []orchestrator.Snapshot, err error) {
	err = d.p.call(ctx, d.p.C.nameOf(ref), "list", func(Point) error {
		return d.p.C.at(ref, func(v *vm) error {
			all = all[:0]
			for _, s := range v.snaps {
				if (s.kind == orchestrator.BoundaryWorkspace) == d.inWorkspace() {
					c := s.Snapshot
					c.Current = c.Name == v.parent && !d.inWorkspace() || c.Name == v.work && d.inWorkspace()
					all = append(all, c)
				}
			}
			return nil
		})
	})
	return all, err
}
