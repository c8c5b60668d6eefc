package zfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Dataset is the volume's name on the node: pool/volume.
func (p *Pool) Dataset(volume string) string { return p.c.Name + "/" + volume }

// File is the volume's raw file.
func (p *Pool) File(volume string) string {
	return filepath.Join(p.c.mounts(), volume, "raw")
}

// checked refuses a name that could be anything but one volume or snapshot.
func checked(names ...string) error {
	for _, n := range names {
		if !nameRE.MatchString(n) {
			return fmt.Errorf("%q is not a name: use up to 64 letters, digits, '_', '.' and '-', a letter first", n)
		}
	}
	return nil
}

// Create makes a volume of size bytes, all zero and using no room.
func (p *Pool) Create(ctx context.Context, volume string, size int64) error {
	if err := checked(volume); err != nil {
		return err
	}
	if _, err := p.run(ctx, "zfs", "create", "-o", "mountpoint="+filepath.Dir(p.File(volume)), p.Dataset(volume)); err != nil {
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

// Destroy removes a volume with its snapshots. ErrClones: others are made of them.
func (p *Pool) Destroy(ctx context.Context, volume string) error {
	if err := checked(volume); err != nil {
		return err
	}
	if _, err := p.run(ctx, "zfs", "destroy", "-r", p.Dataset(volume)); err != nil {
		return err
	}
	if err := os.Remove(filepath.Dir(p.File(volume))); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("destroy volume %s: %w", volume, err)
	}
	return nil
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
	if err := checked(volume, name, clone); err != nil {
		return err
	}
	_, err := p.run(ctx, "zfs", "clone", "-o", "mountpoint="+filepath.Dir(p.File(clone)), p.Dataset(volume)+"@"+name, p.Dataset(clone))
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
	if err := checked(volume); err != nil {
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
	out, err := p.run(ctx, "zfs", "list", "-H", "-r", "-d", "1", "-t", "filesystem", "-o", "name", p.c.Name)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), p.c.Name+"/"); ok {
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
		if err := checked(volume); err != nil {
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
