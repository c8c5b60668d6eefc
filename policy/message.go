package policy

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const maxShown = 160 // bytes of a command or target in a message

// Message returns the text for the model that sent the command. A denial says
// what was refused, why, that another spelling does not help, what to do
// instead, and whether it could have been undone.
func (v Verdict) Message() string {
	switch v.Decision {
	case Allow:
		return "Allowed: it only reads, so it runs without a snapshot."
	case Snapshot:
		if len(v.Lifted) > 0 {
			return "Allowed inside a snapshot: " + v.Lifted[0].By + " lifts rule " + v.Lifted[0].Rule + " for it."
		}
		return "Allowed inside a snapshot: " + lowerFirst(v.Reason)
	case Deny: // and whatever else is not a decision: below
	}
	var b strings.Builder
	b.WriteString("Denied (rule " + v.Rule + ")")
	if what := v.refused(); what != "" {
		b.WriteString(": " + what)
	}
	b.WriteString(". " + v.Reason)
	if unjudged(v.Rule) {
		b.WriteString(" Sending the same text again will not help: it cannot be judged as it stands.")
	} else {
		b.WriteString(" Repeating, rewording or disguising it will not help: the effect is refused, not the spelling.")
	}
	if v.Alternative != "" {
		b.WriteString(" Instead: " + v.Alternative)
	}
	switch {
	case unjudged(v.Rule):
	case v.Recoverable:
		b.WriteString(" A rollback could have undone it; it is refused all the same.")
	default:
		b.WriteString(" No rollback could have undone it.")
	}
	return b.String()
}

// refused shows the part of the command that the deciding rule is about.
func (v Verdict) refused() string {
	i := slices.IndexFunc(v.Findings, func(f Finding) bool { return f.Rule == v.Rule && f.Decision == v.Decision })
	if i < 0 {
		return ""
	}
	f := v.Findings[i]
	part, target := v.part(f), readable(f.Target)
	switch {
	case part == "":
		return target
	case target == "" || strings.Contains(part, target):
		return part
	}
	return part + " (target " + target + ")"
}

// part returns the text that a finding points at, readable and short.
func (v Verdict) part(f Finding) string {
	if f.Span.Start < 0 || f.Span.End > len(v.command) || f.Span.Start >= f.Span.End {
		return ""
	}
	return readable(v.command[f.Span.Start:f.Span.End])
}

// WhyNotAllow lists what kept a command from being allowed: for every rule that
// answered something stricter, the part of the command, the rule and the
// reason. It is empty for a command that is allowed.
func (v Verdict) WhyNotAllow() []string {
	if v.Decision == Allow {
		return nil
	}
	var out []string
	for _, f := range v.Findings {
		if f.Decision == Allow {
			continue
		}
		line := f.Rule + ": " + f.Reason
		if part := v.part(f); part != "" {
			line = part + ": " + line
		}
		if !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	if len(out) == 0 {
		out = append(out, v.Rule+": "+v.Reason)
	}
	return out
}

// Hardened returns the text that runs in place of the one that was sent, and
// whether there is one: programs that only read once their helpers are off.
func (v Verdict) Hardened() (string, bool) {
	p, ok := v.Permit()
	if !ok || p.command == v.command {
		return "", false
	}
	return p.command, true
}

// readable makes one short line of a text that may hold anything: characters
// that a terminal or a reader would not see as they are become escapes.
func readable(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case b.Len() > maxShown:
			b.WriteString("…")
			return b.String()
		case r == '\n' || r == '\t':
			b.WriteByte(' ')
		case r == utf8.RuneError && n == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(s[i])|0x100, 16)[1:])
		case !unicode.IsPrint(r):
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return strings.TrimSpace(b.String())
}

func lowerFirst(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return string(unicode.ToLower(r)) + s[n:]
}
