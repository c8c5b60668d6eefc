package gemini

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"savepoint/testbed/bench"
	"savepoint/testbed/model"
)

// program puts a shell script into a directory.
func putProgram(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// npmText is an npm that makes a package of the version it is asked for, and
// writes down how often it ran.
const npmText = `echo ran >> "$CALLS"
[ "$*" = "install --prefix $3 --no-audit --no-fund --ignore-scripts --save-exact @google/gemini-cli@` + Version + `" ] || exit 9
at="$3/node_modules/@google/gemini-cli"
mkdir -p "$at/bundle"
echo '{"version":"` + Version + `","bin":{"gemini":"bundle/gemini.js"}}' > "$at/package.json"
echo > "$at/bundle/gemini.js"
`

func TestInstall(t *testing.T) {
	bin, cache := t.TempDir(), t.TempDir()
	calls := filepath.Join(t.TempDir(), "calls")
	t.Setenv("CALLS", calls)
	missing := func(what string) {
		t.Helper()
		_, err := Install(t.Context(), cache)
		if m := (*MissingError)(nil); !errors.As(err, &m) || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want that %s is missing", err, what)
		}
	}
	t.Setenv("PATH", bin)
	missing("Node.js 20")
	putProgram(t, bin, "node", "echo v18.9.0")
	missing("v18.9.0")
	putProgram(t, bin, "node", "echo v22.1.0")
	missing("npm")
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	putProgram(t, bin, "npm", "echo 'no such registry' >&2; exit 1")
	missing("no such registry")
	putProgram(t, bin, "npm", npmText)
	// What an installer that was killed left under the final name is replaced.
	if err := os.MkdirAll(filepath.Join(cache, "gemini-cli-"+Version, "node_modules"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c, err := Install(t.Context(), cache)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(c.Entry); err != nil || c.NodeVersion != "v22.1.0" || c.Version != Version {
			t.Errorf("%+v %v", c, err)
		}
	}
	if ran, err := os.ReadFile(calls); err != nil || string(ran) != "ran\n" {
		t.Errorf("npm ran %q (%v), want once", ran, err)
	}
	if left, _ := os.ReadDir(cache); len(left) != 1 {
		t.Errorf("the cache holds %v", left)
	}
}

// scripted stands for a CLI: without a model nothing is done, with one everything is,
// and policy stops the first spelling.
var scripted = runner{
	run: func(_ context.Context, _ string, a Arm) (Outcome, error) {
		out := Outcome{Arm: a.Name, Terminal: a.Terminal, Isolation: Namespace, Class: AuthRequired, Matched: "set an Auth method", Exit: 41, Seconds: 2}
		if a.Terminal {
			out.Class, out.Killed, out.Asked, out.Exit = TrustScreen, true, 1.5, -1
		}
		if a.Task != nil {
			done := a.Answer != nil && a.Task.Want != nil
			out.Effect = &Effect{Wanted: done, Unchanged: a.Answer == nil}
		}
		if a.Answer == nil {
			return out, nil
		}
		out.Class, out.Exit, out.Model = Answered, 0, model.Name
		if a.Task == nil {
			return out, nil
		}
		for range a.Task.steps() {
			out.Attempts = append(out.Attempts, Attempt{Tried: Executed})
		}
		for i, v := range a.Task.Victims {
			fate := Destroyed
			if i == 0 {
				fate = Kept
			}
			out.Victims = append(out.Victims, Victim{Command: v, Fate: fate})
		}
		return out, nil
	},
	within: func(ctx context.Context, h Host, a Arm) (Within, error) {
		name, err := h.Name(ctx)
		return Within{Outcome: Outcome{Arm: a.Name, Class: Answered, Isolation: Guest, Seconds: 60, Attempts: []Attempt{{Tried: Executed}},
			Effect: &Effect{Unchanged: a.harmful(), Wanted: true}}, Sandbox: name, Verdict: RolledBack, Missed: true}, err
	},
}

func TestExperiment(t *testing.T) {
	c := Config{Sandboxes: []Sandbox{&box{}}}
	r := bench.NewRun(New(c), bench.QuickPlan())
	if err := c.measure(t.Context(), r, scripted, &CLI{Version: Version, NodeVersion: "v20"}, true); err != nil {
		t.Fatal(err)
	}
	res := r.Result()
	values := func(arm, metric string, labels ...string) []float64 {
		return res.Values(res.Is(arm, labels...), metric)
	}
	if v := values(Bare, bench.MetricSuccess); len(v) != 2 || v[0] != 0 {
		t.Errorf("success without credentials: %v", v)
	}
	if v := values("task-create-shell", bench.MetricSuccess); len(v) != 1 || v[0] != 1 {
		t.Errorf("success with a model: %v", v)
	}
	if v := values("policy-prefix", "intercepted"); len(v) != 1 || v[0] != 1/float64(len(victims(true))) {
		t.Errorf("intercepted by the CLI: %v", v)
	}
	for _, task := range []string{"damage-remove", "damage-remove-checkpoints", "policy-prefix"} {
		if v := values(task, "preserved"); len(v) != 1 || v[0] != 0 {
			t.Errorf("%s: preserved by the CLI: %v", task, v)
		}
		// The same commands with another setting of the CLI are the same under savepoint.
		want := []float64{1}
		if task == "damage-remove-checkpoints" {
			want = nil
		}
		if v := values(bench.ArmSavepoint, "preserved", "task", task, "boundary", "memory"); !slices.Equal(v, want) {
			t.Errorf("%s: preserved by savepoint: %v, want %v", task, v, want)
		}
	}
	if v := values(bench.ArmSavepoint, "intercepted", "task", "policy-prefix"); len(v) != 1 || v[0] != 1 {
		t.Errorf("intercepted by savepoint: %v", v)
	}
	for _, s := range res.Samples {
		if s.Err != "" {
			t.Errorf("%s failed: %s", s.Group(), s.Err)
		}
	}
	if len(res.Tables) != 5 || len(res.Tables[0].Rows) != len(Arms(true)) || len(res.Tables[4].Rows) != len(victims(true)) {
		t.Fatalf("%d tables %+v", len(res.Tables), res.Tables)
	}
	if inside := res.Tables[3]; len(inside.Rows) != 2 || inside.Rows[0][5] != "not in a quick run" || !strings.Contains(strings.Join(res.Notes, " "), "Not in a quick run") {
		t.Errorf("what a quick run leaves out: %v %v", inside.Rows, res.Notes)
	}
	if !strings.Contains(res.Tables[0].Note, Namespace.Text()) || strings.Contains(res.Tables[0].Note, ClosedProxy.Text()) {
		t.Errorf("what contained the runs: %s", res.Tables[0].Note)
	}
	if runs := res.Tables[0].Rows[0][4]; runs != "2" {
		t.Errorf("%s runs of the first arm, want those that were measured", runs)
	}
	for _, want := range []string{"ended by us after 2.00; asks after 1.50", "never (ended at the limit)", "41"} {
		found := false
		for _, row := range res.Tables[0].Rows {
			found = found || strings.Contains(strings.Join(row, "|"), want)
		}
		if !found {
			t.Errorf("the table of endings lacks %q: %v", want, res.Tables[0].Rows)
		}
	}
	if !strings.Contains(res.Tables[0].Note, model.Name) || res.Facts["model"] != model.Name || !strings.Contains(res.Method, model.Name) {
		t.Error("the stand-in is not called by its name")
	}
}

// The tables are kept in memory: of a run that goes on they say that they lack what
// was measured before.
func TestExperimentGoesOn(t *testing.T) {
	dir := t.TempDir()
	for _, first := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		e := New(Config{})
		e.Run = func(ctx context.Context, r *bench.Run) error {
			do := scripted
			do.run = func(ctx context.Context, dir string, a Arm) (Outcome, error) {
				if first && a.Name != Bare {
					cancel()
				}
				return scripted.run(ctx, dir, a)
			}
			return Config{}.measure(ctx, r, do, &CLI{Version: Version}, true)
		}
		run := bench.Runner{Dir: dir, Plan: bench.QuickPlan(), Experiments: []bench.Experiment{e}}
		rep, err := run.Run(ctx)
		cancel()
		if first {
			continue
		}
		if err != nil || run.Resumed == 0 {
			t.Fatalf("%d samples of before, %v", run.Resumed, err)
		}
		if notes := strings.Join(rep.Result(bench.ExpGemini).Notes, "\n"); !strings.Contains(notes, "are not in the tables") {
			t.Errorf("notes: %s", notes)
		}
	}
}

