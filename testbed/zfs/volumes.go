package zfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Dataset is the volume's name on the node: pool/volume.
func (p *Pool) Dataset(volume string) string { return p.c.Name + "/" + volume }

// rawName is the file in a volume's dataset.
const rawName = "raw"

// File is the volume's raw file.
func (p *Pool) File(volume string) string {
	return filepath.Join(p.c.mounts(), volume, rawName)
}

var (
	volumeRE   = regexp.MustCompile(`\A([a-zA-Z][a-zA-Z0-9_.-]{0,63}/)?[a-zA-Z][a-zA-Z0-9_.-]{0,63}\z`)
	snapshotRE = regexp.MustCompile(`\A[a-zA-Z_][a-zA-Z0-9_.-]{0,63}\z`)
)

func isVolume(name string) error {
	if !volumeRE.MatchString(name) {
		return fmt.Errorf("%q is not a volume: use NAME or GROUP/NAME of up to 64 letters, digits, '_', '.' and '-', a letter first", name)
	}
	return nil
}

// checked refuses names that could be anything but one volume and one snapshot.
func checked(volume, snapshot string) error {
	if !snapshotRE.MatchString(snapshot) {
		return errors.Join(isVolume(volume), fmt.Errorf("%q is not a snapshot: use up to 64 letters, digits, '_', '.' and '-', a letter or '_' first", snapshot))
	}
	return isVolume(volume)
}

// Group makes sure that there is room for volumes called GROUP/NAME: one group
// stands for the pool of one node.
func (p *Pool) Group(ctx context.Context, group string) error {
	if !nameRE.MatchString(group) {
		return fmt.Errorf("%q is not the name of a group", group)
	}
	_, err := p.run(ctx, "zfs", "create", "-o", "canmount=off", p.Dataset(group))
	if errors.Is(err, ErrExists) {
		return nil
	}
	return err
}

// Create makes a volume of size bytes, all zero and using no room.
func (p *Pool) Create(ctx context.Context, volume string, size int64) error {
	if err := p.dataset(ctx, volume); err != nil {
		return err
	}
	f, err := os.OpenFile(p.File(volume), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make volume %s: %w", volume, err), p.Destroy(context.WithoutCancel(ctx), volume))
	}
	return nil
}

// dataset makes a volume without its file.
func (p *Pool) dataset(ctx context.Context, volume string) error {
	if err := isVolume(volume); err != nil {
		return err
	}
	_, err := p.run(ctx, "zfs", "create", p.Dataset(volume))
	return err
}

// Rename gives a volume, which nobody has open, another name, also while its
// snapshots have clones.
func (p *Pool) Rename(ctx context.Context, volume, name string) error {
	if err := errors.Join(isVolume(volume), isVolume(name)); err != nil {
		return err
	}
	// In one step zfs-fuse often finds its own unmount still under way, or leaves
	// the volume without its mount.
	if _, err := p.run(ctx, "zfs", "umount", p.Dataset(volume)); err != nil && !strings.Contains(err.Error(), "not currently mounted") {
		return err
	}
	_, err := p.run(ctx, "zfs", "rename", p.Dataset(volume), p.Dataset(name))
	if err != nil {
		_, back := p.run(context.WithoutCancel(ctx), "zfs", "mount", p.Dataset(volume))
		return errors.Join(err, back)
	}
	if _, err := p.run(ctx, "zfs", "mount", p.Dataset(name)); err != nil {
		return err
	}
	return p.dropMountpoint(volume)
}

// dropMountpoint removes the directory that a volume was mounted at.
func (p *Pool) dropMountpoint(volume string) error {
	if err := os.Remove(filepath.Dir(p.File(volume))); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the mount point of volume %s: %w", volume, err)
	}
	return nil
}

// Destroy removes a volume with its snapshots. ErrClones: others are made of them.
func (p *Pool) Destroy(ctx context.Context, volume string) error {
	if err := isVolume(volume); err != nil {
		return err
	}
	if _, err := p.run(ctx, "zfs", "destroy", "-r", p.Dataset(volume)); err != nil {
		return err
	}
	return p.dropMountpoint(volume)
}

// Snapshot takes a snapshot of a volume.
func (p *Pool) Snapshot(ctx context.Context, volume, name string) error {
	if err := checked(volume, name); err != nil {
		return err
	}
	_, err := p.run(ctx, "zfs", "snapshot", p.Dataset(volume)+"@"+name)
	return err
}

