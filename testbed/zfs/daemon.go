package zfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const daemonName = "zfs-fuse"

// daemon looks for zfs-fuse on this machine: ours, which has the directory's pid
// file in its arguments, and any other. 0 = there is none.
func (c Config) daemon() (ours, foreign int, err error) {
	root := c.proc
	if root == "" {
		root = "/proc"
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return 0, 0, fmt.Errorf("look for zfs-fuse: %w", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// A process that has ended but was not waited for has no arguments.
		raw, err := os.ReadFile(filepath.Join(root, e.Name(), "cmdline"))
		args := strings.Split(string(raw), "\x00")
		if err != nil || filepath.Base(args[0]) != daemonName {
			continue
		}
		foreign = pid
		for _, a := range args[1:] {
			if a == c.pidFile() {
				ours = pid
			}
		}
		if ours == pid {
			return ours, 0, nil
		}
	}
	return 0, foreign, nil
}

// startDaemon returns when zfs-fuse answers: ours, that runs already, or a new one.
func (c Config) startDaemon(ctx context.Context) error {
	pid, foreign, err := c.daemon()
	switch {
	case err != nil:
		return err
	case foreign != 0:
		return &ForeignError{PID: foreign}
	case pid != 0:
		return c.ready(ctx, nil)
	}
	// What a killed one left would be in the way of the new one's mounts.
	if err := c.detach(); err != nil {
		return err
	}
	log, err := os.OpenFile(c.logFile(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start zfs-fuse: %w", err)
	}
	defer log.Close()
	// Its argument is its record, and is there from its first moment.
	cmd := exec.Command(filepath.Join("/usr/sbin", daemonName), "--no-kstat-mount", "--pidfile", c.pidFile(), "-n")
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, []string{"PATH=" + programs, "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start zfs-fuse: %w", err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = cmd.Wait() // how it ended is in its log
	}()
	err = os.WriteFile(c.pidFile(), []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o600)
	if err == nil {
		err = c.ready(ctx, gone)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start zfs-fuse: %w (log: %s)", err, c.logFile()), c.stopDaemon(context.WithoutCancel(ctx)))
	}
	return nil
}

// ready waits until the daemon answers.
func (c Config) ready(ctx context.Context, gone <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	poll := time.NewTicker(pollTime)
	defer poll.Stop()
	p := &Pool{c}
	for {
		_, err := p.once(ctx, "zpool", []string{"list", "-H", "-o", "name"})
		if err == nil {
			return nil
		}
		select {
		case <-gone:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", err)
		case <-poll.C:
		}
	}
}

// stopDaemon ends ours, kills it when that takes too long, and clears away what it
// left. Another's is not touched.
func (c Config) stopDaemon(ctx context.Context) error {
	pid, foreign, err := c.daemon()
	if err != nil {
		return err
	}
	if pid != 0 {
		if err := c.end(ctx, pid); err != nil {
			return fmt.Errorf("stop zfs-fuse (pid %d): %w", pid, err)
		}
	}
	if err := c.detach(); err != nil {
		return err
	}
	if foreign == 0 {
		_ = os.Remove(filepath.Join(runDir, "zfs_socket")) // a killed one's
	}
	if err := os.Remove(c.pidFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("stop zfs-fuse: %w", err)
	}
	return nil
}

// end signals by a pidfd, which is opened before the process is looked at again:
// so no other process with the same id is meant.
func (c Config) end(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	} else if err != nil {
		return err
	}
	defer unix.Close(fd)
	if again, _, err := c.daemon(); err != nil || again != pid {
		return err
	}
	signal := func(s unix.Signal) error {
		if err := unix.PidfdSendSignal(fd, s, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		return nil
	}
	if err := signal(unix.SIGTERM); err != nil {
		return err
	}
	patience := time.NewTimer(stopTime)
	defer patience.Stop()
	poll := time.NewTicker(pollTime)
	defer poll.Stop()
	killed := false
	for {
		// Readable: it has ended, or is no more than an entry in the table.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-patience.C:
			if killed {
				return errors.New("it cannot be killed")
			}
			killed = true
			if err := signal(unix.SIGKILL); err != nil {
				return err
			}
			patience.Reset(stopTime)
		case <-poll.C:
		}
	}
}
