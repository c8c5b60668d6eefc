package policy

import (
	"fmt"
	"time"
)

// Decision is what the policy says of one command. The zero value denies, so
// a verdict nobody filled in is a refusal.
type Decision uint8

// The decisions, from the strictest. The order is part of the contract:
// combining the decisions of several commands takes the smallest.
const (
	Deny     Decision = iota // the command does not run
	Snapshot                 // the command runs inside a boundary
	Allow                    // the command is proved read-only and needs no boundary
)

// String returns the word used on the command line and in records: "deny",
// "snapshot" or "allow". Anything else prints as "deny".
func (d Decision) String() string {
	switch d {
	case Allow:
		return "allow"
	case Snapshot:
		return "snapshot"
	default:
		return "deny"
	}
}

// MarshalText writes the word of String.
func (d Decision) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the word of String and nothing else.
func (d *Decision) UnmarshalText(text []byte) error {
	v, err := ParseDecision(string(text))
	*d = v
	return err
}

// ParseDecision reads "deny", "snapshot" or "allow". With an error it returns
// Deny.
func ParseDecision(s string) (Decision, error) {
	for _, d := range []Decision{Deny, Snapshot, Allow} {
		if d.String() == s {
			return d, nil
		}
	}
	return Deny, fmt.Errorf("decision %q; want deny, snapshot or allow", readable(s))
}

// User is the account in the guest that a command runs as.
type User string

// The accounts a command may run as. No other name is accepted.
const (
	Agent User = "agent" // unprivileged; the default
	Root  User = "root"
)

// Request is one command to be judged.
type Request struct {
	// Command is the exact text that the login shell of User would get.
	Command string
	// User is who runs it; the zero value means Agent.
	User User
	// Profile names the set of rules: "sealed" when empty.
	Profile string
	// Dir is the directory the command begins in: absolute, or "" for the home
	// of User, where nothing is assumed about relative paths.
	Dir string
	// Env are exported variables that the command begins with besides those of
	// a fresh login. That they are read by programs is not judged: with any,
	// nothing should be taken for read-only without a boundary.
	Env map[string]string
	// Grants lift single rules for this one command; those that do not fit the
	// command, the account and Now are ignored.
	Grants []Grant
	// Now is the time that grants expire against. While it is zero no grant
	// holds: Decide reads no clock.
	Now time.Time
}

// Locus says where an effect happens.
type Locus string

// The places an effect can have.
const (
	VMDisk    Locus = "vm-disk"    // the guest's own files and processes: a snapshot covers it
	VMControl Locus = "vm-control" // our hold of the guest: sshd, guest agent, network, devices
	External  Locus = "external"   // outside the guest: no rollback reaches it
)

// Effect is one thing a command may do.
type Effect struct {
	Locus      Locus  `json:"locus"`
	Reversible bool   `json:"reversible"`
	Target     string `json:"target"`
}

// Verdict is the policy's answer to one Request.
type Verdict struct {
	Decision    Decision
	Rule        string    // id of the deciding rule, e.g. "fs.delete-root"
	Reason      string    // one sentence for a person
	Alternative string    // what the model could do instead, or ""
	Recoverable bool      // true if a boundary can undo everything the command may do
	Effects     []Effect  // in the order found; empty for a command without effects
	Findings    []Finding // every rule that applied, in the order found
	Lifted      []Lift    // every exception that took effect, in the order found

	permit  Permit
	command string // the judged text; "" when it is too large
}

// Permit returns the permission to run exactly the judged text, and whether
// there is one: a denied command has none.
func (v Verdict) Permit() (Permit, bool) { return v.permit, v.Decision != Deny && v.permit.valid }

// Permit is the right to run one text as one user. Only this package can make
// a valid one; the zero value is refused by every executor. It carries the
// bytes that were judged, so text that was not judged cannot reach a guest.
type Permit struct {
	valid    bool
	command  string
	user     User
	decision Decision
}

// Valid reports whether the permit was issued by a policy.
func (p Permit) Valid() bool { return p.valid }

// Command returns the exact bytes that may run.
func (p Permit) Command() string { return p.command }

// User returns the account the command may run as.
func (p Permit) User() User { return p.user }

// NeedsBoundary reports whether the command may run only inside a snapshot.
func (p Permit) NeedsBoundary() bool { return p.decision != Allow }
