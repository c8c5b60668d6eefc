package zfs

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"savepoint/testbed/notes"
)

const mountTable = "/proc/self/mountinfo"

// detach takes away every mount below the directory, also one that nobody serves
// any more. It does not look at what is mounted: that could hang.
func (c Config) detach() error {
	return detachThose(func(m notes.Mount) bool { return strings.HasPrefix(m.At, c.mounts()+"/") })
}

// detachDead takes away the mounts that killed daemons of other directories left: zfs
// finds mounts by the dataset alone, takes those of the same name for its own, and
// does not unmount its own beside one that it cannot open. One that somebody serves
// stays.
func detachDead() error {
	return detachThose(func(m notes.Mount) bool {
		var s unix.Statfs_t
		return m.Kind == "fuse.zfs" && errors.Is(unix.Statfs(m.At, &s), unix.ENOTCONN)
	})
}

func detachThose(chosen func(notes.Mount) bool) error {
	table, err := os.ReadFile(mountTable)
	if err != nil {
		return fmt.Errorf("look for the lab's mounts: %w", err)
	}
	var fails []error
	for _, m := range notes.Mounts(string(table)) {
		if !chosen(m) {
			continue
		}
		if err := unix.Unmount(m.At, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			fails = append(fails, fmt.Errorf("unmount %s: %w", m.At, err))
		}
	}
	return errors.Join(fails...)
}
