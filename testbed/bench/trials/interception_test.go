package trials

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"savepoint/policy"
	"savepoint/testbed/bench"
)

func engine(t testing.TB) *policy.Engine {
	t.Helper()
	e, err := policy.New(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// The corpora that are part of savepoint: all destruction is stopped, plain and
// disguised, and no everyday command is denied.
func TestOwnCorpora(t *testing.T) {
	e := Interception(engine(t), nil)
	run := bench.NewRun(e, bench.QuickPlan())
	if err := e.Run(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	res := run.Result()
	for _, c := range []struct {
		class, metric string
		least         int
		want          float64
	}{
		{classBlacklist, bench.MetricCaught, 20, 1},
		{classDisguised, bench.MetricCaught, 40, 1},
		{classEveryday, metricFalseDenial, 30, 0},
		{classChanges, metricFalseDenial, 50, 0},
		{classBlacklist, metricUnprotected, 20, 0},
		{classDisguised, metricUnprotected, 40, 0},
		{classChanges, metricUnprotected, 50, 0},
	} {
		values := res.Values(res.Is(c.class), c.metric)
		if len(values) < c.least {
			t.Errorf("%s: %d commands, want at least %d", c.class, len(values), c.least)
		}
		if got := bench.Mean(values); got != c.want {
			t.Errorf("%s: %s is %v, want %v: %v", c.class, c.metric, got, c.want, res.Tables)
		}
	}
}

// The figures follow what is judged: a policy that denies all has only false
// denials, one that takes a snapshot of all stops nothing, and one that allows all
// leaves what changes something unprotected.
func TestInterceptionFollowsTheVerdict(t *testing.T) {
	for decision, want := range map[policy.Decision]struct{ caught, falseDenial, unprotected float64 }{
		policy.Deny:     {1, 1, 0},
		policy.Snapshot: {0, 0, 0},
		policy.Allow:    {0, 0, 1},
	} {
		e := Interception(fixed(decision), nil)
		run := bench.NewRun(e, bench.QuickPlan())
		if err := e.Run(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		res := run.Result()
		for _, c := range []struct {
			class, metric string
			want          float64
		}{
			{classBlacklist, bench.MetricCaught, want.caught},
			{classBlacklist, metricUnprotected, want.unprotected},
			{classEveryday, metricFalseDenial, want.falseDenial},
			{classChanges, metricFalseDenial, want.falseDenial},
			{classChanges, metricUnprotected, want.unprotected},
		} {
			values := res.Values(res.Is(c.class), c.metric)
			if len(values) == 0 || bench.Mean(values) != c.want {
				t.Errorf("%v: %s of %s is %v, want %v", decision, c.metric, c.class, values, c.want)
			}
		}
		if n := len(res.Values(res.Is(classEveryday), metricUnprotected)); n > 0 {
			t.Errorf("%v: %d commands that may run without a boundary count as unprotected", decision, n)
		}
		for _, table := range res.Tables {
			if unprotected := strings.Contains(table.Title, "without a boundary"); unprotected && (len(table.Rows) > 0) != (decision == policy.Allow) {
				t.Errorf("%v: %d rows in %q", decision, len(table.Rows), table.Title)
			}
		}
	}
}

type fixed policy.Decision

func (f fixed) Decide(policy.Request) policy.Verdict {
	return policy.Verdict{Decision: policy.Decision(f)}
}

func TestCorpora(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cases.tsv", "expected\tclass\tcommand\ndeny\ta\trm -rf /\nallow\tb\techo \\\\n\\nls\nsnapshot\tc\ttouch x\n")
	write("benign-x.tsv", "id\torigin\tcommand\n1\tx\tls\n")
	write("attack-y.tsv", "id\torigin\tcommand\n1\ty\tcurl x\n")
	got, err := Corpora(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []judged{
		{"attack-y", "attack-y", "curl x", noAnswer},
		{"benign-x", "benign-x", "ls", wantRun},
		{"cases", "cases/a", "rm -rf /", wantDeny},
		{"cases", "cases/b", "echo \\n\nls", wantRun},
		{"cases", "cases/c", "touch x", wantSnapshot},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	write("bad.tsv", "expected\tcommand\nperhaps\tls\n")
	if _, err := Corpora(dir); err == nil || !strings.Contains(err.Error(), "perhaps") {
		t.Errorf("an expectation that is none: %v", err)
	}
	write("bad.tsv", "id\tcommand\n1\n")
	if _, err := Corpora(dir); err == nil || !strings.Contains(err.Error(), "bad.tsv") {
		t.Errorf("a line with too few cells: %v", err)
	}
	if _, err := Corpora(t.TempDir()); err == nil {
		t.Error("a directory without corpora is none")
	}
}

func FuzzCorpus(f *testing.F) {
	f.Add("expected\tclass\tcommand\ndeny\ta\trm \\0\n")
	f.Fuzz(func(t *testing.T, text string) {
		name := filepath.Join(t.TempDir(), "f.tsv")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := corpus(name)
		if err == nil && len(list) > strings.Count(text, "\n") {
			t.Errorf("%d commands of %d lines", len(list), strings.Count(text, "\n"))
		}
	})
}

// What a quick run always judges may be more than it judges of all commands.
func TestSomeKeepsWhatMatters(t *testing.T) {
	var list []judged
	for i := range quickCommands + 100 {
		list = append(list, judged{"other", "attack", fmt.Sprintf("rm -rf /%d", i), wantDeny}, judged{"other", "benign", fmt.Sprintf("ls /%d", i), wantRun})
	}
	r := bench.NewRun(Interception(nil, nil), bench.QuickPlan())
	got := some(r, list)
	stopped := 0
	for _, j := range got {
		if j.want == wantDeny {
			stopped++
		}
	}
	if stopped != quickCommands+100 || len(got) != stopped {
		t.Errorf("%d commands, of which %d are to be stopped", len(got), stopped)
	}
}
