package gemini

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"savepoint/testbed/thread"
)

// Isolation says what a run could reach.
type Isolation string

// The kinds of isolation.
const (
	// Namespace: a network namespace with loopback alone, and a mount namespace
	// in which nothing but the run's own directory can be written.
	Namespace Isolation = "namespace"
	// ClosedProxy: proxies set to a port of loopback where nobody listens. It
	// keeps a well-behaved client off the network, and no other.
	ClosedProxy Isolation = "closed-proxy"
)

// Text says exactly what holds a run, and what does not.
func (i Isolation) Text() string {
	switch i {
	case Namespace:
		return "a network namespace of its own that has loopback and no other interface, hence no route to anywhere, and a mount namespace in which every file system is read-only but for the directory of the run. It keeps root's account, capabilities and view of processes, and can read the machine's files: against a program that sets out to break out these two are no boundary"
	case ClosedProxy:
		return "nothing but variables that lead proxies to a closed port of loopback: a program that does not heed them reaches the network, and it can write whatever the account can. No model is there, so no command of one is run"
	case Guest:
		return "the sandbox's virtual machine, by the account agent: what it writes is within the boundary of the transaction, its network is the sandbox's zone, and of the machine that runs the experiment it reaches one port, the stand-in model's, through the sandbox's SSH connection. The key that it has is a placeholder"
	}
	return ""
}

// inNamespace runs f on a thread that is in namespaces of its own: a network
// with loopback alone, and the machine's files read-only but for dir. Sockets
// that f opens and programs that it starts stay there; f must not hand work to
// other goroutines. The thread ends afterwards, and the namespaces end with the
// last program and socket in them: nothing has to be cleaned up.
func inNamespace(dir string, f func() error) error {
	done := make(chan error, 1)
	thread.Go(func() {
		if err := separate(dir); err != nil {
			done <- fmt.Errorf("make namespaces for the Gemini CLI: %w", err)
			return
		}
		done <- f()
	})
	return <-done
}

func separate(dir string) error {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	readOnly := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &readOnly); err != nil {
		return fmt.Errorf("make the machine's files read-only: %w", err)
	}
	writable := unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, dir, 0, &writable); err != nil {
		return fmt.Errorf("make %s writable: %w", dir, err)
	}
	return loopbackUp()
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("bring loopback up: %w", err)
	}
	return nil
}

// closedPort takes a port of loopback at which nobody listens, and nobody can
// while it is held. release gives it back.
func closedPort() (address string, release func(), err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, err
	}
	release = func() { _ = unix.Close(fd) }
	if err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		release()
		return "", nil, fmt.Errorf("take a closed port of loopback: %w", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		release()
		return "", nil, err
	}
	return fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port), release, nil
}

// openTerminal makes a pseudo-terminal: master is ours, slave the program's.
func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a pseudo-terminal: %w", err)
	}
	defer func() {
		if err != nil {
			master.Close()
		}
	}()
	conn, err := master.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	var n int
	var ioctl error
	err = conn.Control(func(fd uintptr) {
		if ioctl = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); ioctl != nil {
			return
		}
		if n, ioctl = unix.IoctlGetInt(int(fd), unix.TIOCGPTN); ioctl != nil {
			return
		}
		ioctl = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120})
	})
	if err == nil {
		err = ioctl
	}
	if err != nil {
		return nil, nil, fmt.Errorf("set up a pseudo-terminal: %w", err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a pseudo-terminal: %w", err)
	}
	return master, slave, nil
}
