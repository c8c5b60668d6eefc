package gemini

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxOutput is how much of each stream of a program is kept.
const maxOutput = 1 << 20

// killGrace is the time between TERM and KILL, and how long output that a
// left-over holds open is waited for.
const killGrace = 3 * time.Second

// program is one run of a program in its own session.
type program struct {
	args     []string
	env      []string // all of it
	dir      string
	home     string // a directory of this run alone; it marks the run's processes
	terminal bool
	limit    time.Duration
	grace    time.Duration // between TERM and KILL; killGrace when 0
	// asks recognizes a question in what is on the terminal. Once it is there the
	// program gets hold to go on by itself.
	asks func(screen string) bool
	hold time.Duration
}

// ran is how a program ended.
type ran struct {
	exit    int // of a killed one how it answered TERM, or -1
	killed  bool
	seconds float64
	asked   float64 // seconds until the question was there, or 0
	out     string  // standard output, or everything on the terminal
	diag    string
	rss     int64 // of the largest process, KiB
}

// start starts the program. It must be called on the thread whose namespaces
// the program is to have; wait may be called anywhere.
func (p *program) start() (wait func(context.Context) (ran, error), err error) {
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = p.env, p.dir, killGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, diag := &bounded{asks: p.asks, asked: make(chan struct{})}, &bounded{}
	cmd.Stdout, cmd.Stderr = out, diag
	finish := func() {}
	var slave *os.File
	if p.terminal {
		var master *os.File
		if master, slave, err = openTerminal(); err != nil {
			return nil, err
		}
		defer slave.Close()
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr.Setctty = true
		var reading sync.WaitGroup
		reading.Go(func() { _, _ = io.Copy(out, master) }) // ends with an error when the last user is gone
		finish = func() { master.Close(); reading.Wait() }
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		finish()
		return nil, fmt.Errorf("start %s: %w", p.args[0], err)
	}
	return func(ctx context.Context) (ran, error) {
		r, err := p.await(ctx, cmd, began, out.asked)
		finish()
		r.out, r.diag = out.String(), diag.String()
		return r, err
	}, nil
}

// await waits for the end, or brings it about: at the limit, when a question
// stays unanswered, or when ctx ends.
func (p *program) await(ctx context.Context, cmd *exec.Cmd, began time.Time, asked <-chan struct{}) (ran, error) {
	var r ran
	limited, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	var hold <-chan time.Time
	for running := true; running; {
		select {
		case err = <-ended:
			running = false
		case <-asked:
			asked, r.asked = nil, time.Since(began).Seconds()
			timer := time.NewTimer(p.hold)
			defer timer.Stop()
			hold = timer.C
		case <-hold:
			cancel()
			hold = nil
		case <-limited.Done():
			r.killed, running = true, false
			err = stop(cmd.Process.Pid, cmp.Or(p.grace, killGrace), ended)
		}
	}
	r.seconds = time.Since(began).Seconds()
	// The leader is gone; its group may not be, and what it started in sessions
	// of their own is in no group of ours.
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	left := sweep(p.home)
	r.exit = cmd.ProcessState.ExitCode()
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.rss = u.Maxrss
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return r, fmt.Errorf("run %s: %w", p.args[0], err)
	}
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	return r, left
}

// stop ends a process group, first politely, and waits for its leader.
func stop(group int, grace time.Duration, ended <-chan error) error {
	_ = unix.Kill(-group, unix.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		_ = unix.Kill(-group, unix.SIGKILL)
		return <-ended
	}
}

// sweep kills every process that has home for its HOME, until there is none.
func sweep(home string) error {
	mark := append([]byte("HOME="+home), 0)
	for range 100 {
		found := false
		dirs, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			return err
		}
		for _, d := range dirs {
			pid, err := strconv.Atoi(filepath.Base(d))
			if err != nil {
				continue
			}
			fd, err := unix.PidfdOpen(pid, 0) // before it is looked at: a number may be taken again
			if err != nil {
				continue
			}
			env, err := os.ReadFile(filepath.Join(d, "environ"))
			if err == nil && (bytes.HasPrefix(env, mark) || bytes.Contains(env, append([]byte{0}, mark...))) {
				found = true
				_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
				waitGone(fd)
			}
			unix.Close(fd)
		}
		if !found {
			return nil
		}
	}
	return fmt.Errorf("processes of the Gemini CLI with HOME %s do not end; kill them", home)
}

// waitGone waits a moment until the process of a pidfd has ended.
func waitGone(fd int) {
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
}

// bounded keeps the first maxOutput bytes that are written to it, and watches
// for a question in them.
type bounded struct {
	asks  func(string) bool
	asked chan struct{} // closed once

	mu   sync.Mutex
	buf  bytes.Buffer
	seen bool
}

func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf.Write(p[:min(len(p), maxOutput-b.buf.Len())])
	if b.asks != nil && !b.seen && b.asks(b.buf.String()) {
		b.seen = true
		close(b.asked)
	}
	return len(p), nil
}

func (b *bounded) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
