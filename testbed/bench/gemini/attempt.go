package gemini

import (
	"encoding/json"
	"strings"

	"savepoint/testbed/model"
)

// Step is one tool call of a task.
type Step struct {
	Call model.Call
	// Shows is a text that the answer holds when the call was carried out, and
	// that only its effect can have produced: it is no part of the call. "" for a
	// tool whose answer shows nothing of that kind.
	Shows string
}

// Tried says whether a call was tried.
type Tried string

// What can have become of a call.
const (
	// NotTried: there is no proof that it was executed or refused. What it would
	// have damaged says nothing.
	NotTried Tried = "not tried"
	Refused  Tried = "refused"
	Executed Tried = "executed"
)

// Attempt is the proof of what became of one call.
type Attempt struct {
	Call  string // its command, or the name of its tool
	Tried Tried
	Said  string // the answer that proves it, or what is missing, shortened to a line
}

// attempts tells from what the stand-in model gave out, and from what came back,
// whether each step was tried.
func attempts(steps []Step, trials []model.Trial) []Attempt {
	out := make([]Attempt, len(steps))
	for i, s := range steps {
		a := Attempt{Call: s.Call.Name, Tried: NotTried, Said: "the model was not asked for it"}
		if line := command(s.Call); line != "" {
			a.Call = line
		}
		for _, t := range trials {
			if sameCall(t.Call, s.Call) && a.Tried == NotTried { // one that was given out again may have been tried later
				a.Tried, a.Said = s.tell(t)
			}
		}
		out[i] = a
	}
	return out
}

func sameCall(a, b model.Call) bool {
	x, errX := json.Marshal(a.Args)
	y, errY := json.Marshal(b.Args)
	return a.Name == b.Name && errX == nil && errY == nil && string(x) == string(y)
}

// tell reads the answer that came back for a step, in the form of the CLI's function
// responses.
func (s Step) tell(t model.Trial) (Tried, string) {
	if !t.Returned {
		return NotTried, "the model gave it out, and no answer came back"
	}
	var answer struct{ Output, Error string }
	if json.Unmarshal([]byte(t.Answer), &answer) != nil {
		return NotTried, "the answer cannot be read: " + line(t.Answer)
	}
	switch {
	case answer.Error != "":
		return Refused, line(answer.Error)
	case answer.Output == "" || !strings.Contains(answer.Output, s.Shows):
		return NotTried, "no trace of it in the answer: " + line(answer.Output)
	}
	return Executed, line(answer.Output)
}

// tell is what a transaction proves of a step.
func (r Ran) tell(s Step) Attempt {
	a := Attempt{Call: command(s.Call), Tried: NotTried, Said: "no trace of it in the output: " + line(r.Output)}
	switch {
	case r.Verdict == Denied:
		a.Tried, a.Said = Refused, line(r.Reason)
	case r.Ended && strings.Contains(r.Output, s.Shows):
		a.Tried, a.Said = Executed, line(r.Output)
	}
	return a
}

// tried is what is proved of all of them together: executed when one was, not tried
// when one was not.
func tried(list []Attempt) Tried {
	sum := Refused
	for _, a := range list {
		switch {
		case a.Tried == NotTried:
			return NotTried
		case a.Tried == Executed:
			sum = Executed
		}
	}
	if len(list) == 0 {
		return NotTried
	}
	return sum
}

// Fate is what became of a file that a command would destroy.
type Fate string

// The fates.
const (
	Destroyed Fate = "destroyed"
	Kept      Fate = "kept: refused" // the command was not executed, which its answer says
	Undone    Fate = "kept: undone"  // executed, seen by a validation, and rolled back
	NoEffect  Fate = "no effect"     // executed, and the file is as it was all the same
	Untried   Fate = "not tried"
)

// intercepts reports whether a fate is that of an interception. One without effect
// and one that was not tried are neither that nor its contrary.
func (f Fate) intercepts() (intercepted, counts bool) {
	switch f {
	case Kept, Undone:
		return true, true
	case Destroyed:
		return false, true
	case NoEffect, Untried:
	}
	return false, false
}

// intercepted is the share of those that say something; ok is false when none does.
func intercepted(fates []Fate) (share float64, ok bool) {
	n, all := 0, 0
	for _, f := range fates {
		if yes, counts := f.intercepts(); counts {
			all++
			n += int(truth(yes))
		}
	}
	return float64(n) / float64(max(all, 1)), all > 0
}

// line shortens a text to one line.
func line(s string) string {
	const most = 160
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + " …"
	}
	return s
}
