package policy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// CheckLine is one line of the input of Check: a command with a name.
type CheckLine struct {
	ID      string `json:"id"`
	Command string `json:"command"`
}

// CheckResult is one line of the output of Check.
type CheckResult struct {
	ID          string   `json:"id"`
	Decision    Decision `json:"decision"`
	Rule        string   `json:"rule"`
	Reason      string   `json:"reason"`
	Recoverable bool     `json:"recoverable"`
	Effects     []Effect `json:"effects"`
}

// NewCheckResult makes the output line of a verdict. Effects is never nil.
func NewCheckResult(id string, v Verdict) CheckResult {
	effects := v.Effects
	if effects == nil {
		effects = []Effect{}
	}
	return CheckResult{ID: id, Decision: v.Decision, Rule: v.Rule, Reason: v.Reason, Recoverable: v.Recoverable, Effects: effects}
}

// maxCheckLine is the longest input line: room for the largest command, every
// byte of it escaped.
const maxCheckLine = 1 << 20

// LineError says which line of the input of Check cannot be used, and why.
type LineError struct {
	Line  int // from 1
	Cause error
}

func (e *LineError) Error() string {
	return fmt.Sprintf(`check line %d: %v; want {"id": "…", "command": "…"}`, e.Line, e.Cause)
}

// Unwrap returns the cause.
func (e *LineError) Unwrap() error { return e.Cause }

// Check reads one CheckLine a line and writes one CheckResult a line, in
// order. User and profile are those of base. Empty lines are skipped. A line that is not a CheckLine stops it with
// a *LineError after the results of the lines before it were written.
func (e *Engine) Check(base Request, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxCheckLine)
	w := bufio.NewWriter(out)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	n := 0
	for lines.Scan() {
		n++
		raw := bytes.TrimSpace(lines.Bytes())
		if len(raw) == 0 {
			continue
		}
		line, err := parseCheckLine(raw)
		if err != nil {
			return errors.Join(&LineError{Line: n, Cause: err}, w.Flush())
		}
		base.Command = line.Command
		if err := enc.Encode(NewCheckResult(line.ID, e.Decide(base))); err != nil {
			return fmt.Errorf("check line %d: write result: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return errors.Join(&LineError{Line: n + 1, Cause: err}, w.Flush())
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("check: write results: %w", err)
	}
	return nil
}

func parseCheckLine(raw []byte) (CheckLine, error) {
	var line struct {
		ID      *string `json:"id"`
		Command *string `json:"command"`
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if err := dec.Decode(&line); err != nil {
		return CheckLine{}, err
	}
	if dec.More() {
		return CheckLine{}, errors.New("more than one value on the line")
	}
	switch {
	case line.ID == nil:
		return CheckLine{}, errors.New(`no "id"`)
	case line.Command == nil:
		return CheckLine{}, errors.New(`no "command"`)
	}
	return CheckLine{ID: *line.ID, Command: *line.Command}, nil
}
