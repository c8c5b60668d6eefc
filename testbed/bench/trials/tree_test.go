package trials

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"savepoint/testbed/bench"
)

// list runs the guest's script on this machine.
func list(t *testing.T, args ...string) files {
	t.Helper()
	for _, program := range []string{"perl", "find", "sha256sum"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not here", program)
		}
	}
	cmd := exec.Command("perl", append([]string{treeFile}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	all, err := parseFiles(string(out))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Each way in which a file can be other is found, and named; what is left out or not
// read is not.
func TestTreeDiff(t *testing.T) {
	long := time.Unix(1_000_000_000, 123_456_789)
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		path   string
		want   []string // "" stands for nothing other at all
	}{
		"nothing": {func(*testing.T, string) {}, "", nil},
		"mode":    {func(t *testing.T, dir string) { must(t, os.Chmod(dir+"/a", 0o4711)) }, "a", []string{"mode", "ctime"}},
		"time":    {func(t *testing.T, dir string) { must(t, os.Chtimes(dir+"/a", long, long.Add(1))) }, "a", []string{"mtime", "ctime"}},
		"content": {func(t *testing.T, dir string) {
			must(t, os.WriteFile(dir+"/a", []byte("B"), 0o600))
			must(t, os.Chtimes(dir+"/a", long, long))
		}, "a", []string{"ctime", "content"}},
		"not read": {func(t *testing.T, dir string) { must(t, os.WriteFile(dir+"/big/b", []byte("B"), 0o600)) }, "big/b", []string{"mtime", "ctime"}},
		"not looked at": {func(t *testing.T, dir string) {
			if err := syscall.Setxattr(dir+"/big/b", "user.note", []byte("x"), 0); err != nil {
				t.Skip("no extended attributes here")
			}
		}, "big/b", []string{"another ctime"}},
		"big, mode":  {func(t *testing.T, dir string) { must(t, os.Chmod(dir+"/big/b", 0o4711)) }, "big/b", []string{"mode", "ctime"}},
		"left out":   {func(t *testing.T, dir string) { must(t, os.WriteFile(dir+"/skip/new", nil, 0o600)) }, "", nil},
		"new":        {func(t *testing.T, dir string) { must(t, os.WriteFile(dir+"/n\n\xff", nil, 0o600)) }, "n\n\xff", []string{"is new"}},
		"gone":       {func(t *testing.T, dir string) { must(t, os.Remove(dir+"/a")) }, "a", []string{"is gone"}},
		"link":       {func(t *testing.T, dir string) { must(t, os.Link(dir+"/a", dir+"/c")) }, "a", []string{"number of links", "ctime"}},
		"other link": {func(t *testing.T, dir string) { must(t, os.Remove(dir+"/l")); must(t, os.Symlink("b", dir+"/l")) }, "l", []string{"target", "mtime"}},
		"kind":       {func(t *testing.T, dir string) { must(t, os.Remove(dir+"/a")); must(t, os.Mkdir(dir+"/a", 0o700)) }, "a", []string{"mode"}},
		"attribute": {func(t *testing.T, dir string) {
			if err := syscall.Setxattr(dir+"/a", "user.note", []byte("x"), 0); err != nil {
				t.Skip("no extended attributes here")
			}
		}, "a", []string{"extended attributes", "ctime"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, d := range []string{"big", "skip"} {
				must(t, os.Mkdir(filepath.Join(dir, d), 0o755))
			}
			for _, f := range []string{"a", "big/b"} {
				must(t, os.WriteFile(filepath.Join(dir, f), []byte("A"), 0o600))
				must(t, os.Chtimes(filepath.Join(dir, f), long, long))
			}
			must(t, os.Symlink("a", dir+"/l"))
			args := []string{"-" + dir + "/skip", "~" + dir + "/big", dir, dir + "/missing"}
			before := list(t, args...)
			if before.all[dir+"/a"].sum == "" || before.all[dir+"/big/b"].sum != "" || len(before.all) != 5 {
				t.Fatalf("%+v", before.all)
			}
			c.change(t, dir)
			diff := before.diff(list(t, args...), false)
			if c.want == nil {
				if len(diff) > 0 {
					t.Errorf("differs: %q", diff)
				}
				return
			}
			i := slices.IndexFunc(diff, func(s string) bool { return strings.Contains(s, strings.Trim(quote(dir+"/"+c.path), `"`)+`" `) })
			if i < 0 {
				t.Fatalf("%q is not in %q", c.path, diff)
			}
			for _, w := range c.want {
				if !strings.Contains(diff[i], w) {
					t.Errorf("%q does not say %q", diff[i], w)
				}
			}
		})
	}
}

func quote(s string) string { return strings.NewReplacer("\n", `\n`, "\xff", `\xff`).Replace(s) }

// What is looked at in both ways is the same in both.
func TestTreeQuick(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/a\n\xff", []byte("A"), 0o600))
	must(t, os.Chmod(dir+"/a\n\xff", os.ModeSetuid|0o751))
	must(t, os.Symlink("x\ny", dir+"/l"))
	must(t, syscall.Mkfifo(dir+"/p", 0o600))
	must(t, os.Chtimes(dir+"/p", time.Unix(1, 1), time.Unix(2, 2)))
	must(t, os.Mkdir(dir+"/d", 0o1777))
	full, quick := list(t, dir), list(t, "~"+dir, dir)
	if len(full.all) != 5 || len(quick.all) != 5 {
		t.Fatalf("%d and %d paths", len(full.all), len(quick.all))
	}
	if diff := full.diff(quick, false); len(diff) > 0 {
		t.Errorf("%q", diff)
	}
	if f := quick.all[dir+"/d"]; f.xattrs != unread || !f.dir() {
		t.Errorf("%+v", f)
	}
	if f := full.follow(quick).all[dir+"/a\n\xff"]; f != full.all[dir+"/a\n\xff"] {
		t.Errorf("%+v", f)
	}
}

// After a boot, what it writes anew is only held against what it says.
func TestTreeBooted(t *testing.T) {
	base := file{mode: "f644", uid: "0", gid: "0", size: "3", links: "1", inode: "7", mtime: "1.0", ctime: "1.0", sum: "a"}
	anew, other := base, base
	anew.inode, anew.mtime, anew.ctime = "8", "2.0", "2.0"
	other.sum = "b"
	for name, c := range map[string]struct {
		path   string
		is     file
		booted bool
		same   bool
	}{
		"written anew, booted":     {"/etc/resolv.conf", anew, true, true},
		"written anew, not booted": {"/etc/resolv.conf", anew, false, false},
		"other, booted":            {"/etc/resolv.conf", other, true, false},
		"elsewhere, booted":        {"/usr/bin/ls", anew, true, false},
		"a like name, booted":      {"/etcetera", anew, true, false},
		"emptied, booted":          {"/tmp/x", other, true, true},
		"emptied, not booted":      {"/tmp/x", other, false, false},
	} {
		was, is := files{all: map[string]file{c.path: base}}, files{all: map[string]file{c.path: c.is}}
		if diff := was.diff(is, c.booted); (len(diff) == 0) != c.same {
			t.Errorf("%s: %q", name, diff)
		}
	}
}

// A digest that was not taken again is kept; a process that is left is a difference;
// a list that ends early is none.
func TestTreeText(t *testing.T) {
	entry := "f644 0 0 3 1 7 0 0:0 1.2 3.4\x00/f\x00\x00\x00"
	read, err := parseFiles(entry + "\x00\x00aa  /f\x00end\x00")
	must(t, err)
	unread, err := parseFiles(entry + "\x0012 of etc\x00\x00end\x00")
	must(t, err)
	if diff := read.diff(unread, false); len(diff) != 1 || !strings.Contains(diff[0], "12 of etc") {
		t.Errorf("%q", diff)
	}
	if f := read.follow(unread); f.all["/f"].sum != "aa" || f.read() != 1 {
		t.Errorf("%+v", f)
	}
	for _, text := range []string{"", entry, entry + "\x00\x00", entry + "\x00\x00aa  /f\x00", entry + "\x00\x00aa  /g\x00end\x00", entry + "\x00end\x00", "x\x00/f\x00\x00\x00\x00\x00end\x00"} {
		if _, err := parseFiles(text); err == nil {
			t.Errorf("%q is taken for a list", text)
		}
	}
}

// The script finds what has a damage's variable.
func TestTreeLeftovers(t *testing.T) {
	cmd := exec.Command("sh", "-c", "echo; exec cat")
	cmd.Env = append(os.Environ(), damageVar+"=some-thing")
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	_, err = out.Read(make([]byte, 1)) // it runs
	must(t, err)
	if left := list(t, t.TempDir()).left; !slices.ContainsFunc(left, func(s string) bool { return strings.HasSuffix(s, " of some-thing") }) {
		t.Errorf("%q", left)
	}
}

// The table says how many of how many were exact, or why there are none.
func TestCount(t *testing.T) {
	run := bench.NewRun(bench.Experiment{Name: bench.ExpRollback, Metrics: []bench.Metric{{Name: bench.MetricExact, Unit: bench.Share}}}, bench.FullPlan())
	one := func(arm, damage string, exact float64, err string) {
		run.Add(bench.Sample{Arm: arm, Labels: map[string]string{labelDamage: damage}, Metrics: map[string]float64{bench.MetricExact: exact}, Err: err})
	}
	for range 3 {
		one("workspace", "a", 1, "")
		one("machine", "a", 1, "")
	}
	one("machine", "b", 1, "")
	one("machine", "b", 0, "it differs")
	a, b := damage{name: "a", as: "agent"}, damage{name: "b", as: "root"}
	count(run, []row{{damage: a}, {damage: b, cells: cells{"workspace": "not covered", "disk": "not wanted"}}}, true)
	res := run.Result()
	want := [][]string{{"a", "", "agent", "3 of 3", "not tried yet", "3 of 3"}, {"b", "", "root", "not covered", "not wanted", "1 of 2"}}
	if got := res.Tables[0].Rows; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%q", got)
	}
	sums := [][]string{{"workspace", "1", "3", "3 of 3"}, {"machine", "2", "2 to 3", "4 of 5"}}
	if got := res.Tables[1].Rows; !slices.EqualFunc(got, sums, slices.Equal) {
		t.Errorf("%q", got)
	}
	if want := []string{"workspace: 1 kinds × 3 = 3 of 3 exact", "machine: 2 kinds × 2 to 3 = 4 of 5 exact"}; !slices.Equal(res.Notes, want) {
		t.Errorf("%q", res.Notes)
	}
}
