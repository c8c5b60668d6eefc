package bench

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// play makes experiments of these names, which count how often they ran.
func play(names ...string) ([]Experiment, map[string]int) {
	ran := map[string]int{}
	var out []Experiment
	for _, name := range names {
		out = append(out, Experiment{Name: name, Title: "Title of " + name, Quick: time.Minute, Run: func(_ context.Context, r *Run) error {
			ran[name]++
			r.Add(Sample{Arm: "a", Metrics: map[string]float64{MetricSeconds: float64(ran[name])}})
			return nil
		}})
	}
	return out, ran
}

func TestRunnerGoesOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run-1")
	exps, ran := play("one", "two", "three")
	ctx, stop := context.WithCancelCause(t.Context())
	good := exps[1].Run
	exps[1].Run = func(ctx context.Context, r *Run) error {
		stop(errors.New("pulled the plug"))
		return good(ctx, r)
	}
	r := &Runner{Dir: dir, Plan: QuickPlan(), Experiments: exps}
	if _, err := r.Run(ctx); err == nil || !strings.Contains(err.Error(), "experiment two") || !strings.Contains(err.Error(), "pulled the plug") {
		t.Fatalf("stopped: %v", err)
	}
	if rep, err := Load(dir); err != nil || !slices.Equal(rep.Open(), []string{"two", "three"}) {
		t.Fatalf("%+v, %v", rep, err)
	}
	exps[1].Run = good
	rep, err := r.Run(t.Context())
	if err != nil || len(rep.Results) != 3 || rep.Open() != nil || rep.Info.ID != "run-1" {
		t.Fatalf("%+v, %v", rep, err)
	}
	if ran["one"] != 1 || ran["two"] != 2 || ran["three"] != 1 {
		t.Errorf("ran %v", ran)
	}
	// Only what is asked for is made again, and what comes new is added.
	more, ranMore := play("four", "one")
	r.Experiments, r.Again = more, []string{"one"}
	rep, err = r.Run(t.Context())
	if err != nil || ranMore["one"] != 1 || ranMore["four"] != 1 || !slices.Equal(rep.Info.Experiments, []string{"one", "two", "three", "four"}) {
		t.Errorf("ran %v, %v, %v", ranMore, rep.Info.Experiments, err)
	}
}

