package zfs

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const mountTable = "/proc/self/mountinfo"

// mount is one line of the mount table.
type mount struct{ at, kind string }

// mountsIn reads a mount table (proc(5), mountinfo). A line that is cut short is
// left out: the kernel writes none.
func mountsIn(table string) []mount {
	plain := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var all []mount
	for line := range strings.Lines(table) {
		head, tail, _ := strings.Cut(line, " - ")
		f, g := strings.Fields(head), strings.Fields(tail)
		if len(f) < 5 || len(g) == 0 {
			continue
		}
		all = append(all, mount{at: plain.Replace(f[4]), kind: g[0]})
	}
	return all
}

// detach takes away every mount below the directory, also one that nobody serves
// any more. It does not look at what is mounted: that could hang.
func (c Config) detach() error {
	return detachThose(func(m mount) bool { return strings.HasPrefix(m.at, c.mounts()+"/") })
}

// detachDead takes away the mounts that killed daemons of other directories left: zfs
// finds mounts by the dataset alone, takes those of the same name for its own, and
// does not unmount its own beside one that it cannot open. One that somebody serves
// stays.
func detachDead() error {
	return detachThose(func(m mount) bool {
		var s unix.Statfs_t
		return m.kind == "fuse.zfs" && errors.Is(unix.Statfs(m.at, &s), unix.ENOTCONN)
	})
}

func detachThose(chosen func(mount) bool) error {
	table, err := os.ReadFile(mountTable)
	if err != nil {
		return fmt.Errorf("look for the lab's mounts: %w", err)
	}
	var fails []error
	for _, m := range mountsIn(string(table)) {
		if !chosen(m) {
			continue
		}
		if err := unix.Unmount(m.at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			fails = append(fails, fmt.Errorf("unmount %s: %w", m.at, err))
		}
	}
	return errors.Join(fails...)
}
