package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"savepoint/testbed/notes"
)

// process is the record of the lab's process. The start time tells it apart
// from a later process with the same pid.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start,string"` // clock ticks after boot
}

func processFile(dir string) string { return filepath.Join(dir, "process.json") }

func recordProcess(dir string) error {
	start, err := notes.System.Started(os.Getpid())
	if err != nil {
		return err
	}
	raw, err := json.Marshal(process{PID: os.Getpid(), Start: start})
	if err != nil {
		return err
	}
	return notes.Write(processFile(dir), raw)
}

// message is one line that the starting process sends to the one that waits.
type message struct {
	Step  string  `json:"step,omitempty"`
	Error string  `json:"error,omitempty"`
	Ready *Status `json:"ready,omitempty"`
}

// Up makes sure that the lab runs: it starts exe with args as a background
// process of its own session and waits until that says it is ready. started is
// false if it ran already. The process gets its report pipe as descriptor 3
// and has to pass it to Serve. When ctx ends first the process is stopped.
func Up(ctx context.Context, dir, exe string, args []string, say func(string)) (st Status, started bool, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return st, false, fmt.Errorf("make the lab's directory: %w", err)
	}
	if st, err = Read(dir); err != nil || st.Running {
		return st, false, err
	}
	logFile, err := os.OpenFile(filepath.Join(dir, "lab.log"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return st, false, fmt.Errorf("start the lab: %w", err)
	}
	defer logFile.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return st, false, fmt.Errorf("start the lab: %w", err)
	}
	defer r.Close()
	cmd := exec.Command(exe, args...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = logFile, logFile, []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return st, false, fmt.Errorf("start the lab: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(unix.SIGTERM) })
	st, err = awaitReady(r, say)
	if err == nil && stop() {
		return st, true, cmd.Process.Release()
	}
	stop()
	_ = cmd.Process.Signal(unix.SIGTERM)
	_ = cmd.Wait()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return st, false, fmt.Errorf("start the lab: %w (log: %s)", err, logFile.Name())
}

func awaitReady(r io.Reader, say func(string)) (Status, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return Status{}, fmt.Errorf("unexpected report %q", lines.Text())
		}
		switch {
		case m.Error != "":
			return Status{}, errors.New(m.Error)
		case m.Ready != nil:
			return *m.Ready, nil
		default:
			say(m.Step)
		}
	}
	return Status{}, errors.New("it ended before it was ready")
}

// downTime is how long the lab gets to end its guests before it is killed.
const downTime = 60 * time.Second

// Down ends the lab and everything it started, also what a killed lab left.
// was tells whether it was running.
func Down(ctx context.Context, dir string) (was bool, err error) {
	was, err = held(dir)
	if err != nil {
		return was, err
	}
	if was {
		if err := end(ctx, dir, downTime); err != nil {
			return was, fmt.Errorf("stop the lab: %w", err)
		}
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return was, nil
	}
	return was, sweep(ctx, dir)
}

// end signals the process that holds the lock and waits for the lock. It kills
// a process that has not ended after patience.
func end(ctx context.Context, dir string, patience time.Duration) error {
	raw, err := os.ReadFile(processFile(dir))
	if err != nil {
		return fmt.Errorf("it runs but left no record of its pid: %w", err)
	}
	var p process
	if err := json.Unmarshal(raw, &p); err != nil {
		return fmt.Errorf("read %s: %w", processFile(dir), err)
	}
	other := false
	h, err := notes.Open(p.PID, func() bool {
		start, err := notes.System.Started(p.PID)
		other = err != nil || start != p.Start
		return !other
	})
	if other {
		return fmt.Errorf("%s is held, but pid %d is not the process that was recorded; it is left alone: find the holder and end it", lockFile(dir), p.PID)
	}
	if err != nil { // it is about to be gone
		return waitReleased(ctx, dir, nil, patience)
	}
	defer h.Close()
	if err := h.Signal(unix.SIGTERM); err != nil {
		return err
	}
	return waitReleased(ctx, dir, h, patience)
}

// waitReleased waits for the lock to be free and kills the process, once,
// when its time is over.
func waitReleased(ctx context.Context, dir string, h *notes.Handle, patience time.Duration) error {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		if running, err := held(dir); err != nil || !running {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			if h == nil {
				return errors.New("it does not end")
			}
			if err := h.Signal(unix.SIGKILL); err != nil {
				return err
			}
			h = nil
			deadline.Reset(5 * time.Second)
		case <-poll.C:
		}
	}
}
