package sshexec_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
	"savepoint/testbed/sim"
)

// The first key is that of a guest that is still booting when it is asked for,
// and the steps that follow are pinned to it.
func TestTemplateSteps(t *testing.T) {
	w := newWorld(t, sim.Behaviour{BootDelay: 50 * time.Millisecond}, nil)
	_, sb := w.boot(t, 101)
	ctx := within(t, 20*time.Second)
	key, err := w.FirstHostKey(ctx, sb.Address)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := w.HostKey(ctx, 101)
	if err != nil || strings.TrimSpace(shown) != key {
		t.Errorf("got %q, the guest has %q, %v", key, shown, err)
	}
	sb.HostKey = key
	var lines []string
	say := func(line string) { lines = append(lines, line) }
	if err := w.Template(ctx, sb, sshexec.TemplateProvision, 0, say); err != nil {
		t.Fatal(err)
	}
	if err := w.Template(ctx, sb, sshexec.TemplateCheck, 0, say); err != nil || len(lines) < 3 || lines[len(lines)-1] == "" {
		t.Errorf("%v, lines %q", err, lines)
	}
	// What the step complains about is in the error: there is no such disk.
	err = w.Template(ctx, sb, sshexec.TemplateProvision, 4<<30, say)
	if !errors.Is(err, orchestrator.ErrUnavailable) || !strings.Contains(err.Error(), "cannot be told") {
		t.Errorf("got %v", err)
	}
	if err := w.Template(ctx, sb, sshexec.TemplateClean, 0, say); err != nil {
		t.Fatal(err)
	}
	// Its keys are gone, ours among them.
	if err := w.Template(ctx, sb, sshexec.TemplateCheck, 0, say); !errors.Is(err, orchestrator.ErrDenied) {
		t.Errorf("after the clean-up: %v", err)
	}
}

// Another host key than the first one ends the steps.
func TestTemplateStepsArePinned(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	_, sb := w.sandbox(t, 101)
	if err := w.ChangeHostKey(101); err != nil {
		t.Fatal(err)
	}
	err := w.Template(within(t, 20*time.Second), sb, sshexec.TemplateProvision, 0, func(string) {})
	var key *orchestrator.HostKeyError
	if !errors.As(err, &key) {
		t.Errorf("got %v", err)
	}
}

// A machine that never lets us in is given up in time, with the cause; so is one
// that a wrong jump host stands before, at once.
func TestFirstHostKeyGivesUp(t *testing.T) {
	w := newWorld(t, sim.Behaviour{NeverBoots: true}, nil)
	_, sb := w.boot(t, 101)
	_, err := w.FirstHostKey(within(t, 100*time.Millisecond), sb.Address)
	if !errors.Is(err, orchestrator.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "lets root in by key") {
		t.Errorf("got %v", err)
	}
	other := newWorld(t, sim.Behaviour{}, func(c *sshexec.Config) { c.Jump.Identity = identity(t) })
	if _, err := other.FirstHostKey(within(t, 20*time.Second), sb.Address); err == nil || strings.Contains(err.Error(), "deadline") {
		t.Errorf("got %v", err)
	}
}

// A guest that does not answer any more is given up with the context.
func TestTemplateStepOfAFrozenGuest(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	_, sb := w.sandbox(t, 101)
	if err := w.Backend.Freeze(101, true); err != nil {
		t.Fatal(err)
	}
	err := w.Template(within(t, 200*time.Millisecond), sb, sshexec.TemplateCheck, 0, func(string) {})
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, orchestrator.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
