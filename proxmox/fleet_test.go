package proxmox_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"savepoint/orchestrator"
	"savepoint/proxmox"
	"savepoint/testbed/pve"
)

// Many sandboxes at once, with a password instead of a token: tickets, lost
// answers and turns work together.
func TestFleet(t *testing.T) {
	l := startLab(t).withTemplate()
	c := l.open(func(c *proxmox.Config) {
		c.TokenID, c.TokenSecret, c.User, c.Password = "", "", "root@pam", "root-password"
	})
	for _, nth := range []int{2, 5} {
		l.server.Faults.Add(pve.Fault{Method: "POST", Path: "/nodes/*/qemu/*/snapshot", Nth: nth, AfterEffect: true, Status: 596, Message: "Connection timed out"})
		l.server.Faults.Add(pve.Fault{Method: "POST", Path: "/nodes/*/qemu/*/clone", Nth: nth, AfterEffect: true, Drop: true})
	}
	before := l.vmCount()
	life := func(ctx context.Context, r orchestrator.CloneRequest) error {
		snap := orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-one"}
		cell := l.disk
		for _, step := range []func() error{
			func() error { return c.VMs().Clone(ctx, r) },
			func() error { return c.VMs().Start(ctx, r.VMRequest) },
			func() error { return cell(r.VM.ID).Write(ctx, r.Name) },
			func() error { return c.Snapshots().Create(ctx, snap) },
			func() error { return cell(r.VM.ID).Write(ctx, "damage") },
			func() error { return c.Snapshots().Rollback(ctx, snap) },
			func() error {
				got, err := cell(r.VM.ID).Read(ctx)
				if err == nil && got != r.Name {
					err = fmt.Errorf("the disk of %s holds %q", r.Name, got)
				}
				return err
			},
			func() error { return c.Snapshots().Delete(ctx, snap) },
			func() error { return c.VMs().Destroy(ctx, r.VMRequest) },
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	for i := range 8 {
		r := l.cloneRequest()
		r.Name = fmt.Sprintf("sb-%d", i)
		wg.Go(func() {
			if err := life(t.Context(), r); err != nil {
				t.Errorf("%s: %v", r.Name, err)
			}
		})
	}
	wg.Wait()
	if got := l.vmCount(); got != before {
		t.Errorf("%d vms are left", got-before)
	}
}
