package memory

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"os"

	"savepoint/testbed/pve"
)

// disk is one image.
type disk struct {
	size    int64
	base    string // path of the base of a link
	own     bool   // written since it was linked
	content string
	tags    map[string]disk
	files   map[string][]byte // of a cloud-init drive
}

// Disks is the backend's side that keeps images; it implements pve.Disks.
type Disks struct{ b *Backend }

// Disks returns the side that keeps images.
func (b *Backend) Disks() Disks { return Disks{b} }

// Write puts content on a disk.
func (b *Backend) Write(path, content string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.disks[path]
	if d == nil {
		return fmt.Errorf("write disk %s: it does not exist", path)
	}
	d.content, d.own = content, true
	return nil
}

// Read returns a disk's content, its base's where it was never written.
func (b *Backend) Read(path string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.disks[path]
	if d == nil {
		return "", fmt.Errorf("read disk %s: it does not exist", path)
	}
	return b.read(d), nil
}

// Files returns the files of a cloud-init drive.
func (b *Backend) Files(path string) map[string][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := b.disks[path]; d != nil {
		return maps.Clone(d.files)
	}
	return nil
}

// Paths lists the disks that exist.
func (b *Backend) Paths() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]string, 0, len(b.disks))
	for p := range b.disks {
		out = append(out, p)
	}
	return out
}

func (b *Backend) read(d *disk) string {
	for !d.own && d.base != "" && b.disks[d.base] != nil {
		d = b.disks[d.base]
	}
	return d.content
}

func (b *Backend) snapshot(d pve.Disk, tag string) error {
	img := b.disks[d.Path]
	if img == nil {
		return fmt.Errorf("snapshot disk %s: it does not exist", d.Path)
	}
	if _, taken := img.tags[tag]; taken {
		return fmt.Errorf("snapshot disk %s: %s exists", d.Path, tag)
	}
	kept := *img
	kept.tags = nil
	img.tags[tag] = kept
	return nil
}

func (b *Backend) deleteTag(d pve.Disk, tag string) error {
	img := b.disks[d.Path]
	if img == nil {
		return fmt.Errorf("delete snapshot of disk %s: it does not exist", d.Path)
	}
	if _, ok := img.tags[tag]; !ok {
		return fmt.Errorf("delete snapshot of disk %s: no snapshot %s", d.Path, tag)
	}
	delete(img.tags, tag)
	return nil
}

// Create implements pve.Disks.
func (s Disks) Create(ctx context.Context, d pve.Disk, size int64) error {
	s.b.wait(ctx, "Create")
	return s.put(ctx, "Create", d, &disk{size: size, own: true})
}

// Link implements pve.Disks.
func (s Disks) Link(ctx context.Context, base, d pve.Disk) error {
	s.b.wait(ctx, "Link")
	s.b.mu.Lock()
	img := s.b.disks[base.Path]
	s.b.mu.Unlock()
	if img == nil {
		return fmt.Errorf("link disk %s: base %s does not exist", d.Path, base.Path)
	}
	return s.put(ctx, "Link", d, &disk{size: img.size, base: base.Path})
}

// Copy implements pve.Disks.
func (s Disks) Copy(ctx context.Context, src pve.Disk, tag string, d pve.Disk) error {
	s.b.wait(ctx, "Copy")
	s.b.mu.Lock()
	img := s.b.disks[src.Path]
	var made *disk
	var err error
	switch {
	case img == nil:
		made, err = fromFile(src)
	case tag != "":
		kept, ok := img.tags[tag]
		if !ok {
			err = fmt.Errorf("copy disk %s: no snapshot %s", src.Path, tag)
		}
		made = &disk{size: kept.size, own: true, content: s.b.read(&kept)}
	default:
		made = &disk{size: img.size, own: true, content: s.b.read(img)}
	}
	s.b.mu.Unlock()
	if err != nil {
		return err
	}
	return s.put(ctx, "Copy", d, made)
}

