package sshexec_test

import (
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// ns returns which mounts a command of the agent has. Such a name is only of what
// there is: mounts that are made later may have it.
func (r *real) ns(t *testing.T) string {
	t.Helper()
	return r.must(t, policy.Agent, "readlink /proc/self/ns/mnt")
}

// fencesMadeAhead: commands share mounts that were made before them, and those are
// not used any more as soon as they would let the agent write elsewhere.
func fencesMadeAhead(t *testing.T, r *real) {
	r.ns(t) // after the first command of a helper they are made
	shared := r.ns(t)
	if again := r.ns(t); again != shared || shared == r.must(t, policy.Root, "readlink /proc/self/ns/mnt") {
		t.Errorf("commands have the mounts %s and %s", shared, again)
	}
	connect := `python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect("/run/dbus/system_bus_socket")'`
	other := &real{cfg: r.cfg, Client: client(t, r.cfg), sb: r.sb, disk: r.disk}
	// Done by the same helper, before it makes the next ones, and by another, when
	// they have been made.
	for _, by := range []*real{r, other} {
		// A file system that root mounts is there for the next command, to read only: also
		// where mounts are shared, so that it shows up in what was made ahead.
		for _, mount := range []string{"mount -t tmpfs -o mode=1777 tmpfs /run/more", "mount --bind /run/open /run/more"} {
			by.must(t, policy.Root, "mkdir -p -m 1777 /run/open /run/more && "+mount)
			for range 2 {
				r.must(t, policy.Agent, "grep -q ' /run/more ' /proc/self/mountinfo && ! touch /run/more/x && test ! -e /run/more/x")
			}
			by.must(t, policy.Root, "umount /run/more")
			for range 2 {
				r.must(t, policy.Agent, "! grep ' /run/more ' /proc/self/mountinfo && ! touch /run/more/x")
			}
		}
		// What is hidden is hidden again when it was made anew.
		for range 2 {
			end := by.systemSockets(t)
			for range 2 {
				if out, code := r.as(t, policy.Agent, connect); code == 0 {
					t.Errorf("the agent reaches the system's bus: %s", out)
				}
			}
			end()
		}
	}
}

// fencesLetGo: what was made ahead, by this helper or by another, does not hold the
// volume, and ends with its helper.
func fencesLetGo(t *testing.T, r *real) {
	ctx := within(t, 3*time.Minute)
	other := &real{cfg: r.cfg, Client: client(t, r.cfg), sb: r.sb, disk: r.disk}
	for _, r := range []*real{r, other} {
		r.ns(t)
		r.must(t, policy.Agent, "echo text > /workspace/file")
	}
	for _, r := range []*real{r, other} {
		ok(t, "unmount", r.Unmount(ctx, r.sb))
		r.must(t, policy.Root, "test ! -e /sys/fs/ext4/"+r.disk)
		_, err := other.Run(ctx, r.sb, permit("touch /workspace/below", policy.Agent), orchestrator.ExecRequest{})
		wantClass(t, err, orchestrator.ErrUnavailable)
		ok(t, "mount", r.Mount(ctx, r.sb))
		r.must(t, policy.Agent, "grep -q text /workspace/file")
		other.must(t, policy.Agent, "grep -q text /workspace/file && : > /workspace/file.other")
	}
	other.ns(t)
	mounts := other.ns(t)
	other.Disconnect(other.sb.ID)
	r.until(t, "! ls -l /proc/[0-9]*/ns/mnt 2>/dev/null | grep -qF '"+mounts+"'")
}

// fencesFail: mounts made ahead that nobody holds any more, or in which the volume
// is not mounted any more, are not used, and keep nobody from the volume.
func fencesFail(t *testing.T, r *real) {
	ctx := within(t, 3*time.Minute)
	other := &real{cfg: r.cfg, Client: client(t, r.cfg), sb: r.sb, disk: r.disk}
	r.must(t, policy.Agent, "echo text > /workspace/file")
	for _, harm := range []string{"kill -9 $pid", "nsenter -t $pid -m umount /workspace"} {
		r.ns(t)
		mounts := r.ns(t)
		other.must(t, policy.Root, `for p in /proc/[0-9]*; do
	[ "$(readlink $p/ns/mnt)" = '`+mounts+`' ] && [ "$(cat $p/comm)" = perl ] || continue
	pid=${p#/proc/}
	`+harm+`; exit
done; exit 1`)
		r.must(t, policy.Root, "true") // after it they are looked at
		r.must(t, policy.Agent, "grep -q text /workspace/file && : > /workspace/file.new")
		r.ns(t)
	}
	// The first of them waits for a command with what nobody shows to have.
	r.ns(t)
	ok(t, "unmount by another", other.Unmount(ctx, r.sb))
	r.must(t, policy.Root, "test ! -e /sys/fs/ext4/"+r.disk)
	ok(t, "mount", other.Mount(ctx, r.sb))
	r.must(t, policy.Agent, "grep -q text /workspace/file")
}
