package sshexec_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// helperCase runs one case of testdata/workspace_cases.pl on the helper's own
// text, and wants nothing said.
func helperCase(t *testing.T, name string) { t.Helper(); caseOf(t, "workspace_cases.pl", name) }

func caseOf(t *testing.T, cases, name string) {
	t.Helper()
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skipf("%v: install perl", err)
	}
	var text bytes.Buffer
	for _, file := range []string{"testdata/workspace_harness.pl", "helper.pl", "workspace.pl", "workspace_btrfs.pl", "testdata/" + cases} {
		part, err := os.ReadFile(file)
		ok(t, "read", err)
		if file == "helper.pl" { // without what begins to work at once
			part, _, _ = bytes.Cut(part, []byte("# --- The loop"))
			part = append(part, "use Errno;\nmy ($from, $net);\n"...)
		}
		text.Write(part)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "cases.pl")
	ok(t, "write", os.WriteFile(path, text.Bytes(), 0o600))
	cmd := exec.CommandContext(within(t, time.Minute), "perl", path, dir, name)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "" {
		t.Errorf("%v: %s", err, out)
	}
}

// TestHelperFreeze: what is frozen has a watchdog until it has been thawed,
// whatever fails in between. F80 F81
func TestHelperFreeze(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"thaw", "thaw_fails", "thawed_by_another", "watchdog_fails", "watchdog_alone", "on_its_way", "freeze_again_fails", "not_mounted", "unmount", "unfence",
	} {
		t.Run(name, func(t *testing.T) { helperCase(t, name) })
	}
}

// TestHelperBtrfs: the guest's half of the driver for volumes that are btrfs, on
// directories that stand for subvolumes. F22 F70 F71
func TestHelperBtrfs(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"story", "owners", "nested", "leftovers", "held", "full", "filter"} {
		t.Run(name, func(t *testing.T) { caseOf(t, "workspace_btrfs_cases.pl", name) })
	}
}

// TestHelperEndsAgent: no process of the agent is overlooked, and one that does
// not end is an error.
func TestHelperEndsAgent(t *testing.T) {
	for _, name := range []string{"belongs", "groups", "end_agent"} {
		t.Run(name, func(t *testing.T) { helperCase(t, name) })
	}
}

// TestLabStrike: an account can neither kill what ends it first nor fork away
// from it. It needs root, and ids that nobody has.
func TestLabStrike(t *testing.T) {
	lab(t)
	helperCase(t, "strike")
}
