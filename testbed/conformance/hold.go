package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// Hold checks the part of Executor that asks nothing of the guest's shell but
// "echo TEXT > FILE" and "cat FILE" below /workspace, so that a simulated guest
// keeps it as well: whom an executor talks to, what it refuses, and the facts
// that a rollback is proved by. Executor has it in itself.
func Hold(t *testing.T, factory func(t *testing.T) ExecutorUnderTest, caps ExecutorCaps) {
	t.Helper()
	(&executorSuite{ExecutorUnderTest: factory(t), caps: caps}).hold(t)
}

func (s *executorSuite) hold(t *testing.T) {
	t.Helper()
	t.Run("marker and facts F23", s.marker)
	t.Run("clock F94", s.clock)
	t.Run("pinned host key", s.hostKey)
	t.Run("no permit", s.unpermitted)
	t.Run("an ended context does nothing", s.ended)
}

func (s *executorSuite) marker(t *testing.T) {
	ctx := s.context(t)
	for _, generation := range []string{"first", "second-01jx"} {
		marked, err := s.Guest.Mark(ctx, s.Sandbox, generation)
		if err != nil {
			t.Fatalf("mark: %v", err)
		}
		s.Executor.Disconnect(s.Sandbox.ID)
		seen, err := s.Guest.Inspect(ctx, s.Sandbox)
		if err != nil {
			t.Fatalf("inspect: %v", err)
		}
		if marked.Generation != generation || seen.Generation != generation || seen.BootID == "" || seen.BootID != marked.BootID {
			t.Errorf("marked %+v, then saw %+v", marked, seen)
		}
		if seen.RoundTrip <= 0 || seen.Clock.IsZero() || seen.Clock.Before(marked.Clock) {
			t.Errorf("round trip %s, clock %s after %s", seen.RoundTrip, seen.Clock, marked.Clock)
		}
	}
}

func (s *executorSuite) forged(t *testing.T) {
	if res := s.run(t, "echo forged > /var/lib/savepoint/generation", orchestrator.ExecRequest{}); res.ExitCode == 0 {
		t.Error("the agent could write the marker")
	}
}

func (s *executorSuite) clock(t *testing.T) {
	if !s.caps.Clock {
		t.Skip("this guest shares its clock with the host")
	}
	ctx := s.context(t)
	for _, off := range []time.Duration{-75 * time.Hour, 0} {
		want := time.Now().Add(off)
		if err := s.Guest.SetClock(ctx, s.Sandbox, want); err != nil {
			t.Fatalf("set clock: %v", err)
		}
		facts, err := s.Guest.Inspect(ctx, s.Sandbox)
		if err != nil {
			t.Fatalf("inspect: %v", err)
		}
		if skew := facts.Clock.Sub(time.Now().Add(off)).Abs(); skew > time.Second {
			t.Errorf("clock is off by %s", skew)
		}
	}
}

// trap is what a command leaves that must not have run.
const trap = "/workspace/trap"

// sprung reports a command that ran all the same.
func (s *executorSuite) sprung(t *testing.T, how string) {
	t.Helper()
	if res := s.run(t, "cat "+trap, orchestrator.ExecRequest{}); res.ExitCode == 0 {
		t.Errorf("a command ran %s", how)
	}
}

// calls is everything that needs a guest, for a sandbox.
func (s *executorSuite) calls(ctx context.Context, sb orchestrator.Sandbox) map[string]func() error {
	wrong := time.Now()
	if s.caps.Clock { // else it is the host's
		wrong = wrong.Add(-time.Hour)
	}
	return map[string]func() error{
		"run": func() error {
			_, err := s.Executor.Run(ctx, sb, s.Permit("echo x > "+trap, policy.Agent), orchestrator.ExecRequest{})
			return err
		},
		"inspect": func() error { _, err := s.Guest.Inspect(ctx, sb); return err },
		"mark":    func() error { _, err := s.Guest.Mark(ctx, sb, "trap"); return err },
		"clock":   func() error { return s.Guest.SetClock(ctx, sb, wrong) },
	}
}

func (s *executorSuite) hostKey(t *testing.T) {
	ctx := s.context(t)
	if _, err := s.try(ctx, policy.Agent, "cat "+trap, orchestrator.ExecRequest{}); err != nil {
		t.Fatalf("with the right key: %v", err)
	}
	before := s.facts(t)
	other := s.Sandbox
	other.HostKey = s.OtherKey
	for name, call := range s.calls(ctx, other) {
		var key *orchestrator.HostKeyError
		if err := call(); !errors.As(err, &key) || key.Want == key.Got {
			t.Errorf("%s with another pin: got %v, want *HostKeyError", name, err)
		}
	}
	other.HostKey = ""
	if _, err := s.Guest.Inspect(ctx, other); !errors.Is(err, orchestrator.ErrDenied) {
		t.Errorf("without a pin: got %v, want ErrDenied", err)
	}
	s.sprung(t, "over an unproved connection")
	s.same(t, before)
}

func (s *executorSuite) unpermitted(t *testing.T) {
	if _, err := s.Executor.Run(s.context(t), s.Sandbox, policy.Permit{}, orchestrator.ExecRequest{}); !errors.Is(err, orchestrator.ErrDenied) {
		t.Errorf("without a permit: got %v, want ErrDenied", err)
	}
}

func (s *executorSuite) ended(t *testing.T) {
	before := s.facts(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range s.calls(ctx, s.Sandbox) {
		if err := call(); !errors.Is(err, orchestrator.ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrUnavailable", name, err)
		}
	}
	s.sprung(t, "under a context that had ended before")
	s.same(t, before)
}

func (s *executorSuite) facts(t *testing.T) orchestrator.GuestFacts {
	t.Helper()
	f, err := s.Guest.Inspect(s.context(t), s.Sandbox)
	if err != nil {
		t.Fatalf("inspect: %v", err)
	}
	return f
}

// same wants the marker and the clock to be as they were.
func (s *executorSuite) same(t *testing.T, before orchestrator.GuestFacts) {
	t.Helper()
	after := s.facts(t)
	if after.Generation != before.Generation || after.BootID != before.BootID || after.Clock.Before(before.Clock) {
		t.Errorf("was %+v, is %+v", before, after)
	}
}
