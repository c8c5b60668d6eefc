package zfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"savepoint/testbed/notes"
)

const daemonName = "zfs-fuse"

// daemon looks for zfs-fuse on this machine: ours, which has the directory's pid
// file in its arguments, and any other. 0 = there is none.
func (c Config) daemon() (ours, foreign int, err error) {
	proc := notes.Proc(cmp.Or(c.proc, string(notes.System)))
	pids, err := proc.PIDs()
	if err != nil {
		return 0, 0, fmt.Errorf("look for zfs-fuse: %w", err)
	}
	for _, pid := range pids {
		args := proc.Args(pid)
		if len(args) == 0 || filepath.Base(args[0]) != daemonName {
			continue
		}
		if slices.Contains(args[1:], c.pidFile()) {
			return pid, 0, nil
		}
		foreign = pid
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
	if err := errors.Join(c.detach(), detachDead()); err != nil {
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

// end ends the process if it still is ours, so that no other one with the same
// id is meant.
func (c Config) end(ctx context.Context, pid int) error {
	var lookErr error
	h, err := notes.Open(pid, func() bool {
		again, _, err := c.daemon()
		lookErr = err
		return again == pid
	})
	if lookErr != nil || errors.Is(err, os.ErrProcessDone) {
		return lookErr
	}
	if err != nil {
		return err
	}
	defer h.Close()
	return h.End(ctx, stopTime)
}