// Rollback restores exactly that snapshot. *NewerError: it is not the newest.
func (p *Pool) Rollback(ctx context.Context, volume, name string) error {
	if err := checked(volume, name); err != nil {
		return err
	}
	_, err := p.run(ctx, "zfs", "rollback", p.Dataset(volume)+"@"+name)
	if !errors.Is(err, errNewer) {
		return err
	}
	e := &NewerError{Volume: volume, Name: name}
	all, err := p.Snapshots(ctx, volume)
	if err != nil {
		return errors.Join(e, err)
	}
	i := slices.IndexFunc(all, func(s Snapshot) bool { return s.Name == name })
	for _, s := range all[i+1:] {
		e.Newer = append(e.Newer, s.Name)
	}
	return e
}

// DeleteSnapshot removes a snapshot. ErrClones: a volume is made of it.
func (p *Pool) DeleteSnapshot(ctx context.Context, volume, name string) error {
	if err := checked(volume, name); err != nil {
		return err
	}
	_, err := p.run(ctx, "zfs", "destroy", p.Dataset(volume)+"@"+name)
	return err
}

// Clone makes a volume out of another's snapshot; they share what neither changes.
func (p *Pool) Clone(ctx context.Context, volume, name, clone string) error {
	if err := errors.Join(checked(volume, name), isVolume(clone)); err != nil {
		return err
	}
	_, err := p.run(ctx, "zfs", "clone", p.Dataset(volume)+"@"+name, p.Dataset(clone))
	return err
}

// Snapshot is one snapshot of a volume.
type Snapshot struct {
	Name  string
	Taken time.Time

	sequence uint64
}

// Snapshots lists a volume's, oldest first, whoever took them.
func (p *Pool) Snapshots(ctx context.Context, volume string) ([]Snapshot, error) {
	if err := isVolume(volume); err != nil {
		return nil, err
	}
	out, err := p.run(ctx, "zfs", "get", "-H", "-p", "-r", "-d", "1", "-o", "name,property,value", "creation,createtxg", p.Dataset(volume))
	if err != nil {
		return nil, err
	}
	found := map[string]Snapshot{}
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		_, name, ok := strings.Cut(f[0], "@")
		if !ok || len(f) != 3 {
			continue
		}
		n, err := strconv.ParseUint(f[2], 10, 63)
		if err != nil {
			return nil, fmt.Errorf("list snapshots of %s: %s of %s is %q", volume, f[1], name, f[2])
		}
		s := found[name]
		if s.Name = name; f[1] == "createtxg" {
			s.sequence = n
		} else {
			s.Taken = time.Unix(int64(n), 0)
		}
		found[name] = s
	}
	var all []Snapshot
	for _, s := range found {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Snapshot) int {
		if a.sequence == b.sequence {
			return strings.Compare(a.Name, b.Name)
		}
		if a.sequence < b.sequence {
			return -1
		}
		return 1
	})
	return all, nil
}

// Volumes lists the pool's volumes by name.
func (p *Pool) Volumes(ctx context.Context) ([]string, error) {
	out, err := p.run(ctx, "zfs", "list", "-H", "-r", "-d", "2", "-t", "filesystem", "-o", "name,canmount", p.c.Name)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(out) {
		dataset, mounts, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if name, ok := strings.CutPrefix(dataset, p.c.Name+"/"); ok && mounts != "off" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Usage is how much room a volume, or the whole pool, uses and has left, in bytes.
type Usage struct{ Used, Free int64 }

// Usage returns a volume's with its snapshots; "" is the pool.
func (p *Pool) Usage(ctx context.Context, volume string) (u Usage, err error) {
	dataset := p.c.Name
	if volume != "" {
		if err := isVolume(volume); err != nil {
			return u, err
		}
		dataset = p.Dataset(volume)
	}
	out, err := p.run(ctx, "zfs", "get", "-H", "-p", "-o", "value", "used,available", dataset)
	if err != nil {
		return u, err
	}
	if n, err := fmt.Sscan(out, &u.Used, &u.Free); n != 2 {
		return u, fmt.Errorf("usage of %s: %q is not two numbers: %w", dataset, out, err)
	}
	return u, nil
}
