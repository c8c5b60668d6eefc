package orchestrator

import (
	"context"
	"fmt"
	"strings"
)

// bad is the first check that failed. Unknown ones could not be evaluated and
// mean a rollback whatever was asked for.
type bad struct {
	reason  string
	unknown bool
}

// validate asks every validator. It stops at the first failure unless the
// failure would be kept anyway, and always at an answer that nobody has.
//
// The guest's health is asked last, so that it also judges what the probes
// did: the guest answers with its pinned key, still carries this transaction's
// generation marker and was not rebooted. A command that reboots the guest
// therefore never commits: its own end cannot be known either.
func (t *tx) validate(ctx context.Context) ([]Check, *bad) {
	var checks []Check
	var first *bad
	add := func(name string, b *bad) (stop bool) {
		c := Check{Name: name, OK: b == nil}
		if b != nil {
			c.Detail = b.reason
			if first == nil || b.unknown {
				first = b
			}
		}
		checks = append(checks, c)
		return first != nil && (first.unknown || t.spec.OnFailure != OnFailureKeep)
	}
	if add("exit", t.exited()) {
		return checks, first
	}
	if len(t.probes) == 0 && t.boundary == BoundaryNone {
		return checks, first // nothing was changed, there is nothing to look at
	}
	done := t.step(StepValidate, "")
	defer func() {
		if first != nil {
			done(fmt.Errorf("%s", first.reason))
			return
		}
		done(nil)
	}()
	if len(t.probes) > 0 {
		// Probes take time; the command's end should not be lost meanwhile.
		if err := t.append(ctx); err != nil {
			add("journal", &bad{reason: fmt.Sprintf("the command's end could not be recorded: %v", err), unknown: true})
			return checks, first
		}
	}
	for _, p := range t.probes {
		if add(p.command, t.probe(ctx, p)) {
			return checks, first
		}
	}
	if t.boundary != BoundaryNone {
		add("guest", t.healthy(ctx))
	}
	return checks, first
}

// exited judges how the command ended.
func (t *tx) exited() *bad {
	r := t.result
	switch {
	case r.TimedOut:
		return &bad{reason: fmt.Sprintf("the command was ended after its timeout of %s", t.spec.Timeout)}
	case r.Signal != "":
		return &bad{reason: "the command was ended by signal " + r.Signal}
	case r.ExitCode != 0:
		return &bad{reason: fmt.Sprintf("the command exited %d", r.ExitCode)}
	}
	return nil
}

// probe runs one validation command.
func (t *tx) probe(ctx context.Context, p probe) *bad {
	r, err := t.e.c.Executor.Run(ctx, t.spec.Sandbox, p.permit, ExecRequest{
		Dir: t.spec.Dir, Env: t.spec.Env, Limit: 4 << 10, Timeout: t.e.c.Deadlines.Validate,
	})
	switch {
	case err != nil:
		return &bad{reason: fmt.Sprintf("validation %q could not be evaluated: %v", p.command, err), unknown: true}
	case r.TimedOut:
		return &bad{reason: fmt.Sprintf("validation %q did not end within %s", p.command, t.e.c.Deadlines.Validate), unknown: true}
	case r.Signal != "":
		return &bad{reason: fmt.Sprintf("validation %q was ended by signal %s", p.command, r.Signal), unknown: true}
	case r.ExitCode != 0:
		return &bad{reason: fmt.Sprintf("validation %q exited %d%s", p.command, r.ExitCode, lastLine(r.Stderr))}
	}
	return nil
}

// healthy asks the guest whether it is still ours and still the same.
func (t *tx) healthy(ctx context.Context) *bad {
	ctx, cancel := context.WithTimeout(ctx, t.e.c.Deadlines.Validate)
	defer cancel()
	facts, err := t.e.c.Guest.Inspect(ctx, t.spec.Sandbox)
	if err != nil {
		return &bad{reason: fmt.Sprintf("the guest does not answer after the command: %v", err), unknown: true}
	}
	// A marker or boot id that changed leaves the same doubt as no answer.
	if want := string(t.view.Snapshot); facts.Generation != want {
		return &bad{reason: fmt.Sprintf("the guest's generation is %q instead of %q", facts.Generation, want), unknown: true}
	}
	if facts.BootID != t.view.BootID {
		return &bad{reason: "the guest was rebooted", unknown: true}
	}
	return nil
}

// lastLine returns ": " and the last line of an output, shortened.
func lastLine(b []byte) string {
	s := strings.TrimSpace(string(b))
	if i := strings.LastIndexByte(s, '\n'); i >= 0 {
		s = s[i+1:]
	}
	if s == "" {
		return ""
	}
	const most = 200
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return ": " + s
}
