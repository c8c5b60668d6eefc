package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/orchestrator/journal"
	"savepoint/orchestrator/sshexec"
)

// The exit codes are a contract: scripts rely on them. They are listed in
// savepoint --help and in the README.
const (
	exitDone        = 0   // committed, or done
	exitInternal    = 1   // an error of savepoint itself
	exitUsage       = 2   // wrong usage or configuration
	exitDenied      = 3   // the policy denied the command
	exitRolledBack  = 4   // the transaction was rolled back
	exitStuck       = 5   // an operator is needed
	exitHeld        = 6   // another instance holds the journal
	exitUnusable    = 7   // the cluster cannot be used
	exitInterrupted = 130 // interrupted, and rolled back
)

func main() {
	interrupts := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup asks us to go on
		interrupts = append(interrupts, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), interrupts...)
	// A reader of our output that went away ("| tee", ended by the same Ctrl-C)
	// must not end us in the middle of a rollback: writing then just fails.
	// Caught, not ignored, so that programs we start do not inherit it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	code := Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Run is the whole program but for the process: it returns the exit code.
// Cancelling ctx is what an interrupt does.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, out: &pipe{to: stdout}, err: &pipe{to: stderr}, getenv: os.Getenv}
	cmd := newRoot(a)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if cerr := a.close(); err == nil {
		err = cerr
	}
	if err == nil {
		return exitDone
	}
	code, quiet := exitCode(ctx, err)
	if !quiet {
		fmt.Fprintf(a.err, "savepoint: %s\n", printable(err.Error()))
	}
	return code
}

// outcomeError carries the exit code of a result that was already printed.
type outcomeError struct{ code int }

func (e outcomeError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// exitWith ends the program with the code of a result that was printed.
func exitWith(code int) error {
	if code == exitDone {
		return nil
	}
	return outcomeError{code}
}

// openError says that a transaction was left open: it is neither committed nor
// rolled back, also when the user interrupted it.
type openError struct {
	tx  orchestrator.TxID
	err error
}

func (e openError) Error() string {
	return fmt.Sprintf("%v; transaction %s is open: savepoint recover settles it", e.err, e.tx)
}
func (e openError) Unwrap() error { return e.err }

// usageError marks what the caller of the program did wrong.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// named makes it a usage error that something the user named was not found.
func named(err error) error {
	if errors.Is(err, orchestrator.ErrNotFound) {
		return usageError{err}
	}
	return err
}

// exitCode is the one place where an error becomes an exit code. quiet says
// that the user has been told already.
func exitCode(ctx context.Context, err error) (code int, quiet bool) {
	var (
		done        outcomeError
		usage       usageError
		held        *journal.HeldError
		config      *configs.Error
		unsupported *orchestrator.UnsupportedError
		refused     *orchestrator.UsageError
		directory   *sshexec.DirectoryError
		stuck       *orchestrator.StuckError
		newer       *orchestrator.NotLatestError
		open        openError
		begun       *orchestrator.OpenError
		record      *orchestrator.JournalError
	)
	switch {
	case errors.As(err, &done):
		return done.code, true
	case errors.As(err, &held):
		return exitHeld, false
	case errors.As(err, &usage), errors.As(err, &config), errors.As(err, &refused), errors.As(err, &begun),
		errors.As(err, &directory) && !errors.As(err, &open):
		return exitUsage, false
	case errors.As(err, &stuck):
		return exitStuck, false
	case ctx.Err() != nil && !errors.As(err, &open):
		return exitInterrupted, false
	case errors.As(err, &record): // whatever its class: the cluster is not to blame
		return exitInternal, false
	case errors.As(err, &unsupported),
		errors.As(err, &newer),
		errors.Is(err, orchestrator.ErrUnavailable),
		errors.Is(err, orchestrator.ErrDenied),
		errors.Is(err, orchestrator.ErrBusy),
		errors.Is(err, orchestrator.ErrUnknownOutcome),
		errors.Is(err, orchestrator.ErrNotFound),
		errors.Is(err, orchestrator.ErrExists):
		return exitUnusable, false
	default:
		return exitInternal, false
	}
}