// A process that is gone in the middle leaves what was finished, and nothing half.
func TestRunnerCrash(t *testing.T) {
	exps, ran := play("one", "two", "three")
	if dir := os.Getenv("BENCH_TEST_CRASH"); dir != "" {
		exps[1].Run = func(_ context.Context, r *Run) error {
			r.Add(Sample{Arm: "half"})
			os.Exit(7)
			return nil
		}
		_, err := (&Runner{Dir: dir, Plan: QuickPlan(), Experiments: exps}).Run(t.Context())
		t.Fatalf("lives on: %v", err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRunnerCrash$")
	cmd.Env = append(os.Environ(), "BENCH_TEST_CRASH="+dir)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Fatalf("%v: %s", err, out)
	}
	rep, err := (&Runner{Dir: dir, Plan: QuickPlan(), Experiments: exps}).Run(t.Context())
	if err != nil || ran["one"] != 0 || ran["two"] != 1 || ran["three"] != 1 {
		t.Fatalf("ran %v, %v", ran, err)
	}
	if n := len(rep.Result("two").Samples); n != 1 || len(rep.Result("two").Is("half")) != 0 {
		t.Errorf("%d samples of two", n)
	}
}

func TestRunnerOutcomes(t *testing.T) {
	dir := t.TempDir()
	exps, ran := play("fails", "lacks", "fine")
	for i, err := range []error{errors.New("it broke"), Skip("%s is not installed", "npm")} {
		good := exps[i].Run
		exps[i].Run = func(ctx context.Context, r *Run) error { return errors.Join(good(ctx, r), err) }
	}
	c := &clock{time.Unix(1_700_000_000, 0)}
	good := exps[2].Run
	exps[2].Run = func(ctx context.Context, r *Run) error {
		r.Progress(0, 4, "first")
		c.at = c.at.Add(30 * time.Second)
		r.Progress(1, 4, "second")
		return good(ctx, r)
	}
	var lines strings.Builder
	root := fstest.MapFS{"proc/loadavg": {Data: []byte("1.75 1 1 1/1 1\n")}, "proc/stat": {Data: []byte("cpu 1 2 3 4 5 6 7 8 9 10\n")}}
	r := &Runner{Dir: dir, Plan: QuickPlan(), Experiments: exps, Now: c.now, Progress: ProgressLines(&lines, c.now), Root: root, Environment: Environment{Cores: 2}}
	for range 2 {
		rep, err := r.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if f := rep.Result("fails"); f.Err != "it broke" || len(f.Samples) != 1 || f.Finished() {
			t.Errorf("failed: %+v", f)
		}
		if l := rep.Result("lacks"); l.Skipped != "npm is not installed" || l.Finished() {
			t.Errorf("skipped: %+v", l)
		}
		if f := rep.Result("fine"); !f.Finished() || f.Took != 30 || f.Noise.Load != 1.75 || f.Noise.Text(2) == "" || f.Environment.Cores != 2 {
			t.Errorf("finished: %+v", f)
		}
	}
	if ran["fails"] != 2 || ran["lacks"] != 2 || ran["fine"] != 1 {
		t.Errorf("ran %v: what failed or was skipped is tried again", ran)
	}
	for _, want := range []string{
		"[1/3] fails: failed: it broke (about 2m0s left)\n", "[2/3] lacks: skipped: npm is not installed (about 1m0s left)\n",
		"[3/3] fine 1/4 second (about 1m30s left)\n", "[3/3] fine: done, 30s\n", "[3/3] fine: kept\n",
	} {
		if !strings.Contains(lines.String(), want) {
			t.Errorf("progress lacks %q:\n%s", want, lines.String())
		}
	}
}

func TestRunnerRefuses(t *testing.T) {
	dir := t.TempDir()
	exps, _ := play("one")
	if _, err := (&Runner{Dir: dir, Plan: QuickPlan(), Experiments: exps}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	bad, _ := play("run")
	slash, _ := play("../x")
	for name, tt := range map[string]struct {
		r    Runner
		want string
	}{
		"another plan":     {Runner{Dir: dir, Plan: FullPlan(), Experiments: exps}, "another plan"},
		"two of one name":  {Runner{Dir: dir, Plan: QuickPlan(), Experiments: append(exps, exps...)}, "two experiments named one"},
		"its own file":     {Runner{Dir: dir, Plan: QuickPlan(), Experiments: bad}, `experiment "run"`},
		"a way out of it":  {Runner{Dir: dir, Plan: QuickPlan(), Experiments: slash}, `experiment "../x"`},
		"again an unknown": {Runner{Dir: dir, Plan: QuickPlan(), Experiments: exps, Again: []string{"two"}}, `experiment "two"`},
	} {
		if _, err := tt.r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A file that is not what was written is not measured over silently.
	if err := os.WriteFile(filepath.Join(dir, "one.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Runner{Dir: dir, Plan: QuickPlan(), Experiments: exps}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "delete the file") {
		t.Errorf("a broken result: %v", err)
	}
	if _, err := Load(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("loaded what is not there")
	}
}

func TestLook(t *testing.T) {
	root := fstest.MapFS{
		"proc/cpuinfo":              {Data: []byte("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: Other\n")},
		"proc/meminfo":              {Data: []byte("MemTotal:        2048 kB\n")},
		"proc/sys/kernel/osrelease": {Data: []byte("6.12.1\n")},
		"sys/module/zfs/version":    {Data: []byte("2.3.1-1\n")},
		"proc/stat":                 {Data: []byte("cpu  10 0 10 70 0 0 0 10 5 5\ncpu0 1\n")},
	}
	e := Look(root)
	if e.CPU != "Some CPU @ 2 GHz" || e.Memory != 2<<20 || e.Kernel != "6.12.1" || e.Versions["zfs"] != "2.3.1-1" || e.Cores < 1 {
		t.Errorf("%+v", e)
	}
	if got := readTicks(root); got != (ticks{steal: 10, total: 100}) {
		t.Errorf("%+v", got)
	}
	near(t, "stolen", stolen(ticks{10, 100}, ticks{20, 200}), 0.1, 1e-12)
	if e := Look(fstest.MapFS{}); e.CPU != "" || readTicks(fstest.MapFS{}) != (ticks{}) || readLoad(fstest.MapFS{}) != 0 {
		t.Errorf("of nothing: %+v", e)
	}
	if text := (Noise{Load: 0.1}).Text(2); text != "" {
		t.Errorf("quiet: %q", text)
	}
}
