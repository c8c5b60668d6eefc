package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"regexp"

	"savepoint/orchestrator"
	"savepoint/orchestrator/janitor"
	"savepoint/orchestrator/journal"
)

// redactions are the configured forms of secrets.
func redactions(list []string) (out []*regexp.Regexp, err error) {
	for _, text := range list {
		p, err := regexp.Compile(text)
		if err != nil {
			return nil, usagef("redact: %v", err)
		}
		out = append(out, p)
	}
	return out, nil
}

// cleaner takes secrets out of a text. The engine does it for its own records;
// here are the other things that are kept or logged and may quote what a
// guest or the cluster said.
func cleaner(own []*regexp.Regexp) func(string) string {
	return func(s string) string { return orchestrator.Redact(s, own) }
}

// registry keeps the reasons of sandboxes without secrets.
type registry struct {
	*journal.Journal
	clean func(string) string
}

// PutSandbox records the sandbox.
func (r registry) PutSandbox(ctx context.Context, sb orchestrator.Sandbox) error {
	sb.Reason = r.clean(sb.Reason)
	return r.Journal.PutSandbox(ctx, sb)
}

// notes keeps what came of the janitor's calls without secrets.
type notes struct {
	janitor.Notes
	clean func(string) string
}

// Append records the note.
func (n notes) Append(note janitor.Note) error {
	note.Outcome = n.clean(note.Outcome)
	return n.Notes.Append(note)
}

// cleanLog passes lines of a log on, each an object of JSON in one write, with
// the secrets taken out of its texts. Lines without any stay as they are.
type cleanLog struct {
	w     io.Writer
	clean func(string) string
}

func (l cleanLog) Write(line []byte) (int, error) {
	out := line
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if d.Decode(&fields) != nil {
		out = []byte(l.clean(string(line)))
	} else if l.fields(fields) {
		b, err := json.Marshal(fields)
		if err != nil {
			return 0, err
		}
		out = append(b, '\n')
	}
	if _, err := l.w.Write(out); err != nil {
		return 0, err
	}
	return len(line), nil
}

// fields cleans the texts of an object, and reports whether any had a secret.
func (l cleanLog) fields(m map[string]any) (found bool) {
	for name, v := range m {
		m[name] = l.value(v, &found)
		// A name says what a value is, where the value alone does not.
		if text, ok := v.(string); ok && m[name] == text && l.clean(name+"="+text) != name+"="+text {
			m[name], found = orchestrator.Redacted, true
		}
	}
	return found
}

func (l cleanLog) value(v any, found *bool) any {
	switch v := v.(type) {
	case string:
		s := l.clean(v)
		*found = *found || s != v
		return s
	case []any:
		for i := range v {
			v[i] = l.value(v[i], found)
		}
	case map[string]any:
		*found = l.fields(v) || *found
	}
	return v
}