// fromFile takes the size of a real image file; a qcow2's is in its header.
func fromFile(src pve.Disk) (*disk, error) {
	f, err := os.Open(src.Path)
	if err != nil {
		return nil, fmt.Errorf("copy disk: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("copy disk: %w", err)
	}
	head := make([]byte, 32)
	if n, _ := f.ReadAt(head, 0); n == len(head) && string(head[:4]) == "QFI\xfb" {
		return &disk{size: int64(binary.BigEndian.Uint64(head[24:])), own: true}, nil
	}
	return &disk{size: info.Size(), own: true}, nil
}

func (s Disks) put(ctx context.Context, method string, d pve.Disk, img *disk) error {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if err := s.b.enter(ctx, method); err != nil {
		return err
	}
	if s.b.disks[d.Path] != nil {
		return fmt.Errorf("create disk %s: it exists", d.Path)
	}
	img.tags = map[string]disk{}
	s.b.disks[d.Path] = img
	return nil
}

// Snapshot implements pve.Disks.
func (s Disks) Snapshot(ctx context.Context, d pve.Disk, tag string) error {
	s.b.wait(ctx, "Snapshot")
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if err := s.b.enter(ctx, "Snapshot"); err != nil {
		return err
	}
	return s.b.snapshot(d, tag)
}

// Revert implements pve.Disks.
func (s Disks) Revert(ctx context.Context, d pve.Disk, tag string) error {
	s.b.wait(ctx, "Revert")
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if err := s.b.enter(ctx, "Revert"); err != nil {
		return err
	}
	img := s.b.disks[d.Path]
	if img == nil {
		return fmt.Errorf("revert disk %s: it does not exist", d.Path)
	}
	kept, ok := img.tags[tag]
	if !ok {
		return fmt.Errorf("revert disk %s: no snapshot %s", d.Path, tag)
	}
	img.size, img.base, img.own, img.content = kept.size, kept.base, kept.own, kept.content
	return nil
}

// DeleteSnapshot implements pve.Disks.
func (s Disks) DeleteSnapshot(ctx context.Context, d pve.Disk, tag string) error {
	s.b.wait(ctx, "DeleteSnapshot")
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if err := s.b.enter(ctx, "DeleteSnapshot"); err != nil {
		return err
	}
	return s.b.deleteTag(d, tag)
}

// Resize implements pve.Disks.
func (s Disks) Resize(ctx context.Context, d pve.Disk, size int64) error {
	s.b.wait(ctx, "Resize")
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if err := s.b.enter(ctx, "Resize"); err != nil {
		return err
	}
	img := s.b.disks[d.Path]
	if img == nil {
		return fmt.Errorf("resize disk %s: it does not exist", d.Path)
	}
	img.size = size
	return nil
}

// Size implements pve.Disks.
func (s Disks) Size(_ context.Context, d pve.Disk) (virtual, used int64, err error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	img := s.b.disks[d.Path]
	if img == nil {
		if made, err := fromFile(d); err == nil {
			return made.size, made.size, nil
		}
		return 0, 0, fmt.Errorf("size of disk %s: it does not exist", d.Path)
	}
	return img.size, int64(len(img.content)), nil
}

// ISO implements pve.Disks.
func (s Disks) ISO(ctx context.Context, d pve.Disk, label string, files map[string][]byte) error {
	s.b.wait(ctx, "ISO")
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if err := s.b.enter(ctx, "ISO"); err != nil {
		return err
	}
	s.b.disks[d.Path] = &disk{size: 4 << 20, own: true, content: label, files: maps.Clone(files), tags: map[string]disk{}}
	return nil
}

// Remove implements pve.Disks.
func (s Disks) Remove(ctx context.Context, d pve.Disk) error {
	s.b.wait(ctx, "Remove")
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if err := s.b.enter(ctx, "Remove"); err != nil {
		return err
	}
	for path, other := range s.b.disks {
		if other.base == d.Path {
			return fmt.Errorf("remove disk %s: %s is linked to it", d.Path, path)
		}
	}
	delete(s.b.disks, d.Path)
	delete(s.b.states, d.Path)
	return nil
}
