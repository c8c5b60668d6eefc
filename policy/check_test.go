package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestCheckAnswersLineByLine(t *testing.T) {
	e := newEngine(t)
	in := `{"id":"a","command":"ls"}

{"id":"b","command":"rm -rf /"}
{"command":"curl 'https://example.org/?a=1&b=2'","id":"c","note":"ignored"}
{"id":"","command":""}
`
	var out bytes.Buffer
	if err := e.Check(Request{}, strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines: %s", len(lines), out.String())
	}
	for i, want := range []struct{ id, decision string }{{"a", "allow"}, {"b", "deny"}, {"c", "snapshot"}, {"", "allow"}} {
		var got map[string]any
		if err := json.Unmarshal([]byte(lines[i]), &got); err != nil {
			t.Fatal(err)
		}
		if got["id"] != want.id || got["decision"] != want.decision {
			t.Errorf("line %d: %s", i+1, lines[i])
		}
		for _, key := range []string{"id", "decision", "rule", "reason", "recoverable", "effects"} {
			if got[key] == nil {
				t.Errorf("line %d: no %q in %s", i+1, key, lines[i])
			}
		}
		if len(got) != 6 {
			t.Errorf("line %d: more than the contract: %s", i+1, lines[i])
		}
	}
	if !strings.Contains(lines[0], `"effects":[]`) {
		t.Errorf("no effects are not an empty list: %s", lines[0])
	}
	if !strings.Contains(lines[2], "a=1&b=2") {
		t.Errorf("the target is not written as it is: %s", lines[2])
	}
}

func TestCheckNamesTheBadLine(t *testing.T) {
	e := newEngine(t)
	for name, c := range map[string]struct {
		in   string
		line int
		want string
	}{
		"not json":     {"{\"id\":\"a\",\"command\":\"ls\"}\nls -l\n", 2, "invalid character"},
		"no command":   {`{"id":"a"}`, 1, `no "command"`},
		"no id":        {`{"command":"ls"}`, 1, `no "id"`},
		"wrong type":   {`{"id":1,"command":"ls"}`, 1, "cannot unmarshal"},
		"two values":   {`{"id":"a","command":"ls"} {"id":"b","command":"ls"}`, 1, "more than one value"},
		"an array":     {`[]`, 1, "cannot unmarshal"},
		"cut off":      {`{"id":"a","command":"l`, 1, "unexpected EOF"},
		"endless line": {strings.Repeat("x", maxCheckLine+1), 1, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := e.Check(Request{}, strings.NewReader(c.in), &out)
			var bad *LineError
			if !errors.As(err, &bad) || bad.Line != c.line || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want line %d and %q", err, c.line, c.want)
			}
			if name == "not json" && strings.Count(out.String(), "\n") != 1 {
				t.Errorf("the good line before is not answered: %q", out.String())
			}
		})
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestCheckReportsAFailedWrite(t *testing.T) {
	err := newEngine(t).Check(Request{}, strings.NewReader(`{"id":"a","command":"ls"}`), brokenWriter{})
	var bad *LineError
	if err == nil || errors.As(err, &bad) || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("error %v", err)
	}
}
