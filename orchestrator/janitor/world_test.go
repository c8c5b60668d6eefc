package janitor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
)

const (
	instance = "lab"
	pristine = orchestrator.SnapshotName("sp-pristine")
)

// world is a cluster, a registry and a journal in memory. Every call but the
// reads of the registry and the journal counts as one operation, and a test
// can disturb any of them before or after its effect.
type world struct {
	t             *testing.T
	ops           []string
	before, after func(n int, op string) error

	now       time.Time
	vms       map[orchestrator.VMRef]*machine
	volumes   []Volume
	guards    []Guard
	tasks     map[orchestrator.VMRef][]orchestrator.UPID
	asleep    []string // nodes that do not answer
	removed   []string // nodes that were taken out of the cluster
	ownTasks  []string // nodes where only our own tasks are visible
	sandboxes map[orchestrator.SandboxID]orchestrator.Sandbox
	addresses map[orchestrator.SandboxID]bool
	claims    map[orchestrator.TxID]Claim
	denied    bool // the token may not delete volumes
	notes     *memory
}

type machine struct {
	VM
	snaps []orchestrator.Snapshot
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, now: time.Unix(1_800_000_000, 0), vms: map[orchestrator.VMRef]*machine{}, tasks: map[orchestrator.VMRef][]orchestrator.UPID{},
		sandboxes: map[orchestrator.SandboxID]orchestrator.Sandbox{}, addresses: map[orchestrator.SandboxID]bool{},
		claims: map[orchestrator.TxID]Claim{}, notes: &memory{},
	}
	return w
}

// memory keeps notes like File, without a file.
type memory struct{ folded }

func (m *memory) Append(n Note) error        { m.apply(n); return nil }
func (m *memory) Open() []Note               { return slices.Clone(m.open) }
func (m *memory) Sightings() map[string]Note { return m.seen }
func (m *memory) NextID() int64              { return m.maxID + 1 }

