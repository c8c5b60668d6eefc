package orchestrator_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"savepoint/orchestrator"
)

// leaked reports where a text is in the journal or what is kept with it, in
// clear or in base64.
func leaked(w *world, text string) (where []string) {
	holds := func(data []byte) bool {
		var v any
		if json.Unmarshal(data, &v) != nil {
			return bytes.Contains(data, []byte(text))
		}
		var look func(v any) bool
		look = func(v any) bool {
			switch v := v.(type) {
			case string:
				raw, _ := base64.StdEncoding.DecodeString(v)
				return strings.Contains(v, text) || bytes.Contains(raw, []byte(text))
			case []any:
				for _, x := range v {
					if look(x) {
						return true
					}
				}
			case map[string]any:
				for k, x := range v {
					if strings.Contains(k, text) || look(x) {
						return true
					}
				}
			}
			return false
		}
		return look(v)
	}
	for _, r := range w.records {
		if holds(r.Data) {
			where = append(where, r.Event)
		}
	}
	if holds(w.session) {
		where = append(where, "session")
	}
	return where
}

// What is recorded of a transaction holds none of its secrets, however it
// ends, and what the caller gets holds all of its own output.
func TestRecordHoldsNoSecret(t *testing.T) {
	own := func(c *orchestrator.Config) { c.Redact = []*regexp.Regexp{regexp.MustCompile(`cust-\d+`)} }
	for name, s := range map[string]orchestrator.Spec{
		"committed": {Command: "echo password=hunter2 && echo cust-4711 > /workspace/a", Validate: []orchestrator.Validation{{Command: "echo token=hunter2"}}},
		"failed":    {Command: "echo token=hunter2 && rm /workspace/none"},
		"denied":    {Command: "rm -rf / --token hunter2"},
		"variable":  {Command: "echo a && printenv MY_TOKEN", Env: map[string]string{"MY_TOKEN": "hunter2"}},
		"path":      {Command: "echo hi > /workspace/cust-4711", Dir: "/workspace/token=hunter2"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld()
				l := boot(t, w, own)
				o, err := l.run(s)
				if err != nil {
					t.Fatal(err)
				}
				for _, text := range []string{"hunter2", "4711"} {
					if where := leaked(w, text); where != nil {
						t.Errorf("%s is in %v", text, where)
					}
				}
				if strings.Contains(s.Command, "echo password") && !strings.Contains(o.Stdout, "hunter2") {
					t.Errorf("the caller got %q", o.Stdout)
				}
				tx, err := orchestrator.Show(context.Background(), l.p, o.Transaction)
				if err != nil || tx.Redacted == 0 || tx.Digest != sha(s.Command) {
					t.Errorf("recorded %d redactions, digest %s, %v", tx.Redacted, tx.Digest, err)
				}
			})
		})
	}
}

// A variable with a secret in it is not kept for the next command, because
// something else than its value would be.
func TestSessionHoldsNoSecret(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		if o, err := l.run(orchestrator.Spec{Command: "export DB=postgres://me:hunter2@db/x && export A=b && echo x > /workspace/b", Session: true}); err != nil || o.State != orchestrator.StateCommitted {
			t.Fatalf("got %+v, %v", o, err)
		}
		if where := leaked(w, "hunter2"); where != nil || !bytes.Contains(w.session, []byte(`"A":"b"`)) || bytes.Contains(w.session, []byte("DB")) {
			t.Errorf("in %v; session %s", where, w.session)
		}
		x := l.begin(orchestrator.BeginSpec{Session: true})
		exec(t, x, "export DB=postgres://me:hunter2@db/x && export C=d")
		if _, err := x.Commit(context.Background()); err != nil {
			t.Fatal(err)
		}
		if where := leaked(w, "hunter2"); where != nil {
			t.Errorf("in %v", where)
		}
	})
}

// The commit of several commands reads its validations back from the record,
// so they cannot hold what the record does not keep.
func TestBeginRefusesSecretValidation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w)
		var refused *orchestrator.UsageError
		_, err := l.e.Begin(context.Background(), orchestrator.BeginSpec{Sandbox: w.box, Validate: []orchestrator.Validation{{Command: "echo --token hunter2"}}})
		if !errors.As(err, &refused) || len(w.records) > 0 || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v, %d records", err, len(w.records))
		}
	})
}

// A process that died leaves a record without secrets, and recovery needs none.
func TestRecoverWithoutSecrets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := orchestrator.Spec{Command: "echo token=hunter2 > /workspace/a && echo password=hunter2"}
		for n := 1; ; n++ {
			w := newWorld()
			l := boot(t, w)
			l.p.plan = dieAt(n)
			_, _ = l.run(s)
			if !l.p.gone {
				return
			}
			if _, err := boot(t, w).e.Recover(context.Background()); err != nil {
				t.Fatalf("point %d: %v", n, err)
			}
			if where := leaked(w, "hunter2"); where != nil {
				t.Fatalf("point %d: in %v", n, where)
			}
			if got := w.files["/workspace/a"]; got != "old" && got != "token=hunter2" {
				t.Fatalf("point %d: %q", n, got)
			}
		}
	})
}
