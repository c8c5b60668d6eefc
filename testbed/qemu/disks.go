package qemu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/pve"
)

// Images makes and changes image files with qemu-img; it implements pve.Disks.
// A call that is interrupted may leave an unfinished file under a name ending
// in ".part", which the next call for that disk replaces.
type Images struct {
	path string
}

var _ pve.Disks = (*Images)(nil)

// NewImages looks for qemu-img; program is its path, "" for the one in PATH.
func NewImages(program string) (*Images, error) {
	if program == "" {
		program = "qemu-img"
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("find qemu-img: %w (%v); install qemu-utils", orchestrator.ErrUnavailable, err)
	}
	return &Images{path: path}, nil
}

// run runs qemu-img and returns its output; what it says is in the error.
func (im *Images) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, im.path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("qemu-img %s: %w (%w)", args[0], orchestrator.ErrUnknownOutcome, ctx.Err())
		}
		return nil, classify(args[0], strings.TrimSpace(stderr.String()), err)
	}
	return stdout.Bytes(), nil
}

// classify gives qemu-img's refusal its class.
func classify(op, text string, err error) error {
	if text == "" {
		text = err.Error()
	}
	text = strings.TrimPrefix(text, "qemu-img: ")
	class := orchestrator.ErrUnavailable
	switch {
	case strings.Contains(text, "No such file"), strings.Contains(text, "snapshot not found"), strings.Contains(text, "Can't find"), strings.Contains(text, "does not exist"):
		class = orchestrator.ErrNotFound
	case strings.Contains(text, `Failed to get "write" lock`), strings.Contains(text, `Failed to get shared "write" lock`):
		class = orchestrator.ErrBusy
	case strings.Contains(text, "exists"):
		class = orchestrator.ErrExists
	}
	return fmt.Errorf("qemu-img %s: %w: %s", op, class, strings.ReplaceAll(text, "\n", "; "))
}

// fresh refuses to write over a file and makes its directory.
func fresh(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("disk %s: the path is not absolute", path)
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("disk %s: %w", path, orchestrator.ErrExists)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("disk %s: %w", path, err)
	}
	return os.MkdirAll(filepath.Dir(path), 0o700)
}

// make runs fn for a temporary name and renames: a file under the final name
// is complete.
func (im *Images) make(d pve.Disk, fn func(path string) error) error {
	if err := fresh(d.Path); err != nil {
		return err
	}
	part := d.Path + ".part"
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := fn(part); err != nil {
		_ = os.Remove(part)
		return err
	}
	return os.Rename(part, d.Path)
}

func checkFormat(d pve.Disk) error {
	if d.Format != "qcow2" && d.Format != "raw" {
		return fmt.Errorf("disk %s: format %q is neither qcow2 nor raw", d.Path, d.Format)
	}
	return nil
}

// Create makes an empty disk of size bytes.
func (im *Images) Create(ctx context.Context, d pve.Disk, size int64) error {
	if err := checkFormat(d); err != nil {
		return err
	}
	return im.make(d, func(path string) error {
		_, err := im.run(ctx, "create", "-q", "-f", d.Format, path, strconv.FormatInt(size, 10))
		return err
	})
}

// Link makes d a copy-on-write child of base; d must be qcow2.
func (im *Images) Link(ctx context.Context, base, d pve.Disk) error {
	if d.Format != "qcow2" {
		return fmt.Errorf("link %s: a copy-on-write child must be qcow2, not %q", d.Path, d.Format)
	}
	if err := checkFormat(base); err != nil {
		return err
	}
	return im.make(d, func(path string) error {
		_, err := im.run(ctx, "create", "-q", "-f", "qcow2", "-F", base.Format, "-b", base.Path, path)
		return err
	})
}

