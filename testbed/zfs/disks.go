package zfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"savepoint/orchestrator"
	"savepoint/testbed/pve"
)

// baseName is the snapshot of a template's volume that linked clones are made of.
const baseName = "__base__"

// copyPrefix begins the names of the volumes that a copy from a snapshot reads.
const copyPrefix = "copy-of-"

// Disks keeps the disks of VMs: those with a path of Pool.File as volumes of the
// pool, all others as the Disks below it do. It implements pve.PoolDisks, and what
// testbed/qemu needs to take snapshots of such disks while a VM runs.
type Disks struct {
	pve.Disks
	pool *Pool
}

var _ pve.PoolDisks = (*Disks)(nil)

// NewDisks returns the disks of a pool and of files. Copies that a killed owner
// did not finish are removed.
func NewDisks(ctx context.Context, p *Pool, files pve.Disks) (*Disks, error) {
	all, err := p.Volumes(ctx)
	if err != nil {
		return nil, fmt.Errorf("keep disks in pool %s: %w", p.c.Name, err)
	}
	for _, v := range all {
		if strings.HasPrefix(v[strings.IndexByte(v, '/')+1:], copyPrefix) {
			if err := p.Destroy(ctx, v); err != nil {
				return nil, fmt.Errorf("keep disks in pool %s: remove an unfinished copy: %w", p.c.Name, err)
			}
		}
	}
	return &Disks{files, p}, nil
}

// volume returns which volume of the pool a disk is.
func (d *Disks) volume(disk pve.Disk) (name string, ours bool) {
	rest, below := strings.CutPrefix(disk.Path, d.pool.c.mounts()+"/")
	name, ends := strings.CutSuffix(rest, "/"+rawName)
	return name, below && ends && isVolume(name) == nil
}

// Has reports whether the disk is a volume of the pool.
func (d *Disks) Has(disk pve.Disk) bool {
	_, ours := d.volume(disk)
	return ours
}

// classes are the engine's words for ours.
var classes = map[error]error{
	ErrNotFound: orchestrator.ErrNotFound, ErrExists: orchestrator.ErrExists,
	ErrBusy: orchestrator.ErrBusy, ErrStopped: orchestrator.ErrUnavailable,
}

// diskError is what zfs said the way the cluster tells it: the first line alone.
type diskError struct {
	error
	text string
}

func (e *diskError) Error() string { return e.text }

func (e *diskError) Unwrap() []error {
	out := []error{e.error}
	for ours, theirs := range classes {
		if errors.Is(e.error, ours) {
			out = append(out, theirs)
		}
	}
	return out
}

func told(err error) error {
	var e *commandError
	if !errors.As(err, &e) {
		return err
	}
	line, _, _ := strings.Cut(e.text, "\n")
	return &diskError{err, "zfs error: " + line}
}

// Create implements pve.Disks.
func (d *Disks) Create(ctx context.Context, disk pve.Disk, size int64) error {
	v, ours := d.volume(disk)
	if !ours {
		return d.Disks.Create(ctx, disk, size)
	}
	return told(d.pool.Create(ctx, v, size))
}

// Link implements pve.Disks: a clone of what Base made.
func (d *Disks) Link(ctx context.Context, base, disk pve.Disk) error {
	from, fromOurs := d.volume(base)
	v, ours := d.volume(disk)
	switch {
	case !ours && !fromOurs:
		return d.Disks.Link(ctx, base, disk)
	case !ours || !fromOurs:
		return fmt.Errorf("link %s to %s: only volumes of one pool can be linked; make a full copy", disk.Path, base.Path)
	}
	return told(d.pool.Clone(ctx, from, baseName, v))
}

// Base implements pve.PoolDisks. Done twice it is no error.
func (d *Disks) Base(ctx context.Context, disk pve.Disk, path string) error {
	from, fromOurs := d.volume(disk)
	v, ours := d.volume(pve.Disk{Path: path})
	if !ours || !fromOurs {
		return fmt.Errorf("make %s the base %s: not volumes of the pool", disk.Path, path)
	}
	if from != v {
		if err := d.pool.Rename(ctx, from, v); errors.Is(err, ErrNotFound) && d.there(ctx, v) {
			// It was renamed before.
		} else if err != nil {
			return told(err)
		}
	}
	if err := d.pool.Snapshot(ctx, v, baseName); err != nil && !errors.Is(err, ErrExists) {
		return told(err)
	}
	return nil
}

func (d *Disks) there(ctx context.Context, volume string) bool {
	_, err := d.pool.Usage(ctx, volume)
	return err == nil
}

