package qemu

import (
	"context"
	"fmt"

	"savepoint/testbed/pve"
)

var _ pve.Pauser = (*Machines)(nil)

// Pause implements pve.Pauser. An owner that adopts the VM lets it go on.
func (m *Machines) Pause(ctx context.Context, vmid int) error {
	return m.command(ctx, vmid, "pause", "stop")
}

// Resume implements pve.Pauser. It also lets a VM go on that a write error stopped.
func (m *Machines) Resume(ctx context.Context, vmid int) error {
	return m.command(ctx, vmid, "resume", "cont")
}

// Reset implements pve.Pauser.
func (m *Machines) Reset(ctx context.Context, vmid int) error {
	return m.command(ctx, vmid, "reset", "system_reset")
}

func (m *Machines) command(ctx context.Context, vmid int, op, command string) error {
	v, err := m.find(vmid)
	if err == nil {
		err = v.qmp.execute(ctx, command, nil, nil)
	}
	if err != nil {
		return fmt.Errorf("%s vm %d: %w", op, vmid, err)
	}
	return nil
}
