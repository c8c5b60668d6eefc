package notes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Handle is a process that is held by a pidfd: its id cannot become another
// process's. Close it.
type Handle struct {
	pid int
	fd  int
}

// Open holds the process with this id. still is asked once the pidfd is open,
// whether that is the one that is meant; when it is not, or is gone, the error
// is os.ErrProcessDone.
func Open(pid int, still func() bool) (*Handle, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		err = os.ErrProcessDone
	}
	if err != nil {
		return nil, fmt.Errorf("hold process %d: %w", pid, err)
	}
	if !still() {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("hold process %d: %w", pid, os.ErrProcessDone)
	}
	return &Handle{pid: pid, fd: fd}, nil
}

// Close lets the process go; it runs on.
func (h *Handle) Close() error { return unix.Close(h.fd) }

// Signal sends a signal; none to a process that has ended.
func (h *Handle) Signal(s unix.Signal) error {
	if err := unix.PidfdSendSignal(h.fd, s, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", h.pid, err)
	}
	return nil
}

// pollTime is how long one look at a process waits for its end.
const pollTime = 50 * time.Millisecond

// Wait returns when the process has ended, waited for by its parent or not, or
// with ctx.
func (h *Handle) Wait(ctx context.Context) error {
	for {
		// A pidfd becomes readable when its process ends.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}}, int(pollTime/time.Millisecond))
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process %d: %w", h.pid, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// killTime bounds the end of a process that was killed: it may sit in the kernel.
const killTime = 10 * time.Second

// End asks the process to end, kills it when it has not after patience, and
// returns once it is gone. Without patience it is killed at once.
func (h *Handle) End(ctx context.Context, patience time.Duration) error {
	if patience > 0 {
		if err := h.Signal(unix.SIGTERM); err != nil {
			return err
		}
		switch err := h.wait(ctx, patience); {
		case err == nil:
			return nil
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return err
		}
	}
	if err := h.Signal(unix.SIGKILL); err != nil {
		return err
	}
	err := h.wait(ctx, killTime)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("process %d was killed %s ago and has not ended", h.pid, killTime)
	}
	return err
}

func (h *Handle) wait(ctx context.Context, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return h.Wait(ctx)
}