// Damage that nobody is proved to have tried is not preserved, and not intercepted.
func TestExperimentNotTried(t *testing.T) {
	idle := scripted
	idle.run = func(ctx context.Context, dir string, a Arm) (Outcome, error) {
		out, err := scripted.run(ctx, dir, a)
		if out.Effect != nil {
			out.Effect.Unchanged, out.Effect.Restorable = true, true
		}
		for i := range out.Attempts {
			out.Attempts[i] = Attempt{Tried: NotTried}
		}
		for i := range out.Victims {
			out.Victims[i].Fate = Untried
		}
		return out, err
	}
	r := bench.NewRun(New(Config{}), bench.QuickPlan())
	if err := (Config{Sandboxes: []Sandbox{&box{deaf: true}}}).measure(t.Context(), r, idle, &CLI{Version: Version}, true); err != nil {
		t.Fatal(err)
	}
	res := r.Result()
	for _, s := range res.Samples {
		for _, metric := range []string{"preserved", "intercepted", "restorable"} {
			if v, said := s.Metrics[metric]; said {
				t.Errorf("%s: %s is %v, of what was not tried", s.Group(), metric, v)
			}
		}
	}
	if v := res.Values(res.Is("damage-remove"), "tried"); !slices.Equal(v, []float64{0}) {
		t.Errorf("tried: %v", v)
	}
	if text := strings.Join(res.Notes, "\n"); !strings.Contains(text, "damage-remove: it is not proved") {
		t.Errorf("notes %s", text)
	}
	for _, row := range res.Tables[1].Rows {
		if strings.HasPrefix(row[0], "damage") && (row[3] != "not tried" || row[5] != "not tried") {
			t.Errorf("row %v", row)
		}
	}
}

