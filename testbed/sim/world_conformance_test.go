package sim_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"

	"savepoint/orchestrator"
	"savepoint/testbed/conformance"
	"savepoint/testbed/sim"
	"savepoint/testbed/sim/world"
)

// The simulated cluster keeps the contracts that the real ones keep. It runs
// here on the real clock, with tasks that end at once.
func TestSnapshotterConformance(t *testing.T) {
	for _, kind := range []orchestrator.Boundary{"workspace", "disk", "machine"} {
		for _, newest := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/newest-only=%t", kind, newest), func(t *testing.T) {
				caps := conformance.SnapshotCaps{
					Memory: kind == "machine", LatestOnly: newest, KeepsRunning: kind == "workspace",
					Tasks: kind != "workspace", Descriptions: true, Marker: true,
				}
				if kind == "machine" {
					caps.KeepsRunning = false
				}
				conformance.Snapshotter(t, func(*testing.T) conformance.SnapshotSubject { return subject(kind, newest) }, caps)
			})
		}
	}
}

func subject(kind orchestrator.Boundary, newest bool) conformance.SnapshotSubject {
	c := world.New(world.Options{Sandboxes: 1, NewestOnly: newest})
	p := &world.Process{C: c, Disk: sim.NewJournal("sim", nil)}
	sb := world.Box(0)
	c.Strip(sb)
	order := orchestrator.VMRequest{Sandbox: sb.ID, VM: sb.VM}
	cell := func(path string) conformance.Cell {
		return conformance.Cell{
			Write: func(_ context.Context, text string) error { c.Write(sb, path, text); return nil },
			Read:  func(context.Context) (string, error) { return c.Files(sb)[path], nil },
		}
	}
	return conformance.SnapshotSubject{
		Snapshotter: p.Driver(kind), VM: sb.VM, Sandbox: sb.ID, Absent: orchestrator.VMRef{Node: "pve1", ID: 77777},
		Disk: cell("/workspace/cell"), Memory: cell("/workspace/memory"),
		Marker: conformance.Cell{
			Write: func(ctx context.Context, text string) error { _, err := p.Mark(ctx, sb, text); return err },
			Read: func(ctx context.Context) (string, error) {
				f, err := p.Inspect(ctx, sb)
				return f.Generation, err
			},
		},
		Running: func(ctx context.Context) (bool, error) {
			st, err := p.Status(ctx, sb.VM)
			return st.Running, err
		},
		Start: func(ctx context.Context) error { return p.Start(ctx, order) },
		Stop:  func(ctx context.Context) error { return p.Stop(ctx, order) },
	}
}

func TestHypervisorConformance(t *testing.T) {
	conformance.Hypervisor(t, func(*testing.T) conformance.HypervisorSubject {
		c := world.New(world.Options{})
		var n atomic.Int64
		return conformance.HypervisorSubject{
			Hypervisor: &world.Process{C: c, Disk: sim.NewJournal("sim", nil)}, Template: world.Template(),
			Foreign: orchestrator.VMRef{Node: "pve1", ID: 502},
			NewVM: func() orchestrator.VMRef {
				return orchestrator.VMRef{Node: "pve1", ID: orchestrator.VMID(2000 + n.Add(1))}
			},
			NewSandbox: func() orchestrator.SandboxID {
				return orchestrator.SandboxID(fmt.Sprintf("01jx%022d", 5000+n.Add(1)))
			},
			NewAddress: func() (netip.Prefix, netip.Addr) {
				return netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/24", n.Add(1))), netip.MustParseAddr("10.0.0.254")
			},
		}
	}, conformance.HypervisorCaps{Tasks: true})
}
