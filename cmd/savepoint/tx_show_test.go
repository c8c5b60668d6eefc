package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// filled is a transaction in which every field has a value of its own, and
// where each value is to be found in what is shown of it.
type filled struct {
	n    int
	want map[string]string // by the field's path
}

func (f *filled) next() int { f.n++; return f.n }

var began = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func (f *filled) fill(v reflect.Value, path string) {
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		d := time.Duration(f.next()) * time.Millisecond
		*x, f.want[path] = began.Add(d), "+"+short(d)
		return
	case *time.Duration:
		*x = time.Duration(f.next()) * time.Millisecond
		f.want[path] = short(*x)
		return
	case *netip.Addr:
		*x = netip.AddrFrom4([4]byte{10, 9, 8, byte(f.next())})
		f.want[path] = x.String()
		return
	case *orchestrator.SandboxState, *orchestrator.State:
		v.SetString("committed")
		return
	}
	switch v.Kind() {
	case reflect.String:
		text := fmt.Sprintf("text%03d", f.next())
		switch {
		case v.Type() != reflect.TypeFor[string]() || among(words, path):
		case among(prose, path):
			text += " and more"
		default:
			text += "  a\t b "
		}
		v.SetString(text)
		f.want[path] = text
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(700000 + f.next()))
		f.want[path] = fmt.Sprint(v.Int())
	case reflect.Bool:
		v.SetBool(true) // see TestShowSaysWhether
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), path)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			f.fill(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if t := v.Type().Field(i); t.IsExported() {
				f.fill(v.Field(i), strings.TrimPrefix(path+"."+t.Name, "."))
			}
		}
	default:
		panic(path + ": a kind that the test does not know: " + v.Kind().String())
	}
}

// fillTransaction fills a transaction of one command, or of several.
func fillTransaction(several bool) (orchestrator.Transaction, map[string]string) {
	f := &filled{want: map[string]string{}}
	var t orchestrator.Transaction
	f.fill(reflect.ValueOf(&t).Elem(), "")
	t.Began, t.Several, t.Settled = began, several, false
	t.Ended, t.Expires = began.Add(time.Hour), began.Add(2*time.Hour)
	for i := range t.Steps {
		f.want[fmt.Sprintf("Steps[%d].Took", i)] = short(t.Steps[i].Took)
	}
	for path, when := range map[string]time.Time{"Began": t.Began, "Ended": t.Ended, "Expires": t.Expires} {
		f.want[path] = fmt.Sprintf("\n%-*s%s", labels, strings.ToLower(path), when.Local().Format(time.RFC3339))
	}
	none := []string{"Commands", "Points"} // of another kind of transaction
	if several {
		none = []string{"Command", "Runs", "Digest", "Dir", "EnvNames", "Timeout", "Verdict", "Guard", "Result", "Changed", "ChangedCount"}
	}
	for _, name := range none {
		reflect.ValueOf(&t).Elem().FieldByName(name).SetZero()
		for path := range f.want {
			if first, _, _ := strings.Cut(strings.ReplaceAll(path, "[", "."), "."); first == name {
				delete(f.want, path)
			}
		}
	}
	return t, f.want
}

// Texts that hold no blank, and those that say the same however they are
// broken, by the ends of their fields' paths. Every other one may be any text
// at all, and has to be shown as it is.
var (
	words = []string{
		"By", "Owner", "Profile", "Digest", "StdoutDigest", "StderrDigest", "BootID", "Node", "EnvNames[]", "Decision", "Rule",
		"Sandbox.Name", "Points[].Name", "Event", "Signal",
	}
	prose = []string{"Reason", "Alternative", "Mend", "Detail"}
)

func among(ends []string, path string) bool {
	path = "." + anyIndex.Replace(path)
	return slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(path, "."+end) })
}

var anyIndex = strings.NewReplacer("[0]", "[]", "[1]", "[]")

// said reports whether a text is in what is shown: as it is, in lines that were
// broken where there was no more room, or as words with line ends between them.
func said(shown, text string) bool {
	for _, margin := range []int{labels, labels + 2} {
		if strings.Contains(strings.ReplaceAll(shown, "\n"+strings.Repeat(" ", margin), ""), text) {
			return true
		}
	}
	return !strings.Contains(text, "  ") && strings.Contains(lineEnd.ReplaceAllString(shown, " "), text) ||
		strings.Contains(shown, text)
}

