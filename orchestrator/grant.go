package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"savepoint/policy"
)

// GrantID names a grant: "gr-" and a ULID in lower case.
type GrantID string

// NewGrantID makes a grant's id of the given time.
func NewGrantID(now time.Time) GrantID { return GrantID("gr-" + string(NewTxID(now))) }

// Grant is somebody's leave for one exact command in one sandbox to pass rules
// that would deny it: once, and until it expires.
type Grant struct {
	ID      GrantID
	Sandbox SandboxID
	Name    string   // of the sandbox when it was made
	Rules   []string // ids of the rules it lifts
	Digest  string   // SHA-256 of the exact command, in hex
	Command string   // what people read of it: without its secrets
	As      policy.User
	Profile string // of the policy when it was made; for the reader
	By      string // who gave it
	Made    time.Time
	Expires time.Time

	Used    TxID      // the transaction that used it up; "" = none
	Revoked time.Time // zero = it was not
}

// For returns the grant for exactly that command, of which it keeps no secret.
// own is what Config.Redact has.
func (g Grant) For(command string, own []*regexp.Regexp) Grant {
	g.Digest, g.Command = digest(command), Redact(command, own)
	return g
}

// What has become of a grant.
const (
	GrantOpen    = "open"
	GrantUsed    = "used"
	GrantRevoked = "revoked"
	GrantExpired = "expired"
)

// State says what has become of the grant. Only an open one can be used.
func (g Grant) State(now time.Time) string {
	switch {
	case g.Used != "":
		return GrantUsed
	case !g.Revoked.IsZero():
		return GrantRevoked
	case !now.Before(g.Expires):
		return GrantExpired
	default:
		return GrantOpen
	}
}

// GrantKeeper is what a Journal may offer besides: grants that outlive the
// process. OpenGrants returns the sandbox's that are open at the time, oldest
// first. A Journal that offers it spends the grants in Record.Spends with the
// record: both become durable, or neither; when one of them is not open any
// more it writes nothing and returns *GrantError.
type GrantKeeper interface {
	OpenGrants(ctx context.Context, sb SandboxID, now time.Time) ([]Grant, error)
}

// GrantChecker is what a Decider may offer besides. Grantable returns why a
// rule cannot be lifted by a grant: there is none of that name, or it never is.
// Without it no rule can.
type GrantChecker interface {
	Grantable(rule string) error
}

// GrantError says that a grant cannot be used any more; nothing was written.
type GrantError struct {
	ID    GrantID
	State string // "used", "revoked", "expired", or "unknown"
	Used  TxID   // by whom
}

func (e *GrantError) Error() string {
	if e.Used != "" {
		return fmt.Sprintf("grant %s was used by transaction %s", e.ID, e.Used)
	}
	return fmt.Sprintf("grant %s is %s", e.ID, e.State)
}

// Is makes it a denial for callers that only know classes.
func (e *GrantError) Is(target error) bool { return target == ErrDenied }

// GrantOf returns the grant that a rule was lifted by; not ok when it was
// another rule.
func GrantOf(l policy.Lift) (GrantID, bool) {
	id, ok := strings.CutPrefix(l.By, "grant ")
	return GrantID(id), ok
}

// grantable refuses rules that no grant can lift.
func (e *Engine) grantable(rules []string) error {
	if len(rules) == 0 {
		return nil
	}
	check, ok := e.c.Decider.(GrantChecker)
	if !ok {
		return &UsageError{What: "run with a grant: this policy has no grants"}
	}
	for _, r := range rules {
		if err := check.Grantable(r); err != nil {
			return &UsageError{What: fmt.Sprintf("run with a %v", err), Mend: "see savepoint policy explain"}
		}
	}
	return nil
}

// ownGrant is how long the grants of one transaction last: they are made and
// used within its judgement.
const ownGrant = time.Minute

// plead judges a denied command once more with the grants that are open, if
// there are any. Validations have no such way: they are the caller's choice.
func (t *tx) plead(ctx context.Context) error {
	now := t.e.c.Now()
	var grants []policy.Grant
	for _, rule := range t.spec.Grants {
		grants = append(grants, policy.Grant{
			ID: "tx-" + string(t.view.ID), Rule: rule, Command: t.spec.Command, User: t.spec.As, Expires: now.Add(ownGrant),
		})
	}
	kept := map[GrantID]bool{}
	if k, ok := t.e.c.Journal.(GrantKeeper); ok {
		open, err := k.OpenGrants(ctx, t.spec.Sandbox.ID, now)
		if err != nil {
			return &JournalError{fmt.Errorf("read the grants of sandbox %s: %w", t.spec.Sandbox.Name, classed(err))}
		}
		for _, g := range open {
			kept[g.ID] = true
			grants = append(grants, g.forPolicy(t.spec.Command)...)
		}
	}
	if len(grants) == 0 {
		return nil
	}
	t.verdict = t.e.c.Decider.Decide(policy.Request{
		Command: t.spec.Command, User: t.spec.As, Profile: t.spec.Profile, Dir: t.dir, Env: t.env, Grants: grants, Now: now,
	})
	for _, l := range t.verdict.Lifted {
		if id, ok := GrantOf(l); ok && kept[id] && !slices.Contains(t.spends, id) {
			t.spends = append(t.spends, id)
		}
	}
	return nil
}

// forPolicy is the grant as the policy takes it, one for each rule; none when
// it is for another command.
func (g Grant) forPolicy(command string) (list []policy.Grant) {
	if g.Digest != digest(command) {
		return nil
	}
	for _, r := range g.Rules {
		list = append(list, policy.Grant{ID: string(g.ID), Rule: r, Command: command, User: g.As, Expires: g.Expires})
	}
	return list
}

// overtaken ends a transaction whose grant was used, revoked or expired between
// the judgement and the begin: it is judged as it stands now. Not even the
// begin is on disk.
func (t *tx) overtaken(ctx context.Context, cause error) (Outcome, error) {
	t.pending, t.boundary, t.ranAtBegin = nil, "", false
	if err := t.judge(ctx); err != nil {
		return t.outcome(), errors.Join(cause, err)
	}
	if t.verdict.Decision == policy.Deny {
		return t.deny(ctx)
	}
	// Another grant came to be meanwhile. The caller asks again if he likes.
	return t.outcome(), fmt.Errorf("begin in sandbox %s: %w; ask again", t.spec.Sandbox.Name, cause)
}

// lostGrant reports whether err says that a grant cannot be used any more.
func lostGrant(err error) bool {
	var gone *GrantError
	return errors.As(err, &gone)
}

// cleanGrants removes blanks and repetitions.
func cleanGrants(rules []string) []string {
	var out []string
	for _, r := range rules {
		if r = strings.TrimSpace(r); !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}
