package memory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"savepoint/testbed/pve"
	"savepoint/testbed/pve/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestDisks(t *testing.T) {
	b := memory.New()
	d, ctx := b.Disks(), t.Context()
	base, link, copied := pve.Disk{Path: "/base"}, pve.Disk{Path: "/link"}, pve.Disk{Path: "/copy"}
	must(t, d.Create(ctx, base, 100), b.Write("/base", "one"), d.Link(ctx, base, link))
	if got, _ := b.Read("/link"); got != "one" {
		t.Errorf("link reads %q", got)
	}
	must(t, d.Snapshot(ctx, link, "s1"), b.Write("/link", "two"), d.Copy(ctx, link, "s1", copied), d.Resize(ctx, link, 200))
	if got, _ := b.Read("/copy"); got != "one" {
		t.Errorf("copy of the snapshot reads %q", got)
	}
	if got, _ := b.Read("/base"); got != "one" {
		t.Errorf("base reads %q", got)
	}
	must(t, d.Revert(ctx, link, "s1"))
	if got, _ := b.Read("/link"); got != "one" {
		t.Errorf("reverted link reads %q", got)
	}
	if size, _, err := d.Size(ctx, link); err != nil || size != 100 {
		t.Errorf("reverted size %d %v", size, err)
	}
	must(t, d.DeleteSnapshot(ctx, link, "s1"))
	for name, err := range map[string]error{
		"revert to a missing snapshot": d.Revert(ctx, link, "s1"),
		"delete it again":              d.DeleteSnapshot(ctx, link, "s1"),
		"copy from it":                 d.Copy(ctx, link, "s1", pve.Disk{Path: "/x"}),
		"remove a base with links":     d.Remove(ctx, base),
		"create twice":                 d.Create(ctx, copied, 1),
		"link to nothing":              d.Link(ctx, pve.Disk{Path: "/no"}, pve.Disk{Path: "/y"}),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	must(t, d.Remove(ctx, link), d.Remove(ctx, base), d.Remove(ctx, base))
}

func TestMachines(t *testing.T) {
	b := memory.New()
	m, d, ctx := b.Machines(), b.Disks(), t.Context()
	disk := pve.Disk{Slot: "scsi0", Path: "/d"}
	spec := pve.Machine{VMID: 100, Agent: true, Disks: []pve.Disk{disk}}
	if err := m.Start(ctx, spec); err == nil {
		t.Error("started without its disk")
	}
	must(t, d.Create(ctx, disk, 1), m.Start(ctx, spec))
	if err := m.Start(ctx, spec); err == nil {
		t.Error("started twice")
	}
	b.SetMemory(100, "a")
	must(t, b.Write("/d", "a"), m.Snapshot(ctx, 100, "s", "/state"))
	b.SetMemory(100, "b")
	must(t, b.Write("/d", "b"), m.Pause(ctx, 100))
	if !m.Status(100).Paused {
		t.Error("not paused")
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if err := m.Stop(short, 100, true); !errors.Is(err, context.DeadlineExceeded) || !m.Status(100).Running {
		t.Errorf("a deaf guest's graceful stop: %v", err)
	}
	must(t, m.Stop(ctx, 100, false), d.Revert(ctx, disk, "s"))
	spec.Resume, spec.ResumeTag = "/state", "s"
	must(t, m.Start(ctx, spec))
	if got, _ := b.Read("/d"); got != "a" || b.Memory(100) != "a" {
		t.Errorf("resumed with disk %q, memory %q", got, b.Memory(100))
	}
	must(t, m.DeleteSnapshot(ctx, 100, "scsi0", "s"))
	b.SetPowerdown(100, true)
	must(t, m.Stop(ctx, 100, true))
	if m.Status(100).Running {
		t.Error("runs after it obeyed")
	}
}

func TestAgentAndHold(t *testing.T) {
	b := memory.New()
	m, ctx := b.Machines(), t.Context()
	must(t, m.Start(ctx, pve.Machine{VMID: 100, Agent: true}))
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := m.Agent(short, 100, "guest-ping", nil); err == nil {
		t.Error("a silent agent answered")
	}
	b.SetAgent(100, func(string, any) (any, error) { return map[string]int{"x": 1}, nil })
	if raw, err := m.Agent(ctx, 100, "guest-ping", nil); err != nil || string(raw) != `{"x":1}` {
		t.Errorf("%s %v", raw, err)
	}
	b.FailNext("Stop", errors.New("no"))
	if err := m.Stop(ctx, 100, false); err == nil {
		t.Error("no failure")
	}
	release := b.Hold("Stop")
	done := make(chan error, 1)
	go func() { done <- m.Stop(ctx, 100, false) }()
	select {
	case <-done:
		t.Error("was not held")
	case <-time.After(20 * time.Millisecond):
	}
	release()
	must(t, <-done)
}
