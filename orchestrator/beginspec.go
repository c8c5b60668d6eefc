package orchestrator

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"savepoint/policy"
)

// BeginSpec is a transaction of several commands to begin.
type BeginSpec struct {
	Sandbox Sandbox
	// As is who runs the steps that do not say; "" = agent. With boundary auto
	// it decides what the snapshot covers: what that account can write.
	As       policy.User
	Boundary Boundary // "" = auto; none is refused
	// OnFailure says what a step that failed means: rollback ends the whole
	// transaction, keep reports it and goes on. "" = rollback.
	OnFailure OnFailure
	Validate  []Validation // of the whole transaction, once, at its commit
	Profile   string       // of the policy; "" = sealed
	// Session begins every step where the one before ended: working directory
	// and exported variables, per account. See Spec.Session.
	Session bool
	// Bound ends with this process: Close rolls it back, and so does the
	// recovery of the next process. Without it the transaction waits for Resume
	// until it was idle for too long.
	Bound bool
	Idle  time.Duration // 0 = Config.Idle; not for a bound one
	Key   string        // see Spec.Key
	By    string        // who asked, for the record
}

// StepSpec is one command of an open transaction.
type StepSpec struct {
	Command  string
	As       policy.User   // "" = the transaction's
	Validate []Validation  // of this step alone, after it
	Timeout  time.Duration // 0 = the engine's default
	Env      map[string]string
	Dir      string // absolute; "" = where the session is, or the user's home
	Stdin    io.Reader
	Stdout   io.Writer // streamed copies while it runs; may be nil
	Stderr   io.Writer
	Grants   []string // see Spec.Grants
	Guard    Guard    // what this command may not change
	Key      string   // see Spec.Key
}

// normal returns the spec of the begin with its defaults filled in.
func (b BeginSpec) normal(idle time.Duration) (BeginSpec, error) {
	s := b.spec()
	s.Command = "begin" // checked with the rest, and not empty
	s, err := s.normal(time.Second)
	if err != nil {
		return b, err
	}
	switch {
	case s.Boundary == BoundaryNone:
		return b, &UsageError{What: "begin: boundary none has nothing to roll back to", Mend: "use auto, workspace, disk or machine"}
	case b.Idle < 0:
		return b, &UsageError{What: "begin: the idle limit is negative"}
	case b.Idle == 0:
		b.Idle = idle
	}
	b.As, b.Boundary, b.OnFailure, b.Validate = s.As, s.Boundary, s.OnFailure, s.Validate
	return b, nil
}

// spec is what the begin shares with a single command.
func (b BeginSpec) spec() Spec {
	return Spec{
		Sandbox: b.Sandbox, As: b.As, Boundary: b.Boundary, OnFailure: b.OnFailure, Validate: b.Validate,
		Profile: b.Profile, Session: b.Session, Key: b.Key, By: b.By,
	}
}

func (b BeginSpec) asked() asked {
	a := b.spec().asked("begin")
	a.Bound = b.Bound
	return a
}

// stepSpec is the step as a command of the transaction, defaults filled in.
func (t *tx) stepSpec(s StepSpec) (Spec, error) {
	v := t.view
	spec := Spec{
		Sandbox: v.Sandbox, Command: s.Command, As: s.As, Validate: s.Validate, Timeout: s.Timeout, Env: s.Env, Dir: s.Dir,
		Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, OnFailure: v.OnFailure, Profile: v.Profile, Grants: s.Grants,
		Key: s.Key, Session: v.Session, Guard: s.Guard, By: v.By,
	}
	if spec.As == "" {
		spec.As = v.As
	}
	spec, err := spec.normal(t.e.c.Deadlines.Command)
	if err != nil {
		return spec, err
	}
	return spec, errors.Join(t.e.grantable(spec.Grants), t.e.harmless(spec))
}

// placed checks a directory that a command is to begin in.
func placed(dir string) (string, error) {
	switch {
	case dir == "":
		return "", nil
	case !strings.HasPrefix(dir, "/") || controls(dir):
		return "", &UsageError{What: fmt.Sprintf("directory %q is not an absolute path", dir), Mend: "give the whole path, from the root on"}
	}
	return path.Clean(dir), nil
}
