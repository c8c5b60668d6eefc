package orchestrator

import (
	"bytes"
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

// scope says what there is to validate besides the validation commands.
type scope struct {
	exit  bool // how the command ended
	guest bool // whether the guest is still what it was
}

// validate asks every validator. It stops at the first failure unless the
// failure would be kept anyway, and always at an answer that nobody has.
//
// The guest's health is asked last, so that it also judges what the probes
// did: the guest answers with its pinned key, still carries this transaction's
// generation marker and was not rebooted. A command that reboots the guest
// therefore never commits: its own end cannot be known either.
func (t *tx) validate(ctx context.Context, of scope) ([]Check, *bad) {
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
	if of.exit && add("exit", t.exited()) {
		return checks, first
	}
	if len(t.probes) == 0 && !of.guest && t.was == nil {
		return checks, first // there is nothing to look at
	}
	done := t.step(StepValidate, "")
	defer func() {
		if first != nil {
			done(fmt.Errorf("%s", first.reason))
			return
		}
		done(nil)
	}()
	if len(t.probes) > 0 || t.was != nil && len(t.was.watched) > 0 {
		// These take time; the command's end should not be lost meanwhile.
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
	// The files are compared after the probes, which may have changed some.
	if t.was != nil && len(t.was.protected) > 0 && add("protected", t.protectedCheck(ctx)) {
		return checks, first
	}
	if t.was != nil && len(t.was.watched) > 0 {
		name := "unchanged"
		if len(t.spec.Guard.OnlyChange) == 0 {
			name = "changes"
		}
		if add(name, t.watchedCheck(ctx)) {
			return checks, first
		}
	}
	if of.guest {
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
	within := p.timeout
	if within == 0 {
		within = t.e.c.Deadlines.Validate
	}
	r, err := t.e.c.Executor.Run(ctx, t.spec.Sandbox, p.permit, ExecRequest{
		Dir: t.spec.Dir, Env: t.spec.Env, Limit: 4 << 10, Timeout: within,
	})
	name := t.clean(p.command)
	switch {
	case err != nil:
		return &bad{reason: fmt.Sprintf("validation %q could not be evaluated: %v", name, err), unknown: true}
	case r.TimedOut:
		return &bad{reason: fmt.Sprintf("validation %q did not end within %s", name, within), unknown: true}
	case r.Signal != "":
		return &bad{reason: fmt.Sprintf("validation %q was ended by signal %s", name, r.Signal), unknown: true}
	case r.ExitCode != 0:
		said := r.Stderr
		if int64(len(said)) < r.StderrBytes { // a last line that was cut says nothing, or half of a secret
			said = said[:bytes.LastIndexByte(said, '\n')+1]
		}
		return &bad{reason: fmt.Sprintf("validation %q exited %d%s", name, r.ExitCode, lastLine([]byte(t.clean(string(said)))))}
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
