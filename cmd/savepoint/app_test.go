package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/orchestrator/journal"
	"savepoint/orchestrator/sshexec"
)

func TestExitCode(t *testing.T) {
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	live := t.Context()
	away := fmt.Errorf("roll back: %w", orchestrator.ErrUnavailable)
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want int
	}{
		"printed already":               {live, outcomeError{exitRolledBack}, exitRolledBack},
		"held":                          {live, &journal.HeldError{PID: 7}, exitHeld},
		"usage":                         {live, usagef("no"), exitUsage},
		"usage of the engine":           {live, &orchestrator.UsageError{What: "no"}, exitUsage},
		"no such directory":             {live, fmt.Errorf("run: %w", &sshexec.DirectoryError{}), exitUsage},
		"no such directory, and open":   {live, openError{"01jx", errors.Join(&sshexec.DirectoryError{}, away)}, exitUnusable},
		"stuck":                         {live, fmt.Errorf("run: %w", &orchestrator.StuckError{}), exitStuck},
		"disk full":                     {live, &orchestrator.JournalError{Cause: away}, exitInternal},
		"held, as open says it":         {live, &orchestrator.JournalError{Cause: &journal.HeldError{}}, exitHeld},
		"cluster":                       {live, away, exitUnusable},
		"newer snapshots":               {live, fmt.Errorf("reset: %w", &orchestrator.NotLatestError{}), exitUnusable},
		"unsupported":                   {live, &orchestrator.UnsupportedError{}, exitUnusable},
		"no class":                      {live, errors.New("oops"), exitInternal},
		"interrupted, nothing left":     {interrupted, away, exitInterrupted},
		"interrupted, not rolled back":  {interrupted, openError{"01jx", away}, exitUnusable},
		"interrupted in a stuck one":    {interrupted, &orchestrator.StuckError{}, exitStuck},
		"interrupted, wrong usage":      {interrupted, usagef("no"), exitUsage},
		"interrupted, and rolled back":  {interrupted, outcomeError{exitInterrupted}, exitInterrupted},
		"open, and another instance's":  {live, openError{"01jx", &journal.HeldError{}}, exitHeld},
		"open, the cause has no class":  {live, openError{"01jx", errors.New("oops")}, exitInternal},
		"interrupted, open, classless":  {interrupted, openError{"01jx", errors.New("oops")}, exitInternal},
		"interrupted, unknown outcome":  {interrupted, openError{"01jx", orchestrator.ErrUnknownOutcome}, exitUnusable},
		"a host key that is not pinned": {live, &orchestrator.HostKeyError{}, exitUnusable},
	} {
		if got, _ := exitCode(c.ctx, c.err); got != c.want {
			t.Errorf("%s: exit code %d, want %d", name, got, c.want)
		}
	}
}

// An interrupt whose rollback did not come to its end must not be called
// rolled back.
func TestRunFailed(t *testing.T) {
	for state, c := range map[orchestrator.State]struct{ open, printed bool }{
		"":                            {},
		orchestrator.StateRolledBack:  {printed: true},
		orchestrator.StateStuck:       {printed: true},
		orchestrator.StateRollingBack: {open: true},
		orchestrator.StateRan:         {open: true},
		orchestrator.StateBegun:       {open: true},
	} {
		var out strings.Builder
		a := &app{out: &out, format: formatJSON}
		a.err = io.Discard
		err := a.runFailed(orchestrator.Outcome{Transaction: "01jx", State: state}, orchestrator.ErrUnavailable)
		if code, _ := exitCode(t.Context(), err); state == orchestrator.StateStuck {
			if code != exitStuck || out.Len() == 0 {
				t.Errorf("stuck: exit code %d, printed %q; want %d and the object", code, out.String(), exitStuck)
			}
			continue
		}
		var open openError
		if !errors.Is(err, orchestrator.ErrUnavailable) || errors.As(err, &open) != c.open || (out.Len() > 0) != c.printed {
			t.Errorf("%q: %v, printed %q; want open %t, printed %t", state, err, out.String(), c.open, c.printed)
		}
		if c.open && !strings.Contains(err.Error(), "savepoint recover") {
			t.Errorf("%q: %v; want what to do", state, err)
		}
	}
}

// What a guest wrote must not steer the terminal of who reads about it.
func TestPrintable(t *testing.T) {
	const evil = "a\x1b]0;title\x07b\u009b31mc\r\n\td"
	if got := printable(evil); strings.ContainsAny(got, "\x1b\x07\u009b\r") || !strings.HasSuffix(got, "\n\td") {
		t.Errorf("%q", got)
	}
	if got := oneLine(evil, 100); strings.ContainsAny(got, "\x1b\u009b\n\t") {
		t.Errorf("%q", got)
	}
	if got := oneLine("abcdef", 4); got != "abc…" {
		t.Errorf("%q", got)
	}
}

