package proxmox_test

import (
	"context"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/conformance"
	"savepoint/testbed/pve"
)

func version(v string) func(*pve.Config) { return func(c *pve.Config) { c.Version = v } }

func localStorage(s pve.Storage) func(*pve.Config) {
	s.ID = "local"
	return func(c *pve.Config) { c.Storages = []pve.Storage{s} }
}

func TestSnapshotterConformance(t *testing.T) {
	for name, tc := range map[string]struct {
		change     []func(*pve.Config)
		latestOnly bool
	}{
		"9.2 qcow2":        {[]func(*pve.Config){version("9.2")}, false},
		"8.4 qcow2":        {[]func(*pve.Config){version("8.4")}, false},
		"9.2 volume chain": {[]func(*pve.Config){version("9.2"), localStorage(pve.Storage{VolumeChain: true})}, true},
		"8.4 zfspool":      {[]func(*pve.Config){version("8.4"), localStorage(pve.Storage{Type: "zfspool"})}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := startLab(t, tc.change...).withTemplate()
			factory := func(*testing.T) conformance.SnapshotSubject {
				r := l.sandbox() // a VM of its own
				id := int(r.VM.ID)
				return conformance.SnapshotSubject{
					Snapshotter: l.cluster.Snapshots(), VM: r.VM, Sandbox: r.Sandbox, Absent: l.newVM(), Disk: l.disk(r.VM.ID),
					Memory: conformance.Cell{
						Write: func(_ context.Context, s string) error { l.backend.SetMemory(id, s); return nil },
						Read:  func(context.Context) (string, error) { return l.backend.Memory(id), nil },
					},
					Running: func(ctx context.Context) (bool, error) {
						st, err := l.cluster.VMs().Status(ctx, r.VM)
						return st.Running, err
					},
					Start: func(ctx context.Context) error { return l.cluster.VMs().Start(ctx, r) },
					Stop:  func(ctx context.Context) error { return l.cluster.VMs().Stop(ctx, r) },
				}
			}
			conformance.Snapshotter(t, factory, conformance.SnapshotCaps{
				Memory: true, LatestOnly: tc.latestOnly, Tasks: true, Descriptions: true, Rounds: 4,
			})
		})
	}
}

func TestHypervisorConformance(t *testing.T) {
	for name, change := range map[string][]func(*pve.Config){
		"8.4": {version("8.4")}, "9.2": {version("9.2")},
		// The cause is in the status line only, as in 8.x before 8.4.
		"8.4 without messages": {version("8.4"), func(c *pve.Config) { c.OmitMessage = true }},
		// Lists are 10 s behind.
		"9.2 lagging": {version("9.2"), func(c *pve.Config) { c.ResourceLag = 10 * time.Second }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := startLab(t, change...).withTemplate()
			factory := func(*testing.T) conformance.HypervisorSubject {
				return conformance.HypervisorSubject{
					Hypervisor: l.cluster.VMs(), Template: templateVM, Foreign: orchestrator.VMRef{Node: labNode, ID: foreignID},
					NewVM: l.newVM, NewSandbox: l.newSandbox, NewAddress: l.newAddress,
				}
			}
			conformance.Hypervisor(t, factory, conformance.HypervisorCaps{Tasks: true})
		})
	}
}
