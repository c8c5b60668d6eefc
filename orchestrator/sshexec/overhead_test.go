package sshexec_test

import (
	"slices"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
	"savepoint/policy"
)

// TestOverhead compares a read-only command under savepoint with the bare SSH exec of
// the same text on the same connection. The target is at most 1.05.
func TestOverhead(t *testing.T) {
	c, sb := realGuest(t)
	overhead(t, c, sb, 100)
}

func overhead(t *testing.T, c *sshexec.Client, sb orchestrator.Sandbox, rounds int) {
	t.Helper()
	conn, err := c.Transport(t.Context(), sb)
	if err != nil {
		t.Fatal(err)
	}
	judge, err := policy.New(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var all, allBare time.Duration
	for _, command := range []string{"true", "ls /etc", "cat /etc/passwd | wc -l"} {
		// The policy's own permit: one that needs a boundary syncs the guest too.
		p, ok := judge.Decide(policy.Request{Command: command}).Permit()
		if !ok || p.NeedsBoundary() || p.Command() != command {
			t.Fatalf("%q is not a reader", command)
		}
		var ours, bare []time.Duration
		for range rounds {
			began := time.Now()
			s, err := conn.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Output(command); err != nil {
				t.Fatal(err)
			}
			s.Close()
			bare = append(bare, time.Since(began))

			began = time.Now()
			if res, err := c.Run(t.Context(), sb, p, orchestrator.ExecRequest{}); err != nil || res.ExitCode != 0 {
				t.Fatal(res, err)
			}
			ours = append(ours, time.Since(began))
		}
		// The tenth percentile: other work on the machine only ever adds.
		slices.Sort(ours)
		slices.Sort(bare)
		t.Logf("%-25q ours %s, bare %s, ratio %.2f", command, ours[rounds/10], bare[rounds/10], float64(ours[rounds/10])/float64(bare[rounds/10]))
		all, allBare = all+ours[rounds/10], allBare+bare[rounds/10]
	}
	if ratio := float64(all) / float64(allBare); ratio > 1.05 {
		t.Errorf("ratio %.2f, want at most 1.05", ratio)
	}
}

// TestCaptureOverhead says what the report of a session costs. A bare exec
// before each turn gives the helper its time to fork ahead.
func TestCaptureOverhead(t *testing.T) {
	c, sb := realGuest(t)
	captureOverhead(t, c, sb, 40)
}

func captureOverhead(t *testing.T, c *sshexec.Client, sb orchestrator.Sandbox, rounds int) {
	t.Helper()
	conn, err := c.Transport(t.Context(), sb)
	if err != nil {
		t.Fatal(err)
	}
	took := map[bool][]time.Duration{}
	for i := range 2 * rounds {
		s, err := conn.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Output("ls /etc"); err != nil {
			t.Fatal(err)
		}
		s.Close()
		capture := i%2 == 1
		began := time.Now()
		res, err := c.Run(t.Context(), sb, permit("ls /etc", policy.Agent), orchestrator.ExecRequest{Capture: capture})
		took[capture] = append(took[capture], time.Since(began))
		if err != nil || (res.Session != nil) != capture {
			t.Fatalf("got %+v, %v", res, err)
		}
	}
	slices.Sort(took[false])
	slices.Sort(took[true])
	t.Logf("without %s, with the session's report %s (tenth percentile); %s, %s (median)",
		took[false][rounds/10], took[true][rounds/10], took[false][rounds/2], took[true][rounds/2])
}
