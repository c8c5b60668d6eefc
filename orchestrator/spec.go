package orchestrator

import (
	"io"
	"strings"
	"time"

	"savepoint/policy"
)

// OnFailure says what becomes of a transaction whose command or validation failed.
type OnFailure string

// What to do on failure. Keep commits a command that is known to have ended,
// with whatever it did; a command whose end is unknown is rolled back also then.
const (
	OnFailureRollback OnFailure = "rollback"
	OnFailureKeep     OnFailure = "keep"
)

// Spec is one transaction to run.
type Spec struct {
	Sandbox Sandbox
	Command string      // the exact text for the login shell
	As      policy.User // "" = agent
	// Boundary is what the snapshot covers; "" = auto. One that does not cover
	// what the command may do is refused.
	Boundary  Boundary
	Validate  []Validation
	Timeout   time.Duration // of the command; 0 = the engine's default
	Env       map[string]string
	Dir       string // absolute; "" = the user's home
	Stdin     io.Reader
	Stdout    io.Writer // streamed copies while it runs; may be nil
	Stderr    io.Writer
	OnFailure OnFailure // "" = rollback
	Profile   string    // of the policy; "" = sealed
	// Grants are ids of rules that are lifted for this one command. A rule that
	// is not needed is not lifted. Validations are judged without them.
	Grants []string
	// Key makes the request repeatable: a second one with the same key in the
	// same sandbox returns the first one's result and runs nothing. It is used
	// up once something is begun; a denial uses none. "" = none.
	Key string
	// Session begins the command where the last committed one of the account
	// ended: its working directory and exported variables. Dir and Env win.
	Session bool
	Guard   Guard  // what the command may not change
	By      string // who asked, for the record: "cli", "mcp:gemini", …
}

// Validation is a command that has to exit 0 for the transaction to commit.
type Validation struct {
	Command string
	As      policy.User   // "" = agent
	Timeout time.Duration `json:",omitempty"` // 0 = Deadlines.Validate
}

// UsageError says that what was asked for makes no sense or is not safe; nothing
// was done and nothing recorded.
type UsageError struct {
	What string
	Mend string // what to do instead
}

func (e *UsageError) Error() string {
	if e.Mend == "" {
		return e.What
	}
	return e.What + "; " + e.Mend
}

// normal returns the spec with its defaults filled in, or *UsageError.
func (s Spec) normal(timeout time.Duration) (Spec, error) {
	user := func(u policy.User) (policy.User, error) {
		switch u {
		case "", policy.Agent:
			return policy.Agent, nil
		case policy.Root:
			return u, nil
		}
		return "", &UsageError{What: "run as " + string(u) + ": no such account", Mend: "use agent or root"}
	}
	if s.Sandbox.ID == "" {
		return s, &UsageError{What: "run: no sandbox", Mend: "name one (see savepoint sandbox list)"}
	}
	if strings.TrimSpace(s.Command) == "" {
		return s, &UsageError{What: "run: the command is empty"}
	}
	var err error
	if s.As, err = user(s.As); err != nil {
		return s, err
	}
	s.Validate = append([]Validation(nil), s.Validate...)
	for i := range s.Validate {
		if strings.TrimSpace(s.Validate[i].Command) == "" {
			return s, &UsageError{What: "run: a validation is empty"}
		}
		if s.Validate[i].As, err = user(s.Validate[i].As); err != nil {
			return s, err
		}
		if s.Validate[i].Timeout < 0 {
			return s, &UsageError{What: "run: the timeout of a validation is negative"}
		}
	}
	switch s.Boundary {
	case "":
		s.Boundary = BoundaryAuto
	case BoundaryAuto, BoundaryNone, BoundaryWorkspace, BoundaryDisk, BoundaryMachine:
	default:
		return s, &UsageError{What: "boundary " + string(s.Boundary) + " does not exist", Mend: "use auto, none, workspace, disk or machine"}
	}
	switch s.OnFailure {
	case "":
		s.OnFailure = OnFailureRollback
	case OnFailureRollback, OnFailureKeep:
	default:
		return s, &UsageError{What: "on failure " + string(s.OnFailure) + ": no such choice", Mend: "use rollback or keep"}
	}
	if s.Dir, err = placed(s.Dir); err != nil {
		return s, err
	}
	for name := range s.Env {
		if err := envName(name); err != nil {
			return s, err
		}
	}
	if err := keyed(s.Key); err != nil {
		return s, err
	}
	if s.Guard, err = s.Guard.normal(); err != nil {
		return s, err
	}
	s.Grants = cleanGrants(s.Grants)
	if s.Timeout < 0 {
		return s, &UsageError{What: "run: the timeout is negative"}
	}
	if s.Timeout == 0 {
		s.Timeout = timeout
	}
	return s, nil
}
