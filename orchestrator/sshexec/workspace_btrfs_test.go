package sshexec_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
	"savepoint/policy"
	"savepoint/testbed/conformance"
)

// newBtrfsVolume makes a file with an empty workspace volume of the other kind.
func newBtrfsVolume(t *testing.T) string {
	t.Helper()
	lab(t)
	path := t.TempDir() + "/workspace.raw"
	for _, args := range [][]string{
		{"truncate", "-s", "256M", path}, {"mkfs.btrfs", "-q", "--mixed", "-m", "single", "-L", sshexec.WorkspaceLabel, path},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s; install btrfs-progs", args, err, out)
		}
	}
	return path
}

// btrfsVM is the VM that the sandbox of these tests is said to be.
var btrfsVM = orchestrator.VMRef{Node: "pve1", ID: 101}

// btrfs returns the driver for the guest.
func (r *real) btrfs(t *testing.T) *sshexec.Btrfs {
	t.Helper()
	b, err := sshexec.NewBtrfs(sshexec.BtrfsConfig{Client: r.Client, Instance: "lab",
		Sandbox: func(_ context.Context, vm orchestrator.VMRef) (orchestrator.Sandbox, error) {
			if vm != btrfsVM {
				return orchestrator.Sandbox{}, orchestrator.ErrNotFound
			}
			return r.sb, nil
		}})
	ok(t, "new", err)
	return b
}

func (r *real) request(name string) orchestrator.SnapshotRequest {
	return orchestrator.SnapshotRequest{Sandbox: r.sb.ID, VM: btrfsVM, Name: orchestrator.SnapshotName(name)}
}

// bare deletes every snapshot, so that a test begins with none.
func (r *real) bare(t *testing.T, b *sshexec.Btrfs) {
	t.Helper()
	ctx := within(t, 2*time.Minute)
	all, err := b.List(ctx, btrfsVM)
	ok(t, "list", err)
	for i := range all {
		ok(t, "delete", b.Delete(ctx, r.request(string(all[len(all)-1-i].Name))))
	}
}

// btrfsTests are those of a guest whose volume is btrfs.
func (r *real) btrfsTests(t *testing.T, rounds int, more ...workspaceTest) {
	for _, tt := range append([]workspaceTest{
		{"the agent works on the volume", partsWork},
		{"the marker is on the volume", markerOnVolume},
		{"what root holds stays mounted", rootHolds},
		{"snapshots hold and bring back, F20 F24 F30 F31", btrfsHold},
		{"the agent makes no subvolumes", noSubvolumes},
		{"what is not of the sandbox is left alone, F22 F121", btrfsForeign},
		{"what a crash leaves is taken away", btrfsLeftovers},
		{"root in the workspace keeps it from being rolled back", btrfsBusy},
		{"other mount namespaces let go", btrfsElsewhere},
		{"a full volume can be marked and rolled back", btrfsFull},
		{"conformance", func(t *testing.T, r *real) { r.btrfsConformance(t, rounds) }},
	}, more...) {
		if !t.Run(tt.name, func(t *testing.T) { tt.test(t, r) }) {
			return // the next ones would start from its remains
		}
	}
}

// TestQEMUWorkspaceBtrfs shows the driver on a real guest.
func TestQEMUWorkspaceBtrfs(t *testing.T) {
	t.Parallel() // guests wait more than they compute
	r := newRealWith(t, newBtrfsVolume(t))
	r.sb.Workspace = sshexec.BtrfsWorkspace
	r.btrfsTests(t, 3, workspaceTest{"the next boot mounts it", bootMounts})
}

// TestOpenSSHWorkspaceBtrfs shows it on the kernel of this host, at its speed.
func TestOpenSSHWorkspaceBtrfs(t *testing.T) {
	volume := newBtrfsVolume(t)
	r, id := hostReal(t, volume)
	r.sb.Workspace = sshexec.BtrfsWorkspace
	ok(t, "prepare", r.Prepare(within(t, time.Minute), r.sb, []string{id.AuthorizedKey()}))
	r.btrfsTests(t, 8, workspaceTest{"a helper that dies in the middle", btrfsCrash})
}

