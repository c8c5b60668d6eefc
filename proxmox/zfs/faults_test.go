package zfs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"savepoint/orchestrator"
	"savepoint/proxmox/zfs"
)

var modes = []mode{refused, lostBefore, lostAfter}

// classes of errors that promise that nothing was done.
func harmless(err error) bool { return errors.Is(err, orchestrator.ErrUnavailable) }

// Whatever goes wrong at whatever step of Create: the guest is thawed, nothing
// that was not done is called done, and the next attempt works (F24, F31, F80).
func TestCreateFaults(t *testing.T) {
	want := []string{"freeze", "node create", "thaw"}
	for step, call := range want {
		for _, m := range modes {
			t.Run(fmt.Sprintf("%s %s", call, m), func(t *testing.T) {
				w := newWorld(t)
				w.write("before")
				w.faults[step] = m
				err := w.snaps.Create(t.Context(), request("sp-one"))
				if w.frozen() {
					t.Error("the guest was left frozen")
				}
				listed := len(w.names()) == 1
				switch {
				case call == "thaw" && (err != nil || !listed): // thawing is tried again
					t.Errorf("%v, listed %t", err, listed)
				case call != "thaw" && err == nil:
					t.Error("no error")
				case err != nil && harmless(err) && listed:
					t.Errorf("%v, but the snapshot is there", err)
				case call == "node create" && m != refused && !errors.Is(err, orchestrator.ErrUnknownOutcome):
					t.Errorf("%v, want ErrUnknownOutcome", err)
				}
				if !slices.Equal(w.calls[:len(want)-1], want[:len(want)-1]) && call != "freeze" {
					t.Errorf("calls %q", w.calls)
				}
				if err := w.snaps.Delete(t.Context(), request("sp-one")); err != nil {
					t.Fatal(err)
				}
				if err := w.snaps.Create(t.Context(), request("sp-one")); err != nil {
					t.Fatal(err)
				}
				w.write("after")
				if err := w.snaps.Rollback(t.Context(), request("sp-one")); err != nil || w.guest.memory != "before" {
					t.Errorf("%v, the guest has %q", err, w.guest.memory)
				}
				w.innocent()
			})
		}
	}
}

// Whatever goes wrong at whatever step of Rollback: it is not called done unless
// it is, never happens below a mounted file system, and is done by the next
// attempt (F19, F27, F33).
func TestRollbackFaults(t *testing.T) {
	want := []string{"node list", "unmount", "node rollback", "mount"}
	for step, call := range want {
		for _, m := range modes {
			t.Run(fmt.Sprintf("%s %s", call, m), func(t *testing.T) {
				w := newWorld(t)
				w.write("before")
				if err := w.snaps.Create(t.Context(), request("sp-one")); err != nil {
					t.Fatal(err)
				}
				w.write("damage")
				w.calls, w.faults[step] = nil, m
				err := w.snaps.Rollback(t.Context(), request("sp-one"))
				mounted := w.pool(nil).Mounted
				switch call {
				case "mount": // tried again
					if err != nil || !mounted || w.guest.memory != "before" {
						t.Errorf("%v, mounted %t, the guest has %q", err, mounted, w.guest.memory)
					}
				case "node rollback":
					if m == refused && (!harmless(err) || !mounted || w.guest.memory != "damage") {
						t.Errorf("%v, mounted %t, the guest has %q", err, mounted, w.guest.memory)
					}
					if m != refused && (!errors.Is(err, orchestrator.ErrUnknownOutcome) || mounted) {
						t.Errorf("%v, mounted %t: an order may still come", err, mounted)
					}
				default:
					if !harmless(err) {
						t.Errorf("%v, want ErrUnavailable", err)
					}
				}
				if err := w.snaps.Rollback(t.Context(), request("sp-one")); err != nil {
					t.Fatal(err)
				}
				if w.guest.memory != "before" || !w.pool(nil).Mounted || w.guest.processes != 0 {
					t.Errorf("the guest has %q and %d processes of the agent", w.guest.memory, w.guest.processes)
				}
				w.innocent()
			})
		}
	}
}

