package sshexec_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/sim"
)

// Two answers tell the same when nothing was written between them, whatever was
// read and asked; and not the same when something was.
func TestInspectTellsWrites(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	m, sb := w.sandbox(t, 301)
	ctx := within(t, time.Minute)
	ask := func() string {
		t.Helper()
		f, err := w.Inspect(ctx, sb)
		if err != nil || f.Writes == "" {
			t.Fatalf("writes %q, %v", f.Writes, err)
		}
		return f.Writes
	}
	before := ask()
	if _, err := w.Health(ctx, sb); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Manifest(ctx, sb, orchestrator.ManifestRequest{Roots: []string{"/etc"}, Hash: true}); err != nil {
		t.Fatal(err)
	}
	if now := ask(); now != before {
		t.Errorf("after questions: %q instead of %q", now, before)
	}
	if err := w.WriteFile(m.Disks[0].Path, "/etc/typed", "by hand"); err != nil {
		t.Fatal(err)
	}
	if now := ask(); now == before {
		t.Error("a file was written and it tells the same")
	}
	before = ask()
	if f, err := w.Mark(ctx, sb, "sp-01jx0000000000000000000abc"); err != nil || f.Generation == "" {
		t.Fatal(err)
	}
	if now := ask(); now == before {
		t.Error("the marker was written and it tells the same")
	}
}

// The helper's own reading, on the machine that the test runs on, and of disks that
// are files.
func TestHelperReadsWrites(t *testing.T) {
	if out := helperWrites(t, "/sys/block"); !regexp.MustCompile(`^([a-z0-9!-]+:\d+:\d+( |$))*$`).MatchString(out) {
		t.Errorf("got %q", out)
	}
	const counts = "1 2 3 4 5 6 77 8 9 10 11 12 13 14 15 16 17\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"disks":              {map[string]string{"sda/stat": counts, "sda/queue/iostats": "1\n", "vdb/stat": counts, "vdb/queue/iostats": "1\n", "loop0/stat": counts}, "sda:77:14 vdb:77:14"},
		"one does not count": {map[string]string{"sda/stat": counts, "sda/queue/iostats": "1\n", "vdb/stat": counts, "vdb/queue/iostats": "0\n"}, ""},
		"it does not say":    {map[string]string{"sda/queue/iostats": "1\n"}, ""},
		"no disk":            {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for path, text := range c.files {
				ok(t, "make a disk", os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o700))
				ok(t, "make a disk", os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600))
			}
			if got := helperWrites(t, dir); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// helperWrites is what the helper reads below dir in place of /sys/block.
func helperWrites(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile("helper.pl")
	if err != nil {
		t.Fatal(err)
	}
	var subs []string
	for _, pattern := range []string{`(?m)^sub slurp .*$`, `(?ms)^sub writes \{.*?^\}$`} {
		subs = append(subs, regexp.MustCompile(pattern).FindString(string(text)))
	}
	perl, err := exec.LookPath("perl")
	if err != nil {
		t.Skip("no perl")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, perl, "-we", "use strict; "+strings.ReplaceAll(strings.Join(subs, "\n"), "/sys/block", dir)+"\nprint writes();").CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return string(out)
}
