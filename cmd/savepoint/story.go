package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/provision"
)

// story tells steps and transactions to a person while they happen, and keeps
// them as data. With another format than text it only keeps them.
type story struct {
	out   io.Writer // io.Discard when the story is to be data
	s     style
	p     *progress
	width int
	steps []storyStep
}

// storyStep is one step as data.
type storyStep struct {
	Title   string                `json:"title"`
	Detail  string                `json:"detail,omitempty"`
	Command string                `json:"command,omitempty"`
	As      string                `json:"as,omitempty"`
	Outcome *orchestrator.Outcome `json:"outcome,omitempty"`
	MS      float64               `json:"ms"`
}

func newStory(a *app) *story {
	st := &story{out: io.Discard, p: newProgress(a.err, nil), width: 100}
	if a.format == formatText {
		st.out, st.s = a.out, a.style(a.out)
		if w := terminal(a.out); w > 0 {
			st.width = min(w, 120)
		}
	}
	return st
}

func (st *story) stop() { st.p.stop() }

func (st *story) title(text string) { fmt.Fprintf(st.out, "\n%s\n", st.s.bold(text)) }

// head prints a step's number and name.
func (st *story) head(title string) {
	st.p.clear()
	fmt.Fprintf(st.out, "\n%s\n", st.s.bold(fmt.Sprintf("%d. %s", len(st.steps)+1, title)))
}

// line prints one labelled fact, wrapped to the width.
func (st *story) line(label, text string) {
	const margin = 14
	lines := wrap(text, max(20, st.width-margin))
	for i, l := range lines {
		if i > 0 {
			label = ""
		}
		fmt.Fprintf(st.out, "   %s %s\n", st.s.dim(fmt.Sprintf("%-9s", label)), l)
	}
}

func (st *story) note(text string) {
	st.p.clear()
	st.line("=", st.s.green(text))
}

// step runs one step that is no transaction.
func (st *story) step(title string, fn func(say func(string)) (string, error)) error {
	st.head(title)
	start := time.Now()
	st.p.say("%s", title)
	detail, err := fn(func(s string) { st.p.say("%s", s) })
	took := time.Since(start)
	st.p.clear()
	if err != nil {
		return err
	}
	st.line("", detail)
	st.line("took", short(took))
	st.steps = append(st.steps, storyStep{Title: title, Detail: detail, MS: ms(took)})
	return nil
}

// sayStep turns the provisioner's steps into progress.
func sayStep(say func(string)) func(provision.Step) {
	return func(s provision.Step) {
		if !s.Done {
			say(s.Name + " " + s.Detail)
		}
	}
}

// event is the engine's observer.
func (st *story) event(e orchestrator.Event) {
	if e.Phase == orchestrator.PhaseStarted {
		st.p.say("%s", e.Step)
	}
}

// transaction runs one transaction and tells how it went.
func (st *story) transaction(title string, spec orchestrator.Spec, run func() (orchestrator.Outcome, error)) (orchestrator.Outcome, error) {
	st.head(title)
	for i, l := range wrap(spec.Command, st.width-8) {
		prompt := "$"
		if i > 0 {
			prompt = " "
		}
		fmt.Fprintf(st.out, "   %s %s\n", st.s.dim(prompt), st.s.bold(l))
	}
	start := time.Now()
	out, err := run()
	st.p.clear()
	if err != nil {
		return out, err
	}
	as := string(spec.As)
	if as == "" {
		as = "agent"
	}
	st.tell(out, as)
	st.steps = append(st.steps, storyStep{Title: title, Command: spec.Command, As: as, Outcome: &out, MS: ms(time.Since(start))})
	return out, nil
}

func (st *story) tell(o orchestrator.Outcome, as string) {
	st.line("as", as)
	st.line("policy", fmt.Sprintf("%s, rule %s: %s  %s", paintDecision(st.s, o.Verdict.Decision), o.Verdict.Rule, o.Verdict.Reason, st.took(o.Timings.Policy)))
	if o.State == orchestrator.StateDenied {
		if o.Verdict.Alternative != "" {
			st.line("instead", o.Verdict.Alternative)
		}
		st.line("outcome", st.s.red("denied")+": nothing ran")
		return
	}
	if o.Snapshot != "" {
		st.line("snapshot", fmt.Sprintf("%s of the %s  %s", o.Snapshot, o.Boundary, st.took(o.Timings.Snapshot)))
	}
	st.output(o)
	if o.ExitCode != nil {
		st.line("exit", fmt.Sprintf("%d  %s", *o.ExitCode, st.took(o.Timings.Execute)))
	}
	for _, c := range o.Checks {
		answer := st.s.green("ok")
		if !c.OK {
			answer = st.s.red("no")
		}
		st.line("check", oneLine(c.Name, 80)+": "+answer)
	}
	outcome := paintState(st.s, o.State)
	switch {
	case o.State == orchestrator.StateRolledBack && o.Snapshot != "":
		outcome += "  " + st.took(o.Timings.Rollback)
	case o.State == orchestrator.StateCommitted:
		outcome += "  " + st.took(o.Timings.Commit)
	}
	st.line("outcome", outcome)
	if o.Reason != "" {
		st.line("because", printable(o.Reason))
	}
	st.line("took", short(o.Timings.Total))
}

// output shows the first lines of what the command wrote.
func (st *story) output(o orchestrator.Outcome) {
	const most = 8
	lines := strings.Split(strings.TrimRight(o.Stdout+o.Stderr, "\n"), "\n")
	for i, l := range lines {
		if l == "" && len(lines) == 1 {
			return
		}
		if i == most {
			st.line("", fmt.Sprintf("… %d more lines", len(lines)-most))
			return
		}
		label := ""
		if i == 0 {
			label = "output"
		}
		st.line(label, "| "+oneLine(l, max(10, st.width-18)))
	}
}

func (st *story) took(d time.Duration) string { return st.s.dim("(" + short(d) + ")") }

// next ends the story.
func (st *story) next(total time.Duration, commands []string) {
	fmt.Fprintf(st.out, "\n%s one committed, two rolled back, one refused, in %s.\n", st.s.green("Done:"), short(total))
	fmt.Fprintf(st.out, "\n%s\n", st.s.bold("The lab is yours. Try next:"))
	for _, c := range commands {
		fmt.Fprintf(st.out, "   %s\n", c)
	}
}

// wrap breaks a text at blanks into lines of at most n characters; a longer
// word stays whole, so that it can be copied.
func wrap(text string, n int) []string {
	var lines []string
	line, length := "", 0
	for _, word := range strings.Fields(text) {
		w := visible(word)
		if length > 0 && length+1+w > n {
			lines = append(lines, line)
			line, length = "", 0
		}
		if length > 0 {
			line, length = line+" ", length+1
		}
		line, length = line+word, length+w
	}
	return append(lines, line)
}

// visible is how many columns a text takes, colours not counted.
func visible(s string) int {
	n, escape := 0, false
	for _, r := range s {
		switch {
		case r == 0x1b:
			escape = true
		case escape:
			escape = r != 'm'
		default:
			n++
		}
	}
	return n
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