func (r *real) btrfsConformance(t *testing.T, rounds int) {
	b := r.btrfs(t)
	conformance.Snapshotter(t, func(t *testing.T) conformance.SnapshotSubject {
		r.bare(t, b)
		return conformance.SnapshotSubject{
			Snapshotter: b, VM: btrfsVM, Sandbox: r.sb.ID, Absent: orchestrator.VMRef{Node: "pve1", ID: 999},
			Disk: conformance.Cell{
				Write: func(_ context.Context, text string) error {
					r.must(t, policy.Agent, "printf %s '"+text+"' > /workspace/cell")
					return nil
				},
				Read: func(context.Context) (string, error) { return r.must(t, policy.Agent, "cat /workspace/cell"), nil },
			},
			Marker: conformance.Cell{
				Write: func(ctx context.Context, text string) error { _, err := r.Mark(ctx, r.sb, text); return err },
				Read: func(ctx context.Context) (string, error) {
					f, err := r.Inspect(ctx, r.sb)
					return f.Generation, err
				},
			},
			Running: func(context.Context) (bool, error) { return true, nil },
			Start:   func(context.Context) error { return nil },
			Stop:    func(context.Context) error { return errors.New("a guest in a test of its own") },
		}
	}, conformance.SnapshotCaps{LatestOnly: true, KeepsRunning: true, Descriptions: true, Marker: true, Rounds: rounds, Timeout: 3 * time.Minute})
	r.bare(t, b)
}

const treeText = "cd /srv/savepoint/live && find . -printf '%p %m %u %s %T@ %l\\n' | sort; find . -type f -exec sha256sum {} + | sort"

// btrfsHold is the story of two nested savepoints while the agent writes.
func btrfsHold(t *testing.T, r *real) {
	ctx, b := within(t, 5*time.Minute), r.btrfs(t)
	r.must(t, policy.Agent, "mkdir -p ~/dir && echo precious > ~/dir/file && ln -s /etc/passwd ~/link; echo 1 > /workspace/one; echo shared > /dev/shm/segment")
	end := r.background(t, policy.Agent, ": > /tmp/writes; while :; do echo $((i += 1)) > /workspace/count; cp /bin/ls /tmp/ls; done")
	r.until(t, "test -e /tmp/writes")
	began := time.Now()
	// Another client: the first one's helper is at work.
	ok(t, "create under writes", b.Create(ctx, r.request("first")))
	t.Logf("begin under writes: %s", time.Since(began))
	ok(t, "roll back", b.Rollback(ctx, r.request("first")))
	if res, err := end(); err != nil || res.Signal != "KILL" && res.ExitCode != 137 {
		t.Errorf("the agent's command: %+v, %v", res, err)
	}
	first := r.must(t, policy.Root, treeText)
	_, err := r.Mark(ctx, r.sb, "second")
	ok(t, "mark", err)
	ok(t, "create", b.Create(ctx, r.request("second")))
	second := r.must(t, policy.Root, treeText)
	_, err = r.Mark(ctx, r.sb, "third")
	ok(t, "mark", err)
	r.must(t, policy.Agent, "rm -rf ~/dir ~/link /workspace/* /dev/shm/*; echo new > /var/tmp/new; ipcmk -M 1024 > /dev/null")
	var newer *orchestrator.NotLatestError
	if err := b.Rollback(ctx, r.request("first")); !errors.As(err, &newer) || newer.Name != "first" || len(newer.Newer) != 1 || newer.Newer[0] != "second" {
		t.Errorf("got %v", err)
	}
	ok(t, "roll back", b.Rollback(ctx, r.request("second")))
	if got := r.must(t, policy.Root, treeText); got != second {
		t.Errorf("the tree is not that of the snapshot:\n%s\nwant\n%s", got, second)
	}
	if f, err := r.Inspect(ctx, r.sb); err != nil || f.Generation != "second" {
		t.Errorf("got %+v, %v", f, err)
	}
	ok(t, "delete", b.Delete(ctx, r.request("second")))
	ok(t, "roll back", b.Rollback(ctx, r.request("first")))
	if got := r.must(t, policy.Root, treeText); got != first {
		t.Errorf("the tree is not that of the first snapshot:\n%s\nwant\n%s", got, first)
	}
	if got := r.must(t, policy.Agent, "cat ~/dir/file /workspace/one /dev/shm/segment; ipcs -m | grep -c agent; true"); got != "precious\n1\nshared\n0" {
		t.Errorf("agent sees %q", got)
	}
	if got := r.must(t, policy.Root, "ls -A /srv/savepoint; btrfs subvolume list /srv/savepoint | wc -l"); got != "ballast\nlive\nnote\nowner\nsnap\n2" {
		t.Errorf("on the volume: %q", got)
	}
	r.btrfsTimes(t, b)
	r.bare(t, b)
}

