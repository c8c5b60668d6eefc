package zfs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is a pool whose zfs is a script.
func scripted(t *testing.T, script string) *Pool {
	t.Helper()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "zfs"), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return &Pool{Config{Dir: t.TempDir(), Name: "lab", Size: MinSize, path: bin + ":/usr/bin:/bin"}}
}

// Every text of zfs-fuse has its class.
func TestTexts(t *testing.T) {
	for _, tt := range []struct {
		text string
		want error
	}{
		{"cannot create snapshot 'lab/v@a': dataset already exists", ErrExists},
		{"cannot create 'lab/v': dataset already exists", ErrExists},
		{"cannot open 'lab/v@a': dataset does not exist", ErrNotFound},
		{"cannot create 'lab/a/b': parent does not exist", ErrNotFound},
		{"cannot open 'nope': no such pool", ErrNotFound},
		{"cannot create snapshot 'lab/v@a': out of space", ErrFull},
		{"cannot rollback 'lab/v': out of space", ErrFull},
		{"cannot set property for 'lab/v@a': out of space", ErrFull},
		{"cannot destroy 'lab/v@c': snapshot has dependent clones\nuse '-R' to destroy the following datasets:\nlab/cl", ErrClones},
		{"cannot destroy 'lab/v': filesystem has dependent clones\nuse '-R' to destroy the following datasets:\nlab/cl", ErrClones},
		{"cannot destroy 'lab/v@b': dataset is busy", ErrBusy},
		{"cannot mount 'lab/v': mountpoint or dataset is busy", ErrBusy},
		{"connect: Connection refused\nPlease make sure that the zfs-fuse daemon is running.\ninternal error: failed to initialize ZFS library", ErrStopped},
	} {
		p := scripted(t, "cat >&2 <<'END'\n"+tt.text+"\nEND\nexit 1\n")
		_, err := p.once(t.Context(), "zfs", []string{"x"})
		if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), strings.Split(tt.text, "\n")[0]) {
			t.Errorf("%s: %v, want %v", tt.text, err, tt.want)
		}
	}
	var e *commandError
	if _, err := scripted(t, "echo what >&2; exit 1\n").once(t.Context(), "zfs", []string{"x"}); !errors.As(err, &e) || e.class != nil {
		t.Errorf("an unknown text: %v", err)
	}
	if _, err := scripted(t, "exit 3\n").once(t.Context(), "zfs", []string{"x"}); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("no text: %v", err)
	}
}

// Which snapshots are in the way is told in the order of time, whatever order
// zfs names them in; the rollback has no option (F70, F72).
func TestNewer(t *testing.T) {
	p := scripted(t, `case "$*" in
"rollback lab/v@a") printf '%s\n' "cannot rollback to 'lab/v@a': more recent snapshots exist" "use '-r' to force deletion of the following snapshots:" lab/v@b lab/v@c >&2; exit 1 ;;
"get -H -p -r -d 1 -o name,property,value creation,createtxg lab/v") printf 'lab/v@b\tcreation\t30\nlab/v@b\tcreatetxg\t9\nlab/v@a\tcreatetxg\t7\nlab/v@a\tcreation\t30\nlab/v@c\tcreation\t30\nlab/v@c\tcreatetxg\t8\nlab/v\tcreation\t1\nlab/v\tcreatetxg\t1\n' ;;
*) echo "unexpected $*" >&2; exit 1 ;;
esac
`)
	var newer *NewerError
	if err := p.Rollback(t.Context(), "v", "a"); !errors.As(err, &newer) || !slices.Equal(newer.Newer, []string{"c", "b"}) {
		t.Errorf("%v", err)
	}
}

