package janitor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"savepoint/orchestrator"
)

// look is one comparison of the cluster with the registry and the journal.
type look struct {
	j   *Janitor
	dry bool

	inv       Inventory
	sandboxes []orchestrator.Sandbox
	byID      map[orchestrator.SandboxID]orchestrator.Sandbox
	at        map[orchestrator.VMRef]VM
	matched   map[orchestrator.VMRef]bool // VMs that the registry accounts for
	listed    map[orchestrator.VMRef][]orchestrator.Snapshot
	tasks     map[orchestrator.VMRef][]orchestrator.UPID
	sighted   map[string]bool
	out       []Finding
}

// Look returns what Clean would find and do. It changes nothing, its own notes
// included.
func (j *Janitor) Look(ctx context.Context) (Report, error) {
	l, err := j.look(ctx, true)
	if err != nil {
		return Report{}, err
	}
	return Report{Findings: l.out}, nil
}

func (j *Janitor) look(ctx context.Context, dry bool) (*look, error) {
	l := &look{
		j: j, dry: dry, byID: map[orchestrator.SandboxID]orchestrator.Sandbox{}, at: map[orchestrator.VMRef]VM{},
		matched: map[orchestrator.VMRef]bool{}, listed: map[orchestrator.VMRef][]orchestrator.Snapshot{},
		tasks: map[orchestrator.VMRef][]orchestrator.UPID{}, sighted: map[string]bool{},
	}
	var err error
	if l.inv, err = j.c.Cluster.Inventory(ctx); err != nil {
		return nil, fmt.Errorf("look at the cluster: %w", err)
	}
	if l.sandboxes, err = j.c.Registry.Sandboxes(ctx); err != nil {
		return nil, &orchestrator.JournalError{Cause: fmt.Errorf("read the registry: %w", err)}
	}
	for _, v := range l.inv.VMs {
		l.at[v.VM] = v
	}
	for _, sb := range l.sandboxes {
		l.byID[sb.ID] = sb
	}
	for _, part := range []func(context.Context) error{l.registered, l.strays, l.spent, l.volumes} {
		if err := part(ctx); err != nil {
			return nil, err
		}
	}
	l.guards()
	l.unseen()
	return l, l.forget()
}

func (l *look) add(f Finding) {
	f.State = StateFound
	l.out = append(l.out, f)
}

// working asks once per VM for the running tasks on it.
func (l *look) working(ctx context.Context, v VM) ([]orchestrator.UPID, error) {
	if t, ok := l.tasks[v.VM]; ok {
		return t, nil
	}
	t, err := l.j.c.Cluster.Working(ctx, v.VM, v.Lock)
	if err != nil {
		return nil, fmt.Errorf("look at the tasks of %s: %w", v.VM, err)
	}
	l.tasks[v.VM] = t
	return t, nil
}

