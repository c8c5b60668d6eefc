package trials

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
	"savepoint/testbed/bench"
	"savepoint/testbed/sim/world"
)

// What a plan measures: a quick one what targets need, a full one everything, and
// no boundary that it does not name.
func TestOverheadArms(t *testing.T) {
	g, _ := simulatedRig(t)
	names := func(arms []bench.Arm) string {
		var all []string
		for _, a := range arms {
			name := a.Labels[bench.LabelWorkload] + "/" + a.Name
			if w := a.Labels[bench.LabelWorkload]; w == bench.WorkloadInstall || w == bench.WorkloadRead || w == bench.WorkloadEdit || w == workloadFails {
				all = append(all, name)
			}
		}
		return strings.Join(all, " ")
	}
	for _, c := range []struct {
		name                     string
		quick                    bool
		boundaries               []string
		install, reading, others string
	}{
		{
			"quick", true, nil, "", "read-only/bare read-only/none", "sed/bare sed/copy sed/workspace sed/machine",
		},
		{
			"quick, disk alone", true, []string{"disk"}, "", "read-only/bare read-only/none", "sed/bare sed/copy sed/disk",
		},
		{
			"full", false, nil,
			"pip-install/bare pip-install/copy pip-install/copy, shutil pip-install/workspace pip-install/disk pip-install/machine",
			"read-only/bare read-only/none",
			"sed/bare sed/copy sed/workspace sed/disk sed/machine fails/bare fails/copy, rolled back fails/workspace, rolled back fails/disk, rolled back fails/machine, rolled back",
		},
		{
			"full, workspace alone", false, []string{"workspace"},
			"pip-install/bare pip-install/copy pip-install/copy, shutil pip-install/workspace",
			"read-only/bare read-only/none", "sed/bare sed/copy sed/workspace fails/bare fails/copy, rolled back fails/workspace, rolled back",
		},
	} {
		plan := bench.Plan{Quick: c.quick, Boundaries: c.boundaries}
		a := g.arms(bench.NewRun(Overhead(g), plan), world.Box(0), bench.PaperSize)
		if got := names(a.install); got != c.install {
			t.Errorf("%s: %s, want %s", c.name, got, c.install)
		}
		if got := names(a.reading); got != c.reading {
			t.Errorf("%s: %s, want %s", c.name, got, c.reading)
		}
		if got := names(a.others); got != c.others {
			t.Errorf("%s: %s, want %s", c.name, got, c.others)
		}
	}
}

// The copy is put back exactly, hidden files and links included, and a command that
// was to fail and did not is no measurement.
func TestCopyBack(t *testing.T) {
	dir := t.TempDir()
	ws, copied1, out1 := filepath.Join(dir, "workspace"), filepath.Join(dir, "copy"), filepath.Join(dir, "workspace", "out")
	here := func(script string) string {
		return strings.NewReplacer(copied, copied1, out, out1, "/workspace", ws).Replace(workloadFiles()[script])
	}
	run := func(script string) {
		t.Helper()
		if text, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", script, err, text)
		}
	}
	list := func() string {
		text, err := exec.Command("sh", "-c", "cd "+ws+" && find . -printf '%p %y %m %l\\n' | sort && cat .filled a/f").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return string(text)
	}
	run("mkdir -p " + ws + "/a && cd " + ws + " && echo 250 >.filled && echo old >a/f && chmod 600 a/f && ln -s f a/link")
	before := list()
	for _, copying := range []string{"copy.sh", "shutil.sh"} {
		run(here(copying))
		run("echo new >" + ws + "/a/f; mkdir " + out1 + "; rm " + ws + "/a/link")
		if list() == before {
			t.Fatal("nothing was changed, so nothing is put back")
		}
		run(here("back.sh"))
		if after := list(); after != before {
			t.Errorf("after %s: %s, want %s", copying, after, before)
		}
		if _, err := os.Stat(copied1); err == nil {
			t.Errorf("after %s the copy is still there", copying)
		}
	}
	run(here("shutil.sh"))
	run(here("shutil-drop.sh"))
	if _, err := os.Stat(copied1); err == nil {
		t.Error("the copy by shutil is not dropped")
	}
}

// A bare command that was to fail and ends with 0 is a failed sample.
func TestFailsHasToFail(t *testing.T) {
	g, ran := simulatedRig(t)
	i := slices.IndexFunc(workloads(), func(w workload) bool { return w.fails })
	w := workloads()[i]
	if _, err := g.doBare(world.Box(0), w)(t.Context()); err == nil {
		t.Error("it ended with 0, and is a measurement of a failure")
	}
	if _, err := g.doCopy(world.Box(0), w, "copy.sh", "back.sh")(t.Context()); err == nil {
		t.Error("it ended with 0, and is a measurement of a roll back")
	}
	if last := (*ran)[len(*ran)-1]; last != w.command {
		t.Errorf("it went on after a command that did not fail: %s", last)
	}
}

// A bare command is not judged: the time of the decision without which nothing runs
// is not in its own.
func TestBareIsNotJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := simulatedRig(t)
		g.Decider = slowDecider{g.Decider}
		g.Bare = func(context.Context, orchestrator.Sandbox, policy.Permit, io.Reader) (orchestrator.ExecResult, error) {
			time.Sleep(2 * time.Second) // of the bubble's clock
			return orchestrator.ExecResult{}, nil
		}
		s, err := g.doBare(world.Box(0), workload{command: "ls /etc"})(t.Context())
		if err != nil || s.Metrics[bench.MetricSeconds] != 2 {
			t.Errorf("%v, %v", s.Metrics, err)
		}
	})
}

type slowDecider struct{ orchestrator.Decider }

func (d slowDecider) Decide(r policy.Request) policy.Verdict {
	time.Sleep(time.Second)
	return d.Decider.Decide(r)
}
