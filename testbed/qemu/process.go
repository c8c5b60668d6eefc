package qemu

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// process is one running QEMU, started by us or by an owner before us.
type process struct {
	pid  int
	gone chan struct{} // closed when it has ended

	kill func() error
}

// ownProcess watches a child of ours.
func ownProcess(cmd *exec.Cmd) *process {
	p := &process{pid: cmd.Process.Pid, gone: make(chan struct{}), kill: cmd.Process.Kill}
	go func() {
		defer close(p.gone)
		_ = cmd.Wait() // how it ended is in its log; that it did is what matters
	}()
	return p
}

// adoptProcess watches a process that is not our child, by a pidfd: an id that
// is given to another process later is not mistaken for it. check is asked
// again once the pidfd is open, because only from then on is the id fixed.
func adoptProcess(pid int, check func() bool) (*process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	if !check() {
		_ = f.Close()
		return nil, fmt.Errorf("watch process %d: %w", pid, os.ErrProcessDone)
	}
	conn, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	p := &process{pid: pid, gone: make(chan struct{})}
	var once sync.Mutex
	p.kill = func() error {
		once.Lock()
		defer once.Unlock()
		select {
		case <-p.gone:
			return os.ErrProcessDone
		default:
			return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
	}
	go func() {
		// A pidfd becomes readable when its process ends.
		_ = conn.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0 || (err != nil && !errors.Is(err, unix.EINTR))
		})
		once.Lock()
		close(p.gone)
		_ = f.Close()
		once.Unlock()
	}()
	return p, nil
}

// running reports whether it still runs.
func (p *process) running() bool {
	select {
	case <-p.gone:
		return false
	default:
		return true
	}
}

// consoleLimit bounds each of the two files that a console is logged to.
const consoleLimit = 256 << 10

// logConsole copies the console to a file until it ends. When the file is full
// it becomes the older one and a new one is begun: a guest that writes without
// end costs two files of consoleLimit.
func logConsole(in io.Reader, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	size := 0
	buf := make([]byte, 16<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			if size+n > consoleLimit {
				if err := os.Rename(path, path+".old"); err != nil {
					return err
				}
				next, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
				if err != nil {
					return err
				}
				_ = f.Close()
				f, size = next, 0
			}
			if _, err := f.Write(buf[:n]); err != nil {
				return err
			}
			size += n
		}
		if err != nil {
			return nil // the process has ended
		}
	}
}

// logTail is the end of a log file, for errors.
func logTail(dir, name string) string {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > 8000 {
		if _, err := f.Seek(-8000, io.SeekEnd); err != nil {
			return ""
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, 8000))
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(strings.TrimSpace(string(data)), "\n", "; ")
}
