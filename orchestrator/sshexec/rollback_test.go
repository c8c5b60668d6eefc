package sshexec_test

import (
	"testing"
	"time"

	"savepoint/testbed/sim"
)

// TestResume: a machine that continues from saved memory has the boot id and
// marker of the snapshot, its old key, and a clock that is behind until it is
// set; the tree is exactly the snapshot's. F20 F23 F27 F94 F96
func TestResume(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	m, sb := w.sandbox(t, 101)
	ctx := within(t, 20*time.Second)
	before, err := w.Mark(ctx, sb, "at the snapshot")
	if err != nil {
		t.Fatal(err)
	}
	w.run(t, sb, "echo precious > /workspace/file")
	if err := w.SetClockOffset(101, -time.Hour); err != nil { // as long as the snapshot will be old
		t.Fatal(err)
	}
	if err := w.Machines().Snapshot(ctx, 101, "sp1", "/state/sp1"); err != nil {
		t.Fatal(err)
	}
	w.run(t, sb, "rm -rf /workspace/file; echo new > /workspace/new")
	if _, err := w.Mark(ctx, sb, "after it"); err != nil {
		t.Fatal(err)
	}
	w.Disconnect(sb.ID)
	if err := w.Machines().Stop(ctx, 101, false); err != nil {
		t.Fatal(err)
	}
	if err := w.Disks().Revert(ctx, m.Disks[0], "sp1"); err != nil {
		t.Fatal(err)
	}
	m.Resume, m.ResumeTag = "/state/sp1", "sp1"
	if err := w.Machines().Start(ctx, m); err != nil {
		t.Fatal(err)
	}
	after, err := w.Inspect(ctx, sb)
	if err != nil {
		t.Fatal(err)
	}
	if after.BootID != before.BootID || after.Generation != "at the snapshot" {
		t.Errorf("after the resume: %+v, want boot %s", after, before.BootID)
	}
	if behind := time.Since(after.Clock); behind < 59*time.Minute {
		t.Errorf("the clock is behind by %s, want about an hour", behind)
	}
	if err := w.SetClock(ctx, sb, time.Now()); err != nil {
		t.Fatal(err)
	}
	if after, err = w.Inspect(ctx, sb); err != nil || time.Since(after.Clock).Abs() > time.Second {
		t.Errorf("after it was set: clock %s, %v", after.Clock, err)
	}
	if got := w.run(t, sb, "cat /workspace/*"); got != "precious\n" {
		t.Errorf("the workspace after the resume: %q", got)
	}

	// The same without memory: another boot.
	w.Disconnect(sb.ID)
	if err := w.Machines().Stop(ctx, 101, false); err != nil {
		t.Fatal(err)
	}
	m.Resume, m.ResumeTag = "", ""
	if err := w.Machines().Start(ctx, m); err != nil {
		t.Fatal(err)
	}
	rebooted, err := w.Inspect(ctx, sb)
	if err != nil || rebooted.BootID == before.BootID || rebooted.Generation != "at the snapshot" {
		t.Errorf("after a boot: %+v, %v", rebooted, err)
	}
}
