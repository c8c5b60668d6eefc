package memory

import (
	"context"
	"maps"
	"net/netip"
	"sync"

	"savepoint/testbed/pve"
)

// AgentFunc answers one command of the guest agent. A *pve.AgentError is the
// agent's own refusal; any other error means that it did not answer.
type AgentFunc func(command string, args any) (any, error)

// Backend runs VMs and keeps disks in memory. The zero value is not usable.
type Backend struct {
	mu     sync.Mutex
	vms    map[int]*vm
	disks  map[string]*disk // by path
	states map[string]state // saved memory, by path
	agents map[int]AgentFunc
	ssh    map[int]netip.AddrPort
	pid    int
	// powerdown tells whether a guest obeys a request to power down.
	powerdown map[int]bool
	failures  map[string]error
	holds     map[string]chan struct{}
}

type vm struct {
	machine pve.Machine
	pid     int
	paused  bool
	memory  string
}

type state struct {
	memory string
	tag    string
}

// New makes an empty backend.
func New() *Backend {
	return &Backend{
		vms: map[int]*vm{}, disks: map[string]*disk{}, states: map[string]state{}, agents: map[int]AgentFunc{},
		ssh: map[int]netip.AddrPort{}, powerdown: map[int]bool{}, failures: map[string]error{}, holds: map[string]chan struct{}{}, pid: 100,
	}
}

// SetAgent makes the VM's guest agent answer with f; nil makes it silent.
func (b *Backend) SetAgent(vmid int, f AgentFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f == nil {
		delete(b.agents, vmid)
		return
	}
	b.agents[vmid] = f
}

// SetSSH says where the guest's port 22 is reached while it runs.
func (b *Backend) SetSSH(vmid int, at netip.AddrPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ssh[vmid] = at
}

// SetPowerdown says whether the guest obeys a request to power down; it does
// not unless told.
func (b *Backend) SetPowerdown(vmid int, obeys bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.powerdown[vmid] = obeys
}

// FailNext makes the next call of the named method ("Start", "Snapshot",
// "Revert", …) fail with err.
func (b *Backend) FailNext(method string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures[method] = err
}

// Hold makes calls of the named method ("Start", …) wait before they do
// anything, until release is called.
func (b *Backend) Hold(method string) (release func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	gate := make(chan struct{})
	b.holds[method] = gate
	return sync.OnceFunc(func() {
		b.mu.Lock()
		delete(b.holds, method)
		b.mu.Unlock()
		close(gate)
	})
}

// wait holds a call up. b.mu must not be held.
func (b *Backend) wait(ctx context.Context, method string) {
	b.mu.Lock()
	gate := b.holds[method]
	b.mu.Unlock()
	if gate == nil {
		return
	}
	select {
	case <-gate:
	case <-ctx.Done():
	}
}

// enter begins a call: it holds the lock and returns what the call must fail with.
func (b *Backend) enter(ctx context.Context, method string) error {
	if ctx != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := b.failures[method]; err != nil {
		delete(b.failures, method)
		return err
	}
	return nil
}

// SetMemory writes what a running VM's memory holds.
func (b *Backend) SetMemory(vmid int, content string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if v := b.vms[vmid]; v != nil {
		v.memory = content
	}
}

// Memory reads what a running VM's memory holds.
func (b *Backend) Memory(vmid int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if v := b.vms[vmid]; v != nil {
		return v.memory
	}
	return ""
}

// Machine returns what a running VM was started with.
func (b *Backend) Machine(vmid int) (pve.Machine, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.vms[vmid]
	if v == nil {
		return pve.Machine{}, false
	}
	return v.machine, true
}

// Running lists the VMs that run.
func (b *Backend) Running() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]int, 0, len(b.vms))
	for id := range maps.Keys(b.vms) {
		out = append(out, id)
	}
	return out
}
