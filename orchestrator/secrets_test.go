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

// What is kept as it is, to be found by, cannot be a secret.
func TestNamesHoldNoSecret(t *testing.T) {
	own := func(c *orchestrator.Config) { c.Redact = []*regexp.Regexp{regexp.MustCompile(`cust-\d+`)} }
	bubble(t, func(t *testing.T) {
		w := newWorld()
		l := boot(t, w, own)
		refused := func(what string, err error) {
			t.Helper()
			var usage *orchestrator.UsageError
			if !errors.As(err, &usage) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "4711") {
				t.Errorf("%s: got %v, want a refusal that does not repeat it", what, err)
			}
		}
		for what, s := range map[string]orchestrator.Spec{
			"pattern":  {Command: "echo a", Key: "token=hunter2"},
			"own":      {Command: "echo a", Key: "cust-4711"},
			"variable": {Command: "echo a", Key: "hunter2", Env: map[string]string{"MY_TOKEN": "hunter2"}},
			"command":  {Command: "echo a password=hunter2", Key: "hunter2"},
		} {
			_, err := l.run(s)
			refused("the key of a run, "+what, err)
		}
		_, err := l.e.Begin(context.Background(), orchestrator.BeginSpec{Sandbox: w.box, Key: "cust-4711"})
		refused("the key of a begin", err)
		if len(w.records) > 0 {
			t.Errorf("%d records", len(w.records))
		}
		x := l.begin(orchestrator.BeginSpec{Key: "plain"})
		_, err = x.Exec(context.Background(), orchestrator.StepSpec{Command: "echo a", Key: "cust-4711"})
		refused("the key of a step", err)
		_, err = x.Savepoint(context.Background(), "cust-4711", "")
		refused("the name of a savepoint", err)
		if _, err := x.Savepoint(context.Background(), "plain", ""); err != nil {
			t.Error(err)
		}
		exec(t, x, "echo a")
		if _, err := x.Commit(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// What an observer is told can be shown and logged: it holds no secret, also
// where it is the cluster that repeats one.
func TestEventsHoldNoSecret(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		var said []string
		l := boot(t, w, func(c *orchestrator.Config) {
			c.Observer = func(e orchestrator.Event) { said = append(said, string(e.Step)+": "+e.Detail) }
		})
		w.hooks["run"] = func(context.Context) error {
			return errors.Join(errors.New("the connection of echo password=hunter2 is gone"), orchestrator.ErrUnknownOutcome)
		}
		o, err := l.run(orchestrator.Spec{Command: "echo token=hunter2 > /workspace/a"})
		if err != nil || o.State != orchestrator.StateRolledBack {
			t.Fatalf("got %+v, %v", o, err)
		}
		told := strings.Join(said, "\n")
		if strings.Contains(told, "hunter2") || !strings.Contains(told, "the connection of echo") {
			t.Errorf("events:\n%s", told)
		}
		if where := leaked(w, "hunter2"); where != nil {
			t.Errorf("in %v", where)
		}
	})
}

// A grant is for the exact bytes and holds none of their secrets: what people
// read of it is not what it is for.
func TestGrantHoldsNoSecret(t *testing.T) {
	const secret = forbidden + " --token hunter2"
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.grant(t, "gr-1", func(g *orchestrator.Grant) { *g = g.For(secret, nil) })
		if g := w.grants[0]; g.Command != forbidden+" --token "+orchestrator.Redacted || g.Digest != sha(secret) {
			t.Fatalf("kept %q, %s", g.Command, g.Digest)
		}
		l := boot(t, w)
		for _, other := range []string{w.grants[0].Command, forbidden, forbidden + " --token hunter3"} {
			if o, err := l.run(orchestrator.Spec{Command: other}); err != nil || o.State != orchestrator.StateDenied || used(w)[0] != "" {
				t.Errorf("%s: %s, used by %v, %v", other, o.State, used(w), err)
			}
		}
		if o, err := l.run(orchestrator.Spec{Command: secret}); err != nil || o.State == orchestrator.StateDenied || used(w)[0] != o.Transaction {
			t.Errorf("%s, used by %v, %v", o.State, used(w), err)
		}
		if where := leaked(w, "hunter2"); where != nil {
			t.Errorf("in %v", where)
		}
	})
}
