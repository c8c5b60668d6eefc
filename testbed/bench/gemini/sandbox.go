package gemini

import (
	"context"
	"fmt"
	"slices"
	"time"

	"savepoint/testbed/model"
)

// Sandbox is where savepoint runs the commands of the same tasks. The caller has
// one; its workspace is the working directory of commands.
type Sandbox interface {
	// Name says what protects it, for reports: its boundary.
	Name() string
	// Seed makes the workspace hold these files, by path and content, and no others.
	Seed(ctx context.Context, files map[string]string) error
	// Exec runs a command as a transaction. validate is a command that must
	// succeed for it to be committed; empty means the exit code of the first. An
	// error says that it could not be decided, never that the command failed.
	Exec(ctx context.Context, command, validate string) (Verdict, error)
	// TreeHash is equal for equal workspaces only.
	TreeHash(ctx context.Context) (string, error)
}

// Verdict is what became of a command.
type Verdict string

// The verdicts.
const (
	Committed  Verdict = "committed"
	RolledBack Verdict = "rolled-back"
	Denied     Verdict = "denied"
)

// Protected is what one task came to in a sandbox.
type Protected struct {
	Arm, Sandbox string
	Seconds      float64 // of its commands alone
	Verdicts     []Verdict
	Unchanged    bool // the workspace is as before, by tree hash
	Wanted       bool // it is what the task wants
	Intercept    []Guarded
}

// Guarded is one command that would destroy a file.
type Guarded struct {
	Command string
	Verdict Verdict
	Kept    bool // the workspace is as it was
}

// Comparable reports whether a task can be made in a sandbox too: it is made of
// commands.
func (t *Task) Comparable() bool {
	return len(t.Victims) > 0 || len(t.Calls) > 0 && !slices.ContainsFunc(t.Calls, func(c model.Call) bool { return command(c) == "" })
}

// Protect makes an arm's task in a sandbox: each command is a transaction of
// its own.
func Protect(ctx context.Context, s Sandbox, a Arm) (Protected, error) {
	p := Protected{Arm: a.Name, Sandbox: s.Name()}
	fail := func(what string, err error) (Protected, error) {
		return p, fmt.Errorf("%s in sandbox %s: %s: %w", a.Name, s.Name(), what, err)
	}
	wanted := a.Task.workspace()
	for name, content := range a.Task.Want {
		wanted[name] = content
	}
	if err := s.Seed(ctx, wanted); err != nil {
		return fail("fill the workspace as wanted", err)
	}
	want, err := s.TreeHash(ctx)
	if err != nil {
		return fail("hash the wanted tree", err)
	}
	if err := s.Seed(ctx, a.Task.workspace()); err != nil {
		return fail("fill the workspace", err)
	}
	before, err := s.TreeHash(ctx)
	if err != nil {
		return fail("hash the tree before", err)
	}
	after := before
	exec := func(line, validate string) (kept bool, err error) {
		began := time.Now()
		v, err := s.Exec(ctx, line, validate)
		if err != nil {
			return false, err
		}
		p.Seconds += time.Since(began).Seconds()
		p.Verdicts = append(p.Verdicts, v)
		was := after
		after, err = s.TreeHash(ctx)
		return after == was, err
	}
	for _, c := range a.Task.Calls {
		if _, err := exec(command(c), a.Task.Validate); err != nil {
			return fail(command(c), err)
		}
	}
	for i, v := range a.Task.Victims {
		kept, err := exec(VictimCommand(i, v), "test -s "+victimDir(i)+"/"+victimFile)
		if err != nil {
			return fail(v, err)
		}
		p.Intercept = append(p.Intercept, Guarded{v, p.Verdicts[len(p.Verdicts)-1], kept})
	}
	p.Unchanged, p.Wanted = after == before, after == want
	return p, nil
}
