package sshexec_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
	"savepoint/proxmox/zfs"
)

// fileNode is a node whose volume is a file that QEMU has open. It copies it, and
// refuses what real storage would not notice: a volume that is in use.
type fileNode struct {
	path  string
	taken []zfs.Taken
	owner string
}

func (n *fileNode) volume() zfs.Volume {
	return zfs.Volume{Dataset: "file", Owner: n.owner, Free: 1 << 40, Taken: n.taken}
}

// settled checks that the file system's journal has nothing that is not in place.
func (n *fileNode) settled() error {
	f, err := os.Open(n.path)
	if err != nil {
		return err
	}
	defer f.Close()
	var super [1024]byte
	if _, err := f.ReadAt(super[:], 1024); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(super[0x60:])&4 != 0 {
		return errors.New("the volume is in use: its journal needs recovery")
	}
	return nil
}

func copyInto(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o600) // in place: QEMU has it open
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

func (n *fileNode) List(context.Context, zfs.Target) (zfs.Volume, error) { return n.volume(), nil }

func (n *fileNode) Claim(_ context.Context, t zfs.Target) (zfs.Volume, error) {
	n.owner = t.Owner
	return n.volume(), nil
}

func (n *fileNode) Snapshot(_ context.Context, t zfs.Target, name orchestrator.SnapshotName, text string, _ int64) (zfs.Volume, error) {
	if err := errors.Join(n.settled(), copyInto(n.path, n.path+"@"+string(name))); err != nil {
		return zfs.Volume{}, err
	}
	n.taken = append(n.taken, zfs.Taken{Name: string(name), Owner: t.Owner, Text: text, Created: time.Now(), Sequence: uint64(len(n.taken))})
	return n.volume(), nil
}

func (n *fileNode) Rollback(_ context.Context, _ zfs.Target, name orchestrator.SnapshotName) (zfs.Volume, error) {
	return n.volume(), errors.Join(n.settled(), copyInto(n.path+"@"+string(name), n.path))
}

func (n *fileNode) Delete(_ context.Context, _ zfs.Target, name orchestrator.SnapshotName) (zfs.Volume, error) {
	n.taken = n.taken[:len(n.taken)-1]
	return n.volume(), os.Remove(n.path + "@" + string(name))
}

// snapshotsHold is the story of two nested savepoints while the agent writes.
func snapshotsHold(t *testing.T, r *real, volume string) {
	ctx := within(t, 5*time.Minute)
	s, err := zfs.New(zfs.Config{Instance: "lab", Node: &fileNode{path: volume}, Guest: r, Freeze: 30 * time.Second,
		Sandbox: func(context.Context, orchestrator.VMRef) (orchestrator.Sandbox, error) { return r.sb, nil }})
	ok(t, "new", err)
	ok(t, "claim", s.Claim(ctx, r.sb))
	request := func(name string) orchestrator.SnapshotRequest {
		return orchestrator.SnapshotRequest{Sandbox: r.sb.ID, Name: orchestrator.SnapshotName(name)}
	}
	tree := func() string {
		return r.must(t, policy.Root, "cd /srv/savepoint && find . -path ./lost+found -prune -o -printf '%p %m %u %s %T@ %l\\n' | sort; find . -path ./lost+found -prune -o -type f -exec sha256sum {} + | sort")
	}
	r.must(t, policy.Agent, "mkdir -p ~/dir && echo precious > ~/dir/file && ln -s /etc/passwd ~/link && echo 1 > /workspace/one && echo shared > /dev/shm/segment")
	_, err = r.Mark(ctx, r.sb, "first")
	ok(t, "mark", err)
	// Snapshots are taken under writes that never stop.
	end := r.background(t, policy.Agent, "while :; do echo $((i += 1)) > /workspace/count; cp /bin/ls /tmp/ls; done")
	r.until(t, "test -e /tmp/ls")
	began := time.Now()
	ok(t, "create", s.Create(ctx, request("first")))
	t.Logf("snapshot under writes: %s", time.Since(began))
	r.must(t, policy.Root, "pkill -KILL -u agent; true")
	if _, err := end(); err != nil {
		t.Error(err)
	}
	ok(t, "roll back to a moment of them", s.Rollback(ctx, request("first")))
	first := tree()
	_, err = r.Mark(ctx, r.sb, "second")
	ok(t, "mark", err)
	ok(t, "create", s.Create(ctx, request("second")))
	second := tree()
	_, err = r.Mark(ctx, r.sb, "third")
	ok(t, "mark", err)
	r.must(t, policy.Agent, "rm -rf ~/dir ~/link /workspace/* /dev/shm/*; echo new > /var/tmp/new; nohup setsid sh -c 'while :; do date > /workspace/clock; done' > /dev/null 2>&1 & sleep 0.3")
	var newer *orchestrator.NotLatestError
	if err := s.Rollback(ctx, request("first")); !errors.As(err, &newer) {
		t.Errorf("got %v", err)
	}
	began = time.Now()
	ok(t, "roll back", s.Rollback(ctx, request("second")))
	t.Logf("rollback: %s", time.Since(began))
	if got := tree(); got != second {
		t.Errorf("the tree is not that of the snapshot:\n%s\nwant\n%s", got, second)
	}
	if f, err := r.Inspect(ctx, r.sb); err != nil || f.Generation != "second" {
		t.Errorf("got %+v, %v", f, err)
	}
	ok(t, "delete", s.Delete(ctx, request("second")))
	ok(t, "roll back", s.Rollback(ctx, request("first")))
	if got := tree(); got != first {
		t.Errorf("the tree is not that of the first snapshot:\n%s\nwant\n%s", got, first)
	}
	if f, err := r.Inspect(ctx, r.sb); err != nil || f.Generation != "first" {
		t.Errorf("got %+v, %v", f, err)
	}
	if got := r.must(t, policy.Agent, "cat ~/dir/file /workspace/one /dev/shm/segment"); got != "precious\n1\nshared" {
		t.Errorf("agent sees %q", got)
	}
}