func (w *world) janitor() *Janitor {
	w.t.Helper()
	j, err := New(Config{
		Cluster: w, Snapshots: snapshots{w}, Hypervisor: hypervisor{w}, Registry: w, Ledger: w, Notes: notes{w},
		Remove: w.remove, Collect: w.collect, Instance: instance, First: 9000, Last: 9099,
		Keep: []orchestrator.SnapshotName{pristine}, Now: func() time.Time { return w.now },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return j
}

func (w *world) do(ctx context.Context, op string, effect func() error) error {
	n := len(w.ops)
	w.ops = append(w.ops, op)
	if w.before != nil {
		if err := w.before(n, op); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w: %w", op, orchestrator.ErrUnavailable, err)
	}
	if err := effect(); err != nil {
		return err
	}
	if w.after != nil {
		return w.after(n, op)
	}
	return nil
}

func ref(id int) orchestrator.VMRef {
	return orchestrator.VMRef{Node: "pve1", ID: orchestrator.VMID(id)}
}

// sandbox makes a sandbox with its VM.
func (w *world) sandbox(name string, id int, s orchestrator.SandboxState) orchestrator.Sandbox {
	sb := orchestrator.Sandbox{ID: orchestrator.SandboxID("sb-" + name), Name: name, State: s, VM: ref(id), HostKey: "key"}
	w.sandboxes[sb.ID] = sb
	if s != orchestrator.SandboxDestroyed {
		w.addresses[sb.ID] = true
	}
	w.vm(id, VM{Ours: true, Sandbox: sb.ID, Instance: instance})
	w.snap(id, orchestrator.Snapshot{Name: pristine})
	return sb
}

func (w *world) vm(id int, v VM) *machine {
	v.VM = ref(id)
	w.vms[v.VM] = &machine{VM: v}
	return w.vms[v.VM]
}

func (w *world) snap(id int, s orchestrator.Snapshot) {
	m := w.vms[ref(id)]
	m.snaps = append(m.snaps, s)
}

func txID(n int) orchestrator.TxID { return orchestrator.TxID(fmt.Sprintf("01jx%022d", n)) }

// taken adds a snapshot as the engine takes it.
func (w *world) taken(sb orchestrator.Sandbox, n int, incomplete string) orchestrator.SnapshotName {
	s := orchestrator.Snapshot{
		Name: orchestrator.SnapshotOf(txID(n)), Incomplete: incomplete,
		Description: fmt.Sprintf("savepoint transaction %s of sandbox %s\n", txID(n), sb.ID),
	}
	w.snap(int(sb.VM.ID), s)
	return s.Name
}

func (w *world) claim(sb orchestrator.Sandbox, n int, s orchestrator.State, settled bool) {
	w.claims[txID(n)] = Claim{Tx: txID(n), Sandbox: sb, State: s, Settled: settled}
}

// memory adds a volume of saved memory.
func (w *world) memory(id int, snap orchestrator.SnapshotName) Volume {
	v := Volume{ID: fmt.Sprintf("local:%d/vm-%d-state-%s.raw", id, id, snap), Node: "pve1", Storage: "local", VM: orchestrator.VMID(id), Snapshot: snap, Size: 1 << 30}
	w.volumes = append(w.volumes, v)
	return v
}

func (w *world) names(id int) []orchestrator.SnapshotName {
	var out []orchestrator.SnapshotName
	if m := w.vms[ref(id)]; m != nil {
		for _, s := range m.snaps {
			out = append(out, s.Name)
		}
	}
	return out
}

// --- Cluster

func (w *world) Inventory(ctx context.Context) (inv Inventory, err error) {
	err = w.do(ctx, "inventory", func() error {
		inv = Inventory{Volumes: slices.Clone(w.volumes), Guards: w.guards, Nodes: w.asleep, OwnTasks: w.ownTasks}
		for _, m := range w.vms {
			if !slices.Contains(append(w.removed, w.asleep...), m.VM.VM.Node) && (m.Ours || m.Instance != "" || m.VM.VM.ID >= 9000 && m.VM.VM.ID <= 9099) {
				inv.VMs = append(inv.VMs, m.VM)
			}
		}
		slices.SortFunc(inv.VMs, func(a, b VM) int { return int(a.VM.ID - b.VM.ID) })
		return nil
	})
	return inv, err
}

func (w *world) Working(ctx context.Context, vm orchestrator.VMRef, _ string) (t []orchestrator.UPID, err error) {
	err = w.do(ctx, "working", func() error { t = w.tasks[vm]; return nil })
	return t, err
}

func (w *world) DeleteVolume(ctx context.Context, vm orchestrator.VMRef, sb orchestrator.SandboxID, volume string, started orchestrator.Started) error {
	return w.do(ctx, "delete-volume", func() error {
		if _, err := w.owned(vm, sb); err != nil {
			return err
		}
		if w.denied {
			return fmt.Errorf("delete %s: %w", volume, orchestrator.ErrDenied)
		}
		w.volumes = slices.DeleteFunc(w.volumes, func(v Volume) bool { return v.ID == volume })
		return started("UPID:imgdel")
	})
}

func (w *world) RemoveBuilding(ctx context.Context, vm orchestrator.VMRef, started orchestrator.Started) error {
	return w.do(ctx, "remove-building", func() error {
		m := w.vms[vm]
		switch {
		case m == nil:
			return nil
		case !m.Ours || !m.Building:
			return fmt.Errorf("%s: %w", vm, orchestrator.ErrDenied)
		case m.Lock != "":
			return fmt.Errorf("%s is locked: %w", vm, orchestrator.ErrBusy)
		}
		delete(w.vms, vm)
		return started("UPID:qmdestroy")
	})
}

// owned is the check that every destructive call makes.
func (w *world) owned(vm orchestrator.VMRef, sb orchestrator.SandboxID) (*machine, error) {
	m := w.vms[vm]
	switch {
	case m == nil:
		return nil, fmt.Errorf("%s: %w", vm, orchestrator.ErrNotFound)
	case !m.Ours || m.Sandbox != sb:
		return nil, fmt.Errorf("%s belongs to %q: %w", vm, m.Sandbox, orchestrator.ErrDenied)
	case m.Lock != "":
		return nil, fmt.Errorf("%s is locked: %w", vm, orchestrator.ErrBusy)
	}
	return m, nil
}

type hypervisor struct{ w *world }

func (h hypervisor) Clone(context.Context, orchestrator.CloneRequest) error {
	return errors.ErrUnsupported
}
func (h hypervisor) Start(context.Context, orchestrator.VMRequest) error {
	return errors.ErrUnsupported
}

func (h hypervisor) Stop(ctx context.Context, r orchestrator.VMRequest) error {
	return h.w.do(ctx, "stop", func() error {
		m, err := h.w.owned(r.VM, r.Sandbox)
		if err == nil {
			m.Running = false
		}
		return err
	})
}

func (h hypervisor) Destroy(ctx context.Context, r orchestrator.VMRequest) error {
	return h.w.do(ctx, "destroy", func() error {
		m, err := h.w.owned(r.VM, r.Sandbox)
		switch {
		case errors.Is(err, orchestrator.ErrNotFound):
			return nil
		case err != nil:
			return err
		case m.Running:
			return orchestrator.ErrBusy
		}
		delete(h.w.vms, r.VM)
		if r.Started != nil {
			return r.Started("UPID:qmdestroy")
		}
		return nil
	})
}

func (h hypervisor) Status(ctx context.Context, vm orchestrator.VMRef) (st orchestrator.VMStatus, err error) {
	err = h.w.do(ctx, "status", func() error {
		if slices.Contains(h.w.removed, vm.Node) {
			return fmt.Errorf("%s: %w", vm, &orchestrator.NodeError{Node: vm.Node})
		}
		m := h.w.vms[vm]
		if m == nil {
			return fmt.Errorf("%s: %w", vm, orchestrator.ErrNotFound)
		}
		st = orchestrator.VMStatus{Running: m.Running, Template: m.Template, Lock: m.Lock}
		if m.Ours {
			st.Owner = m.Sandbox
		}
		return nil
	})
	return st, err
}

type snapshots struct{ w *world }

func (s snapshots) Create(context.Context, orchestrator.SnapshotRequest) error {
	return errors.ErrUnsupported
}
func (s snapshots) Rollback(context.Context, orchestrator.SnapshotRequest) error {
	return errors.ErrUnsupported
}

func (s snapshots) Delete(ctx context.Context, r orchestrator.SnapshotRequest) error {
	return s.w.do(ctx, "delete-snapshot", func() error {
		m, err := s.w.owned(r.VM, r.Sandbox)
		if err != nil {
			return err
		}
		m.snaps = slices.DeleteFunc(m.snaps, func(o orchestrator.Snapshot) bool { return o.Name == r.Name })
		if r.Started != nil {
			return r.Started("UPID:qmdelsnapshot")
		}
		return nil
	})
}

func (s snapshots) List(ctx context.Context, vm orchestrator.VMRef) (l []orchestrator.Snapshot, err error) {
	err = s.w.do(ctx, "list", func() error {
		m := s.w.vms[vm]
		if m == nil {
			return fmt.Errorf("%s: %w", vm, orchestrator.ErrNotFound)
		}
		l = slices.Clone(m.snaps)
		return nil
	})
	return l, err
}

// --- Registry, Ledger, Notes and what belongs to others

func (w *world) Sandboxes(context.Context) ([]orchestrator.Sandbox, error) {
	return slices.SortedFunc(maps.Values(w.sandboxes), func(a, b orchestrator.Sandbox) int { return strings.Compare(string(a.ID), string(b.ID)) }), nil
}

func (w *world) PutSandbox(ctx context.Context, sb orchestrator.Sandbox) error {
	return w.do(ctx, "put "+string(sb.State), func() error { w.sandboxes[sb.ID] = sb; return nil })
}

func (w *world) Claim(_ context.Context, tx orchestrator.TxID) (Claim, error) {
	c, ok := w.claims[tx]
	if !ok {
		return Claim{}, fmt.Errorf("transaction %s: %w", tx, orchestrator.ErrNotFound)
	}
	return c, nil
}

func (w *world) Spent(context.Context) (out []Claim, err error) {
	for _, id := range slices.Sorted(maps.Keys(w.claims)) {
		if c := w.claims[id]; c.State.Final() && !c.Settled {
			out = append(out, c)
		}
	}
	return out, nil
}

// remove is what provisioning does.
func (w *world) remove(ctx context.Context, sb orchestrator.Sandbox) error {
	return w.do(ctx, "remove", func() error {
		if m := w.vms[sb.VM]; m != nil && m.Sandbox == sb.ID {
			delete(w.vms, sb.VM)
		}
		sb.State = orchestrator.SandboxDestroyed
		w.sandboxes[sb.ID] = sb
		delete(w.addresses, sb.ID)
		return nil
	})
}

// collect is what the engine does.
func (w *world) collect(ctx context.Context) (n int, err error) {
	err = w.do(ctx, "collect", func() error {
		for id, c := range w.claims {
			m := w.vms[c.Sandbox.VM]
			if c.State.Final() && !c.Settled && m != nil && m.Lock == "" {
				c.Settled = true
				w.claims[id] = c
				m.snaps = slices.DeleteFunc(m.snaps, func(s orchestrator.Snapshot) bool { return s.Name == orchestrator.SnapshotOf(id) })
				n++
			}
		}
		return nil
	})
	return n, err
}

type notes struct{ w *world }

func (n notes) Append(note Note) error {
	return n.w.do(context.Background(), "note "+string(note.Event), func() error { return n.w.notes.Append(note) })
}
func (n notes) Open() []Note               { return n.w.notes.Open() }
func (n notes) Sightings() map[string]Note { return n.w.notes.Sightings() }
func (n notes) NextID() int64              { return n.w.notes.NextID() }
