package trials

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
	"savepoint/testbed/sim"
	"savepoint/testbed/sim/world"
)

func TestUndone(t *testing.T) {
	exit := func(code int) *int { return &code }
	taken := orchestrator.Outcome{State: orchestrator.StateRolledBack, ExitCode: exit(take)}
	lost := orchestrator.Outcome{State: orchestrator.StateRolledBack, Stdout: cutting + "\n"}
	const silent = 35 * time.Second
	for name, c := range map[string]struct {
		out    orchestrator.Outcome
		cuts   bool
		silent time.Duration
		good   bool
	}{
		"taken and undone":                {out: taken, good: true},
		"nothing but a failure":           {out: orchestrator.Outcome{State: orchestrator.StateRolledBack, ExitCode: exit(1)}},
		"connection lost":                 {out: lost, silent: silent},
		"connection taken away":           {out: lost, cuts: true, silent: silent, good: true},
		"connection lost before":          {out: orchestrator.Outcome{State: orchestrator.StateRolledBack}, cuts: true, silent: silent},
		"connection not taken away":       {out: taken, cuts: true, silent: silent},
		"it did not take":                 {out: orchestrator.Outcome{State: orchestrator.StateRolledBack, ExitCode: exit(noTake)}},
		"it did not take, nor was it cut": {out: orchestrator.Outcome{State: orchestrator.StateRolledBack, ExitCode: exit(noTake), Stdout: cutting}, cuts: true, silent: silent},
		// The end of a command that hangs on a network that is there is not known either,
		// when its time is over and it cannot be killed.
		"its time was over": {out: lost, cuts: true, silent: cutLimit + 10*time.Second},
		// As is that of one of which something cannot be killed, or whose helper died.
		"lost at once":         {out: lost, cuts: true, silent: time.Second},
		"committed":            {out: orchestrator.Outcome{State: orchestrator.StateCommitted, ExitCode: exit(0)}},
		"stuck":                {out: orchestrator.Outcome{State: orchestrator.StateStuck}},
		"denied, not ruined":   {out: orchestrator.Outcome{State: orchestrator.StateDenied}},
		"another's connection": {out: orchestrator.Outcome{State: orchestrator.StateRolledBack, Stdout: "half\n"}, cuts: true, silent: silent},
	} {
		if err := (damage{cuts: c.cuts}).undone(c.out, c.silent); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// cutOff runs commands on a connection that is given up after some silence.
type cutOff struct {
	orchestrator.Executor
	silence time.Duration
	limit   time.Duration // that the command had
}

func (x *cutOff) Run(ctx context.Context, sb orchestrator.Sandbox, p policy.Permit, r orchestrator.ExecRequest) (orchestrator.ExecResult, error) {
	if !strings.Contains(p.Command(), "network") {
		return x.Executor.Run(ctx, sb, p, r)
	}
	x.limit = r.Timeout
	_, _ = r.Stdout.Write([]byte(cutting + "\n"))
	time.Sleep(x.silence) // of the test's own clock
	return orchestrator.ExecResult{ExitCode: -1, Stdout: []byte(cutting + "\n")}, orchestrator.ErrUnknownOutcome
}

// A network that is gone is known by the connection that is given up, and by nothing
// that also happens while it is there.
func TestCutIsProved(t *testing.T) {
	i := -1
	for k, d := range damages() {
		if d.cuts {
			i = k
		}
	}
	d := damages()[i]
	for name, c := range map[string]struct {
		silence func(limit time.Duration) time.Duration
		good    bool
	}{
		"given up":      {func(time.Duration) time.Duration { return 35 * time.Second }, true},
		"out of time":   {func(limit time.Duration) time.Duration { return limit + 10*time.Second }, false},
		"helper's end":  {func(time.Duration) time.Duration { return time.Second }, false},
		"soon given up": {func(time.Duration) time.Duration { return 30 * time.Second }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, err := simulated(1)
				if err != nil {
					t.Fatal(err)
				}
				cfg.Journal = sim.NewForgetful()
				x := &cutOff{Executor: cfg.Executor, silence: c.silence(d.limit())}
				cfg.Executor = x
				e, err := orchestrator.New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				_, out, silent, err := d.play(t.Context(), e, world.Box(0), orchestrator.BoundaryMachine)
				if err != nil || x.limit != d.limit() {
					t.Fatalf("limit %s, %v", x.limit, err)
				}
				if err := d.undone(out, silent); (err == nil) != c.good {
					t.Errorf("silent for %s: %v", silent, err)
				}
			})
		})
	}
}

// The damage to the network takes only when no address is left, and says so before.
func TestNetworkDamage(t *testing.T) {
	var d damage
	for _, d = range damages() {
		if d.name == "network" {
			break
		}
	}
	const asks = `case "$*" in
*"route show"*) echo "default via 192.0.2.1 dev eth7" ;;
*"address show dev eth7 up"*) [ -e "$GONE" ] || echo "2: eth7 inet 192.0.2.2/24" ;;
`
	for name, c := range map[string]struct {
		ip, said string
		code     int
	}{
		"taken down": {asks + `"link set eth7 down") : > "$GONE" ;;
esac`, cutting, take},
		"nothing happens": {asks + "esac", cutting, noTake},
		"no network":      {"exit 0", "", noTake},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "ip"), []byte("#!/bin/sh\n"+c.ip+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", d.text())
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "GONE="+filepath.Join(dir, "gone"))
		out, err := cmd.Output()
		var ended *exec.ExitError
		if !errors.As(err, &ended) || ended.ExitCode() != c.code || strings.TrimSpace(string(out)) != c.said {
			t.Errorf("%s: %q, %v; want exit %d", name, out, err, c.code)
		}
	}
}
