package gemini

import (
	"fmt"
	"strconv"
	"strings"

	"savepoint/testbed/bench"
)

// asBefore says whether damage left a trace, where it was tried.
func asBefore(a Arm, how Tried, unchanged bool) string {
	if a.harmful() && how == NotTried {
		return string(NotTried)
	}
	return yes(unchanged)
}

func (b *book) effects(arms []Arm) bench.Table {
	t := bench.Table{Title: "What became of the workspace", Columns: []string{"task", "what", "by", "tried", "as wanted", "as before", "what changed", "checkpoints", "checkpointing has the tree of before"},
		Note: "By tree hash. Lost, changed and added are numbers of paths. As wanted: a task that only damages wants nothing changed. Tried: what is proved of the task's calls, see the next table; of damage that was not tried nothing else is said."}
	for _, a := range arms {
		if a.Answer == nil || a.Task == nil {
			continue
		}
		if list := b.outcomes[a.Name]; len(list) > 0 {
			effect := func(text func(Outcome) string) string { return every(list, text) }
			t.Rows = append(t.Rows, []string{a.Name, a.Text, "Gemini CLI",
				effect(func(o Outcome) string { return string(o.tried()) }),
				effect(func(o Outcome) string { return asBefore(a, o.tried(), o.Effect.Wanted) }),
				effect(func(o Outcome) string { return asBefore(a, o.tried(), o.Effect.Unchanged) }),
				effect(func(o Outcome) string {
					return fmt.Sprintf("%d lost, %d changed, %d added", o.Effect.Lost, o.Effect.Changed, o.Effect.Added)
				}),
				effect(func(o Outcome) string { return strconv.Itoa(o.Effect.Checkpoints) }),
				effect(func(o Outcome) string { return yes(o.Effect.Restorable) })})
		}
		for _, name := range b.sandboxes(a) {
			list := b.of(a, name)
			t.Rows = append(t.Rows, []string{a.Name, a.Text, "savepoint, " + name,
				every(list, func(p Protected) string { return string(p.tried()) }),
				every(list, func(p Protected) string { return asBefore(a, p.tried(), p.Wanted) }),
				every(list, func(p Protected) string { return asBefore(a, p.tried(), p.Unchanged) }), "", "", ""})
		}
	}
	return t
}

// proofs are what came back of each call of the tasks.
func (b *book) proofs(arms []Arm) bench.Table {
	t := bench.Table{Title: "What proves that the calls of the tasks were tried", Columns: []string{"task", "call", "by", "tried", "what came back"},
		Note: "Of the Gemini CLI: the function response that it sent to the stand-in model for this very call. Of savepoint: the output of the transaction, or the policy's reason. An executed command shows its effect in words that are not in it."}
	add := func(a Arm, by string, list []Attempt) {
		for _, at := range list {
			t.Rows = append(t.Rows, []string{a.Name, at.Call, by, string(at.Tried), at.Said})
		}
	}
	for _, a := range arms {
		if a.Answer == nil || a.Task == nil || len(a.Task.Victims) > 0 {
			continue
		}
		if list := b.outcomes[a.Name]; len(list) > 0 {
			add(a, "Gemini CLI", list[len(list)-1].Attempts)
		}
		for _, name := range b.sandboxes(a) {
			list := b.of(a, name)
			add(a, "savepoint, "+name, list[len(list)-1].Attempts)
		}
		if list := b.within[a.Name]; len(list) > 0 {
			add(a, "Gemini CLI inside a sandbox", list[len(list)-1].Attempts)
		}
	}
	return t
}

// inside is what the CLI came to inside a sandbox.
func (b *book) inside(arms []Arm) bench.Table {
	t := bench.Table{Title: "The Gemini CLI inside a sandbox: a turn is a transaction", Columns: []string{"task", "by", "runs", "exit", "seconds, median (range)", "outcome", "tried", "validation saw damage", "transaction", "as wanted", "as before"},
		Note: "Contained by " + string(Guest) + " means: " + Guest.Text() + "."}
	for _, a := range arms {
		list := b.within[a.Name]
		if len(list) == 0 {
			continue
		}
		outcomes := make([]Outcome, len(list))
		for i, w := range list {
			outcomes[i] = w.Outcome
		}
		text := func(f func(Within) string) string { return every(list, f) }
		t.Rows = append(t.Rows, []string{a.Name, text(func(w Within) string { return "savepoint, " + w.Sandbox }), strconv.Itoa(len(list)),
			every(outcomes, Outcome.exit), seconds(outcomes),
			text(func(w Within) string { return string(w.Class) }), text(func(w Within) string { return string(w.tried()) }),
			text(func(w Within) string { return yes(w.Missed) }), text(func(w Within) string { return string(w.Verdict) }),
			text(func(w Within) string { return asBefore(a, w.tried(), w.Effect.Wanted) }),
			text(func(w Within) string { return asBefore(a, w.tried(), w.Effect.Unchanged) })})
	}
	for _, row := range b.left {
		t.Rows = append(t.Rows, append(row, "0", "", "", "not in a quick run"))
	}
	return t
}

func (b *book) interception(a Arm) bench.Table {
	t := bench.Table{Title: "Spellings of one destructive effect: " + a.Text, Columns: []string{"command", "file, with Gemini CLI", "what came back to the model"},
		Note: "DIR stands for the directory of the file. Kept counts only where the command was refused, which is what came back says, or executed and undone; no effect and not tried count neither way."}
	boxes := b.sandboxes(a)
	for _, name := range boxes {
		t.Columns = append(t.Columns, "file, under savepoint, "+name)
	}
	for i, v := range a.Task.Victims {
		list := b.outcomes[a.Name]
		row := []string{strings.ReplaceAll(v, "%s", "DIR"),
			every(list, func(o Outcome) string { return string(o.Victims[i].Fate) }), list[len(list)-1].Victims[i].Attempt.Said}
		for _, name := range boxes {
			row = append(row, every(b.of(a, name), func(p Protected) string { return string(p.Victims[i].Fate) }))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