// The demo plays on the lab, also where the environment names a real cluster.
func TestDemoStaysOnTheLab(t *testing.T) {
	dir := t.TempDir()
	c := configs.Default(filepath.Join(dir, "state"))
	c.Cluster.URL, c.Cluster.TokenID = "https://127.0.0.1:1", "lab@pve!lab"
	c.Cluster.TokenSecret = configs.NewSecret("00000000-0000-0000-0000-000000000001")
	c.Cluster.Fingerprint = strings.Repeat("AA:0C:", 15) + "AA:0C"
	c.Sandbox.Subnet = netip.MustParsePrefix("10.99.0.0/24")
	file := filepath.Join(dir, "savepoint.yaml")
	if err := configs.WriteWithSecrets(file, c); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"HOME": dir, "SAVEPOINT_CLUSTER_URL": "https://production:8006", "SAVEPOINT_CLUSTER_TOKEN_ID": "root@pam!x",
		"SAVEPOINT_SSH_JUMP_ADDRESS": "production:22", "SAVEPOINT_SANDBOX_BOOT_TIMEOUT": "9m",
	}
	a := &app{out: io.Discard, err: io.Discard, getenv: func(name string) string { return env[name] }}
	got, err := a.labConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.Cluster.URL != c.Cluster.URL || got.Cluster.TokenID != c.Cluster.TokenID || got.SSH.Jump.Address != "" {
		t.Errorf("cluster %s as %s through %q; want the lab's", got.Cluster.URL, got.Cluster.TokenID, got.SSH.Jump.Address)
	}
	if got.Sandbox.BootTimeout.String() != "9m0s" {
		t.Errorf("boot timeout %s; the environment is to be heard in what is no cluster", got.Sandbox.BootTimeout)
	}
}

// A sandbox that is being made is shown without what it has not got yet.
func TestShowCreating(t *testing.T) {
	var out strings.Builder
	a := &app{out: &out, format: formatText}
	v := sandboxView{Sandbox: orchestrator.Sandbox{Name: "box", State: orchestrator.SandboxCreating}, Open: "01jx", Hint: "do \x1b[31mthis"}
	if err := a.printView(v); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "box: creating") || !strings.Contains(got, "address -\n") ||
		!strings.Contains(got, "transaction 01jx is stuck: do") || strings.Contains(got, "\x1b") {
		t.Errorf("%s", got)
	}
}

// What recovery meets in one sandbox keeps nobody from using another; what it
// meets in the journal does.
func TestOfOneSandbox(t *testing.T) {
	away := fmt.Errorf("destroy sandbox a: %w", orchestrator.ErrDenied)
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"cluster":        {errors.Join(away, fmt.Errorf("roll back: %w", orchestrator.ErrUnavailable)), true},
		"journal full":   {errors.Join(away, &orchestrator.JournalError{Cause: orchestrator.ErrUnavailable}), false},
		"damaged":        {errors.Join(away, &journal.CorruptError{}), false},
		"foreign record": {fmt.Errorf("read the journal: %w", &orchestrator.TransitionError{}), false},
		"no class":       {errors.New("oops"), false},
	} {
		if got := ofOneSandbox(c.err); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// No flag of any command takes a time that is less than nothing, and what is
// refused is named together with the command that it was given to.
func TestNegativeDuration(t *testing.T) {
	seen := map[string]bool{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "duration" {
				return
			}
			name := strings.TrimPrefix(c.CommandPath(), "savepoint ")
			seen[name+" --"+f.Name] = true
			var errs strings.Builder
			code := Run(t.Context(), append(strings.Fields(name), "--"+f.Name, "-1s"), nil, io.Discard, &errs)
			if said := errs.String(); code != exitUsage || !strings.HasPrefix(said, "savepoint: "+name+": ") || !strings.Contains(said, "--"+f.Name+"\" flag: is negative; see savepoint "+name) {
				t.Errorf("%s --%s: exit code %d, %s", name, f.Name, code, said)
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(&app{out: io.Discard, err: io.Discard, getenv: os.Getenv}))
	for _, name := range []string{
		"run --timeout", "run --validate-timeout", "tx begin --validate-timeout", "tx begin --idle", "tx exec --validate-timeout",
		"gc --lock-age", "gc --timeout", "sandbox reset --timeout", "recover --timeout", "policy grant --for",
	} {
		if !seen[name] {
			t.Errorf("%s was not tried", name)
		}
	}
}

// failsOn is a writer that cannot write what begins so.
type failsOn struct{ start string }

var errFull = errors.New("no space left")

func (w failsOn) Write(b []byte) (int, error) {
	if len(b) > 0 && strings.HasPrefix(string(b), w.start) {
		return 0, errFull
	}
	return len(b), nil
}

// What could not be written stays an error, whatever is written after it.
func TestPrintOutcomeFails(t *testing.T) {
	o := orchestrator.Outcome{State: orchestrator.StateRolledBack, Stdout: "out", Stderr: "err", Message: "message"}
	for _, start := range []string{"out", "err", "savepoint: ", "  message"} {
		w := failsOn{start}
		a := &app{out: w, err: w, format: formatText, getenv: func(string) string { return "" }}
		if err := a.printOutcome(o); !errors.Is(err, errFull) {
			t.Errorf("%q cannot be written: %v", start, err)
		}
	}
}
