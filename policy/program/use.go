package program

import "savepoint/policy/shell"

// Access is one thing a program does to one target.
type Access struct {
	Action Action
	Path   string // canonical as far as known; may hold holes
	Tree   bool   // all below it too
}

// Action is what is done to a target.
type Action string

// The actions.
const (
	Read   Action = "read"
	Write  Action = "write"
	Remove Action = "delete"
	Mode   Action = "perms"
	Fetch  Action = "fetch" // a request that carries nothing out
	Upload Action = "send"  // data leaves, or something outside changes
	Start  Action = "run"   // the file is executed
)

// Use is one program as it would run.
type Use struct {
	Name      string // without its directory
	Sub       []string
	Argv      []string
	Options   []Option
	Operands  []string
	Accesses  []Access
	ReadOnly  bool   // proved
	Known     bool   // in the tables
	Parsed    bool   // Options come from a table
	Tentative bool   // only a guess that this is a command at all
	Hardened  string // the form that is read-only, when the given one is not
	Reach     string // Here or Asks: how far it provably reaches
	Prints    bool   // it provably prints its help and ends
	Span      shell.Span
	Via       []string
	Stdin     shell.Stream
}

// Sink receives what the judge finds, in order.
type Sink interface {
	Use(u Use)
	Fact(f shell.Fact)
}
