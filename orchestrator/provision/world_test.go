package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"savepoint/network"
	"savepoint/orchestrator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is everything outside of the package: registry, cluster and guests. It
// counts every call as one operation, and a test can disturb any of them.
type world struct {
	mu  sync.Mutex
	ops []string
	// before and after may return an error for operation number n, before it
	// has its effect or when it has had it.
	before, after func(n int, op string) error

	now       time.Time
	sandboxes map[orchestrator.SandboxID]orchestrator.Sandbox
	addresses map[orchestrator.SandboxID]netip.Addr
	cursor    orchestrator.VMID
	ids       int

	vms        map[orchestrator.VMID]*machine
	latestOnly bool          // the storage restores only the newest snapshot
	stubborn   time.Duration // how far the guests' clocks stay off
	asleep     bool          // guests do not answer
	nodes      []Node        // of the cluster
	limits     Limits
	down       []string // nodes that are out of reach
	mute       bool     // the cluster does not answer for its nodes
	leaks      bool     // zones are not sealed
	bare       bool     // the template has no workspace volume

	warm    Warm
	keys    []string // of ours; nil: one
	proofs  map[orchestrator.SandboxID]time.Time
	applied time.Time // when the networks were changed last
	narrow  bool      // tenant alpha has its small network only
}

type machine struct {
	owner      orchestrator.SandboxID
	running    bool
	generation string
	lock       string
	current    orchestrator.SnapshotName // what the present state descends from
	hostKey    string                    // "" = the one that was pinned
	skew       time.Duration
	snaps      []orchestrator.Snapshot
	saved      map[orchestrator.SnapshotName]string // the generation in each
	prepared   bool
	bridge     string
	claimed    orchestrator.SandboxID  // whose the workspace volume is
	volume     []orchestrator.Snapshot // of the workspace volume alone
}

func newWorld() *world {
	return &world{
		now:       time.Unix(1_800_000_000, 0),
		sandboxes: map[orchestrator.SandboxID]orchestrator.Sandbox{},
		addresses: map[orchestrator.SandboxID]netip.Addr{},
		vms:       map[orchestrator.VMID]*machine{},
		nodes:     []Node{site("pve1")},
		proofs:    map[orchestrator.SandboxID]time.Time{},
	}
}

func (w *world) provisioner() *Provisioner {
	keys, warm := w.keys, w.warm
	if keys == nil {
		keys = []string{"ssh-ed25519 AAAA"}
	}
	warm.Proofs = w
	return New(Config{
		Warm: warm, SSHKeys: keys,
		Registry: w, Hypervisor: hypervisor{w}, Snapshots: snapshots{w}, Identity: w, Guest: w,
		Networks: w, Prover: w, Workspaces: workspaces{w},
		Fleet: w, Template: "guest", Limits: w.limits,
		FirstVMID: 9000, LastVMID: 9099, Rest: time.Hour, Subnet: netip.MustParsePrefix("10.0.0.0/24"),
		BootTimeout: time.Hour, // no test may take it: see TestNeverBoots
		Now:         func() time.Time { return w.now },
		NewID:       func() string { w.ids++; return fmt.Sprintf("sb%d", w.ids) },
	})
}

