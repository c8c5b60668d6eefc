package zfs_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"savepoint/orchestrator"
	"savepoint/proxmox/zfs"
)

// A foreign snapshot that is newer blocks, is named, and is never deleted; the
// guest is not touched for it (F70, F71, F72, F73).
func TestForeignNewerSnapshots(t *testing.T) {
	w := newWorld(t)
	if err := w.snaps.Create(t.Context(), request("sp-one")); err != nil {
		t.Fatal(err)
	}
	w.pool(func(p *pool) {
		d := p.Datasets[volume]
		d.take(p, "@autosnap_2026-01-01_00:00:01_hourly", nil)
		d.take(p, "#mark", nil)
	})
	w.calls = nil
	err := w.snaps.Rollback(t.Context(), request("sp-one"))
	var newer *orchestrator.NotLatestError
	if !errors.As(err, &newer) || !slices.Equal(newer.Newer, []orchestrator.SnapshotName{"autosnap_2026-01-01_00:00:01_hourly", "#mark"}) {
		t.Fatalf("%v", err)
	}
	if !slices.Equal(w.calls, []string{"node list"}) {
		t.Errorf("the guest was touched: %q", w.calls)
	}
	list, err := w.snaps.List(t.Context(), box.VM)
	if err != nil || len(list) != 2 || !list[1].Current || list[1].Parent != "sp-one" || list[0].Current {
		t.Errorf("%v %+v", err, list)
	}
	for _, name := range []orchestrator.SnapshotName{"sp-one"} {
		if err := w.snaps.Delete(t.Context(), request(name)); err != nil {
			t.Error(err)
		}
	}
	if got := w.names(); !slices.Equal(got, []string{"autosnap_2026-01-01_00:00:01_hourly", "#mark"}) {
		t.Errorf("left %q", got)
	}
	w.innocent()
}

// One that appears between the look and the rollback blocks as well, and the
// guest gets its workspace back (F73).
func TestForeignSnapshotMeanwhile(t *testing.T) {
	w := newWorld(t)
	if err := w.snaps.Create(t.Context(), request("sp-one")); err != nil {
		t.Fatal(err)
	}
	w.write("present")
	w.pool(func(p *pool) { p.Newer = "zrepl_1" })
	err := w.snaps.Rollback(t.Context(), request("sp-one"))
	var newer *orchestrator.NotLatestError
	if !errors.As(err, &newer) || newer.Name != "sp-one" || !slices.Equal(newer.Newer, []orchestrator.SnapshotName{"zrepl_1"}) {
		t.Fatalf("%v", err)
	}
	if !w.pool(nil).Mounted || w.guest.memory != "present" {
		t.Errorf("the guest has %q", w.guest.memory)
	}
}

// What has one of our names and not our owner is not ours, also when it inherits
// the dataset's (F121).
func TestNameAloneIsNoOwnership(t *testing.T) {
	w := newWorld(t)
	w.pool(func(p *pool) { p.Datasets[volume].take(p, "@sp-one", nil) })
	for what, call := range map[string]func(context.Context, orchestrator.SnapshotRequest) error{"rollback": w.snaps.Rollback, "delete": w.snaps.Delete} {
		if err := call(t.Context(), request("sp-one")); !errors.Is(err, orchestrator.ErrDenied) {
			t.Errorf("%s: %v, want ErrDenied", what, err)
		}
	}
	if err := w.snaps.Create(t.Context(), request("sp-one")); !errors.Is(err, orchestrator.ErrExists) {
		t.Errorf("create: %v, want ErrExists", err)
	}
	w.pool(func(p *pool) { p.Datasets[volume].Props["savepoint:owner"] = "other/" + string(boxID) })
	for what, call := range map[string]func(context.Context, orchestrator.SnapshotRequest) error{"create": w.snaps.Create, "rollback": w.snaps.Rollback, "delete": w.snaps.Delete} {
		if err := call(t.Context(), request("sp-two")); !errors.Is(err, orchestrator.ErrDenied) {
			t.Errorf("%s in another's dataset: %v, want ErrDenied", what, err)
		}
	}
	if _, err := w.snaps.List(t.Context(), box.VM); !errors.Is(err, orchestrator.ErrDenied) {
		t.Errorf("list of another's dataset: %v, want ErrDenied", err)
	}
	if got := w.names(); !slices.Equal(got, []string{"sp-one"}) {
		t.Errorf("left %q", got)
	}
	if w.frozen() {
		t.Error("left frozen")
	}
}