// Copy implements pve.Disks.
func (d *Disks) Copy(ctx context.Context, src pve.Disk, tag string, to pve.Disk) (err error) {
	if from, ours := d.volume(src); ours && tag != "" {
		// A volume that shows the snapshot, for as long as it is read.
		at := strings.LastIndexByte(from, '/') + 1
		shown := from[:at] + copyPrefix + from[at:]
		if err := d.pool.Clone(ctx, from, tag, shown); err != nil {
			return told(err)
		}
		defer func() { err = errors.Join(err, told(d.pool.Destroy(context.WithoutCancel(ctx), shown))) }()
		src.Path, tag = d.pool.File(shown), ""
	}
	v, ours := d.volume(to)
	if !ours {
		return d.Disks.Copy(ctx, src, tag, to)
	}
	if err := d.pool.dataset(ctx, v); err != nil {
		return told(err)
	}
	if err := d.Disks.Copy(ctx, src, tag, to); err != nil {
		return errors.Join(err, told(d.pool.Destroy(context.WithoutCancel(ctx), v)))
	}
	return nil
}

// Snapshot implements pve.Disks. The disk may be in use: who writes it has to
// have written.
func (d *Disks) Snapshot(ctx context.Context, disk pve.Disk, tag string) error {
	v, ours := d.volume(disk)
	if !ours {
		return d.Disks.Snapshot(ctx, disk, tag)
	}
	return told(d.pool.Snapshot(ctx, v, tag))
}

// Revert implements pve.Disks.
func (d *Disks) Revert(ctx context.Context, disk pve.Disk, tag string) error {
	v, ours := d.volume(disk)
	if !ours {
		return d.Disks.Revert(ctx, disk, tag)
	}
	return told(d.pool.Rollback(ctx, v, tag))
}

// DeleteSnapshot implements pve.Disks, also for a disk in use.
func (d *Disks) DeleteSnapshot(ctx context.Context, disk pve.Disk, tag string) error {
	v, ours := d.volume(disk)
	if !ours {
		return d.Disks.DeleteSnapshot(ctx, disk, tag)
	}
	return told(d.pool.DeleteSnapshot(ctx, v, tag))
}

// Snapshots implements pve.PoolDisks.
func (d *Disks) Snapshots(ctx context.Context, disk pve.Disk) ([]string, error) {
	v, ours := d.volume(disk)
	if !ours {
		return nil, fmt.Errorf("list snapshots of %s: not a volume of the pool", disk.Path)
	}
	all, err := d.pool.Snapshots(ctx, v)
	if err != nil {
		return nil, told(err)
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names, nil
}

// Usage implements pve.PoolDisks.
func (d *Disks) Usage(ctx context.Context, dir string) (used, free int64, err error) {
	group, below := strings.CutPrefix(dir, d.pool.c.mounts()+"/")
	if dir != d.pool.c.mounts() && (!below || isVolume(group) != nil) {
		return 0, 0, fmt.Errorf("usage of %s: not of the pool", dir)
	}
	u, err := d.pool.Usage(ctx, group)
	return u.Used, u.Free, told(err)
}

// Resize implements pve.Disks.
func (d *Disks) Resize(ctx context.Context, disk pve.Disk, size int64) error {
	if !d.Has(disk) {
		return d.Disks.Resize(ctx, disk, size)
	}
	info, err := os.Stat(disk.Path)
	switch {
	case err != nil:
	case size < info.Size():
		err = errors.New("shrinking is not supported")
	default:
		err = os.Truncate(disk.Path, size)
	}
	if err != nil {
		return fmt.Errorf("resize disk: %w", err)
	}
	return nil
}

// Size implements pve.Disks.
func (d *Disks) Size(ctx context.Context, disk pve.Disk) (virtual, used int64, err error) {
	if !d.Has(disk) {
		return d.Disks.Size(ctx, disk)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(disk.Path, &st); errors.Is(err, os.ErrNotExist) {
		return 0, 0, fmt.Errorf("size of %s: %w", disk.Path, orchestrator.ErrNotFound)
	} else if err != nil {
		return 0, 0, fmt.Errorf("size of %s: %w", disk.Path, err)
	}
	return st.Size, st.Blocks * 512, nil
}

// ISO implements pve.Disks. Its volume is made the first time.
func (d *Disks) ISO(ctx context.Context, disk pve.Disk, label string, files map[string][]byte) error {
	if v, ours := d.volume(disk); ours {
		if err := d.pool.dataset(ctx, v); err != nil && !errors.Is(err, ErrExists) {
			return told(err)
		}
	}
	return d.Disks.ISO(ctx, disk, label, files)
}

// Remove implements pve.Disks.
func (d *Disks) Remove(ctx context.Context, disk pve.Disk) error {
	v, ours := d.volume(disk)
	if !ours {
		return d.Disks.Remove(ctx, disk)
	}
	if err := d.pool.Destroy(ctx, v); err != nil && !errors.Is(err, ErrNotFound) {
		return told(err)
	}
	return nil
}
