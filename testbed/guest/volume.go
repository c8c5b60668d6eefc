package guest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"savepoint/orchestrator/sshexec"
)

// Volume returns an image of the workspace volume: a qcow2 disk of that size
// with the empty ext4 that guests look for. A template whose guest is built here
// is complete with it and need not be booted to make one. It is kept in the
// cache; never write to it.
func Volume(ctx context.Context, cacheDir string, size int64) (string, error) {
	return volume(ctx, cacheDir, size, "volume-1", mkfsExt4)
}

// BtrfsVolume is Volume with a btrfs, whose snapshots the guest itself takes. Two
// that are built apart are not equal byte for byte.
func BtrfsVolume(ctx context.Context, cacheDir string, size int64) (string, error) {
	return volume(ctx, cacheDir, size, "volume-btrfs-1", mkfsBtrfs)
}

// mkfsExt4 does it at once and not bit by bit later, which every clone would do
// for itself.
var mkfsExt4 = []string{"mkfs.ext4", "-q", "-F", "-L", sshexec.WorkspaceLabel, "-U", volumeUUID, "-m", "0",
	"-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard,hash_seed=" + volumeUUID}

// mkfsBtrfs has data and metadata share their space: room that is kept back, so
// that a full volume can be rolled back, serves for both.
var mkfsBtrfs = []string{"mkfs.btrfs", "-q", "--mixed", "--metadata", "single", "-L", sshexec.WorkspaceLabel}

func volume(ctx context.Context, cacheDir string, size int64, kind string, mkfs []string) (string, error) {
	if size < 16*mib || size%mib != 0 {
		return "", fmt.Errorf("build workspace volume: %d bytes: it must be whole MiB, and 16 at least", size)
	}
	dir, err := filepath.Abs(cacheDir)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", fmt.Errorf("build workspace volume: %w", err)
	}
	final := filepath.Join(dir, fmt.Sprintf("%s-%d.qcow2", kind, size/mib))
	if st, err := os.Stat(final); err == nil && st.Size() > 0 {
		return final, nil
	}
	b := &build{opts: Options{CacheDir: dir}}
	unlock, err := b.lock(ctx)
	if err != nil {
		return "", fmt.Errorf("build workspace volume: %w", err)
	}
	defer unlock()
	if err := b.volume(ctx, final, size, mkfs); err != nil {
		return "", fmt.Errorf("build workspace volume: %w", err)
	}
	return final, nil
}

// volumeUUID makes equal volumes equal byte for byte; guests go by the label.
const volumeUUID = "5a7e9017-7c1e-5e0f-8a3d-737061636531"

func (b *build) volume(ctx context.Context, final string, size int64, mkfs []string) (err error) {
	if b.dir, err = os.MkdirTemp(b.opts.CacheDir, "work-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	raw, disk := filepath.Join(b.dir, "volume.raw"), filepath.Join(b.dir, "volume.qcow2")
	if err := os.WriteFile(raw, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(raw, size); err != nil {
		return err
	}
	env := []string{"E2FSPROGS_FAKE_TIME=" + itoa(int(epoch.Unix()))}
	for _, args := range [][]string{
		append(slices.Clip(mkfs), raw),
		{"qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, disk},
	} {
		if err := b.run(ctx, env, args...); err != nil {
			return err
		}
	}
	if err := syncFile(disk); err != nil {
		return err
	}
	if err := os.Rename(disk, final); err != nil {
		return err
	}
	return syncDir(b.opts.CacheDir)
}
