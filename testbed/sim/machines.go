package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"savepoint/testbed/pve"
)

// Machines runs the VMs; it implements pve.Machines.
type Machines struct{ b *Backend }

// Start implements pve.Machines.
func (m Machines) Start(ctx context.Context, vm pve.Machine) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	b := m.b
	how := b.behaviour(vm.VMID)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("start vm %d: the backend is closed", vm.VMID)
	}
	if b.machines[vm.VMID] != nil {
		return fmt.Errorf("start vm %d: it runs", vm.VMID)
	}
	g := &guest{b: b, machine: vm, how: how}
	for _, d := range vm.Disks {
		img, err := b.find(d.Path)
		if err != nil {
			return fmt.Errorf("start vm %d: %w", vm.VMID, err)
		}
		switch {
		case d.Slot == vm.BootSlot:
			g.tree = img.tree
		case img.iso != nil && string(img.iso[isoLabel]) == "cidata":
			g.cidata = img.iso
		}
	}
	if vm.Resume != "" {
		s, ok := b.states[vm.Resume]
		if !ok {
			return fmt.Errorf("start vm %d: no saved state at %s", vm.VMID, vm.Resume)
		}
		g.resume = &s
	}
	b.pid++
	g.pid = b.pid
	if err := g.start(ctx); err != nil {
		return fmt.Errorf("start vm %d: %w", vm.VMID, err)
	}
	b.machines[vm.VMID] = g
	return nil
}

// Stop implements pve.Machines.
func (m Machines) Stop(ctx context.Context, vmid int, graceful bool) error {
	b := m.b
	for {
		how := b.behaviour(vmid)
		b.mu.Lock()
		g := b.machines[vmid]
		if g == nil {
			b.mu.Unlock()
			return nil
		}
		if !graceful || !how.IgnoresPowerdown && g.isBooted() {
			delete(b.machines, vmid)
			b.mu.Unlock()
			return g.stop()
		}
		b.mu.Unlock()
		select {
		case <-ctx.Done():
			return fmt.Errorf("stop vm %d: the guest did not power down: %w", vmid, ctx.Err())
		case <-time.After(5 * time.Millisecond): // it may be booting still
		}
	}
}

// Status implements pve.Machines.
func (m Machines) Status(vmid int) pve.MachineStatus {
	g, err := m.b.guest(vmid)
	if err != nil {
		return pve.MachineStatus{}
	}
	s := pve.MachineStatus{Running: true, PID: g.pid, Paused: g.gate.frozen()}
	if g.machine.Address.IsValid() {
		s.SSH = g.addr()
	}
	return s
}

// Snapshot implements pve.Machines.
func (m Machines) Snapshot(ctx context.Context, vmid int, tag, stateFile string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	b := m.b
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.machines[vmid]
	if g == nil {
		return fmt.Errorf("snapshot vm %d: it does not run", vmid)
	}
	// No process may write between two disks.
	g.gate.pause()
	defer g.gate.resume()
	for i, d := range g.machine.Disks {
		if d.CDROM {
			continue
		}
		if err := b.snapshot(d.Path, tag); err != nil {
			for _, done := range g.machine.Disks[:i] {
				if !done.CDROM {
					err = errors.Join(err, b.deleteSnapshot(done.Path, tag))
				}
			}
			return fmt.Errorf("snapshot vm %d: disk %s: %w", vmid, d.Path, err)
		}
	}
	if stateFile != "" {
		b.states[stateFile] = g.save()
		if b.images[stateFile] == nil {
			b.images[stateFile] = &image{size: 1 << 20, tags: map[string]saved{}}
		}
	}
	return nil
}

// DeleteSnapshot implements pve.Machines.
func (m Machines) DeleteSnapshot(ctx context.Context, vmid int, slot, tag string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	b := m.b
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.machines[vmid]
	if g == nil {
		return fmt.Errorf("delete snapshot of vm %d: it does not run", vmid)
	}
	for _, d := range g.machine.Disks {
		if d.Slot == slot {
			if err := b.deleteSnapshot(d.Path, tag); err != nil {
				return fmt.Errorf("delete snapshot of vm %d: %w", vmid, err)
			}
			return nil
		}
	}
	return fmt.Errorf("delete snapshot of vm %d: no disk at %s", vmid, slot)
}

// Agent implements pve.Machines.
func (m Machines) Agent(ctx context.Context, vmid int, command string, args any) (json.RawMessage, error) {
	g, err := m.b.guest(vmid)
	if err != nil {
		return nil, err
	}
	silent := g.ctx.Done() // nobody reads the channel until the guest has booted
	if !g.machine.Agent || m.b.behaviour(vmid).AgentSilent || g.tree.lacks("qemu-ga") {
		<-ctx.Done()
		silent = nil
	}
	select {
	case <-g.booted:
		g.gate.pass(ctx.Done())
	case <-ctx.Done():
	case <-silent:
	}
	if ctx.Err() != nil || g.ctx.Err() != nil {
		return nil, fmt.Errorf("guest agent of vm %d does not answer: %w", vmid, errors.Join(ctx.Err(), g.ctx.Err()))
	}
	value, err := g.agent(command, args)
	if err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

// Pause implements pve.Pauser.
func (m Machines) Pause(ctx context.Context, vmid int) error { return m.pause(ctx, vmid, true) }

// Resume implements pve.Pauser.
func (m Machines) Resume(ctx context.Context, vmid int) error { return m.pause(ctx, vmid, false) }

func (m Machines) pause(ctx context.Context, vmid int, on bool) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return m.b.Freeze(vmid, on)
}

// Reset implements pve.Pauser: the plug is pulled and put back.
func (m Machines) Reset(ctx context.Context, vmid int) error {
	g, err := m.b.guest(vmid)
	if err != nil {
		return err
	}
	vm := g.machine
	vm.Resume, vm.ResumeTag = "", ""
	if err := m.Stop(ctx, vmid, false); err != nil {
		return err
	}
	return m.Start(ctx, vm)
}

// Close implements pve.Machines.
func (m Machines) Close() error { return m.b.Close() }

// Address is where a running VM's sshd listens; the zero value when it does
// not run. Unlike Status it needs no address in the VM's configuration.
func (m Machines) Address(vmid int) netip.AddrPort {
	g, err := m.b.guest(vmid)
	if err != nil {
		return netip.AddrPort{}
	}
	return g.addr()
}
