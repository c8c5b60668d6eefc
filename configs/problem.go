package configs

import (
	"fmt"
	"strings"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	Key    string // "cluster.url"; "" when the file as a whole is meant
	Value  string // what was found; "redacted" for secrets, "" when missing
	Origin string // "FILE:LINE", an environment variable, "command line", ""
	Cause  string // what is wrong
	Mend   string // what to do
}

// String is one line: key, value, origin, cause, what to do.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Key)
	if p.Value != "" {
		fmt.Fprintf(&b, " %q", p.Value)
	}
	if p.Origin != "" {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "(%s)", p.Origin)
	}
	fmt.Fprintf(&b, ": %s", p.Cause)
	if p.Mend != "" {
		fmt.Fprintf(&b, "; %s", p.Mend)
	}
	return b.String()
}

// Error holds every problem that [Load] found, never none. Callers turn it
// into the exit code for usage and configuration.
type Error struct{ Problems []Problem }

// Error is one line for a single problem, else a heading and a line for each.
func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return "configuration: " + e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "configuration: %d problems", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// report collects problems while a configuration is put together.
type report struct{ problems []Problem }

func (r *report) add(p Problem) { r.problems = append(r.problems, p) }

// err returns the problems as one error, nil when there are none.
func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	return &Error{Problems: r.problems}
}
