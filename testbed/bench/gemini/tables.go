package gemini

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"savepoint/testbed/bench"
	"savepoint/testbed/model"
)

// tables writes down what each arm came to, in words.
func (b *book) tables(r *bench.Run, arms []Arm) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.Table(b.endings(arms))
	if t := b.effects(arms); len(t.Rows) > 0 {
		r.Table(t)
	}
	for _, a := range arms {
		if a.Task != nil && len(a.Task.Victims) > 0 && len(b.outcomes[a.Name]) > 0 {
			r.Table(b.interception(a))
		}
	}
}

func (b *book) endings(arms []Arm) bench.Table {
	t := bench.Table{Title: "How the Gemini CLI " + Version + " ends", Columns: []string{"arm", "what", "mode", "runs", "exit", "seconds (median)", "outcome", "text that was seen"},
		Note: "An exit code is given where the CLI ended by itself. Arms with a key are answered by the " + model.Name + "."}
	for _, a := range arms {
		list := b.outcomes[a.Name]
		if len(list) == 0 {
			continue
		}
		t.Rows = append(t.Rows, []string{a.Name, a.Text, mode(a.Terminal), strconv.Itoa(len(list)),
			every(list, func(o Outcome) string {
				if o.Killed {
					return "never (ended at the limit)"
				}
				return strconv.Itoa(o.Exit)
			}),
			seconds(list),
			every(list, func(o Outcome) string { return string(o.Class) }),
			every(list, func(o Outcome) string { return o.Matched })})
	}
	return t
}

// seconds is the median of those that ended by themselves, else how soon the
// question was there.
func seconds(list []Outcome) string {
	var ended, asked []float64
	for _, o := range list {
		switch {
		case !o.Killed:
			ended = append(ended, o.Seconds)
		case o.Asked > 0:
			asked = append(asked, o.Asked)
		}
	}
	switch {
	case len(ended) > 0:
		return fmt.Sprintf("%.2f", median(ended))
	case len(asked) > 0:
		return fmt.Sprintf("asks after %.2f", median(asked))
	}
	return "-"
}

func median(v []float64) float64 {
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func (b *book) effects(arms []Arm) bench.Table {
	t := bench.Table{Title: "What became of the workspace", Columns: []string{"task", "what", "by", "as wanted", "as before", "what changed", "checkpoints", "checkpointing has the tree of before"},
		Note: "By tree hash. Lost, changed and added are numbers of paths. As wanted: a task that only damages wants nothing changed."}
	for _, a := range arms {
		if a.Answer == nil || a.Task == nil {
			continue
		}
		if list := b.outcomes[a.Name]; len(list) > 0 {
			effect := func(text func(*Effect) string) string {
				return every(list, func(o Outcome) string { return text(o.Effect) })
			}
			t.Rows = append(t.Rows, []string{a.Name, a.Text, "Gemini CLI",
				effect(func(e *Effect) string { return yes(e.Wanted) }), effect(func(e *Effect) string { return yes(e.Unchanged) }),
				effect(func(e *Effect) string {
					return fmt.Sprintf("%d lost, %d changed, %d added", e.Lost, e.Changed, e.Added)
				}),
				effect(func(e *Effect) string { return strconv.Itoa(e.Checkpoints) }), effect(func(e *Effect) string { return yes(e.Restorable) })})
		}
		for _, name := range b.sandboxes(a) {
			list := b.of(a, name)
			t.Rows = append(t.Rows, []string{a.Name, a.Text, "savepoint, " + name,
				every(list, func(p Protected) string { return yes(p.Wanted) }), every(list, func(p Protected) string { return yes(p.Unchanged) }), "", "", ""})
		}
	}
	return t
}

// sandboxes are the names of those in which an arm's task was made.
func (b *book) sandboxes(a Arm) []string {
	var out []string
	for _, p := range b.protected[a.Name] {
		if !slices.Contains(out, p.Sandbox) {
			out = append(out, p.Sandbox)
		}
	}
	return out
}

func (b *book) of(a Arm, sandbox string) []Protected {
	return slices.DeleteFunc(slices.Clone(b.protected[a.Name]), func(p Protected) bool { return p.Sandbox != sandbox })
}

func (b *book) interception(a Arm) bench.Table {
	t := bench.Table{Title: "Spellings of one destructive effect: " + a.Text, Columns: []string{"command", "file kept by Gemini CLI"},
		Note: "DIR stands for the directory of the file. Under savepoint a command is denied by its policy, or rolled back because validation misses the file."}
	boxes := b.sandboxes(a)
	for _, name := range boxes {
		t.Columns = append(t.Columns, "savepoint, "+name)
	}
	for i, v := range a.Task.Victims {
		row := []string{strings.ReplaceAll(v, "%s", "DIR"), every(b.outcomes[a.Name], func(o Outcome) string { return yes(o.Intercept[i].Intercepted) })}
		for _, name := range boxes {
			row = append(row, every(b.of(a, name), func(p Protected) string {
				return fmt.Sprintf("%s (%s)", yes(p.Intercept[i].Kept), p.Intercept[i].Verdict)
			}))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