// A dataset is claimed once and by nobody else.
func TestClaim(t *testing.T) {
	w := newWorld(t)
	w.pool(func(p *pool) { delete(p.Datasets[volume].Props, "savepoint:owner") })
	if err := w.snaps.Create(t.Context(), request("sp-one")); !errors.Is(err, orchestrator.ErrDenied) {
		t.Errorf("unclaimed: %v, want ErrDenied", err)
	}
	for range 2 {
		if err := w.snaps.Claim(t.Context(), box); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.snaps.Create(t.Context(), request("sp-one")); err != nil {
		t.Error(err)
	}
	other := box
	other.ID = "01jx0000000000000000000002"
	if err := w.snaps.Claim(t.Context(), other); !errors.Is(err, orchestrator.ErrDenied) {
		t.Errorf("%v, want ErrDenied", err)
	}
	if got := w.pool(nil).Datasets[volume].Props["savepoint:owner"]; got != owner {
		t.Errorf("the owner is %q", got)
	}
}

// A pool that is nearly full takes no snapshot while there is still room to roll
// back and to delete (F76, F77).
func TestFullPool(t *testing.T) {
	w := newWorld(t)
	if err := w.snaps.Create(t.Context(), request("sp-one")); err != nil {
		t.Fatal(err)
	}
	w.pool(func(p *pool) { p.Free = 1<<20 - 1 })
	err := w.snaps.Create(t.Context(), request("sp-two"))
	var full *orchestrator.FullError
	if !errors.As(err, &full) || full.Place != volume || !errors.Is(err, orchestrator.ErrUnavailable) || !strings.Contains(err.Error(), "1048575 bytes are free") {
		t.Errorf("%v", err)
	}
	if w.frozen() || len(w.names()) != 1 {
		t.Errorf("frozen %t with %q", w.frozen(), w.names())
	}
	if err := w.snaps.Rollback(t.Context(), request("sp-one")); err != nil {
		t.Error(err)
	}
	if err := w.snaps.Delete(t.Context(), request("sp-one")); err != nil {
		t.Error(err)
	}
}

// A sandbox without a workspace volume is refused with what to do instead.
func TestNoWorkspace(t *testing.T) {
	plain := box
	plain.Workspace = ""
	s, err := zfs.New(zfs.Config{
		Instance: instance, Node: zfs.NewClient(nil), Guest: &still{},
		Sandbox: func(context.Context, orchestrator.VMRef) (orchestrator.Sandbox, error) { return plain, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	var never *orchestrator.UnsupportedError
	if err := s.Create(t.Context(), request("sp-one")); !errors.As(err, &never) || never.Mend == "" {
		t.Errorf("%v", err)
	}
	if list, err := s.List(t.Context(), box.VM); err != nil || len(list) != 0 {
		t.Errorf("%v %v", list, err)
	}
	r := request("sp-one")
	r.Memory = true
	if err := newWorld(t).snaps.Create(t.Context(), r); !errors.As(err, &never) {
		t.Errorf("with memory: %v", err)
	}
}

// Every text of zfs has its class, for each order that may meet it.
func TestTexts(t *testing.T) {
	var never error = orchestrator.ErrUnknownOutcome
	for _, tt := range []struct {
		verb, text string
		want       error
	}{
		{"snapshot", "cannot create snapshot 'tank/x@sp-two': out of space", orchestrator.ErrUnavailable},
		{"snapshot", "cannot create snapshot 'tank/x@sp-two': disk quota exceeded", orchestrator.ErrUnavailable},
		{"snapshot", "cannot create snapshot 'tank/x@sp-two': permission denied", orchestrator.ErrDenied},
		{"snapshot", "cannot create snapshots : permission denied", orchestrator.ErrDenied},
		{"snapshot", "cannot create snapshot 'tank/x@sp-two': dataset is busy", orchestrator.ErrBusy},
		{"snapshot", "cannot create snapshot 'tank/x@sp-two': pool I/O is currently suspended", orchestrator.ErrUnavailable},
		{"snapshot", "cannot open 'tank/x': dataset does not exist", orchestrator.ErrNotFound},
		{"snapshot", "connect: No such file or directory\nPlease make sure that the zfs-fuse daemon is running.\ninternal error: failed to initialize ZFS library", orchestrator.ErrUnavailable},
		{"snapshot", "The ZFS modules cannot be auto-loaded.\nTry running 'modprobe zfs' as root to manually load them.", orchestrator.ErrUnavailable},
		{"snapshot", "something nobody has seen", never},
		{"get", "cannot open 'tank/x': dataset does not exist", orchestrator.ErrNotFound},
		{"rollback", "cannot rollback 'tank/x': out of space", orchestrator.ErrUnavailable},
		{"rollback", "cannot rollback to 'tank/x@sp-one': more recent snapshots exist\nuse '-r' to force deletion of the following snapshots:\ntank/x@b", &orchestrator.NotLatestError{}},
		{"rollback", "cannot rollback 'tank/x': dataset is busy", orchestrator.ErrBusy},
		{"rollback", "cannot rollback 'tank/x': permission denied", orchestrator.ErrDenied},
		{"rollback", "something nobody has seen", never},
		{"destroy", "cannot destroy 'tank/x@sp-one': snapshot has dependent clones\nuse '-R' to destroy the following datasets:\ntank/clone", orchestrator.ErrBusy},
		{"destroy", "cannot destroy 'tank/x@sp-one': dataset is busy", orchestrator.ErrBusy},
		{"destroy", "cannot destroy snapshot tank/x@sp-one: it's being held. Run 'zfs holds -r tank/x@sp-one' to see holders.", orchestrator.ErrBusy},
		{"destroy", "cannot destroy 'tank/x@sp-one': permission denied", orchestrator.ErrDenied},
	} {
		t.Run(tt.verb+" "+tt.text, func(t *testing.T) {
			w := newWorld(t)
			if err := w.snaps.Create(t.Context(), request("sp-one")); err != nil {
				t.Fatal(err)
			}
			w.pool(func(p *pool) { p.Faults = []fault{{Verb: tt.verb, Text: tt.text}} })
			var err error
			switch tt.verb {
			case "snapshot":
				err = w.snaps.Create(t.Context(), request("sp-two"))
			case "rollback":
				err = w.snaps.Rollback(t.Context(), request("sp-one"))
			case "destroy":
				err = w.snaps.Delete(t.Context(), request("sp-one"))
			default:
				_, err = w.snaps.List(t.Context(), box.VM)
			}
			var newer *orchestrator.NotLatestError
			if _, wantNewer := tt.want.(*orchestrator.NotLatestError); wantNewer {
				if !errors.As(err, &newer) || newer.Name != "sp-one" {
					t.Errorf("%v", err)
				}
			} else if !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
			first, _, _ := strings.Cut(tt.text, "\n")
			if err != nil && !strings.Contains(err.Error(), first) {
				t.Errorf("%v does not say what zfs said", err)
			}
			if err == nil || w.frozen() || len(w.names()) != 1 {
				t.Errorf("error %v, frozen %t, left %q", err, w.frozen(), w.names())
			}
			if mounted := w.pool(nil).Mounted; mounted == (tt.verb == "rollback" && errors.Is(tt.want, never)) {
				t.Errorf("mounted %t after %v", mounted, err)
			}
		})
	}
}