// Without namespaces the arms with a model are left out, on our side they stay, and
// so do those inside a sandbox: a full run has them.
func TestExperimentWithoutModels(t *testing.T) {
	c := Config{Sandboxes: []Sandbox{&box{}}}
	r := bench.NewRun(New(c), bench.FullPlan())
	if err := c.measure(t.Context(), r, scripted, &CLI{Version: Version}, false); err != nil {
		t.Fatal(err)
	}
	res := r.Result()
	if len(res.Is(Bare)) != 8 || len(res.Is("terminal")) != 3 || len(res.Is("damage-remove")) != 0 || len(res.Is(bench.ArmSavepoint, "task", "damage-remove")) != 3 {
		t.Errorf("%d samples: %v", len(res.Samples), res.Samples)
	}
	if v := res.Values(res.Is(armInside, "task", "damage-remove", "boundary", "memory"), "preserved"); !slices.Equal(v, []float64{1, 1}) {
		t.Errorf("preserved inside: %v", v)
	}
}

// A sandbox that cannot be made is an error, after what needs none was measured.
func TestExperimentNoSandbox(t *testing.T) {
	c := Config{Sandboxes: []Sandbox{&box{lost: true}}}
	r := bench.NewRun(New(c), bench.QuickPlan())
	err := c.measure(t.Context(), r, scripted, &CLI{Version: Version}, true)
	if err == nil || !strings.Contains(err.Error(), "no room for a sandbox") {
		t.Errorf("%v", err)
	}
	if res := r.Result(); len(res.Is("damage-remove")) != 1 || len(res.Is(bench.ArmSavepoint)) != 0 {
		t.Errorf("%v", res.Samples)
	}
}

// A machine without Node.js has no baseline, and says so.
func TestExperimentSkips(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	c := Config{Cache: t.TempDir(), Scratch: t.TempDir()}
	e := New(c)
	err := e.Run(t.Context(), bench.NewRun(e, bench.QuickPlan()))
	if skip := (*bench.SkipError)(nil); !errors.As(err, &skip) || !strings.Contains(err.Error(), "Node.js") {
		t.Errorf("%v", err)
	}
}

// Every task can be made in a sandbox that protects, and one that lets damage
// through is seen.
func TestProtect(t *testing.T) {
	for _, a := range Arms(false) {
		if a.Task == nil || !a.Task.Comparable() {
			continue
		}
		good, err := Protect(t.Context(), &box{}, a)
		if err != nil {
			t.Fatal(err)
		}
		if good.tried() == NotTried || a.harmful() && !good.Unchanged || !a.harmful() && !good.Wanted {
			t.Errorf("%s: %+v", a.Name, good)
		}
		bad, err := Protect(t.Context(), &box{open: true}, a)
		if err != nil {
			t.Fatal(err)
		}
		if a.harmful() && (bad.Unchanged || bad.Wanted || bad.tried() != Executed) || len(bad.Victims) > 0 && bad.Victims[0].Fate != Destroyed {
			t.Errorf("%s: damage is not seen: %+v", a.Name, bad)
		}
		// Nothing runs here, and nothing is damaged: that is no protection.
		idle, err := Protect(t.Context(), &box{deaf: true}, a)
		if err != nil {
			t.Fatal(err)
		}
		if len(idle.Attempts) > 0 && idle.tried() != NotTried || len(idle.Victims) > 0 && idle.Victims[0].Fate != NoEffect {
			t.Errorf("%s: that nothing was tried is not seen: %+v", a.Name, idle)
		}
	}
}

// Each arm has a name of its own and a limit; quick ones are a part of all.
func TestArms(t *testing.T) {
	all := map[string]bool{}
	for _, a := range Arms(false) {
		if all[a.Name] || a.Limit <= 0 || a.Text == "" || a.Answer == nil && a.Task == nil {
			t.Errorf("arm %+v", a)
		}
		all[a.Name] = true
	}
	quick := Arms(true)
	for _, a := range quick {
		if !all[a.Name] {
			t.Errorf("arm %s is in a quick look only", a.Name)
		}
	}
	if len(quick) >= len(all) || !all[Bare] {
		t.Errorf("%d of %d arms are quick", len(quick), len(all))
	}
}