// btrfsTimes says what a begin and a rollback take.
func (r *real) btrfsTimes(t *testing.T, b *sshexec.Btrfs) {
	ctx := within(t, 5*time.Minute)
	const rounds = 10
	var create, back, drop time.Duration
	for i := range rounds {
		name := fmt.Sprintf("sp-%d", i)
		r.must(t, policy.Agent, "head -c 1000000 /dev/urandom > /workspace/data")
		began := time.Now()
		ok(t, "create", b.Create(ctx, r.request(name)))
		created := time.Now()
		create += created.Sub(began)
		r.must(t, policy.Agent, "rm /workspace/data")
		began = time.Now()
		ok(t, "roll back", b.Rollback(ctx, r.request(name)))
		back += time.Since(began)
		began = time.Now()
		ok(t, "delete", b.Delete(ctx, r.request(name)))
		drop += time.Since(began)
	}
	t.Logf("begin %s, rollback %s, delete %s", create/rounds, back/rounds, drop/rounds)
}

// A subvolume below live is in no snapshot of it: its files would be gone after a
// rollback. The agent cannot make one; while there is one of root's no snapshot is
// taken.
func noSubvolumes(t *testing.T, r *real) {
	ctx, b := within(t, 3*time.Minute), r.btrfs(t)
	// A kernel that is asked says no for its own reasons too: those asked here are
	// such that it would say yes, as root's turn shows.
	const attempt = `python3 -c 'import fcntl, os, struct, sys
d = os.open("/workspace/sub", os.O_RDONLY)
made = 0
for order, text in ((0x5000940e, struct.pack("=q4088s", 0, b"a")), (0x50009418, struct.pack("=qQQ32s4040s", 0, 0, 0, b"", b"b")),
  (0x50009401, struct.pack("=q4088s", os.open("/workspace", os.O_RDONLY), b"c")), (0x50009417, struct.pack("=qQQ32s4040s", os.open("/workspace", os.O_RDONLY), 0, 0, b"", b"d"))):
  try:
    fcntl.ioctl(d, order, bytearray(text))
    made += 1
  except OSError as e:
    print(e.errno)
print("made", made)'`
	if got := r.must(t, policy.Agent, "mkdir -p /workspace/sub; "+attempt); got != "1\n1\n1\n1\nmade 0" {
		t.Errorf("the agent's attempt: %q", got)
	}
	// The same without what keeps the agent from it.
	if got := r.must(t, policy.Root, "setpriv --reuid agent --regid agent --clear-groups "+attempt); !strings.Contains(got, "made 2") && !strings.Contains(got, "made 4") {
		t.Errorf("without the filter: %q", got)
	}
	err := b.Create(ctx, r.request("sp-nested"))
	wantClass(t, err, orchestrator.ErrDenied)
	if !strings.Contains(err.Error(), "workspace/sub/a") {
		t.Errorf("it does not say where: %v", err)
	}
	r.must(t, policy.Root, "btrfs subvolume delete /srv/savepoint/live/workspace/sub/*; rmdir /workspace/sub")
	ok(t, "create", b.Create(ctx, r.request("sp-nested")))
	// Those that came after the snapshot go with a rollback, also when they are full,
	// nested and cannot be written.
	r.must(t, policy.Root, "cd /srv/savepoint/live/workspace && btrfs subvolume create x && mkdir x/y && btrfs subvolume create x/y/z && echo > x/y/z/f && btrfs property set x/y/z ro true && btrfs property set x ro true")
	ok(t, "roll back", b.Rollback(ctx, r.request("sp-nested")))
	r.must(t, policy.Root, "test ! -e /workspace/x && test ! -e /srv/savepoint/new")
	for _, attack := range []string{"ls /srv/savepoint", "ls /srv/savepoint/snap", "cat /srv/savepoint/snap/sp-nested/generation", "touch /srv/savepoint/live/x", "rm -rf /srv/savepoint/snap/sp-nested/home",
		"mkdir -p /tmp/m && mount -o subvol=snap /dev/" + r.disk + " /tmp/m"} {
		if out, code := r.as(t, policy.Agent, attack); code == 0 {
			t.Errorf("%q worked: %s", attack, out)
		}
	}
	r.bare(t, b)
}

