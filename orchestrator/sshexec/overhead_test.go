package sshexec_test

import (
	"slices"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
	"savepoint/policy"
)

// TestOverhead compares a command under savepoint with the bare SSH exec of
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
	var all, allBare time.Duration
	for _, command := range []string{"true", "ls /etc", "cat /etc/passwd | wc -l"} {
		p := permit(command, policy.Agent)
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
