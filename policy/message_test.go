package policy

import (
	"slices"
	"strings"
	"testing"
	"unicode"
)

func TestMessages(t *testing.T) {
	e := newEngine(t)
	for _, c := range []struct {
		command string
		want    []string
	}{
		{"cd src && git push -f", []string{"Denied (rule external.git-push)", "git push -f", "repository outside", "the effect is refused, not the spelling", "Instead: ", "No rollback could have undone it"}},
		{"rm -rf /usr", []string{"rm -rf /usr", "A rollback could have undone it"}},
		{"cd / && rm -rf usr", []string{"rm -rf usr (target /usr)"}},
		{"if", []string{"input.parse-error", "Sending the same text again will not help"}},
		{"touch x", []string{"Allowed inside a snapshot: it changes files"}},
		{"ls", []string{"Allowed", "only reads"}},
	} {
		m := e.Decide(Request{Command: c.command}).Message()
		for _, want := range c.want {
			if !strings.Contains(m, want) {
				t.Errorf("%q: message %q lacks %q", c.command, m, want)
			}
		}
	}
	if m := e.Decide(Request{Command: "if"}).Message(); strings.Contains(m, "ollback") {
		t.Errorf("what never ran is said to be undoable or not: %q", m)
	}
	if m := e.Decide(Request{Command: "ls", User: "nobody"}).Message(); !strings.Contains(m, "nobody") {
		t.Errorf("message %q", m)
	}
}

// A message is one line of visible characters, whatever the command holds.
func TestMessagesAreReadable(t *testing.T) {
	e := newEngine(t)
	for _, cmd := range []string{
		"rm -rf / '\n\n\tx'", "rm -rf / \u202e", "rm -rf / '\xff'", "rm -rf / $'\\e[31m'", "rm -rf / " + strings.Repeat("ü", 500), "ls\r\x1b[2J", strings.Repeat("x", 1<<17),
	} {
		v := e.Decide(Request{Command: cmd})
		for _, m := range append(v.WhyNotAllow(), v.Message()) {
			if i := strings.IndexFunc(m, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 || len(m) > 1200 {
				t.Errorf("%.20q: byte %d of %d in %q", cmd, i, len(m), m)
			}
		}
	}
}

func TestWhyNotAllow(t *testing.T) {
	e := newEngine(t)
	got := e.Decide(Request{Command: "ls -l; touch a; sudo rm -rf /etc; touch b"}).WhyNotAllow()
	for _, want := range []string{"touch a: local-change: It changes files", "sudo rm -rf /etc: fs.delete-root: It removes", "touch b: local-change"} {
		if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("no line %q in %q", want, got)
		}
	}
	if slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "ls") }) {
		t.Errorf("a part that only reads is listed: %q", got)
	}
	if got := e.Decide(Request{Command: "ls"}).WhyNotAllow(); got != nil {
		t.Errorf("an allowed command: %q", got)
	}
	if got := e.Decide(Request{Command: "ls", Profile: "x"}).WhyNotAllow(); len(got) != 1 || !strings.HasPrefix(got[0], "request.profile: ") {
		t.Errorf("a refused request: %q", got)
	}
}

func TestHardenedIsTheTextThatRuns(t *testing.T) {
	e := newEngine(t)
	v := e.Decide(Request{Command: "git log -1"})
	text, ok := v.Hardened()
	if p, _ := v.Permit(); !ok || text != p.Command() || !strings.Contains(text, "core.fsmonitor=false") {
		t.Errorf("%q, %t", text, ok)
	}
	for _, cmd := range []string{"ls", "git log -1; touch x", "git push", ""} {
		if text, ok := e.Decide(Request{Command: cmd}).Hardened(); ok {
			t.Errorf("%q has the hardened form %q", cmd, text)
		}
	}
}

func TestSpansPointAtThePart(t *testing.T) {
	e := newEngine(t)
	for _, c := range []struct {
		command, rule, part string
		via                 []string
	}{
		{"ls; rm -rf /usr; ls", "fs.delete-root", "rm -rf /usr", nil},
		{"echo ünï ✓ && rm -rf /usr", "fs.delete-root", "rm -rf /usr", nil},
		{"ls '日本' | sudo rm -rf '/usr' # ü", "fs.delete-root", "sudo rm -rf '/usr'", []string{"sudo"}},
		{"ls; sh -c 'echo ü; rm -rf /usr'; ls", "fs.delete-root", "sh -c 'echo ü; rm -rf /usr'", []string{"sh"}},
		{"ls; sh -c 'ls; bash -c \"rm -rf /usr\"'", "fs.delete-root", "sh -c 'ls; bash -c \"rm -rf /usr\"'", []string{"sh", "bash"}},
		{"ls; eval 'rm -rf /usr'", "fs.delete-root", "eval 'rm -rf /usr'", nil},
		{"ls; echo ü $(rm -rf /usr)", "fs.delete-root", "rm -rf /usr", nil},
		{"ls; find / -name ü -exec rm -rf /usr \\;", "fs.delete-root", "find / -name ü -exec rm -rf /usr \\;", []string{"find"}},
		{"ls; echo é > /etc/sudoers; ls", "fs.write-accounts", "echo é > /etc/sudoers", nil},
		{"f() { echo ü; rm -rf /usr; }; f", "fs.delete-root", "rm -rf /usr", nil},
		{"ls\ncat <<E\nü\nE\nrm -rf /usr\n", "fs.delete-root", "rm -rf /usr", nil},
		{"ls; timeout 5 env nice git push", "external.git-push", "timeout 5 env nice git push", []string{"timeout", "env", "nice"}},
		{"ls; LD_PRELOAD=./ü.so ls", "env.preload", "LD_PRELOAD=./ü.so ls", nil},
		{"echo ü; \"$x\" -rf; ls", "shell.unresolved-command", "\"$x\" -rf", nil},
	} {
		v := e.Decide(Request{Command: c.command})
		i := slices.IndexFunc(v.Findings, func(f Finding) bool { return f.Rule == c.rule && f.Decision == Deny })
		if i < 0 {
			t.Errorf("%q: no finding of %s: %+v", c.command, c.rule, v.Findings)
			continue
		}
		f := v.Findings[i]
		if got := c.command[f.Span.Start:f.Span.End]; got != c.part {
			t.Errorf("%q: span is %q, want %q", c.command, got, c.part)
		}
		if !slices.Equal(f.Via, c.via) && len(f.Via)+len(c.via) > 0 {
			t.Errorf("%q: via %q, want %q", c.command, f.Via, c.via)
		}
	}
}

// Every span lies in the text and does not cut a character.
func TestSpansFit(t *testing.T) {
	e := newEngine(t)
	for _, r := range golden(t) {
		cmd := "echo ü€😀; " + r[2]
		for _, f := range e.Decide(Request{Command: cmd}).Findings {
			if f.Span.Start < 0 || f.Span.Start >= f.Span.End || f.Span.End > len(cmd) {
				t.Errorf("%q: rule %s has the span %+v", cmd, f.Rule, f.Span)
				continue
			}
			if part := cmd[f.Span.Start:f.Span.End]; strings.ToValidUTF8(part, "") != part && strings.ToValidUTF8(cmd, "") == cmd {
				t.Errorf("%q: the span of %s cuts a character: %q", cmd, f.Rule, part)
			}
		}
	}
}