// registered goes through the sandboxes that the registry has.
func (l *look) registered(ctx context.Context) error {
	for _, sb := range l.sandboxes {
		var err error
		switch sb.State {
		case orchestrator.SandboxDestroyed:
		case orchestrator.SandboxCreating, orchestrator.SandboxDestroying:
			err = l.unfinished(ctx, sb)
		default:
			err = l.living(ctx, sb)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unfinished is a sandbox whose creation or removal was interrupted. A lock on
// its VM would stop the removal, so it is dealt with first.
func (l *look) unfinished(ctx context.Context, sb orchestrator.Sandbox) error {
	f := Finding{
		Kind: KindUnfinished, Level: LevelCollect, Subject: "sandbox " + sb.Name, Sandbox: sb.Name,
		Evidence: fmt.Sprintf("the registry says %s and nobody works on it", sb.State),
		Action:   "its parts are removed",
		act: func(ctx context.Context, _ orchestrator.Started) error {
			return l.j.c.Remove(ctx, sb)
		},
	}
	v, ok := l.at[sb.VM]
	if !ok || !v.Ours || v.Sandbox != sb.ID {
		if ok && !v.Ours && v.Instance == "" && (v.Lock == "clone" || v.Lock == "create") {
			l.matched[v.VM] = true
			return l.unmarked(ctx, v, "sandbox "+sb.Name+" reserved its id")
		}
		if sb.VM.ID != 0 && slices.Contains(l.inv.Nodes, sb.VM.Node) {
			f.Kind, f.Level, f.act = KindUnseen, LevelWait, nil
			f.Action = "left until node " + sb.VM.Node + " answers"
		}
		l.add(f)
		return nil
	}
	l.matched[v.VM] = true
	if v.Lock != "" {
		held, stale, err := l.locked(ctx, v, sb.Name)
		if err != nil {
			return err
		}
		if stale {
			held.Action = "left alone: the sandbox is removed once the lock is gone"
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
		f.Evidence, f.Action = fmt.Sprintf("task %s runs on %s", tasks[0], sb.VM), "left for a later run"
	}
	l.add(f)
	return nil
}

// living is a sandbox that is there to be used.
func (l *look) living(ctx context.Context, sb orchestrator.Sandbox) error {
	v, ok := l.at[sb.VM]
	if !ok {
		return l.absent(ctx, sb)
	}
	l.matched[v.VM] = true
	if !v.Ours || v.Sandbox != sb.ID {
		l.add(lost(sb))
		return nil
	}
	locked := false
	if v.Lock != "" {
		f, stale, err := l.locked(ctx, v, sb.Name)
		if err != nil {
			return err
		}
		if locked = stale; stale {
			l.withhold(&f, sb)
		}
		l.add(f)
	}
	if sb.State == orchestrator.SandboxQuarantined && !locked {
		l.add(Finding{
			Kind: KindQuarantined, Level: LevelOperator, Subject: "sandbox " + sb.Name, Sandbox: sb.Name,
			Evidence: sb.Reason, Action: "withheld",
			Command: "savepoint sandbox release " + sb.Name + " (or reset, or destroy)", Check: "that its cause is mended",
		})
	}
	if sb.State == orchestrator.SandboxPooled {
		l.add(Finding{
			Kind: KindPooled, Level: LevelNote, Subject: sb.VM.String(), Sandbox: sb.Name,
			Evidence: "it is warm and nobody's, and waits to be handed out", Action: "left alone",
		})
	}
	return l.snapshots(ctx, v, sb)
}

// lost is a sandbox whose VM does not say any more whose it is.
func lost(sb orchestrator.Sandbox) Finding {
	return Finding{
		Kind: KindLostOwner, Level: LevelOperator, Subject: sb.VM.String(), Sandbox: sb.Name,
		Evidence: "its tags and description do not say that it belongs to the sandbox",
		Action:   "left alone",
		Command:  "savepoint sandbox show " + sb.Name + ", then give the vm its tags and description back, or savepoint sandbox destroy " + sb.Name,
		Check:    "who changed them, or who uses the id now",
	}
}

// withhold makes a stale lock's finding quarantine the sandbox.
func (l *look) withhold(f *Finding, sb orchestrator.Sandbox) {
	f.Action = "the sandbox is quarantined"
	release := "savepoint sandbox release " + sb.Name
	reason := fmt.Sprintf("%s: %s; check %s; run %s, then %s", sb.VM, f.Evidence, f.Check, f.Command, release)
	f.Command += ", then " + release
	if sb.State == orchestrator.SandboxQuarantined {
		return
	}
	f.quiet = true
	f.act = func(ctx context.Context, _ orchestrator.Started) error {
		st, err := l.j.c.Hypervisor.Status(ctx, sb.VM)
		if err != nil {
			return err
		}
		if st.Lock == "" {
			return errNothing
		}
		sb.State, sb.Reason = orchestrator.SandboxQuarantined, reason
		if err := l.j.c.Registry.PutSandbox(ctx, sb); err != nil {
			return &orchestrator.JournalError{Cause: fmt.Errorf("quarantine sandbox %s: %w", sb.Name, err)}
		}
		return nil
	}
}

// absent is a sandbox whose VM is not where it was made.
func (l *look) absent(ctx context.Context, sb orchestrator.Sandbox) error {
	f := Finding{Subject: sb.VM.String(), Sandbox: sb.Name, Action: "left alone", Level: LevelOperator}
	for _, v := range l.inv.VMs {
		if v.Ours && v.Sandbox == sb.ID && v.VM.ID == sb.VM.ID {
			l.matched[v.VM] = true
			f.Kind, f.Evidence = KindMovedVM, "it is on node "+v.VM.Node+" now"
			f.Command = fmt.Sprintf("qm migrate %d %s (on node %s)", sb.VM.ID, sb.VM.Node, v.VM.Node)
			f.Check = "who moved it: sandboxes have to stay out of HA"
			l.add(f)
			return nil
		}
	}
	if slices.Contains(l.inv.Nodes, sb.VM.Node) {
		return nil // said once for the node
	}
	_, err := l.j.c.Hypervisor.Status(ctx, sb.VM)
	var away *orchestrator.NodeError
	switch {
	case errors.As(err, &away): // the cluster does not list it at all
		f.Kind, f.Level, f.Evidence = KindUnseen, LevelNote, "its node is not in the cluster, or is out of reach"
	case errors.Is(err, orchestrator.ErrNotFound):
		f.Kind, f.Evidence = KindMissingVM, "there is no such vm any more"
		f.Command, f.Check = "savepoint sandbox destroy "+sb.Name, "who removed it"
	case err != nil:
		return fmt.Errorf("look at sandbox %s: %w", sb.Name, err)
	default: // it is there without our tag
		f = lost(sb)
	}
	l.add(f)
	return nil
}

// guards tells of sandboxes that HA or replication works on, too.
func (l *look) guards() {
	for _, g := range l.inv.Guards {
		for _, v := range l.inv.VMs {
			if v.VM.ID != g.VM || !v.Ours || v.Sandbox == "" {
				continue
			}
			name := string(v.Sandbox)
			if sb, ok := l.byID[v.Sandbox]; ok {
				name = sb.Name
			}
			f := Finding{Level: LevelNote, Subject: v.VM.String(), Sandbox: name, Action: "left alone"}
			if g.HA != "" {
				f.Kind, f.Evidence = KindHA, "HA manages it ("+g.HA+") and may start, stop or move it in the middle of a transaction"
				f.Command = fmt.Sprintf("ha-manager remove vm:%d", g.VM)
				l.add(f)
			}
			for _, target := range g.Replication {
				f.Kind, f.Evidence = KindReplication, "it is replicated to "+target+", which takes snapshots and locks of its own"
				f.Command = fmt.Sprintf("pvesr list, then pvesr delete the job of vm %d", g.VM)
				l.add(f)
			}
		}
	}
}

func (l *look) unseen() {
	for _, n := range l.inv.Nodes {
		l.add(Finding{Kind: KindUnseen, Level: LevelNote, Subject: "node " + n, Evidence: "it did not answer", Action: "what is on it was not judged"})
	}
	for _, s := range l.inv.Unseen {
		l.add(Finding{Kind: KindUnseen, Level: LevelNote, Subject: s, Evidence: "it did not answer", Action: "it was not judged"})
	}
}
