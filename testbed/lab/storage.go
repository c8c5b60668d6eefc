package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"savepoint/testbed/jump"
	"savepoint/testbed/pve"
	"savepoint/testbed/qemu"
	"savepoint/testbed/zfs"
)

// poolSize is the most that a lab's pool can hold. Its file is sparse.
const poolSize = 64 << 30

func zfsConfig(dir string) (zfs.Config, error) {
	dir, err := filepath.Abs(filepath.Join(dir, "zfs"))
	return zfs.Config{Dir: dir, Name: zfsPool, Size: poolSize}, err
}

// disks are what all nodes keep their disks on.
type disks struct {
	files *qemu.Images
	pool  *zfs.Pool  // nil: files only
	zfs   *zfs.Disks // of the pool, and of files too
}

// openDisks opens the pool, if the lab has one. Each node has a dataset of its
// own in it, as nodes with pools of the same name have.
func openDisks(ctx context.Context, o Options) (d disks, err error) {
	if d.files, err = qemu.NewImages(""); err != nil || o.Storage != StorageZFS {
		return d, err
	}
	c, err := zfsConfig(o.Dir)
	if err != nil {
		return d, err
	}
	if d.pool, err = zfs.Open(ctx, c); err != nil {
		return d, err
	}
	for _, node := range o.nodes() {
		if err := d.pool.Group(ctx, node); err != nil {
			return d, fmt.Errorf("make the dataset of node %s: %w", node, err)
		}
	}
	d.zfs, err = zfs.NewDisks(ctx, d.pool, d.files)
	return d, err
}

// close ends the pool's daemon and keeps the pool.
func (d disks) close(ctx context.Context) error {
	if d.pool == nil {
		return nil
	}
	return d.pool.Close(context.WithoutCancel(ctx))
}

// api is the disks for the API's server.
func (d disks) api() pve.Disks {
	if d.zfs != nil {
		return d.zfs
	}
	return d.files
}

// storages are those of the cluster.
func (d disks) storages() []pve.Storage {
	out := []pve.Storage{{ID: storage}}
	if d.pool != nil {
		out = append(out, d.pool.Storage(zfsStorage))
	}
	return out
}

// forced is the account of savepoint on a node, with ZFS on the node's dataset.
func (d disks) forced(node, key string) jump.Command {
	return jump.Command{Authorized: []string{key}, Run: func(ctx context.Context, in io.Reader, out, diag io.Writer) int {
		exit, err := d.pool.Forced(ctx, node, in, out)
		if err != nil {
			fmt.Fprintln(diag, err)
			return 255
		}
		return exit
	}}
}

// endPool ends the daemon that a killed lab left; the pool stays.
func endPool(ctx context.Context, dir string) error {
	c, err := zfsConfig(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "zfs-fuse.pid")); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	p, err := zfs.Open(ctx, c) // takes it over, and leaves it as it is to be
	if err != nil {
		return err
	}
	return p.Close(ctx)
}

// removePool removes the pool with all that is in it.
func removePool(ctx context.Context, dir string) error {
	c, err := zfsConfig(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(c.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return zfs.Sweep(ctx, c.Dir)
}