// do is one operation: its effect happens under the lock, between the faults.
func (w *world) do(ctx context.Context, op string, effect func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
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

// count returns how often the operation was called.
func (w *world) count(op string) int {
	n := 0
	for _, o := range w.ops {
		if o == op {
			n++
		}
	}
	return n
}

// living returns the sandboxes that are not destroyed.
func (w *world) living() []orchestrator.Sandbox {
	var l []orchestrator.Sandbox
	for _, id := range slices.Sorted(maps.Keys(w.sandboxes)) {
		if sb := w.sandboxes[id]; sb.State != orchestrator.SandboxDestroyed {
			l = append(l, sb)
		}
	}
	return l
}

// --- Fleet

const gib = int64(1) << 30

// site is a node with a template of its own and much memory.
func site(name string) Node {
	return Node{
		Name: name, Online: true, Memory: 64 * gib, Free: 60 * gib,
		Templates: []Template{{VM: orchestrator.VMRef{Node: name, ID: 8000}, Memory: gib / 2, Storages: []string{"local"}}},
	}
}

func (w *world) Nodes(context.Context, string) ([]Node, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mute {
		return nil, fmt.Errorf("list nodes: %w", orchestrator.ErrUnavailable)
	}
	all := slices.Clone(w.nodes)
	for i := range all {
		if slices.Contains(w.down, all[i].Name) {
			all[i] = Node{Name: all[i].Name}
		}
	}
	return all, nil
}

// reach is the error of every call about a VM on a node that is down.
func (w *world) reach(vm orchestrator.VMRef) error {
	if slices.Contains(w.down, vm.Node) {
		return fmt.Errorf("%s: %w", vm, &orchestrator.NodeError{Node: vm.Node})
	}
	return nil
}

// --- Registry

func (w *world) PutSandbox(ctx context.Context, sb orchestrator.Sandbox) error {
	return w.do(ctx, "put "+string(sb.State), func() error { w.sandboxes[sb.ID] = sb; return nil })
}

func (w *world) Sandboxes(context.Context) ([]orchestrator.Sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []orchestrator.Sandbox
	for _, id := range slices.Sorted(maps.Keys(w.sandboxes)) {
		all = append(all, w.sandboxes[id])
	}
	return all, nil
}

func (w *world) ReserveVMID(ctx context.Context, first, last orchestrator.VMID, _ time.Duration, _ orchestrator.SandboxID) (id orchestrator.VMID, err error) {
	err = w.do(ctx, "reserve-vmid", func() error {
		if w.cursor = max(w.cursor+1, first); w.cursor > last {
			return orchestrator.ErrBusy
		}
		id = w.cursor
		return nil
	})
	return id, err
}

func (w *world) ReserveAddress(ctx context.Context, subnet netip.Prefix, owner orchestrator.SandboxID) (a netip.Addr, err error) {
	err = w.do(ctx, "reserve-address", func() error {
		for a = subnet.Addr().Next(); slices.Contains(slices.Collect(maps.Values(w.addresses)), a); a = a.Next() {
		}
		if !subnet.Contains(a.Next()) { // the broadcast address
			return fmt.Errorf("%s: %w", subnet, orchestrator.ErrBusy)
		}
		w.addresses[owner] = a
		return nil
	})
	return a, err
}

func (w *world) ReleaseAddress(ctx context.Context, owner orchestrator.SandboxID) error {
	return w.do(ctx, "release-address", func() error { delete(w.addresses, owner); return nil })
}

// --- Hypervisor

// owned is the check that every destructive call makes.
func (w *world) owned(vm orchestrator.VMRef, sb orchestrator.SandboxID) (*machine, error) {
	if err := w.reach(vm); err != nil {
		return nil, err
	}
	m := w.vms[vm.ID]
	switch {
	case m == nil:
		return nil, fmt.Errorf("%s: %w", vm, orchestrator.ErrNotFound)
	case m.owner != sb:
		return nil, fmt.Errorf("%s belongs to %q: %w", vm, m.owner, orchestrator.ErrDenied)
	}
	return m, nil
}

type hypervisor struct{ w *world }

func (h hypervisor) Clone(ctx context.Context, r orchestrator.CloneRequest) error {
	return h.w.do(ctx, "clone", func() error {
		if err := errors.Join(h.w.reach(r.VM), h.w.reach(r.Template)); err != nil {
			return err
		}
		if h.w.vms[r.VM.ID] != nil {
			return fmt.Errorf("%s: %w", r.VM, orchestrator.ErrExists)
		}
		h.w.vms[r.VM.ID] = &machine{owner: r.Sandbox, bridge: r.Bridge, saved: map[orchestrator.SnapshotName]string{}}
		return nil
	})
}

func (h hypervisor) power(ctx context.Context, op string, on bool, r orchestrator.VMRequest) error {
	return h.w.do(ctx, op, func() error {
		m, err := h.w.owned(r.VM, r.Sandbox)
		if err == nil {
			m.running = on
		}
		return err
	})
}

func (h hypervisor) Start(ctx context.Context, r orchestrator.VMRequest) error {
	return h.power(ctx, "start", true, r)
}

func (h hypervisor) Stop(ctx context.Context, r orchestrator.VMRequest) error {
	return h.power(ctx, "stop", false, r)
}

func (h hypervisor) Destroy(ctx context.Context, r orchestrator.VMRequest) error {
	return h.w.do(ctx, "destroy", func() error {
		m, err := h.w.owned(r.VM, r.Sandbox)
		switch {
		case errors.Is(err, orchestrator.ErrNotFound):
			return nil
		case err != nil:
			return err
		case m.running:
			return fmt.Errorf("%s runs: %w", r.VM, orchestrator.ErrBusy)
		}
		delete(h.w.vms, r.VM.ID)
		return nil
	})
}

func (h hypervisor) Status(ctx context.Context, vm orchestrator.VMRef) (st orchestrator.VMStatus, err error) {
	err = h.w.do(ctx, "status", func() error {
		if err := h.w.reach(vm); err != nil {
			return err
		}
		m := h.w.vms[vm.ID]
		if m == nil {
			return fmt.Errorf("%s: %w", vm, orchestrator.ErrNotFound)
		}
		st = orchestrator.VMStatus{Running: m.running, Owner: m.owner, Lock: m.lock}
		return nil
	})
	return st, err
}

// --- Snapshotter

type snapshots struct{ w *world }

func (s snapshots) Create(ctx context.Context, r orchestrator.SnapshotRequest) error {
	return s.w.do(ctx, "snapshot", func() error {
		m, err := s.w.owned(r.VM, r.Sandbox)
		if err != nil {
			return err
		}
		m.snaps = append(m.snaps, orchestrator.Snapshot{Name: r.Name, Memory: r.Memory})
		m.saved[r.Name], m.current = m.generation, r.Name
		return nil
	})
}

func (s snapshots) Rollback(ctx context.Context, r orchestrator.SnapshotRequest) error {
	return s.w.do(ctx, "rollback", func() error {
		m, err := s.w.owned(r.VM, r.Sandbox)
		if err != nil {
			return err
		}
		if n := len(m.volume); n > 0 { // the volume is one of the VM's disks
			return &orchestrator.NotLatestError{Name: r.Name, Newer: []orchestrator.SnapshotName{m.volume[n-1].Name}}
		}
		if last := m.snaps[len(m.snaps)-1].Name; s.w.latestOnly && last != r.Name {
			return &orchestrator.NotLatestError{Name: r.Name, Newer: []orchestrator.SnapshotName{last}}
		}
		m.generation, m.running, m.skew, m.current = m.saved[r.Name], true, time.Hour, r.Name
		return nil
	})
}

func (s snapshots) Delete(ctx context.Context, r orchestrator.SnapshotRequest) error {
	return s.w.do(ctx, "delete "+string(r.Name), func() error {
		m, err := s.w.owned(r.VM, r.Sandbox)
		if err != nil {
			return err
		}
		if last := m.snaps[len(m.snaps)-1].Name; s.w.latestOnly && last != r.Name {
			return fmt.Errorf("delete %s before %s: %w", r.Name, last, orchestrator.ErrBusy)
		}
		m.snaps = slices.DeleteFunc(m.snaps, func(sn orchestrator.Snapshot) bool { return sn.Name == r.Name })
		return nil
	})
}

func (s snapshots) List(ctx context.Context, vm orchestrator.VMRef) (l []orchestrator.Snapshot, err error) {
	err = s.w.do(ctx, "list", func() error {
		if err := s.w.reach(vm); err != nil {
			return err
		}
		m := s.w.vms[vm.ID]
		if m == nil {
			return fmt.Errorf("%s: %w", vm, orchestrator.ErrNotFound)
		}
		l = slices.Clone(m.snaps)
		for i := range l {
			l[i].Current = l[i].Name == m.current
		}
		return nil
	})
	return l, err
}

// --- Identity and Guest

func (w *world) HostKey(ctx context.Context, vm orchestrator.VMRef) (string, error) {
	if w.asleep {
		<-ctx.Done()
	}
	return fmt.Sprintf("ssh-ed25519 key-of-%d", vm.ID), w.do(ctx, "hostkey", func() error { return nil })
}

func (w *world) ask(ctx context.Context, op string, sb orchestrator.Sandbox, effect func(*machine)) (f orchestrator.GuestFacts, err error) {
	err = w.do(ctx, op, func() error {
		m := w.vms[sb.VM.ID]
		if m == nil || !m.running || m.owner != sb.ID {
			return fmt.Errorf("guest of %s: %w", sb.Name, orchestrator.ErrUnavailable)
		}
		if m.hostKey != "" && m.hostKey != sb.HostKey {
			return &orchestrator.HostKeyError{Host: sb.Name, Want: sb.HostKey, Got: m.hostKey}
		}
		effect(m)
		f = orchestrator.GuestFacts{BootID: "boot", Generation: m.generation, Clock: w.now.Add(m.skew)}
		return nil
	})
	return f, err
}

func (w *world) Mark(ctx context.Context, sb orchestrator.Sandbox, g string) (orchestrator.GuestFacts, error) {
	return w.ask(ctx, "mark", sb, func(m *machine) { m.generation = g })
}

func (w *world) Inspect(ctx context.Context, sb orchestrator.Sandbox) (orchestrator.GuestFacts, error) {
	return w.ask(ctx, "inspect", sb, func(*machine) {})
}

func (w *world) SetClock(ctx context.Context, sb orchestrator.Sandbox, _ time.Time) error {
	_, err := w.ask(ctx, "clock", sb, func(m *machine) { m.skew = w.stubborn })
	return err
}

func (w *world) Prepare(ctx context.Context, sb orchestrator.Sandbox, _ []string) error {
	_, err := w.ask(ctx, "prepare", sb, func(m *machine) { m.prepared = true })
	return err
}

func (w *world) Disconnect(orchestrator.SandboxID) {}

// --- Networks and Prover

// Pools are two networks of tenant alpha: the first one has room for two.
func (w *world) Pools(_ context.Context, tenant string) ([]network.Pool, error) {
	if tenant != "alpha" {
		return nil, fmt.Errorf("pools of tenant %q: there is none", tenant)
	}
	pools := []network.Pool{
		{Tenant: tenant, VNet: "small", Bridge: "sp1", Subnet: netip.MustParsePrefix("10.1.0.0/30")},
		{Tenant: tenant, VNet: "large", Bridge: "sp2", Subnet: netip.MustParsePrefix("10.2.0.0/24"), Gateway: netip.MustParseAddr("10.2.0.254")},
	}
	if w.narrow {
		pools = pools[:1]
	}
	return pools, nil
}

func (w *world) Prove(ctx context.Context, sb orchestrator.Sandbox) error {
	_, err := w.ask(ctx, "prove", sb, func(*machine) {
		if w.proofs[sb.ID] = w.now; w.leaks {
			delete(w.proofs, sb.ID)
		}
	})
	if err == nil && w.leaks {
		return &orchestrator.UnsealedError{Sandbox: sb.Name, Failed: []string{"guest " + sb.Name + " reaches the outside"}}
	}
	return err
}

func (w *world) Proved(_ context.Context, id orchestrator.SandboxID) (time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.proofs[id], nil
}

func (w *world) NetworksChanged(context.Context) (time.Time, error) { return w.applied, nil }

// --- Workspaces

// workspaces are volumes that restore only their newest snapshot. Those of the
// whole VM have a part on them.
type workspaces struct{ w *world }

func (v workspaces) Find(ctx context.Context, sb orchestrator.Sandbox) (name string, err error) {
	err = v.w.do(ctx, "find-volume", func() error {
		if !v.w.bare {
			name = fmt.Sprintf("tank/vm-%d-disk-1", sb.VM.ID)
		}
		return nil
	})
	return name, err
}

func (v workspaces) Claim(ctx context.Context, sb orchestrator.Sandbox) error {
	return v.w.do(ctx, "claim-volume", func() error {
		m, err := v.w.owned(sb.VM, sb.ID)
		if err == nil {
			m.claimed = sb.ID
		}
		return err
	})
}

func (v workspaces) List(ctx context.Context, vm orchestrator.VMRef) (l []orchestrator.Snapshot, err error) {
	err = v.w.do(ctx, "list-volume", func() error {
		l = append(slices.Clone(v.w.vms[vm.ID].snaps), v.w.vms[vm.ID].volume...)
		return nil
	})
	return l, err
}

func (v workspaces) Delete(ctx context.Context, r orchestrator.SnapshotRequest) error {
	return v.w.do(ctx, "delete-volume "+string(r.Name), func() error {
		m := v.w.vms[r.VM.ID]
		if n := len(m.volume) - 1; m.claimed != r.Sandbox || n < 0 || m.volume[n].Name != r.Name {
			return fmt.Errorf("delete %s: %w", r.Name, orchestrator.ErrDenied)
		}
		m.volume = m.volume[:len(m.volume)-1]
		return nil
	})
}

// Create and Rollback are for the engine; provisioning does not call them.
func (v workspaces) Create(context.Context, orchestrator.SnapshotRequest) error {
	return orchestrator.ErrDenied
}

func (v workspaces) Rollback(context.Context, orchestrator.SnapshotRequest) error {
	return orchestrator.ErrDenied
}
