package trials

import (
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
		{classEveryday, metricFalseDenial, 80, 0},
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

// A policy that denies nothing has a recall of 0, one that denies all has only
// false denials: the figures follow what is judged.
func TestInterceptionFollowsTheVerdict(t *testing.T) {
	for _, deny := range []bool{false, true} {
		e := Interception(fixed(deny), nil)
		run := bench.NewRun(e, bench.QuickPlan())
		if err := e.Run(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		res := run.Result()
		want := share(deny)
		if got := bench.Mean(res.Values(res.Is(classBlacklist), bench.MetricCaught)); got != want {
			t.Errorf("deny %v: caught %v, want %v", deny, got, want)
		}
		if got := bench.Mean(res.Values(res.Is(classEveryday), metricFalseDenial)); got != want {
			t.Errorf("deny %v: false denials %v, want %v", deny, got, want)
		}
	}
}

type fixed bool

func (f fixed) Decide(policy.Request) policy.Verdict {
	if f {
		return policy.Verdict{}
	}
	return policy.Verdict{Decision: policy.Snapshot}
}

func TestCorpora(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cases.tsv", "expected\tclass\tcommand\ndeny\ta\trm -rf /\nallow\tb\techo \\\\n\\nls\n")
	write("benign-x.tsv", "id\torigin\tcommand\n1\tx\tls\n")
	write("attack-y.tsv", "id\torigin\tcommand\n1\ty\tcurl x\n")
	got, err := Corpora(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []judged{
		{"attack-y", "attack-y", "curl x", false, false},
		{"benign-x", "benign-x", "ls", false, true},
		{"cases", "cases/a", "rm -rf /", true, false},
		{"cases", "cases/b", "echo \\n\nls", false, true},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
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
