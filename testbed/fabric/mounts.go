package fabric

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"savepoint/testbed/notes"
	"savepoint/testbed/thread"
)

// mounts is a mount namespace for a node's daemons. In it /run/netns holds the
// node's zones and nothing else: zebra takes each entry there for a VRF, and
// would otherwise enter every namespace of the machine.
type mounts struct{ ns *os.File }

// keep are the paths that FRR's daemons need. What is mounted elsewhere is
// detached, so that nobody's file system stays busy because of us.
var keep = []string{"/proc", "/dev", "/sys", "/etc", "/lib", "/usr/lib/frr", "/usr/sbin", "/usr/share", "/run", "/var/run", netnsDir}

// newMounts makes the mount namespace; runDir stays visible in it.
func newMounts(runDir string) (*mounts, error) {
	m := &mounts{}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
			return err
		}
		info, err := os.ReadFile("/proc/thread-self/mountinfo")
		if err != nil {
			return err
		}
		for _, at := range strangers(string(info), append(keep, runDir)) {
			_ = unix.Unmount(at, unix.MNT_DETACH) // gone with one above it, if it fails
		}
		for unix.Unmount(netnsDir, unix.MNT_DETACH) == nil { // every layer
		}
		if err := unix.Mount("tmpfs", netnsDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=1m,mode=755"); err != nil {
			return err
		}
		// FRR leaves crash logs of killed daemons in /var/tmp.
		if err := unix.Mount("tmpfs", "/var/tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=16m,mode=1777"); err != nil {
			return err
		}
		m.ns, err = os.Open("/proc/thread-self/ns/mnt")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make a mount namespace for routing daemons: %w", err)
	}
	return m, nil
}

// strangers lists the mounts that hold none of the paths to keep.
func strangers(mountinfo string, keep []string) []string {
	var out []string
	for _, m := range notes.Mounts(mountinfo) {
		needed := false
		for _, k := range keep {
			needed = needed || m.At == "/" || k == m.At || strings.HasPrefix(k, m.At+"/")
		}
		if !needed {
			out = append(out, m.At)
		}
	}
	return out
}

// onThread runs f on a thread of its own that ends afterwards, because what f
// does to it cannot be undone.
func onThread(f func() error) error {
	done := make(chan error, 1)
	thread.Go(func() { // and never unlocked
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			done <- err
			return
		}
		done <- f()
	})
	return <-done
}

// within runs f on a thread that is in the mount namespace.
func (m *mounts) within(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(m.ns.Fd()), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("enter mount namespace: %w", err)
		}
		return f()
	})
}

// publish shows a network namespace to the daemons under a name.
func (m *mounts) publish(ns, name string) error {
	src, err := os.Open(nsPath(ns))
	if err != nil {
		return err
	}
	defer src.Close()
	err = m.within(func() error {
		at := filepath.Join(netnsDir, name)
		if err := os.WriteFile(at, nil, 0o444); err != nil {
			return err
		}
		return unix.Mount(fmt.Sprintf("/proc/self/fd/%d", src.Fd()), at, "", unix.MS_BIND, "")
	})
	if err != nil {
		return fmt.Errorf("show namespace %s to zebra: %w", ns, err)
	}
	return nil
}

// hide takes it away again. It can be repeated.
func (m *mounts) hide(name string) error {
	err := m.within(func() error {
		at := filepath.Join(netnsDir, name)
		_ = unix.Unmount(at, unix.MNT_DETACH) // not mounted, if it fails
		if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("hide %s from zebra: %w", name, err)
	}
	return nil
}

func (m *mounts) close() error {
	if m == nil || m.ns == nil {
		return nil
	}
	return m.ns.Close()
}
