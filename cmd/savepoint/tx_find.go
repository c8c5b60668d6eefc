package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/orchestrator/journal"
	"savepoint/orchestrator/provision"
)

// txRef says which transaction is meant: its id, or the sandbox in which it is
// open.
type txRef struct{ id, sandbox string }

func (r *txRef) add(c *cobra.Command) {
	c.Flags().StringVar(&r.sandbox, "sandbox", "", "the transaction that is open in this sandbox, in place of TX")
}

// args wants the id, unless there is a sandbox, and n to most arguments behind
// it; most < 0 is any number.
func (r *txRef) args(n, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		_, rest, err := r.split(c, args)
		switch {
		case err != nil:
			return err
		case len(rest) < n || most >= 0 && len(rest) > most:
			return fmt.Errorf("want %s", c.Use)
		}
		return nil
	}
}

// split takes the id off the arguments.
func (r *txRef) split(c *cobra.Command, args []string) (txRef, []string, error) {
	switch {
	case r.sandbox != "" && c.ArgsLenAtDash() > 0:
		return *r, nil, errors.New("name the transaction or --sandbox, not both")
	case r.sandbox != "":
		return *r, args, nil
	case len(args) == 0 || c.ArgsLenAtDash() == 0:
		return *r, nil, errors.New("a transaction is needed: its id, or --sandbox NAME")
	}
	return txRef{id: args[0]}, args[1:], nil
}

// find returns the transaction's id. With a sandbox it is the one that used the
// key, if there is one, else the one that is open.
func (r txRef) find(ctx context.Context, j *journal.Journal, key string) (orchestrator.TxID, error) {
	if r.sandbox == "" {
		return findTx(ctx, j, r.id)
	}
	sb, err := provision.Lookup(ctx, j, r.sandbox)
	if err != nil {
		return "", named(err)
	}
	if key != "" {
		id, used, err := j.ByKey(ctx, sb.ID, key)
		if err != nil || used {
			return id, err
		}
	}
	open, err := orchestrator.List(ctx, j, orchestrator.Filter{
		Sandbox: string(sb.ID), Open: true, States: []orchestrator.State{orchestrator.StateOpen}, Limit: 2,
	})
	switch {
	case err != nil:
		return "", err
	case len(open) == 0:
		return "", usagef("sandbox %s has no open transaction; begin one with savepoint tx begin %s", sb.Name, sb.Name)
	case len(open) > 1: // the engine lets one begin at a time
		return "", usagef("sandbox %s has several open transactions; name one (see savepoint tx list --open)", sb.Name)
	}
	return open[0].ID, nil
}

// txPattern is an id or its beginning.
var txPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-7][0-9a-hjkmnp-tv-z]{5,25}\z`)
})

const txLength = 26

// findTx completes the beginning of an id.
func findTx(ctx context.Context, j *journal.Journal, text string) (orchestrator.TxID, error) {
	text = strings.ToLower(text)
	if len(text) == txLength {
		return orchestrator.TxID(text), nil // whether it is one is said where it is looked for
	}
	if !txPattern().MatchString(text) {
		return "", usagef("transaction %q: neither an id nor its first 6 or more characters; see savepoint tx list", text)
	}
	var found []string
	for id, err := range j.Transactions(ctx) {
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(string(id), text) {
			found = append(found, string(id))
		}
	}
	switch {
	case len(found) == 0:
		return "", usagef("transaction %s: no id begins so; see savepoint tx list", text)
	case len(found) > 1:
		return "", usagef("transaction %s: %d ids begin so, %s and %s among them; give more characters", text, len(found), found[0], found[len(found)-1])
	}
	return orchestrator.TxID(found[0]), nil
}

// resume takes up the transaction that is meant.
func (s *session) resume(ctx context.Context, r txRef, key string) (*orchestrator.Tx, error) {
	id, err := r.find(ctx, s.journal, key)
	if err != nil {
		return nil, err
	}
	x, err := s.engine.Resume(ctx, id)
	return x, named(err)
}

// parseAge reads how long ago something may have been.
func parseAge(flag, text string) (time.Duration, error) {
	d, err := configs.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, usagef("%s %q: is not a duration; write a number with a unit, like 90d, 36h or 30m", flag, text)
	}
	return d, nil
}