var lineEnd = regexp.MustCompile(`\n {6,}`)

// notShown is what only the JSON form has, and why.
var notShown = map[string]string{
	"Sandbox.Template":  "it is the sandbox's, not the transaction's",
	"Sandbox.HostKey":   "it is the sandbox's; sandbox show says it",
	"Sandbox.Workspace": "it is the sandbox's, not the transaction's",
	"Sandbox.Created":   "it is the sandbox's; sandbox list says it",
	"Sandbox.Recipe":    "it is the sandbox's, for the pool to compare",
	"Sandbox.Reason":    "it is the sandbox's; sandbox show says it",
	"Tasks":             "each is a step, with its UPID and when it was noted",
	"Points[].N":        "they are in order",
	"Points[].BootID":   "the transaction's says whether the guest is the same",
	"Result.Stdout":     "see TestShowOutput", "Result.Stderr": "see TestShowOutput",
}

func shown(t *testing.T, tx orchestrator.Transaction, width int) string {
	t.Helper()
	var out bytes.Buffer
	a := &app{out: &out, getenv: func(name string) string {
		if name == "COLUMNS" {
			return fmt.Sprint(width)
		}
		return ""
	}}
	if err := a.printTransaction(tx); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// All that is recorded is shown, but for what notShown names, in any width, and no line is wider than the
// terminal but for a word that would be broken.
func TestShowIsWhole(t *testing.T) {
	for _, several := range []bool{false, true} {
		tx, want := fillTransaction(several)
		for _, width := range []int{60, 100, 200} {
			text := shown(t, tx, width)
			for path, value := range want {
				if hidden(path) {
					continue
				}
				if !said(text, value) {
					t.Errorf("several %t, %d columns: %s (%s) is not shown", several, width, path, value)
				}
			}
			for line := range strings.Lines(text) {
				line = strings.TrimRight(line, "\n")
				if rest := line[min(len(line), labels):]; visible(strings.ReplaceAll(line, "\t", "        ")) > width && len(strings.Fields(rest)) > 1 {
					t.Errorf("several %t: a line of %d in %d columns: %q", several, visible(line), width, line)
				}
			}
			if t.Failed() {
				t.Fatal(text)
			}
		}
	}
}

func hidden(path string) bool {
	path = anyIndex.Replace(path)
	for name := range notShown {
		if path == name || strings.HasPrefix(path, name+".") || strings.HasPrefix(path, name+"[") || strings.HasSuffix(path, "."+name) {
			return true
		}
	}
	return false
}

// What is yes or no is seen as well.
func TestShowSaysWhether(t *testing.T) {
	for _, several := range []bool{false, true} {
		tx, _ := fillTransaction(several)
		before := shown(t, tx, 100)
		var walk func(v reflect.Value, path string)
		walk = func(v reflect.Value, path string) {
			switch v.Kind() {
			case reflect.Bool:
				v.SetBool(!v.Bool())
				if shown(t, tx, 100) == before && path != ".Several" && !(several && path == ".Verdict.Recoverable") {
					t.Errorf("several %t: nobody sees whether %s", several, path)
				}
				v.SetBool(!v.Bool())
			case reflect.Pointer:
				if !v.IsNil() {
					walk(v.Elem(), path)
				}
			case reflect.Slice:
				for i := range v.Len() {
					walk(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
				}
			case reflect.Struct:
				for i := range v.NumField() {
					if v.Type().Field(i).IsExported() && v.Type() != reflect.TypeFor[time.Time]() {
						walk(v.Field(i), path+"."+v.Type().Field(i).Name)
					}
				}
			}
		}
		walk(reflect.ValueOf(&tx).Elem(), "")
	}
}

// A command is shown byte for byte, and an output with how much of it is kept.
func TestShowOutput(t *testing.T) {
	tx := orchestrator.Transaction{
		State: orchestrator.StateCommitted, Settled: true, Command: "a  b\n\tc \x1b[31m\xff" + strings.Repeat(" word", 30), Redacted: 1,
		Result:  &orchestrator.RanView{Stdout: "one\x1b[2J\ntwo", StdoutBytes: 100, StdoutDigest: "d1", Stderr: "x=" + orchestrator.Redacted, StderrBytes: 9, StderrDigest: "d2"},
		Changed: []orchestrator.Change{{Path: "/a\nb", Kind: orchestrator.ChangeAdded}}, ChangedCount: 3,
	}
	text := shown(t, tx, 60)
	for _, want := range []string{
		"\ncommand      a  b\n             \tc \\x1b[31m\\xff word",
		"\nstdout       100 bytes, the first 11 kept and 89 left out,\n             sha256:d1\n",
		"\nstderr       9 bytes, 12 bytes kept, without secrets,\n             sha256:d2\n",
		"\nstdout:\n  one\\x1b[2J\n  two\nstderr:\n  x=[redacted]\n",
		"\nredacted     1 secret was taken out of the record\n",
		"\nadded        /a\n             b\nand          2 more paths, of 3\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") || strings.Contains(text, "\xff") {
		t.Errorf("it would steer the terminal:\n%q", text)
	}
}

// Of what can be any text, every byte is shown: a person tells two keys, two
// paths or two commands apart that differ in blanks alone.
func TestShowExactly(t *testing.T) {
	const odd = " two  blanks\tand\ta tab \t"
	change := orchestrator.Change{Path: odd, Kind: orchestrator.ChangeAdded}
	verdict := orchestrator.Judgement{
		Effects: []policy.Effect{{Locus: "vm-disk", Reversible: true, Target: odd}, {Locus: "network", Target: odd}},
		Lifted:  []policy.Lift{{Rule: "r", By: "grant g", Target: odd}, {Rule: "r2", By: "rule x"}},
	}
	checks := []orchestrator.Check{{Name: odd, OK: true}, {Name: odd, Detail: "no"}}
	tx := orchestrator.Transaction{
		State: orchestrator.StateCommitted, Settled: true, Command: odd, Runs: odd, Dir: odd, Key: odd, Verdict: verdict, Checks: checks,
		Guard:   &orchestrator.Guard{Protect: []string{odd}},
		Changed: []orchestrator.Change{change}, ChangedCount: 1,
		Validate: []orchestrator.ValidateView{{Command: odd, Verdict: verdict}},
		Result:   &orchestrator.RanView{Stdout: odd + "\nx", StdoutBytes: 99},
	}
	rows := []string{
		"key          " + odd, "command      " + odd, "ran as       " + odd, "directory    " + odd, "protect      " + odd, "added        " + odd,
		"effect       vm-disk " + odd, "effect       network " + odd + ", cannot be undone", "lifted       r by grant g: " + odd, "lifted       r2 by rule x",
		"check        ok: " + odd, "check        failed: " + odd + ": no", "validate     " + odd,
	}
	text := shown(t, tx, 100)
	for _, want := range append(rows, "  effect     vm-disk "+odd, "  lifted     r by grant g: "+odd, "stdout:\n  "+odd+"\n  x") {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("missing %q in\n%q", want, text)
		}
	}
	several := orchestrator.Transaction{State: orchestrator.StateOpen, Several: true, Commands: []orchestrator.CommandView{{
		N: 1, Key: odd, Command: odd, Runs: odd, Dir: odd, Verdict: verdict, Checks: checks, Guard: tx.Guard,
		Validate: tx.Validate, Changed: tx.Changed, ChangedCount: 1,
	}}}
	text = shown(t, several, 100)
	for _, want := range rows {
		if !strings.Contains(text, "\n  "+want+"\n") {
			t.Errorf("one of several: missing %q in\n%q", want, text)
		}
	}

	// A line end at the end is one more line, and tabs count as wide as they can be.
	f := &facts{width: 40}
	f.exact("a", "one\n")
	f.exact("b", "\n\n")
	f.exact("c", "\t\t\t\tx")
	var out bytes.Buffer
	if err := f.print(&out); err != nil || out.String() != "a            one\n\nb\n\n\nc            \t\t\t\n             \tx\n" {
		t.Errorf("%v: %q", err, out.String())
	}
}

func TestAfter(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "+0.0 ms", 1500 * time.Millisecond: "+1.5 s", -1555600 * time.Microsecond: "-1.6 s", -20 * time.Millisecond: "-20 ms"} {
		if got := after(d); got != want {
			t.Errorf("after(%s) is %q, want %q", d, got, want)
		}
	}
}
