package gemini

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Sandbox is where savepoint runs the commands of the same tasks. The caller has
// one; its workspace is the working directory of commands.
type Sandbox interface {
	// Name says what protects it, for reports: its boundary. It is asked first, and
	// makes the sandbox if there is none yet.
	Name(ctx context.Context) (string, error)
	// Seed makes the workspace hold these files, by path and content, and no
	// others, with the mode that commands give to new files.
	Seed(ctx context.Context, files map[string]string) error
	// Exec runs a command as a transaction. An error says that it could not be
	// decided, never that the command failed.
	Exec(ctx context.Context, c Command) (Ran, error)
	// TreeHash is equal for equal workspaces only.
	TreeHash(ctx context.Context) (string, error)
}

// Command is what a transaction runs.
type Command struct {
	Line string
	// Validate is a command that must succeed for it to be committed; empty means
	// its own exit code.
	Validate string
	Env      map[string]string
	Limit    time.Duration // 0 = the sandbox's own
}

// Verdict is what became of a command.
type Verdict string

// The verdicts.
const (
	Committed  Verdict = "committed"
	RolledBack Verdict = "rolled-back"
	Denied     Verdict = "denied"
)

// Ran is what is known of a command that was given to a sandbox.
type Ran struct {
	Verdict Verdict
	Ended   bool // it ran, and Exit is how it ended; a rollback does not change that
	Exit    int
	Output  string // standard output
	Diag    string // standard error
	Missed  bool   // the validation ran and failed
	Reason  string
}

// Protected is what one task came to in a sandbox.
type Protected struct {
	Arm, Sandbox string
	Seconds      float64 // of its commands alone
	Verdicts     []Verdict
	Attempts     []Attempt // whether each step was tried
	Unchanged    bool      // the workspace is as before, by tree hash
	Wanted       bool      // it is what the task wants
	Victims      []Guarded
}

// Guarded is one command that would destroy a file.
type Guarded struct {
	Command string
	Verdict Verdict
	Fate    Fate
}

// Comparable reports whether a task can be made in a sandbox too: it is made of
// commands.
func (t *Task) Comparable() bool {
	steps := t.steps()
	return len(steps) > 0 && !slices.ContainsFunc(steps, func(s Step) bool { return command(s.Call) == "" })
}

// trees are the hashes of a task's workspace: before, and as the task wants it. The
// workspace is the one before.
func trees(ctx context.Context, s Sandbox, t *Task) (before, want string, err error) {
	hash := func(files map[string]string) (string, error) {
		if err := s.Seed(ctx, files); err != nil {
			return "", fmt.Errorf("fill the workspace: %w", err)
		}
		sum, err := s.TreeHash(ctx)
		if err != nil {
			return "", fmt.Errorf("hash the tree: %w", err)
		}
		return sum, nil
	}
	if t.Want != nil {
		wanted := t.workspace()
		maps.Copy(wanted, t.Want)
		if want, err = hash(wanted); err != nil {
			return "", "", err
		}
	}
	if before, err = hash(t.workspace()); err != nil {
		return "", "", err
	}
	if t.Want == nil { // nothing is to change
		want = before
	}
	return before, want, nil
}

// Protect makes an arm's task in a sandbox: each command is a transaction of
// its own.
func Protect(ctx context.Context, s Sandbox, a Arm) (Protected, error) {
	p := Protected{Arm: a.Name}
	fail := func(what string, err error) (Protected, error) {
		return p, fmt.Errorf("%s in sandbox %s: %s: %w", a.Name, p.Sandbox, what, err)
	}
	var err error
	if p.Sandbox, err = s.Name(ctx); err != nil {
		return fail("make it", err)
	}
	before, want, err := trees(ctx, s, a.Task)
	if err != nil {
		return fail("prepare", err)
	}
	after := before
	exec := func(line, validate string) (ran Ran, kept bool, err error) {
		began := time.Now()
		ran, err = s.Exec(ctx, Command{Line: line, Validate: validate})
		if err != nil {
			return ran, false, err
		}
		p.Seconds += time.Since(began).Seconds()
		p.Verdicts = append(p.Verdicts, ran.Verdict)
		was := after
		after, err = s.TreeHash(ctx)
		return ran, after == was, err
	}
	for _, step := range a.Task.Steps {
		ran, _, err := exec(command(step.Call), a.Task.Validate)
		if err != nil {
			return fail(command(step.Call), err)
		}
		p.Attempts = append(p.Attempts, ran.tell(step))
	}
	for i, v := range a.Task.Victims {
		ran, kept, err := exec(VictimCommand(i, v), "test -s "+victimDir(i)+"/"+victimFile)
		if err != nil {
			return fail(v, err)
		}
		p.Victims = append(p.Victims, Guarded{v, ran.Verdict, ran.fate(kept)})
	}
	p.Unchanged, p.Wanted = after == before, after == want
	return p, nil
}

// fate is what a transaction proves of the file that its command would destroy.
func (r Ran) fate(kept bool) Fate {
	switch {
	case !kept:
		return Destroyed
	case r.Verdict == Denied:
		return Kept
	case r.Verdict == RolledBack && r.Ended && r.Missed:
		return Undone
	case r.Ended:
		return NoEffect
	}
	return Untried
}
