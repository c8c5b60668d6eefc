package trials

import (
	"context"
	"fmt"
	"strings"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/bench"
)

// A connection that is silent is given up by savepoint's own questions whether the
// guest lives: after 30 s at least and 40 s at most. What is known of a command that
// hangs on a network that is there ends long after that, by its time limit; and what
// loses the end of a command otherwise (its helper died, something of it cannot be
// killed) does so at once.
const cutLimit, leastSilent, mostSilent = 2 * time.Minute, 20 * time.Second, time.Minute

// limit is the time limit of a damage.
func (d damage) limit() time.Duration {
	if d.cuts {
		return cutLimit
	}
	return time.Minute
}

// play runs a damage, and says for how long nothing was heard of it at its end.
func (d damage) play(ctx context.Context, e *orchestrator.Engine, sb orchestrator.Sandbox, b orchestrator.Boundary) (bench.Sample, orchestrator.Outcome, time.Duration, error) {
	heard := &lastHeard{at: time.Now()}
	sample, out, err := transact(ctx, e, orchestrator.Spec{
		Sandbox: sb, Command: d.command(), As: d.as, Boundary: b, Timeout: d.limit(), Env: map[string]string{damageVar: d.name}, Stdout: heard,
	})
	return sample, out, time.Since(heard.at) - out.Timings.Rollback, err
}

// lastHeard is when something was last written to it.
type lastHeard struct{ at time.Time }

func (h *lastHeard) Write(p []byte) (int, error) {
	h.at = time.Now()
	return len(p), nil
}

// undone says why an outcome is not a damage that took and was rolled back. silent is
// for how long nothing was heard of it at its end, for one that cuts the connection.
func (d damage) undone(out orchestrator.Outcome, silent time.Duration) error {
	switch {
	case out.State != orchestrator.StateRolledBack:
		return fmt.Errorf("it is %s: %s", out.State, out.Reason)
	case d.cuts && out.ExitCode != nil:
		return fmt.Errorf("the damage did not take the connection away: exit %d: %s", *out.ExitCode, firstLine([]byte(out.Stderr)))
	case d.cuts && strings.TrimSpace(out.Stdout) != cutting:
		return fmt.Errorf("the damage was not about to take the connection away when it was lost: %s", out.Reason)
	case d.cuts && silent > mostSilent:
		return fmt.Errorf("nothing says that the damage took the connection away: it was silent for %s, until its time was over: %s", silent.Round(time.Second), out.Reason)
	case d.cuts && silent < leastSilent:
		return fmt.Errorf("nothing says that the damage took the connection away: its end was lost %s after it was heard of last, sooner than a silent connection is given up: %s", silent.Round(time.Second), out.Reason)
	case d.cuts:
		return nil
	case out.ExitCode == nil:
		return fmt.Errorf("nothing says whether the damage took: %s", out.Reason)
	case *out.ExitCode != take:
		return fmt.Errorf("the damage did not take: exit %d: %s", *out.ExitCode, firstLine([]byte(out.Stderr)))
	}
	return nil
}
