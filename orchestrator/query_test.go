package orchestrator_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// F05, F113, F124: a transaction is rebuilt from its records alone, by whoever
// reads them, with everything that was asked, decided, done and seen.
func TestShow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.hooks["run"] = func(context.Context) error { time.Sleep(2 * time.Second); return nil }
		l := boot(t, w, func(c *orchestrator.Config) { c.RecordLimit = 8 })
		var seen bytes.Buffer
		o, err := l.run(orchestrator.Spec{
			Command: "echo 0123456789 && rm /workspace/none", As: policy.Root, By: "mcp:test", Dir: "/workspace",
			Env: map[string]string{"TOKEN": "hunter2", "A": "b"}, Boundary: "disk", Stdout: &seen,
			Validate: []orchestrator.Validation{{Command: "cat /workspace/a"}},
		})
		if err != nil || o.State != orchestrator.StateRolledBack || o.Stdout != "0123456789\n" || seen.String() != o.Stdout {
			t.Fatalf("got %+v, %v, streamed %q", o, err, seen.String())
		}
		tx, err := orchestrator.Show(context.Background(), &proc{w: w}, orchestrator.TxID(strings.ToUpper(string(o.Transaction))))
		if err != nil {
			t.Fatal(err)
		}
		got := []any{tx.State, tx.By, tx.Owner, tx.Command, tx.As, tx.Dir, tx.Boundary, tx.Snapshot, tx.Sandbox == w.box, tx.RunningAtBegin, tx.BootID,
			tx.Result.Exit, tx.Result.Stdout, tx.Result.StdoutBytes, tx.Result.Truncated, tx.Result.StdoutDigest, len(tx.Tasks), tx.Reason, tx.Settled, tx.Attempts}
		want := []any{orchestrator.StateRolledBack, "mcp:test", "test", "echo 0123456789 && rm /workspace/none", policy.Root, "/workspace",
			orchestrator.BoundaryDisk, orchestrator.SnapshotOf(o.Transaction), true, true, "boot1",
			1, "01234567", int64(11), true, sha("0123456789\n"), 2, "the command exited 1", false, 1}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if len(tx.Validate) != 1 || tx.Validate[0].Command != "cat /workspace/a" || len(tx.Checks) != 1 || tx.Checks[0].OK {
			t.Errorf("validations %+v, checks %+v", tx.Validate, tx.Checks)
		}
		if tx.Timings.Total < 2*time.Second || tx.Ended.Before(tx.Began) {
			t.Errorf("total %s, from %s to %s", tx.Timings.Total, tx.Began, tx.Ended)
		}
		for _, r := range w.records {
			if bytes.Contains(r.Data, []byte("hunter2")) {
				t.Errorf("record %s holds the value of an environment variable", r.Event)
			}
		}
		if _, err := orchestrator.Show(context.Background(), l.p, "nothing"); !errors.Is(err, orchestrator.ErrNotFound) {
			t.Errorf("an unknown transaction: %v", err)
		}
	})
}

func TestList(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		var ids []orchestrator.TxID
		var third time.Time
		for i, c := range []string{overwrite, damage, "rm -rf /", "cat /workspace/a"} {
			if i == 2 {
				third = time.Now()
			}
			o, err := l.run(orchestrator.Spec{Command: c})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, o.Transaction)
			time.Sleep(time.Second)
		}
		for name, c := range map[string]struct {
			f    orchestrator.Filter
			want []int // newest first
		}{
			"all":         {orchestrator.Filter{}, []int{3, 2, 1, 0}},
			"limit":       {orchestrator.Filter{Limit: 2}, []int{3, 2}},
			"states":      {orchestrator.Filter{States: []orchestrator.State{"denied", "rolled-back"}}, []int{2, 1}},
			"by name":     {orchestrator.Filter{Sandbox: "dev", Limit: 1}, []int{3}},
			"by id":       {orchestrator.Filter{Sandbox: string(w.box.ID)}, []int{3, 2, 1, 0}},
			"another box": {orchestrator.Filter{Sandbox: "other"}, nil},
			"since":       {orchestrator.Filter{Since: third}, []int{3, 2}},
			"open":        {orchestrator.Filter{Open: true}, nil},
			"as":          {orchestrator.Filter{As: policy.Agent, Limit: 1}, []int{3}},
			"as nobody":   {orchestrator.Filter{As: policy.Root}, nil},
			"decision":    {orchestrator.Filter{Decision: "snapshot"}, []int{1, 0}},
			"rule":        {orchestrator.Filter{Rule: "fs.delete-root"}, []int{2}},
			"rule, as":    {orchestrator.Filter{Rule: "fs.delete-root", As: policy.Root}, nil},
		} {
			txs, err := orchestrator.List(context.Background(), l.p, c.f)
			var got, want []orchestrator.TxID
			for _, tx := range txs {
				got = append(got, tx.ID)
			}
			for _, i := range c.want {
				want = append(want, ids[i])
			}
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
			}
		}
	})
}

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// The JSON of an Outcome is what scripts read.
func TestOutcomeJSON(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := boot(t, newWorld())
		for spec, want := range map[string]string{
			"echo hi > /workspace/x && echo out": `"state":"committed" "boundary":"workspace" "exit_code":0 "stdout":"out\n"`,
			"rm -rf /":                           `"state":"denied" "boundary":"none" "exit_code":null "stdout":""`,
		} {
			o, err := l.run(orchestrator.Spec{Command: spec})
			if err != nil {
				t.Fatal(err)
			}
			b, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			var m map[string]any
			if err := json.Unmarshal(b, &m); err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{"transaction", "sandbox", "state", "verdict", "boundary", "exit_code", "stdout", "stderr", "truncated", "reason", "timings_ms"} {
				if _, ok := m[key]; !ok {
					t.Errorf("%s: no %q in %s", spec, key, b)
				}
			}
			for _, part := range strings.Split(want, " ") {
				if !bytes.Contains(b, []byte(part)) {
					t.Errorf("%s: no %s in %s", spec, part, b)
				}
			}
			for _, key := range []string{"policy", "snapshot", "execute", "validate", "commit", "rollback", "total"} {
				if _, ok := m["timings_ms"].(map[string]any)[key].(float64); !ok {
					t.Errorf("%s: no time %q in %s", spec, key, b)
				}
			}
			for _, key := range []string{"decision", "rule", "reason"} {
				if _, ok := m["verdict"].(map[string]any)[key].(string); !ok {
					t.Errorf("%s: no verdict %q in %s", spec, key, b)
				}
			}
		}
	})
}