// Copy copies src, or its snapshot tag, to d. Only a snapshot may be read while
// a VM writes the image: it does not change.
func (im *Images) Copy(ctx context.Context, src pve.Disk, tag string, d pve.Disk) error {
	if err := errors.Join(checkFormat(src), checkFormat(d)); err != nil {
		return err
	}
	args := []string{"convert", "-f", src.Format, "-O", d.Format}
	if tag != "" {
		if src.Format != "qcow2" {
			return rawError(src)
		}
		if strings.ContainsAny(tag, ",=") {
			return fmt.Errorf("copy %s: snapshot name %q is not valid", src.Path, tag)
		}
		args = append(args, "-U", "-l", "snapshot.name="+tag)
	}
	return im.make(d, func(path string) error {
		_, err := im.run(ctx, append(args, src.Path, path)...)
		return err
	})
}

func rawError(d pve.Disk) error {
	return &orchestrator.UnsupportedError{
		What: fmt.Sprintf("disk %s is raw and cannot hold snapshots", d.Path),
		Mend: "use a qcow2 disk, or a storage that takes the snapshots itself",
	}
}

// Snapshot takes an internal snapshot of a disk that no VM has open.
func (im *Images) Snapshot(ctx context.Context, d pve.Disk, tag string) error {
	return im.snapshot(ctx, "-c", d, tag)
}

// Revert makes the disk what it was at the snapshot. The snapshot stays.
func (im *Images) Revert(ctx context.Context, d pve.Disk, tag string) error {
	return im.snapshot(ctx, "-a", d, tag)
}

// DeleteSnapshot removes a snapshot of a disk that no VM has open.
func (im *Images) DeleteSnapshot(ctx context.Context, d pve.Disk, tag string) error {
	return im.snapshot(ctx, "-d", d, tag)
}

func (im *Images) snapshot(ctx context.Context, op string, d pve.Disk, tag string) error {
	if d.Format != "qcow2" {
		return rawError(d)
	}
	if tag == "" || strings.HasPrefix(tag, "-") {
		return fmt.Errorf("disk %s: snapshot name %q is not valid", d.Path, tag)
	}
	_, err := im.run(ctx, "snapshot", "-q", op, tag, d.Path)
	return err
}

// Resize grows the disk to size bytes; smaller is refused.
func (im *Images) Resize(ctx context.Context, d pve.Disk, size int64) error {
	if err := checkFormat(d); err != nil {
		return err
	}
	_, err := im.run(ctx, "resize", "-q", "-f", d.Format, d.Path, strconv.FormatInt(size, 10))
	return err
}

// Size returns the disk's size as the guest sees it and the bytes it takes.
func (im *Images) Size(ctx context.Context, d pve.Disk) (virtual, used int64, err error) {
	if err := checkFormat(d); err != nil {
		return 0, 0, err
	}
	// Reading the header of an image in use is safe: sizes only grow.
	out, err := im.run(ctx, "info", "-U", "--output=json", "-f", d.Format, d.Path)
	if err != nil {
		return 0, 0, err
	}
	var info struct {
		Virtual int64 `json:"virtual-size"`
		Actual  int64 `json:"actual-size"`
	}
	if err := json.Unmarshal(out, &info); err != nil {
		return 0, 0, fmt.Errorf("qemu-img info %s: answer not understood: %w", d.Path, err)
	}
	return info.Virtual, info.Actual, nil
}

// ISO writes the cloud-init drive, replacing an older one as a whole: its
// content changes with the VM's configuration. Its modes keep it to its owner,
// because it may hold a password hash.
func (im *Images) ISO(ctx context.Context, d pve.Disk, label string, files map[string][]byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	img, err := isoImage(label, files)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(d.Path), 0o700); err != nil {
		return err
	}
	part := d.Path + ".part"
	if err := os.WriteFile(part, img, 0o600); err != nil {
		return err
	}
	return os.Rename(part, d.Path)
}

// Remove deletes the image file; one that is not there is no error.
func (im *Images) Remove(ctx context.Context, d pve.Disk) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, p := range []string{d.Path, d.Path + ".part"} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove disk: %w", err)
		}
	}
	return nil
}
