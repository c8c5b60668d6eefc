package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// execFlags are the choices of one step.
type execFlags struct {
	ref       txRef
	as        string
	timeout   time.Duration
	dir       string
	env       []string
	key       string
	grants    []string
	stdin     bool
	propagate bool
	checks    guardFlags
}

func newTxExec(a *app) *cobra.Command {
	var f execFlags
	c := &cobra.Command{
		Use: "exec TX [flags] -- COMMAND", Short: "Run one command in an open transaction", Args: f.ref.args(1, -1),
		Long: "Judges the command and runs it, without a new snapshot. The transaction's own, or\n" +
			"its newest savepoint's, has to cover what the command may do. It begins where the\n" +
			"step before ended.\n\n" +
			"  exit code 0   it ran and the transaction goes on, whatever the command's own\n" +
			"                exit code: with --on-failure keep also a failed one. --propagate\n" +
			"                exits with the command's own code then (128+n for signal n).\n" +
			"  3             it was denied; nothing ran and the transaction goes on\n" +
			"  4             it failed, or its end is not known: everything is rolled back\n" +
			"  130           interrupted, and everything is rolled back",
		RunE: func(c *cobra.Command, args []string) error {
			ref, words, err := f.ref.split(c, args)
			if err != nil {
				return err
			}
			spec, err := f.spec(strings.Join(words, " "))
			if err != nil {
				return err
			}
			s, err := a.open(c.Context())
			if err != nil {
				return err
			}
			x, err := s.resume(c.Context(), ref, f.key)
			if err != nil {
				return err
			}
			return s.exec(c.Context(), x, spec, &f)
		},
	}
	fl := c.Flags()
	f.ref.add(c)
	fl.StringVar(&f.as, "as", "", "who runs it: agent or root (default: as the transaction was begun)")
	addSpan(fl, &f.timeout, "timeout", 0, "end the command and all it started after this long (default from the configuration: 10m)")
	fl.StringVar(&f.dir, "dir", "", "working directory (default: where the step before ended)")
	fl.StringArrayVar(&f.env, "env", nil, "NAME=VALUE for this command alone; can be repeated")
	fl.StringVar(&f.key, "key", "", "the second step with this key returns the first one's result and runs nothing")
	fl.StringArrayVar(&f.grants, "grant", nil, "lift this rule for this one command; can be repeated")
	fl.BoolVar(&f.stdin, "stdin", false, "give our standard input to the command")
	fl.BoolVar(&f.propagate, "propagate", false, "exit with the command's own exit code when the transaction goes on")
	f.checks.register(fl)
	return c
}

func (f *execFlags) spec(command string) (orchestrator.StepSpec, error) {
	env, err := environment("tx exec", f.env)
	return orchestrator.StepSpec{
		Command: command, As: policy.User(f.as), Validate: f.checks.validations(), Timeout: f.timeout, Env: env, Dir: f.dir,
		Grants: f.grants, Guard: f.checks.guard, Key: f.key,
	}, err
}

// exec runs the step. In text form its output is passed on as it comes.
func (s *session) exec(ctx context.Context, x *orchestrator.Tx, spec orchestrator.StepSpec, f *execFlags) error {
	a := s.app
	p := s.narrate()
	defer p.stop()
	if f.stdin {
		spec.Stdin = a.stdin
	}
	out, errs := &passOn{p: p, w: a.out}, &passOn{p: p, w: a.err}
	if a.format == formatText {
		spec.Stdout, spec.Stderr = out, errs
	}
	said := context.AfterFunc(ctx, func() { p.note("savepoint: interrupted; rolling the transaction back, please wait") })
	o, err := x.Exec(ctx, spec)
	said()
	p.stop()
	if a.format == formatText && !o.Replayed { // it was passed on, all of it
		o.Stdout, o.Stderr, o.Truncated = "", "", false
	}
	err = a.ended(ctx, x, o, err, stepCode(o, f.propagate))
	var printed outcomeError
	if werr := cmp.Or(out.err, errs.err); werr != nil && (err == nil || errors.As(err, &printed)) {
		return werr
	}
	return err
}

// passOn writes a command's output to ours as it comes. It may be called by
// several goroutines.
type passOn struct {
	p *progress
	w io.Writer

	mu  sync.Mutex
	err error // the first one
}

func (w *passOn) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	w.p.clear()
	n, err := w.w.Write(b)
	w.err = err
	return n, err
}

// stepCode is the exit code of a step.
func stepCode(o orchestrator.Outcome, propagate bool) int {
	if o.State != orchestrator.StateOpen {
		return outcomeCode(o)
	}
	switch {
	case !propagate || o.ExitCode == nil:
		return exitDone
	case *o.ExitCode >= 0:
		return *o.ExitCode
	case unix.SignalNum("SIG"+o.Signal) > 0:
		return 128 + int(unix.SignalNum("SIG"+o.Signal))
	default:
		return 128
	}
}
