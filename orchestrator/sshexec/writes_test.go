package sshexec_test

import (
	"context"
	"os"
	"os/exec"
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

// The helper's own reading, on the machine that the test runs on.
func TestHelperReadsWrites(t *testing.T) {
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
	out, err := exec.CommandContext(ctx, perl, "-we", "use strict; "+strings.Join(subs, "\n")+"\nprint writes();").CombinedOutput()
	if err != nil || !regexp.MustCompile(`^([a-z0-9!-]+:\d+:\d+( |$))*$`).Match(out) {
		t.Errorf("got %q, %v", out, err)
	}
}