// What is busy only for a moment is waited for; zfs-fuse ends an unmount after it
// says so.
func TestBusyForAMoment(t *testing.T) {
	p := scripted(t, `cd "${0%/*}"; echo x >> tries; [ "$(grep -c x tries)" -ge 3 ] || { echo "cannot mount 'lab/v': mountpoint or dataset is busy" >&2; exit 1; }
`)
	if err := p.mount(t.Context()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := scripted(t, "echo 'dataset is busy' >&2; exit 1\n").mount(ctx); err == nil {
		t.Error("no error after the context's end")
	}
}

// Nothing but plain names reaches zfs.
func TestNames(t *testing.T) {
	p := scripted(t, "echo called > \"${0%/*}/called\"\n")
	if err := p.Snapshot(t.Context(), "v", "a/b"); err == nil {
		t.Error("snapshot took \"a/b\"")
	}
	for _, bad := range []string{"", "-r", "a/b/c", "/a", "a/", "a/-r", "../a", "a/..", "a@b", "a b", "a%b", "a,b", "..", "ä", strings.Repeat("a", 65)} {
		for what, err := range map[string]error{
			"create": p.Create(t.Context(), bad, 1), "destroy": p.Destroy(t.Context(), bad),
			"snapshot": p.Snapshot(t.Context(), "v", bad), "rollback": p.Rollback(t.Context(), bad, "a"),
			"delete": p.DeleteSnapshot(t.Context(), "v", bad), "clone": p.Clone(t.Context(), "v", "a", bad),
			"rename": p.Rename(t.Context(), "v", bad), "group": p.Group(t.Context(), bad),
		} {
			if err == nil {
				t.Errorf("%s took %q", what, bad)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(strings.Split(p.c.path, ":")[0], "called")); err == nil {
		t.Error("zfs was called")
	}
}

// Ours is the zfs-fuse with this directory in its arguments; another is named and
// not taken for ours, nor is a process that only mentions it.
func TestDaemons(t *testing.T) {
	proc := t.TempDir()
	c := Config{Dir: "/lab", proc: proc}
	add := func(pid int, args ...string) {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cmdline"), []byte(strings.Join(args, "\x00")+"\x00"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(ours, foreign int) {
		t.Helper()
		if o, f, err := c.daemon(); o != ours || f != foreign || err != nil {
			t.Errorf("ours %d, foreign %d, %v; want %d, %d", o, f, err, ours, foreign)
		}
	}
	add(1, "init")
	add(2, "vi", "/lab/zfs-fuse.pid")
	add(3)
	check(0, 0)
	add(40, "/usr/sbin/zfs-fuse", "--pidfile", "/lab2/zfs-fuse.pid", "-n")
	check(0, 40)
	var foreign *ForeignError
	if err := c.startDaemon(t.Context()); !errors.As(err, &foreign) || foreign.PID != 40 || !strings.Contains(err.Error(), "pid 40") {
		t.Errorf("%v", err)
	}
	add(50, "/usr/sbin/zfs-fuse", "--pidfile", "/lab/zfs-fuse.pid", "-n")
	check(50, 0)
}

// A machine that cannot run it says what is missing and what to install.
func TestRequire(t *testing.T) {
	err := Require()
	_, fuse := os.Stat("/dev/fuse")
	_, installed := os.Stat("/usr/sbin/zfs-fuse")
	switch {
	case os.Geteuid() != 0:
		if err == nil || !strings.Contains(err.Error(), "needs root") {
			t.Errorf("%v", err)
		}
	case fuse != nil:
		if err == nil || !strings.Contains(err.Error(), "/dev/fuse") {
			t.Errorf("%v", err)
		}
	case installed != nil:
		if err == nil || !strings.Contains(err.Error(), "install the package zfs-fuse") {
			t.Errorf("%v", err)
		}
	case err != nil:
		t.Error(err)
	}
	if _, err := Open(t.Context(), Config{Dir: "relative", Name: "lab", Size: MinSize}); err == nil {
		t.Error("a relative directory was taken")
	}
}

// To sweep where nothing is is no error.
func TestSweepNothing(t *testing.T) {
	if err := Sweep(t.Context(), filepath.Join(t.TempDir(), "none")); err != nil {
		t.Error(err)
	}
}