// A guest that cannot be mounted any more is not called restored.
func TestRollbackThatIsNotMounted(t *testing.T) {
	w := newWorld(t)
	if err := w.snaps.Create(t.Context(), request("sp-one")); err != nil {
		t.Fatal(err)
	}
	w.always["mount"] = refused
	if err := w.snaps.Rollback(t.Context(), request("sp-one")); !errors.Is(err, orchestrator.ErrUnknownOutcome) {
		t.Errorf("%v, want ErrUnknownOutcome", err)
	}
}

// When the caller gives up in the middle, the guest is thawed and mounted all
// the same (F80).
func TestCallerGivesUp(t *testing.T) {
	for _, at := range []string{"freeze", "node create", "thaw"} {
		t.Run(at, func(t *testing.T) {
			w := newWorld(t)
			ctx, cancel := context.WithCancel(t.Context())
			w.before = func(call string) {
				if call == at {
					cancel()
				}
			}
			err := w.snaps.Create(ctx, request("sp-one"))
			if w.frozen() || w.calls[len(w.calls)-1] != "thaw" {
				t.Errorf("calls %q, frozen %t", w.calls, w.frozen())
			}
			if at != "thaw" && (!harmless(err) || len(w.names()) > 0) {
				t.Errorf("%v with %q", err, w.names())
			}
		})
	}
	t.Run("rollback", func(t *testing.T) {
		w := newWorld(t)
		if err := w.snaps.Create(t.Context(), request("sp-one")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w.before = func(call string) {
			if call == "node rollback" {
				cancel()
			}
		}
		if err := w.snaps.Rollback(ctx, request("sp-one")); !harmless(err) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want ErrUnavailable and the cause", err)
		}
		if !w.pool(nil).Mounted {
			t.Error("the workspace was left unmounted")
		}
	})
}

// slow is a node that takes its time.
type slow struct {
	zfs.Node
	takes time.Duration
	taken []string
	fails error
}

func (s *slow) Snapshot(ctx context.Context, t zfs.Target, name orchestrator.SnapshotName, _ string, _ int64) (zfs.Volume, error) {
	time.Sleep(s.takes)
	s.taken = append(s.taken, string(name))
	return zfs.Volume{Dataset: t.Dataset, Owner: t.Owner, Taken: []zfs.Taken{{Name: string(name), Owner: t.Owner}}}, nil
}

func (s *slow) Delete(context.Context, zfs.Target, orchestrator.SnapshotName) (zfs.Volume, error) {
	if s.fails == nil {
		s.taken = nil
	}
	return zfs.Volume{}, s.fails
}

// still is a guest that does what it is told.
type still struct{ thawed int }

func (*still) Freeze(context.Context, orchestrator.Sandbox, time.Duration) error { return nil }
func (s *still) Thaw(context.Context, orchestrator.Sandbox) error                { s.thawed++; return nil }
func (*still) Unmount(context.Context, orchestrator.Sandbox) error               { return nil }
func (*still) Mount(context.Context, orchestrator.Sandbox) error                 { return nil }

// A snapshot that took longer than the freeze is good for may be torn: it is
// deleted, and the guest is thawed (F31, F80).
func TestTornSnapshot(t *testing.T) {
	for _, tt := range []struct {
		takes time.Duration
		fails error
		want  error
		left  int
	}{
		{takes: 9 * time.Second, left: 1},
		{takes: 10 * time.Second, want: orchestrator.ErrUnavailable},
		{takes: time.Hour, fails: errLost, want: orchestrator.ErrUnknownOutcome, left: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			node, g := &slow{takes: tt.takes, fails: tt.fails}, &still{}
			s, err := zfs.New(zfs.Config{
				Instance: instance, Node: node, Guest: g,
				Sandbox: func(context.Context, orchestrator.VMRef) (orchestrator.Sandbox, error) { return box, nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			err = s.Create(t.Context(), request("sp-one"))
			if !errors.Is(err, tt.want) || len(node.taken) != tt.left || g.thawed != 1 {
				t.Errorf("after %s: %v with %q, thawed %d times", tt.takes, err, node.taken, g.thawed)
			}
		})
	}
}