func btrfsForeign(t *testing.T, r *real) {
	ctx, b := within(t, 3*time.Minute), r.btrfs(t)
	ok(t, "create", b.Create(ctx, r.request("sp-one")))
	r.must(t, policy.Root, "cd /srv/savepoint && btrfs subvolume snapshot -r live snap/nobodys && btrfs subvolume snapshot -r live snap/others && ln -s 'lab/another 1 1700000000 ' note/others")
	all, err := b.List(ctx, btrfsVM)
	if err != nil || len(all) != 3 || all[0].Name != "nobodys" {
		t.Errorf("listed %+v, %v", all, err)
	}
	for _, name := range []string{"nobodys", "others"} {
		wantClass(t, b.Delete(ctx, r.request(name)), orchestrator.ErrDenied)
		wantClass(t, b.Rollback(ctx, r.request(name)), orchestrator.ErrDenied)
		r.must(t, policy.Root, "test -d /srv/savepoint/snap/"+name)
	}
	r.must(t, policy.Root, "cd /srv/savepoint && btrfs subvolume delete snap/nobodys snap/others")
	// A volume of another sandbox: nothing is done with it.
	r.must(t, policy.Root, "ln -sfn lab/another /srv/savepoint/owner")
	_, err = b.List(ctx, btrfsVM)
	wantClass(t, err, orchestrator.ErrDenied)
	wantClass(t, b.Create(ctx, r.request("sp-two")), orchestrator.ErrDenied)
	wantClass(t, b.Rollback(ctx, r.request("sp-one")), orchestrator.ErrDenied)
	wantClass(t, b.Delete(ctx, r.request("sp-one")), orchestrator.ErrDenied)
	r.must(t, policy.Root, "ln -sfn 'lab/"+string(r.sb.ID)+"' /srv/savepoint/owner")
	r.bare(t, b)
}

