package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// asked makes a journal's questions: every third one was judged otherwise.
func asked(n int, end error) iter.Seq2[orchestrator.Judgment, error] {
	return func(yield func(orchestrator.Judgment, error) bool) {
		for i := range n {
			q := orchestrator.Judgment{Tx: orchestrator.TxID(fmt.Sprintf("tx%06d", i)), Sandbox: "box", As: policy.Agent, Command: "ls", Decision: "allow", Rule: "read-only"}
			switch i % 3 {
			case 1:
				q.Decision = "snapshot" // it would be weaker now
			case 2:
				q.Validation, q.Rule = 1, "an-older-name"
			}
			if !yield(q, nil) {
				return
			}
		}
		if end != nil {
			yield(orchestrator.Judgment{}, end)
		}
	}
}

func newEngine(t *testing.T) *policy.Engine {
	t.Helper()
	e, err := policy.New(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Changes are told in the journal's order, across batches, and counted.
func TestReplayInOrder(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	for _, n := range []int{0, 1, replayBatch - 1, replayBatch, 2*replayBatch + 7} {
		last := ""
		told := 0
		sum, err := replay(context.Background(), e, asked(n, nil), func(c change) error {
			if c.Transaction <= last {
				t.Errorf("%s after %s", c.Transaction, last)
			}
			last = c.Transaction
			told++
			return nil
		})
		weaker, rule := (n+1)/3, n/3
		want := replaySummary{Transactions: n - rule, Judged: n, Weaker: weaker, Rule: rule}
		if err != nil || sum != want || told != weaker+rule {
			t.Errorf("%d: got %+v, %v, %d told; want %+v", n, sum, err, told, want)
		}
	}
}

func TestReplayStops(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	broken := errors.New("a damaged record")
	tell := func(change) error { return nil }
	if _, err := replay(context.Background(), e, asked(10, broken), tell); !errors.Is(err, broken) {
		t.Errorf("a damaged journal: got %v", err)
	}
	full := errors.New("nobody reads")
	if _, err := replay(context.Background(), e, asked(10, nil), func(change) error { return full }); !errors.Is(err, full) {
		t.Errorf("a reader that went away: got %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	n := 0
	endless := func(yield func(orchestrator.Judgment, error) bool) {
		for yield(orchestrator.Judgment{Command: "ls"}, nil) {
			n++
		}
	}
	if _, err := replay(ctx, e, endless, tell); !errors.Is(err, context.Canceled) || n > replayBatch {
		t.Errorf("interrupted: got %v after %d", err, n)
	}
}

// A word that is no decision counts as a change to look at, never as the same.
func TestCompare(t *testing.T) {
	t.Parallel()
	v := newEngine(t).Decide(policy.Request{Command: "echo 1 > /workspace/f", User: policy.Agent})
	for old, want := range map[string]replayDirection{"deny": weaker, "allow": stricter, "snapshot": sameElse, "": stricter, "perhaps": stricter} {
		c, ok := compare(orchestrator.Judgment{Decision: old, Rule: "old"}, v)
		if !ok || c.Direction != want {
			t.Errorf("%q → %s: got %q, %t; want %q", old, v.Decision, c.Direction, ok, want)
		}
	}
	if c, ok := compare(orchestrator.Judgment{Decision: v.Decision.String(), Rule: v.Rule}, v); ok {
		t.Errorf("the same verdict is a change: %+v", c)
	}
}

// What is written piece by piece is one JSON value, with any number of changes.
func TestReplayJSON(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 3} {
		var out bytes.Buffer
		a := &app{out: &out, format: formatJSON, getenv: func(string) string { return "" }}
		p := newReplayPrinter(a, newProgress(&out, nil))
		for i := range n {
			if err := p.change(change{Transaction: fmt.Sprint(i), Command: "a && b\n\"\xff"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.end(replaySummary{Judged: 7}); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Changes []change
			Summary replaySummary
		}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.Changes == nil || len(got.Changes) != n || got.Summary.Judged != 7 {
			t.Errorf("%d: %+v, %v\n%s", n, got, err, out.String())
		}
		if strings.Contains(out.String(), `\u0026`) {
			t.Error("the command is escaped for HTML")
		}
	}
}
