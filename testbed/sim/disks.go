package sim

import (
	"context"
	"fmt"
	"maps"
	"os"

	"savepoint/testbed/pve"
)

// image is one disk. A disk without files, like a second disk or saved
// memory, has no tree.
type image struct {
	size int64
	tree *tree
	tags map[string]saved
	iso  map[string][]byte // files of a cloud-init drive
}

type saved struct {
	size int64
	tree *tree
}

func (i *image) save() saved {
	s := saved{size: i.size}
	if i.tree != nil {
		s.tree = i.tree.snapshot()
	}
	return s
}

func (s saved) image() *image {
	i := &image{size: s.size, tags: map[string]saved{}}
	if s.tree != nil {
		i.tree = s.tree.snapshot()
	}
	return i
}

// Disks keeps the disks; it implements pve.Disks.
type Disks struct{ b *Backend }

func (d Disks) with(ctx context.Context, op, path string, f func() error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	if err := f(); err != nil {
		return fmt.Errorf("%s disk %s: %w", op, path, err)
	}
	return nil
}

func (b *Backend) find(path string) (*image, error) {
	if i := b.images[path]; i != nil {
		return i, nil
	}
	return nil, fmt.Errorf("disk %s does not exist", path)
}

func (b *Backend) add(path string, i *image) error {
	if b.images[path] != nil {
		return fmt.Errorf("it exists")
	}
	b.images[path] = i
	return nil
}

// Create implements pve.Disks: an empty disk without files.
func (d Disks) Create(ctx context.Context, disk pve.Disk, size int64) error {
	return d.with(ctx, "create", disk.Path, func() error {
		return d.b.add(disk.Path, &image{size: size, tags: map[string]saved{}})
	})
}

// Link implements pve.Disks. The child is independent of the base.
func (d Disks) Link(ctx context.Context, base, disk pve.Disk) error {
	return d.with(ctx, "link", disk.Path, func() error {
		from, err := d.b.find(base.Path)
		if err != nil {
			return err
		}
		return d.b.add(disk.Path, from.save().image())
	})
}

// Copy implements pve.Disks. A source that is no disk of this backend but a
// file of the host is an image that is being imported: the copy is a guest's
// standard disk that has never booted, as large as the file. Lines "lacks NAME"
// in the file say what such an image has not: see lacks.
func (d Disks) Copy(ctx context.Context, src pve.Disk, tag string, disk pve.Disk) error {
	return d.with(ctx, "copy", disk.Path, func() error {
		from := d.b.images[src.Path]
		if from == nil {
			info, err := os.Stat(src.Path)
			if err != nil {
				return err
			}
			tree := standardTree(d.b.now())
			if err := tree.readLacks(src.Path, d.b.now()); err != nil {
				return err
			}
			return d.b.add(disk.Path, &image{size: max(info.Size(), 1<<30), tree: tree, tags: map[string]saved{}})
		}
		s := from.save()
		if tag != "" {
			var ok bool
			if s, ok = from.tags[tag]; !ok {
				return fmt.Errorf("no snapshot %s of %s", tag, src.Path)
			}
		}
		return d.b.add(disk.Path, s.image())
	})
}

// Standard puts a guest's standard disk that has never booted at path.
func (d Disks) Standard(ctx context.Context, path string, size int64) error {
	return d.with(ctx, "create", path, func() error {
		return d.b.add(path, &image{size: size, tree: standardTree(d.b.now()), tags: map[string]saved{}})
	})
}

// Snapshot implements pve.Disks.
func (d Disks) Snapshot(ctx context.Context, disk pve.Disk, tag string) error {
	return d.with(ctx, "snapshot", disk.Path, func() error { return d.b.snapshot(disk.Path, tag) })
}

func (b *Backend) snapshot(path, tag string) error {
	i, err := b.find(path)
	if err != nil {
		return err
	}
	if _, ok := i.tags[tag]; ok {
		return fmt.Errorf("snapshot %s exists", tag)
	}
	i.tags[tag] = i.save()
	return nil
}

// Revert implements pve.Disks.
func (d Disks) Revert(ctx context.Context, disk pve.Disk, tag string) error {
	return d.with(ctx, "revert", disk.Path, func() error {
		i, err := d.b.find(disk.Path)
		if err != nil {
			return err
		}
		s, ok := i.tags[tag]
		if !ok {
			return fmt.Errorf("no snapshot %s", tag)
		}
		back := s.image()
		i.size, i.tree = back.size, back.tree
		return nil
	})
}

// DeleteSnapshot implements pve.Disks.
func (d Disks) DeleteSnapshot(ctx context.Context, disk pve.Disk, tag string) error {
	return d.with(ctx, "delete snapshot of", disk.Path, func() error { return d.b.deleteSnapshot(disk.Path, tag) })
}

func (b *Backend) deleteSnapshot(path, tag string) error {
	i, err := b.find(path)
	if err != nil {
		return err
	}
	if _, ok := i.tags[tag]; !ok {
		return fmt.Errorf("no snapshot %s", tag)
	}
	delete(i.tags, tag)
	return nil
}

// Resize implements pve.Disks.
func (d Disks) Resize(ctx context.Context, disk pve.Disk, size int64) error {
	return d.with(ctx, "resize", disk.Path, func() error {
		i, err := d.b.find(disk.Path)
		if err == nil {
			i.size = size
		}
		return err
	})
}

// Size implements pve.Disks.
func (d Disks) Size(ctx context.Context, disk pve.Disk) (virtual, used int64, err error) {
	err = d.with(ctx, "size of", disk.Path, func() error {
		i := d.b.images[disk.Path]
		if i == nil {
			info, err := os.Stat(disk.Path)
			if err != nil {
				return err
			}
			virtual, used = max(info.Size(), 1<<30), info.Size()
			return nil
		}
		virtual = i.size
		if i.tree != nil {
			used = i.tree.used()
		}
		return nil
	})
	return virtual, used, err
}

// ISO implements pve.Disks. It replaces what is there.
func (d Disks) ISO(ctx context.Context, disk pve.Disk, label string, files map[string][]byte) error {
	return d.with(ctx, "write", disk.Path, func() error {
		kept := maps.Clone(files)
		for name, text := range kept {
			kept[name] = append([]byte(nil), text...)
		}
		kept[isoLabel] = []byte(label)
		d.b.images[disk.Path] = &image{size: 4 << 20, iso: kept, tags: map[string]saved{}}
		return nil
	})
}

// isoLabel is where an image keeps its volume label; no file has this name.
const isoLabel = "\x00label"

// Remove implements pve.Disks; a missing disk is no error.
func (d Disks) Remove(ctx context.Context, disk pve.Disk) error {
	return d.with(ctx, "remove", disk.Path, func() error {
		delete(d.b.images, disk.Path)
		delete(d.b.states, disk.Path)
		return nil
	})
}