func btrfsLeftovers(t *testing.T, r *real) {
	ctx, b := within(t, 3*time.Minute), r.btrfs(t)
	r.must(t, policy.Agent, "echo before > /workspace/f")
	ok(t, "create", b.Create(ctx, r.request("sp-one")))
	r.must(t, policy.Agent, "echo after > /workspace/f")
	// A rollback that was cut after its swap, and a snapshot of which there is the note.
	r.must(t, policy.Root, "cd /srv/savepoint && btrfs subvolume snapshot live new && ln -s 'lab/x 7 1700000000 ' note/sp-two && umount /tmp /workspace")
	if _, err := r.Inspect(ctx, r.sb); !errors.Is(err, orchestrator.ErrUnmounted) {
		t.Errorf("with a part that is not mounted: %v", err)
	}
	ok(t, "roll back", b.Rollback(ctx, r.request("sp-one")))
	if got := r.must(t, policy.Agent, "cat /workspace/f"); got != "before" {
		t.Errorf("agent sees %q", got)
	}
	if got := r.must(t, policy.Root, "ls -A /srv/savepoint /srv/savepoint/note /srv/savepoint/snap"); strings.Contains(got, "new") || strings.Contains(got, "sp-two") {
		t.Errorf("left: %q", got)
	}
	// A part of what was swapped away is not the workspace.
	r.must(t, policy.Root, "cd /srv/savepoint && btrfs subvolume snapshot live new && umount /workspace && mount --bind new/workspace /workspace")
	if _, err := r.Inspect(ctx, r.sb); !errors.Is(err, orchestrator.ErrUnmounted) {
		t.Errorf("with a part of another subvolume: %v", err)
	}
	ok(t, "roll back", b.Rollback(ctx, r.request("sp-one")))
	_, err := r.Inspect(ctx, r.sb)
	ok(t, "inspect", err)
	r.bare(t, b)
}

func btrfsBusy(t *testing.T, r *real) {
	ctx, b := within(t, 3*time.Minute), r.btrfs(t)
	ok(t, "create", b.Create(ctx, r.request("sp-one")))
	r.must(t, policy.Agent, "echo kept > /workspace/kept")
	r.must(t, policy.Root, "rm -f /run/go; mkfifo /run/go")
	for _, hold := range []string{"cd /tmp", "exec 9< /workspace/kept", "cp /bin/sleep /var/tmp/held; /var/tmp/held 1000 & cd /"} {
		end := r.background(t, policy.Root, hold+"; : > /run/holds; read x < /run/go")
		r.until(t, "test -e /run/holds")
		err := b.Rollback(ctx, r.request("sp-one"))
		wantClass(t, err, orchestrator.ErrBusy)
		if !strings.Contains(err.Error(), "(bash)") && !strings.Contains(err.Error(), "(held)") {
			t.Errorf("%q: the holder is not named: %v", hold, err)
		}
		r.must(t, policy.Agent, "test -e /workspace/kept && for d in "+volumeParts+"; do : > $d/x || exit 1; done")
		r.must(t, policy.Root, "test ! -e /srv/savepoint/new; rm /run/holds; echo > /run/go")
		if res, err := end(); err != nil || res.ExitCode != 0 {
			t.Errorf("%q: root's command was ended: %+v, %v", hold, res, err)
		}
	}
	ok(t, "roll back", b.Rollback(ctx, r.request("sp-one")))
	r.must(t, policy.Agent, "test ! -e /workspace/kept")
	r.bare(t, b)
}

// What a service has in mounts of its own does not stay what was swapped away, and
// is no other file system's.
func btrfsElsewhere(t *testing.T, r *real) {
	ctx, b := within(t, 3*time.Minute), r.btrfs(t)
	r.must(t, policy.Root, "rm -f /run/go; mkfifo /run/go; mkdir -p /run/other")
	end := r.background(t, policy.Root, "unshare --mount --propagation private sh -c 'mount -t tmpfs none /run/other && mkdir -p /run/other/live/x && mount --bind /run/other/live/x /mnt && : > /run/apart; read x < /run/go; grep -c \"/live/\" /proc/self/mountinfo'")
	r.until(t, "test -e /run/apart")
	ok(t, "create", b.Create(ctx, r.request("sp-apart")))
	r.must(t, policy.Agent, "echo x > /workspace/apart")
	ok(t, "roll back", b.Rollback(ctx, r.request("sp-apart")))
	r.must(t, policy.Root, "test ! -e /workspace/apart; echo > /run/go")
	if res, err := end(); err != nil || string(res.Stdout) != "1\n" {
		t.Errorf("got %q, %s, %v", res.Stdout, res.Stderr, err)
	}
	r.bare(t, b)
}

