package janitor

import (
	"context"
	"errors"
	"fmt"

	"savepoint/orchestrator"
)

// strays goes through the VMs that no sandbox of the registry accounts for.
func (l *look) strays(ctx context.Context) error {
	for _, v := range l.inv.VMs {
		if l.matched[v.VM] {
			continue
		}
		var err error
		switch {
		case v.Ours && v.Sandbox != "" && !v.Template:
			err = l.stray(ctx, v)
		case v.Ours && v.Building:
			err = l.building(ctx, v)
		case v.Ours || v.Template: // finished templates are template build's
		case v.VM.ID < l.j.c.First || v.VM.ID > l.j.c.Last:
		case v.Instance != "":
			l.add(Finding{
				Kind: KindForeignVM, Level: LevelNote, Subject: v.VM.String(), Sandbox: string(v.Sandbox), Action: "left alone",
				Evidence: "savepoint instance " + v.Instance + " made it in our range of ids; give each instance its own (cluster.vmid_first, cluster.vmid_last)",
			})
		case v.Lock == "clone" || v.Lock == "create":
			why := "it is in our range of ids"
			for _, sb := range l.sandboxes {
				if sb.VM == v.VM {
					why = "sandbox " + sb.Name + " (" + string(sb.State) + ") had reserved its id"
				}
			}
			err = l.unmarked(ctx, v, why)
		default:
			l.add(Finding{Kind: KindForeignVM, Level: LevelNote, Subject: v.VM.String(), Evidence: "it is in our range of ids and not ours", Action: "left alone"})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unmarked is a VM that looks like a clone that never got as far as our mark.
// That it is ours cannot be proved, so it is for an operator.
func (l *look) unmarked(ctx context.Context, v VM, why string) error {
	f, stale, err := l.locked(ctx, v, "")
	if err != nil {
		return err
	}
	if stale {
		f.Kind, f.Action = KindUnmarked, "left alone: nothing proves that it is ours"
		f.Evidence = why + ", carries no mark, and " + f.Evidence
		f.Command = fmt.Sprintf("qm unlock %d && qm destroy %d (as root on node %s)", v.VM.ID, v.VM.ID, v.VM.Node)
		f.Check += "; that nobody else is making a vm with that id"
	}
	l.add(f)
	return nil
}

// stray is a VM that says it is ours and that the registry does not know, or
// knows to be somewhere else.
func (l *look) stray(ctx context.Context, v VM) error {
	name := string(v.Sandbox)
	f := Finding{Kind: KindOrphanVM, Level: LevelCollect, Subject: v.VM.String(), Action: "it is stopped and removed"}
	sb, known := l.byID[v.Sandbox]
	switch {
	case !known:
		f.Evidence = "its tags and description are ours and the registry does not know sandbox " + name
	case sb.State == orchestrator.SandboxDestroyed:
		f.Evidence = "its tags and description are ours and sandbox " + sb.Name + " was destroyed"
	default:
		f.Evidence = fmt.Sprintf("its description names sandbox %s, which has %s", sb.Name, sb.VM)
	}
	if f.Sandbox = name; known {
		f.Sandbox = sb.Name
	}
	if v.HalfMade {
		f.Kind = KindHalfClone
		f.Evidence += "; its clone call did not come to its end"
	}
	if v.Lock != "" {
		held, stale, err := l.locked(ctx, v, f.Sandbox)
		if err != nil {
			return err
		}
		if stale {
			held.Evidence += "; " + f.Evidence
			held.Action = "left alone: it is removed once the lock is gone"
			held.Command += ", then savepoint gc"
		}
		l.add(held)
		return nil
	}
	tasks, err := l.working(ctx, v)
	if err != nil {
		return err
	}
	switch {
	case len(tasks) > 0:
		f.Kind, f.Level = KindBusy, LevelWait
		f.Evidence, f.Action = fmt.Sprintf("task %s runs on it", tasks[0]), "left for a later run"
	case l.copied(v, sb):
		f.Level, f.Action = LevelOperator, "left alone: it may be somebody's copy of a sandbox (qm clone and qmrestore copy tags and description)"
		f.Command = fmt.Sprintf("qm set %d --delete tags,description, or qm destroy %d --purge (on node %s)", v.VM.ID, v.VM.ID, v.VM.Node)
		f.Check = "whose it is"
	default:
		f.act = func(ctx context.Context, started orchestrator.Started) error { return l.j.removeStray(ctx, v, started) }
		f.Command = fmt.Sprintf("qm stop %d && qm destroy %d --purge (as root on node %s)", v.VM.ID, v.VM.ID, v.VM.Node)
		f.Check = "that nobody uses it, and why savepoint may not remove it (protection flag, privileges)"
	}
	l.add(f)
	return nil
}

// building is a template of ours in the making. Builds hold the journal, as we
// do, so nobody works on it any more.
func (l *look) building(ctx context.Context, v VM) error {
	f := Finding{
		Kind: KindHalfTemplate, Level: LevelCollect, Subject: v.VM.String(), Action: "it is stopped and removed",
		Evidence: "its tags and description are ours and say that its build did not come to its end",
		act: func(ctx context.Context, started orchestrator.Started) error {
			return l.j.c.Cluster.RemoveBuilding(ctx, v.VM, started)
		},
	}
	if v.Lock != "" {
		held, stale, err := l.locked(ctx, v, "")
		if err != nil {
			return err
		}
		if stale {
			held.Evidence += "; " + f.Evidence
			held.Action = "left alone: it is removed once the lock is gone"
			held.Command += ", then savepoint gc"
		}
		l.add(held)
		return nil
	}
	tasks, err := l.working(ctx, v)
	if err != nil {
		return err
	}
	if len(tasks) > 0 {
		f.Kind, f.Level, f.act = KindBusy, LevelWait, nil
		f.Evidence, f.Action = fmt.Sprintf("task %s runs on it", tasks[0]), "left for a later run"
	}
	l.add(f)
	return nil
}

// copied reports whether savepoint cannot have made the VM itself: it is outside
// our range, or complete although its sandbox lives with another VM.
func (l *look) copied(v VM, sb orchestrator.Sandbox) bool {
	lives := sb.ID != "" && sb.State != orchestrator.SandboxDestroyed
	return v.VM.ID < l.j.c.First || v.VM.ID > l.j.c.Last || lives && !v.HalfMade
}

// removeStray removes a VM after everything that condemned it was read again. A
// sandbox that the registry does not know is entered first, as one that is
// being removed: so a crash leaves something that the next run finishes, its id
// rests, and the record tells what became of it.
func (j *Janitor) removeStray(ctx context.Context, v VM, started orchestrator.Started) error {
	all, err := j.c.Registry.Sandboxes(ctx)
	if err != nil {
		return &orchestrator.JournalError{Cause: fmt.Errorf("read the registry: %w", err)}
	}
	known := false
	for _, sb := range all {
		if sb.State != orchestrator.SandboxDestroyed && sb.VM.ID == v.VM.ID {
			return fmt.Errorf("remove %s: sandbox %s uses it now: %w", v.VM, sb.Name, orchestrator.ErrDenied)
		}
		known = known || sb.ID == v.Sandbox
	}
	st, err := j.c.Hypervisor.Status(ctx, v.VM)
	switch {
	case errors.Is(err, orchestrator.ErrNotFound):
		return nil
	case err != nil:
		return err
	case st.Owner != v.Sandbox || st.Template:
		return fmt.Errorf("remove %s: it does not say any more that it belongs to sandbox %s: %w", v.VM, v.Sandbox, orchestrator.ErrDenied)
	case known:
		r := orchestrator.VMRequest{Sandbox: v.Sandbox, VM: v.VM, Started: started}
		if err := j.c.Hypervisor.Stop(ctx, r); err != nil {
			return err
		}
		return j.c.Hypervisor.Destroy(ctx, r)
	}
	sb := orchestrator.Sandbox{
		ID: v.Sandbox, Name: fmt.Sprintf("orphan-%d", v.VM.ID), State: orchestrator.SandboxDestroying, VM: v.VM,
		Created: j.c.Now(), Reason: "it was found on the cluster without an entry",
	}
	if err := j.c.Registry.PutSandbox(ctx, sb); err != nil {
		return &orchestrator.JournalError{Cause: fmt.Errorf("record that %s is removed: %w", v.VM, err)}
	}
	return j.c.Remove(ctx, sb)
}
