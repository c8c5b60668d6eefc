package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Environment is the machine a run was made on, and the cluster.
type Environment struct {
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	Cores  int    `json:"cores"`
	CPU    string `json:"cpu,omitempty"`
	Memory uint64 `json:"memory,omitempty"` // bytes
	Kernel string `json:"kernel,omitempty"`
	// Accelerator is how guests run: "kvm", or "tcg" (emulated).
	Accelerator string `json:"accelerator,omitempty"`
	// Versions are those of the programs that take part: go, savepoint, qemu, pve, zfs.
	Versions map[string]string `json:"versions,omitempty"`
	// Facts are others, see Fact….
	Facts map[string]string `json:"facts,omitempty"`
}

// Facts of an environment that have to be the same where seconds are compared.
const (
	FactProcs     = "GOMAXPROCS"
	FactStorage   = "storage"     // the kind of the disks: qcow2, zfs …
	FactWorkspace = "workspace"   // how the workspace boundary is made: zfs, btrfs in the guest, none
	FactCluster   = "cluster"     // which one: its address, or the lab's network
	FactNodes     = "nodes"       // their names
	FactImage     = "guest image" // its hash
)

// VersionSavepoint is what is measured: runs are compared because it differs.
const VersionSavepoint = "savepoint"

// machineFacts tell machines and clusters apart; the others are versions of what is
// on them.
var machineFacts = []string{FactProcs, FactStorage, FactWorkspace, FactCluster, FactNodes}

// sameMemory is the part by which the memory of one machine differs from one start to
// the next: the kernel keeps some for itself.
const sameMemory = 0.02

// Differences are what keeps the seconds of two environments from being compared,
// each as "what: e's, now o's": of the machine and the cluster, which are others then,
// and of the versions of what is on them (savepoint's own, which is measured, is none).
func (e Environment) Differences(o Environment) (machine, versions []string) {
	differ := func(out *[]string, name, a, b string) {
		if a == b {
			return
		}
		known := func(s string) string {
			if s == "" {
				return "not known"
			}
			return s
		}
		*out = append(*out, fmt.Sprintf("%s: %s, now %s", name, known(a), known(b)))
	}
	differ(&machine, "system", e.OS+"/"+e.Arch, o.OS+"/"+o.Arch)
	differ(&machine, "cores", strconv.Itoa(e.Cores), strconv.Itoa(o.Cores))
	differ(&machine, "processor", e.CPU, o.CPU)
	if a, b := float64(e.Memory), float64(o.Memory); math.Abs(a-b) > sameMemory*max(a, b) {
		differ(&machine, "memory", bytesText(a), bytesText(b))
	}
	differ(&machine, "accelerator", e.Accelerator, o.Accelerator)
	for _, name := range keysOf(e.Facts, o.Facts) {
		out := &versions
		if slices.Contains(machineFacts, name) {
			out = &machine
		}
		differ(out, name, e.Facts[name], o.Facts[name])
	}
	differ(&versions, "kernel", e.Kernel, o.Kernel)
	for _, name := range keysOf(e.Versions, o.Versions) {
		if name != VersionSavepoint {
			differ(&versions, name, e.Versions[name], o.Versions[name])
		}
	}
	return machine, versions
}

// keysOf are the keys of two maps, sorted.
func keysOf(a, b map[string]string) []string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// with is the machine's environment and what is known of the cluster.
func (e Environment) with(cluster Environment) Environment {
	merged := func(a, b map[string]string) map[string]string {
		out := map[string]string{}
		maps.Copy(out, a)
		maps.Copy(out, b)
		return out
	}
	e.Versions, e.Facts = merged(e.Versions, cluster.Versions), merged(e.Facts, cluster.Facts)
	e.Accelerator = cmp.Or(cluster.Accelerator, e.Accelerator)
	return e
}

// sameMachine reports whether seconds of both may be compared.
func sameMachine(a, b Environment) bool {
	machine, _ := a.Differences(b)
	return len(machine) == 0
}

// Look reads the machine's own facts from its root directory (os.DirFS("/")).
// What cannot be read is empty. The caller adds what only it knows.
func Look(root fs.FS) Environment {
	e := Environment{
		OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(),
		Versions: map[string]string{"go": runtime.Version()},
		Facts:    map[string]string{FactProcs: strconv.Itoa(runtime.GOMAXPROCS(0))},
	}
	e.CPU = field(root, "proc/cpuinfo", "model name")
	e.Kernel = strings.TrimSpace(readAll(root, "proc/sys/kernel/osrelease"))
	kb, _, _ := strings.Cut(field(root, "proc/meminfo", "MemTotal"), " ")
	if n, err := strconv.ParseUint(kb, 10, 64); err == nil {
		e.Memory = n << 10
	}
	if v := strings.TrimSpace(readAll(root, "sys/module/zfs/version")); v != "" {
		e.Versions["zfs"] = v
	}
	return e
}

func readAll(root fs.FS, path string) string {
	raw, err := fs.ReadFile(root, path)
	if err != nil {
		return ""
	}
	return string(raw)
}

// field is the value of the first "name : value" line.
func field(root fs.FS, path, name string) string {
	lines := bufio.NewScanner(bytes.NewReader([]byte(readAll(root, path))))
	for lines.Scan() {
		if k, v, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Noise is what else the machine did. It is written beside figures, not taken
// out of them.
type Noise struct {
	// Load is the load average of the last minute when the experiment began: it is
	// that of others, and of the experiment that ended just before.
	Load float64 `json:"load"`
	// Steal is the share of the processors' time that the hypervisor below gave
	// to others while it ran.
	Steal float64 `json:"steal"`
}

// Text says what the noise means on a machine with that many cores, or nothing
// when it was quiet.
func (n Noise) Text(cores int) string {
	var out []string
	if cores > 0 && n.Load > 0.25*float64(cores) {
		out = append(out, fmt.Sprintf("the machine was busy when it began (load %.1f on %d cores)", n.Load, cores))
	}
	if n.Steal > 0.02 {
		out = append(out, fmt.Sprintf("the hypervisor below took %.0f %% of the processors' time", 100*n.Steal))
	}
	if out == nil {
		return ""
	}
	return "Noise: " + strings.Join(out, "; ") + ". Trust ratios within the run more than seconds."
}

// ticks are the processors' times so far.
type ticks struct{ steal, total float64 }

// readTicks reads the first line of /proc/stat: user nice system idle iowait irq
// softirq steal, then guest times that user and nice contain already.
func readTicks(root fs.FS) ticks {
	line, _, _ := strings.Cut(readAll(root, "proc/stat"), "\n")
	f := strings.Fields(line)
	var t ticks
	for i := 1; i < len(f) && i <= 8; i++ {
		v, err := strconv.ParseFloat(f[i], 64)
		if err != nil {
			return ticks{}
		}
		t.total += v
		if i == 8 {
			t.steal = v
		}
	}
	return t
}

func readLoad(root fs.FS) float64 {
	one, _, _ := strings.Cut(readAll(root, "proc/loadavg"), " ")
	v, err := strconv.ParseFloat(one, 64)
	if err != nil || v < 0 {
		return 0
	}
	return v
}

// share of the time between two readings that was stolen.
func stolen(before, after ticks) float64 {
	total, steal := after.total-before.total, after.steal-before.steal
	if total <= 0 || steal <= 0 || steal > total {
		return 0
	}
	return steal / total
}