// The agent can fill the volume to the last block and inode. What it did can be
// proved and taken back all the same.
func btrfsFull(t *testing.T, r *real) {
	ctx, b := within(t, 5*time.Minute), r.btrfs(t)
	for round := range 2 { // what was given up is there again
		want := fmt.Sprintf("sp-full%d", round)
		_, err := r.Mark(ctx, r.sb, want)
		ok(t, "mark", err)
		ok(t, "create", b.Create(ctx, r.request(want)))
		r.as(t, policy.Agent, "dd if=/dev/zero of=/workspace/data bs=1M status=none; sync; mkdir -p /workspace/many && python3 -c 'for i in range(1 << 20): open(\"/workspace/many/%d\" % i, \"x\")'; dd if=/dev/zero of=/workspace/more bs=4k status=none")
		if out, code := r.as(t, policy.Agent, "for i in $(seq 100); do mkdir /workspace/more.$i || exit 1; done"); code == 0 {
			t.Errorf("the volume is not full: %s", out)
		}
		facts, err := r.Mark(ctx, r.sb, "undone")
		if err != nil || facts.Generation != "undone" {
			t.Fatalf("got %+v, %v", facts, err)
		}
		ok(t, "roll back", b.Rollback(ctx, r.request(want)))
		if f, err := r.Inspect(ctx, r.sb); err != nil || f.Generation != want {
			t.Errorf("got %+v, %v", f, err)
		}
		r.must(t, policy.Agent, "test ! -e /workspace/many && echo x > /workspace/x")
	}
	r.bare(t, b)
}

// btrfsCrash has the helper die at each step of its orders: what was is there, or
// what should be, and the same order finishes it.
func btrfsCrash(t *testing.T, r *real) {
	ctx, b := within(t, 5*time.Minute), r.btrfs(t)
	r.must(t, policy.Agent, "echo before > /workspace/f")
	for i, step := range []string{
		`roomy("snapshot", sub`, `ballasted() or do { raze(`, // of take
		`eval { loosen($script); 1 }`, `my ($new, $live) =`, `eval { raze($volume, 'new') }; # or`, `bind_parts();
  eval`, // of restore
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			dying := &real{sb: r.sb, cfg: r.cfg}
			name := fmt.Sprintf("sp-crash%d", i)
			t.Run("dies", func(t *testing.T) {
				sshexec.ChangeHelper(t, step, "kill 'KILL', $$; "+step)
				dying.Client = client(t, r.cfg)
				db := dying.btrfs(t)
				if i < 2 {
					wantClass(t, db.Create(ctx, r.request(name)), orchestrator.ErrUnknownOutcome)
					return
				}
				ok(t, "create", db.Create(ctx, r.request(name)))
				r.must(t, policy.Agent, "echo after > /workspace/f")
				wantClass(t, db.Rollback(ctx, r.request(name)), orchestrator.ErrUnknownOutcome)
			})
			if i < 2 {
				err := b.Create(ctx, r.request(name))
				if err != nil && !errors.Is(err, orchestrator.ErrExists) {
					t.Errorf("again: %v", err)
				}
			}
			ok(t, "roll back", b.Rollback(ctx, r.request(name)))
			if got := r.must(t, policy.Agent, "cat /workspace/f"); got != "before" {
				t.Errorf("agent sees %q", got)
			}
			if got := r.must(t, policy.Root, "ls -A /srv/savepoint /srv/savepoint/note /srv/savepoint/snap | tr '\n' ' '"); got != "/srv/savepoint: ballast live note owner snap  /srv/savepoint/note: "+name+"  /srv/savepoint/snap: "+name {
				t.Errorf("left: %q", got)
			}
			r.bare(t, b)
		})
	}
}
