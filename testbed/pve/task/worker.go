package task

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Why a worker's context ended.
var (
	// ErrInterrupted: somebody stopped the task. The worker may clean up.
	ErrInterrupted = errors.New("received interrupt")
	// ErrKilled: the worker is gone. It must change nothing any more.
	ErrKilled = errors.New("worker killed")
)

// Worker is what the code of a task works with.
type Worker struct {
	UPID UPID

	ctx    context.Context
	cancel context.CancelCauseFunc
	reg    *Registry
	task   *entry

	mu       sync.Mutex
	warnings int
}

// Context ends when the task is interrupted or killed; context.Cause says which.
func (w *Worker) Context() context.Context { return w.ctx }

// Alive is false once the worker was killed.
func (w *Worker) Alive() bool { return !errors.Is(context.Cause(w.ctx), ErrKilled) }

// Log adds a line to the task's log.
func (w *Worker) Log(format string, args ...any) {
	if w.Alive() {
		w.reg.appendLog(w.task, fmt.Sprintf(format, args...))
	}
}

// Warn logs a warning; the task will end with "WARNINGS: n" if it ends well.
func (w *Worker) Warn(format string, args ...any) {
	w.mu.Lock()
	w.warnings++
	w.mu.Unlock()
	w.Log("WARN: "+format, args...)
}

// Step marks a point that tests can make fail, hang or kill. It returns the
// error that the worker must return.
func (w *Worker) Step(name string) error {
	if err := context.Cause(w.ctx); err != nil {
		return err
	}
	if hook := w.reg.hook; hook != nil {
		switch act := hook(w.UPID, name); {
		case act.Kill:
			w.reg.end(w.task, "", false)
			w.cancel(ErrKilled)
		case act.Hang:
			<-w.ctx.Done()
		case act.Fail != "":
			return errors.New(act.Fail)
		}
	}
	return context.Cause(w.ctx)
}

// Action is what a hook wants to happen at a step; the zero value is nothing.
type Action struct {
	Fail string // end the task with this error
	Hang bool   // until it is interrupted or killed
	Kill bool   // the worker is gone, as by SIGKILL
}

// Hook is asked at every step of every task. It may block.
type Hook func(u UPID, step string) Action

// outcome turns what the worker's code returned into the exit status.
func (w *Worker) outcome(err error) string {
	cause := context.Cause(w.ctx)
	switch {
	case err == nil && w.warnings > 0:
		return fmt.Sprintf("WARNINGS: %d", w.warnings)
	case err == nil:
		return "OK"
	case errors.Is(cause, ErrInterrupted) && (errors.Is(err, context.Canceled) || err.Error() == cause.Error()):
		return ErrInterrupted.Error()
	}
	return strings.ReplaceAll(strings.TrimRight(err.Error(), "\n"), "\n", " ")
}
