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
	for _, t := range []bench.Table{b.effects(arms), b.proofs(arms), b.inside(arms)} {
		if len(t.Rows) > 0 {
			r.Table(t)
		}
	}
	for _, a := range arms {
		if a.Task != nil && len(a.Task.Victims) > 0 && len(b.outcomes[a.Name]) > 0 {
			r.Table(b.interception(a))
		}
	}
	if len(b.left) > 0 {
		r.Note("Not in a quick run: the Gemini CLI inside a sandbox (%s), whose start alone takes most of a minute where guests are emulated.", armInside)
	}
	for _, a := range arms {
		if list := b.outcomes[a.Name]; a.harmful() && slices.ContainsFunc(list, func(o Outcome) bool { return o.tried() == NotTried }) {
			r.Note("%s: it is not proved that the Gemini CLI tried the damage; nothing is said of what became of it.", a.Name)
		}
	}
}

func (b *book) endings(arms []Arm) bench.Table {
	t := bench.Table{Title: "How the Gemini CLI " + Version + " ends", Columns: []string{"arm", "what", "mode", "contained by", "runs", "exit", "seconds, median (range)", "outcome", "text that was seen"},
		Note: "An exit code is given where the CLI ended by itself. Arms with a key are answered by the " + model.Name + "."}
	for _, i := range b.isolations() {
		t.Note += fmt.Sprintf(" Contained by %s means: %s.", i, i.Text())
	}
	for _, a := range arms {
		list := b.outcomes[a.Name]
		if len(list) == 0 {
			continue
		}
		t.Rows = append(t.Rows, []string{a.Name, a.Text, mode(a.Terminal),
			every(list, func(o Outcome) string { return string(o.Isolation) }), strconv.Itoa(len(list)),
			every(list, Outcome.exit), seconds(list),
			every(list, func(o Outcome) string { return string(o.Class) }),
			every(list, func(o Outcome) string { return o.Matched })})
	}
	return t
}

func (o Outcome) exit() string {
	if o.Killed {
		return "never (ended at the limit)"
	}
	return strconv.Itoa(o.Exit)
}

// seconds is how long those took that ended by themselves; of others when they were
// ended, and how soon a question was there.
func seconds(list []Outcome) string {
	var ended, killed, asked []float64
	for _, o := range list {
		switch {
		case !o.Killed:
			ended = append(ended, o.Seconds)
		default:
			killed = append(killed, o.Seconds)
			if o.Asked > 0 {
				asked = append(asked, o.Asked)
			}
		}
	}
	var out []string
	if len(ended) > 0 {
		out = append(out, spread(ended))
	}
	if len(killed) > 0 {
		out = append(out, "ended by us after "+spread(killed))
	}
	if len(asked) > 0 {
		out = append(out, "asks after "+spread(asked))
	}
	return strings.Join(out, "; ")
}

func spread(v []float64) string {
	if len(v) == 1 {
		return fmt.Sprintf("%.2f", v[0])
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", median(v), slices.Min(v), slices.Max(v))
}

func median(v []float64) float64 {
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
