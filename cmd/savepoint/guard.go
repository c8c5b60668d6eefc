package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/policy"
)

// guardFlags are the choices of how a command is validated.
type guardFlags struct {
	validate   []string
	validateAs string
	within     time.Duration
	guard      orchestrator.Guard
}

func (f *guardFlags) register(fl *pflag.FlagSet) {
	f.registerValidate(fl, "afterwards for the commit")
	fl.StringArrayVar(&f.guard.Protect, "protect", nil, "roll back when this file or tree in the guest was changed, besides validate.protected; can be repeated")
	fl.StringArrayVar(&f.guard.Unprotect, "unprotect", nil, "let the command change this protected path and what is below it (/ for all); can be repeated")
	fl.StringArrayVar(&f.guard.OnlyChange, "only-change", nil, "roll back when anything else than this path and what is below it was changed; can be repeated")
	fl.StringArrayVar(&f.guard.Watch, "watch", nil, "a tree that --only-change and --changes look at (default: validate.watch, or all that the account can write); can be repeated")
	fl.BoolVar(&f.guard.Changes, "changes", false, "list what was changed")
}

// registerValidate adds the flags of validations alone; when says when they run.
func (f *guardFlags) registerValidate(fl *pflag.FlagSet, when string) {
	fl.StringArrayVar(&f.validate, "validate", nil, "a command that has to exit 0 "+when+"; \"root:CMD\" and \"agent:CMD\" say who runs it; can be repeated")
	fl.StringVar(&f.validateAs, "validate-as", "agent", "who runs the validations that do not say: agent or root")
	addSpan(fl, &f.within, "validate-timeout", 0, "roll back when a validation has not ended after this long (default from the configuration: 1m)")
}

// validations reads the validation commands.
func (f *guardFlags) validations() (list []orchestrator.Validation) {
	for _, v := range f.validate {
		as := policy.User(f.validateAs)
		for _, u := range []policy.User{policy.Root, policy.Agent} {
			if rest, ok := strings.CutPrefix(v, string(u)+":"); ok {
				v, as = rest, u
				break
			}
		}
		list = append(list, orchestrator.Validation{Command: v, As: as, Timeout: f.within})
	}
	return list
}

// guards are what the configuration says that every transaction is validated by.
func guards(v configs.Validate) (orchestrator.Guards, error) {
	g := orchestrator.Guards{
		Protected: orchestrator.ProtectedPaths(v.Protected), Watch: v.Watch, Volatile: v.Volatile,
		MaxEntries: v.MaxEntries, MaxSkew: v.MaxClockSkew,
	}
	for _, l := range []struct {
		key, text string
		to        *orchestrator.Least
	}{{"validate.min_free", v.MinFree, &g.MinFree}, {"validate.min_inodes", v.MinInodes, &g.MinInodes}} {
		count, percent, err := configs.ParseLeast(l.text)
		if err != nil {
			return g, usagef("%s %q %v", l.key, l.text, err)
		}
		*l.to = orchestrator.Least{Count: count, Percent: percent}
	}
	return g, nil
}

// sayChanges lists what a command did to the files that were compared.
func sayChanges(w io.Writer, o orchestrator.Outcome) {
	const most = 20
	for _, c := range o.Changed[:min(most, len(o.Changed))] {
		line := fmt.Sprintf("  %-8s %s", c.Kind, oneLine(c.Path, 200))
		if c.What != "" && c.Kind == orchestrator.ChangeChanged {
			line += " (" + oneLine(c.What, 120) + ")"
		}
		fmt.Fprintln(w, line)
	}
	if more := o.ChangedCount - min(most, len(o.Changed)); more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
}
