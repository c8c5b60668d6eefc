package memory

import (
	"context"
	"encoding/json"
	"fmt"

	"savepoint/testbed/pve"
)

// Machines is the backend's side that runs VMs; it implements pve.Machines and
// pve.Pauser.
type Machines struct{ b *Backend }

// Machines returns the side that runs VMs.
func (b *Backend) Machines() Machines { return Machines{b} }

// Start implements pve.Machines.
func (m Machines) Start(ctx context.Context, spec pve.Machine) error {
	b := m.b
	b.wait(ctx, "Start")
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.enter(ctx, "Start"); err != nil {
		return err
	}
	if b.vms[spec.VMID] != nil {
		return fmt.Errorf("start vm %d: it runs already", spec.VMID)
	}
	for _, d := range spec.Disks {
		if b.disks[d.Path] == nil && !d.CDROM {
			return fmt.Errorf("start vm %d: disk %s has no file %s", spec.VMID, d.Slot, d.Path)
		}
	}
	b.pid++
	v := &vm{machine: spec, pid: b.pid}
	if spec.Resume != "" {
		s, ok := b.states[spec.Resume]
		if !ok {
			return fmt.Errorf("start vm %d: no saved state in %s", spec.VMID, spec.Resume)
		}
		v.memory = s.memory
	}
	b.vms[spec.VMID] = v
	return nil
}

// Stop implements pve.Machines.
func (m Machines) Stop(ctx context.Context, vmid int, graceful bool) error {
	b := m.b
	b.wait(ctx, "Stop")
	b.mu.Lock()
	if err := b.enter(ctx, "Stop"); err != nil {
		b.mu.Unlock()
		return err
	}
	if b.vms[vmid] == nil || !graceful || b.powerdown[vmid] {
		delete(b.vms, vmid)
		b.mu.Unlock()
		return nil
	}
	b.mu.Unlock()
	<-ctx.Done()
	return context.Cause(ctx)
}

// Status implements pve.Machines.
func (m Machines) Status(vmid int) pve.MachineStatus {
	b := m.b
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.vms[vmid]
	if v == nil {
		return pve.MachineStatus{}
	}
	return pve.MachineStatus{Running: true, PID: v.pid, Paused: v.paused, SSH: b.ssh[vmid]}
}

// Pause implements pve.Pauser.
func (m Machines) Pause(ctx context.Context, vmid int) error { return m.pause(ctx, vmid, true) }

// Resume implements pve.Pauser.
func (m Machines) Resume(ctx context.Context, vmid int) error { return m.pause(ctx, vmid, false) }

// Reset implements pve.Pauser.
func (m Machines) Reset(ctx context.Context, vmid int) error {
	b := m.b
	b.mu.Lock()
	defer b.mu.Unlock()
	v, err := b.running(vmid)
	if err != nil {
		return err
	}
	v.memory = ""
	return b.enter(ctx, "Reset")
}

func (m Machines) pause(ctx context.Context, vmid int, on bool) error {
	b := m.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.enter(ctx, "Pause"); err != nil {
		return err
	}
	v, err := b.running(vmid)
	if err != nil {
		return err
	}
	v.paused = on
	return nil
}

func (b *Backend) running(vmid int) (*vm, error) {
	if v := b.vms[vmid]; v != nil {
		return v, nil
	}
	return nil, fmt.Errorf("vm %d does not run", vmid)
}

// Snapshot implements pve.Machines.
func (m Machines) Snapshot(ctx context.Context, vmid int, tag, stateFile string) error {
	b := m.b
	b.wait(ctx, "Snapshot")
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.enter(ctx, "Snapshot"); err != nil {
		return err
	}
	v, err := b.running(vmid)
	if err != nil {
		return err
	}
	for _, d := range v.machine.Disks {
		if !d.CDROM {
			if err := b.snapshot(d, tag); err != nil {
				return err
			}
		}
	}
	if stateFile != "" {
		b.states[stateFile] = state{memory: v.memory, tag: tag}
	}
	return nil
}

// DeleteSnapshot implements pve.Machines.
func (m Machines) DeleteSnapshot(ctx context.Context, vmid int, slot, tag string) error {
	b := m.b
	b.wait(ctx, "DeleteSnapshot")
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.enter(ctx, "DeleteSnapshot"); err != nil {
		return err
	}
	v, err := b.running(vmid)
	if err != nil {
		return err
	}
	for _, d := range v.machine.Disks {
		if d.Slot == slot {
			return b.deleteTag(d, tag)
		}
	}
	return fmt.Errorf("vm %d has no disk %s", vmid, slot)
}

// Agent implements pve.Machines.
func (m Machines) Agent(ctx context.Context, vmid int, command string, args any) (json.RawMessage, error) {
	b := m.b
	b.mu.Lock()
	v, f := b.vms[vmid], b.agents[vmid]
	b.mu.Unlock()
	if v == nil || !v.machine.Agent {
		return nil, fmt.Errorf("vm %d: no guest agent channel", vmid)
	}
	if f == nil {
		<-ctx.Done()
		return nil, fmt.Errorf("vm %d: guest agent did not answer: %w", vmid, ctx.Err())
	}
	out, err := f(command, args)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("vm %d: guest agent: %w", vmid, err)
	}
	return raw, nil
}

// Close implements pve.Machines.
func (m Machines) Close() error {
	b := m.b
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.vms)
	return nil
}
