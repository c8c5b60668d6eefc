package orchestrator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"savepoint/policy"
)

// maxKey bounds an idempotency key.
const maxKey = 200

func keyed(key string) error {
	if len(key) > maxKey || controls(key) {
		return &UsageError{What: "idempotency key: not a key", Mend: fmt.Sprintf("use up to %d characters on one line", maxKey)}
	}
	return nil
}

// asked is what makes two requests the same. The values of variables are not
// part of it: they may be secrets, and a digest of them would give them away.
type asked struct {
	Kind      string
	Command   string
	As        policy.User
	Boundary  Boundary
	Dir       string
	Env       []string
	Validate  []Validation
	OnFailure OnFailure
	Profile   string
	Grants    []string
	Session   bool
	Bound     bool
	Guard     *Guard `json:",omitempty"`
}

func (a asked) digest() string {
	data, err := json.Marshal(a)
	if err != nil {
		panic(err) // strings and booleans
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func (s Spec) asked(kind string) asked {
	return asked{
		Kind: kind, Command: s.Command, As: s.As, Boundary: s.Boundary, Dir: s.Dir, Env: slices.Sorted(maps.Keys(s.Env)),
		Validate: s.Validate, OnFailure: s.OnFailure, Profile: s.Profile, Grants: s.Grants, Session: s.Session,
		Guard: s.Guard.orNil(),
	}
}

// used looks for the transaction that used the key up, and for its command
// with the key: 0 stands for the begin.
func (e *Engine) used(ctx context.Context, sb Sandbox, key string) (view *Transaction, step int, err error) {
	if key == "" {
		return nil, 0, nil
	}
	id, found, err := e.byKey(ctx, sb.ID, key)
	if err != nil {
		return nil, 0, &JournalError{fmt.Errorf("look for the key %q of sandbox %s: %w", key, sb.Name, classed(err))}
	}
	if !found {
		return nil, 0, nil
	}
	if view, err = e.read(ctx, id); err != nil {
		return nil, 0, err
	}
	if view.Key == key {
		return view, 0, nil
	}
	for _, c := range view.Commands {
		if c.Key == key && c.State != StateDenied {
			return view, c.N, nil
		}
	}
	return nil, 0, &JournalError{fmt.Errorf("the journal says that transaction %s used the key %q, its records do not: %w", id, key, ErrDenied)}
}

func (e *Engine) byKey(ctx context.Context, sb SandboxID, key string) (TxID, bool, error) {
	if k, ok := e.c.Journal.(Keyed); ok {
		return k.ByKey(ctx, sb, key)
	}
	for r, err := range e.c.Journal.Records(ctx, "") {
		if err != nil {
			return "", false, err
		}
		if r.Sandbox == sb && r.Key == key {
			return r.Tx, true, nil
		}
	}
	return "", false, nil
}

// read folds the records of one transaction.
func (e *Engine) read(ctx context.Context, id TxID) (*Transaction, error) {
	view := &Transaction{}
	for r, err := range e.c.Journal.Records(ctx, id) {
		if err == nil {
			err = view.apply(e.moves, r)
		}
		if err != nil {
			return nil, fmt.Errorf("read transaction %s: %w", id, err)
		}
	}
	return view, nil
}

// otherRequest says that a key was used for something else.
func otherRequest(key string, view *Transaction, step int, now string) error {
	first := "the begin of transaction " + string(view.ID)
	switch {
	case step > 0:
		first = fmt.Sprintf("step %d of transaction %s (%s)", step, view.ID, short(view.Commands[step-1].Command))
	case !view.Several:
		first = fmt.Sprintf("transaction %s (%s)", view.ID, short(view.Command))
	}
	return &UsageError{
		What: fmt.Sprintf("idempotency key %q was used for %s, which is another request than %s", key, first, now),
		Mend: "use a new key for a new request, and the same request for the same key",
	}
}

func short(command string) string {
	if r := []rune(command); len(r) > 60 {
		command = string(r[:60]) + "…"
	}
	return strconv.Quote(command)
}

// replay returns the result of an earlier Run with the same key.
func (e *Engine) replay(ctx context.Context, s Spec) (o Outcome, done bool, err error) {
	view, step, err := e.used(ctx, s.Sandbox, s.Key)
	switch {
	case err != nil || view == nil:
		return Outcome{}, err != nil, err
	case step > 0 || view.request != s.asked("run").digest():
		return Outcome{}, true, otherRequest(s.Key, view, step, short(s.Command))
	}
	o = (&tx{e: e, view: view}).outcome()
	o.Replayed = true
	if !view.State.Final() && view.State != StateStuck {
		return o, true, fmt.Errorf("idempotency key %q: transaction %s is unfinished (%s); wait for its end or run savepoint recover: %w", s.Key, view.ID, view.State, ErrBusy)
	}
	return o, true, nil
}
