package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

func where() (machine, cluster Environment) {
	return Environment{OS: "linux", Arch: "amd64", Cores: 2, CPU: "Some CPU", Memory: 8 << 30, Kernel: "6.12.1", Versions: tags{"go": "go1.26", VersionSavepoint: "v1"}, Facts: tags{FactProcs: "2"}},
		Environment{Accelerator: "tcg", Versions: tags{"qemu": "10.0", "pve": "9.1"}, Facts: tags{FactCluster: "lab", FactNodes: "pve1", FactStorage: "zfs", FactWorkspace: "zfs", FactImage: "sha256:01"}}
}

func TestDifferences(t *testing.T) {
	for _, tt := range []struct {
		name              string
		change            func(e *Environment)
		machine, versions string
	}{
		{"nothing", func(*Environment) {}, "", ""},
		{"another savepoint, which is measured", func(e *Environment) { e.Versions[VersionSavepoint] = "v2" }, "", ""},
		{"what the kernel keeps", func(e *Environment) { e.Memory -= 50 << 20 }, "", ""},
		{"cores", func(e *Environment) { e.Cores = 4 }, "cores: 2, now 4", ""},
		{"memory", func(e *Environment) { e.Memory = 16 << 30 }, "memory: 8 GiB, now 16 GiB", ""},
		{"accelerator", func(e *Environment) { e.Accelerator = "kvm" }, "accelerator: tcg, now kvm", ""},
		{"storage", func(e *Environment) { e.Facts[FactStorage] = "qcow2" }, "storage: zfs, now qcow2", ""},
		{"workspace", func(e *Environment) { e.Facts[FactWorkspace] = "btrfs" }, "workspace: zfs, now btrfs", ""},
		{"cluster", func(e *Environment) { e.Facts[FactNodes] = "pve1, pve2" }, "nodes: pve1, now pve1, pve2", ""},
		{"processors of Go", func(e *Environment) { e.Facts[FactProcs] = "1" }, "GOMAXPROCS: 2, now 1", ""},
		{"nobody said", func(e *Environment) { delete(e.Facts, FactStorage) }, "storage: zfs, now not known", ""},
		{"go", func(e *Environment) { e.Versions["go"] = "go1.27" }, "", "go: go1.26, now go1.27"},
		{"qemu and pve", func(e *Environment) { e.Versions["qemu"], e.Versions["pve"] = "10.1", "" }, "", "pve: 9.1, now not known; qemu: 10.0, now 10.1"},
		{"image", func(e *Environment) { e.Facts[FactImage] = "sha256:02" }, "", "guest image: sha256:01, now sha256:02"},
		{"kernel", func(e *Environment) { e.Kernel = "6.12.2" }, "", "kernel: 6.12.1, now 6.12.2"},
	} {
		m, c := where()
		old := m.with(c)
		e := m.with(c)
		tt.change(&e)
		machine, versions := old.Differences(e)
		if a, b := strings.Join(machine, "; "), strings.Join(versions, "; "); a != tt.machine || b != tt.versions {
			t.Errorf("%s: %q and %q, want %q and %q", tt.name, a, b, tt.machine, tt.versions)
		}
		if sameMachine(old, e) != (tt.machine == "") {
			t.Errorf("%s: the same machine?", tt.name)
		}
		if len(m.Facts) != 1 || len(c.Facts) != 5 {
			t.Fatalf("%s: a map was changed: %v, %v", tt.name, m.Facts, c.Facts)
		}
	}
}

// A run goes on with the machine and the cluster that it was begun with.
func TestGoesOnHere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run-1")
	ran := 0
	play := func(change func(machine, cluster *Environment)) (*Report, error) {
		machine, cluster := where()
		change(&machine, &cluster)
		exps := []Experiment{filled("alone", nil, Sample{Arm: "a"}), {Name: "guest", Run: func(_ context.Context, r *Run) error {
			if err := r.Where(cluster); err != nil {
				return err
			}
			ran++
			r.Add(Sample{Arm: "a", Metrics: nums{MetricSeconds: 1}})
			return fmt.Errorf("not yet")
		}}}
		return (&Runner{Dir: dir, Plan: QuickPlan(), Experiments: exps, Environment: machine}).Run(t.Context())
	}
	rep, err := play(func(_, _ *Environment) {})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]string{"alone": {"", ""}, "guest": {"tcg", "sha256:01"}} {
		if e := rep.Result(name).Environment; e.Accelerator != want[0] || e.Facts[FactImage] != want[1] || e.Cores != 2 {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if d := rep.Document(); d.Environment.Facts[FactStorage] != "zfs" || d.Environment.Versions["go"] != "go1.26" || len(d.Experiments[0].Notes)+len(d.Experiments[1].Notes) > 0 {
		t.Errorf("%+v", d)
	}
	for _, change := range []func(m, c *Environment){
		func(m, _ *Environment) { m.Cores = 4 },
		func(m, _ *Environment) { m.Versions["go"] = "go1.27" },
	} {
		if _, err := play(change); err == nil || !strings.Contains(err.Error(), "another machine (") || !strings.Contains(err.Error(), ", now ") || !strings.Contains(err.Error(), "begin another run in another directory") {
			t.Errorf("another machine: %v", err)
		}
	}
	rep, err = play(func(_, c *Environment) { c.Accelerator = "kvm" })
	if res := rep.Result("guest"); err != nil || ran != 1 || !strings.Contains(res.Err, "begun on another cluster (accelerator: tcg, now kvm)") || len(res.Samples) != 1 {
		t.Errorf("another cluster: %+v, %v", res, err)
	}
	if _, err = play(func(_, _ *Environment) {}); err != nil || ran != 2 {
		t.Errorf("the same again: ran %d, %v", ran, err)
	}
}

// Figures of another cluster are not what a run is held against, and with other
// versions they are, with a word about it.
func TestCompareElsewhere(t *testing.T) {
	dir := t.TempDir()
	x := func(change func(*Environment)) Experiment {
		_, c := where()
		change(&c)
		return Experiment{Name: "x", Run: func(_ context.Context, r *Run) error {
			r.Add(values("a", MetricSeconds, 1, 1, 1, 1)...)
			return r.Where(c)
		}}
	}
	night(t, dir, "a", 1, QuickPlan(), 2, x(func(e *Environment) { e.Versions["qemu"] = "9.0" }))
	night(t, dir, "b", 2, QuickPlan(), 2, x(func(e *Environment) { e.Facts[FactStorage] = "qcow2" }))
	now := night(t, dir, "c", 3, QuickPlan(), 2, x(func(*Environment) {}))
	old, err := Before(dir, now)
	if err != nil || old == nil || old.Info.ID != "a" {
		t.Fatalf("%+v, %v", old, err)
	}
	if w := Compare(old, now, 0.1).Warnings; len(w) != 1 || w[0] != "experiment x ran with other versions: qemu: 9.0, now 10.0" {
		t.Errorf("%q", w)
	}
	other, err := Load(filepath.Join(dir, "b"))
	if err != nil {
		t.Fatal(err)
	}
	if w := Compare(other, now, 0.1).Warnings; len(w) != 1 || w[0] != "experiment x ran on another machine: storage: qcow2, now zfs" {
		t.Errorf("%q", w)
	}
	if alike(other.Info.Plan, now.Info.Plan, other.Info.Where(), now.Info.Where()) {
		t.Error("they are one trend")
	}
}
