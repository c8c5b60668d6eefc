package policy

import (
	"strings"
	"testing"
	"time"

	"mvdan.cc/sh/v3/syntax"
)

// FuzzDecide checks what holds for every text: no panic, the same answer
// twice, no permit for a denial, and no permission for what does not parse.
func FuzzDecide(f *testing.F) {
	e := newEngine(f)
	for _, r := range golden(f) {
		f.Add(r[2])
	}
	f.Fuzz(func(t *testing.T, command string) {
		start := time.Now()
		v := e.Decide(Request{Command: command})
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("took %v", took)
		}
		again := e.Decide(Request{Command: command})
		if v.Decision != again.Decision || v.Rule != again.Rule || len(v.Effects) != len(again.Effects) {
			t.Errorf("two answers: %s %s, then %s %s", v.Decision, v.Rule, again.Decision, again.Rule)
		}
		p, ok := v.Permit()
		if ok != (v.Decision != Deny) || ok != p.Valid() {
			t.Errorf("decision %s, permit %t, valid %t", v.Decision, ok, p.Valid())
		}
		if v.Rule == "" || v.Reason == "" {
			t.Errorf("no rule or reason: %+v", v)
		}
		if _, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(command), ""); err != nil && v.Decision != Deny {
			t.Errorf("%s although it does not parse: %v", v.Decision, err)
		}
	})
}

// F109: no size, depth or number of parts makes the policy slow or lets the last
// part through.
func TestHostileInputIsBounded(t *testing.T) {
	e := newEngine(t)
	repeat := strings.Repeat
	double := "x=aaaaaaaaaaaaaaaa; "
	for range 40 {
		double += "x=$x$x; "
	}
	for name, cmd := range map[string]string{
		"one megabyte":             repeat("a", 1<<20),
		"just over the limit":      repeat("a", 64<<10+1),
		"open parentheses":         repeat("(", 60000),
		"open substitutions":       repeat("$(", 30000),
		"nested substitutions":     repeat("$(", 300) + "ls" + repeat(")", 300),
		"nested subshells":         repeat("( ", 390) + "ls" + repeat(" )", 390),
		"nested braces":            repeat("{ ", 2000) + "ls;" + repeat(" }", 2000),
		"nested if":                repeat("if ", 3000),
		"nested if complete":       repeat("if ls; then ", 900) + "ls; " + repeat("fi; ", 900),
		"nested while":             repeat("while ls; do ", 400) + "ls; " + repeat("done; ", 400),
		"nested for":               repeat("for i in 1 2 3 4 5 6 7 8; do ", 30) + "ls; " + repeat("done; ", 30),
		"negations":                repeat("! ", 30000) + "ls",
		"brace bomb":               "echo " + repeat("{a,b}", 30),
		"brace range":              "echo {1..1000000000}",
		"nested braces in a word":  "echo " + repeat("{a,", 300) + repeat("}", 300),
		"nested eval":              repeat("eval ", 20000) + "$x",
		"nested sudo":              repeat("sudo ", 10000) + "$x",
		"nested quotes in eval":    "eval eval eval \"" + repeat("eval ", 1000) + "$x\"",
		"doubling":                 double + "$x",
		"functions that call":      "a(){ b;b;b;b; }; b(){ c;c;c;c; }; c(){ d;d;d;d; }; d(){ e;e;e;e; }; e(){ f;f;f;f; }; f(){ g;g;g;g; }; g(){ h;h;h;h; }; h(){ i;i;i;i; }; i(){ $x; }; a",
		"arithmetic":               "echo $((" + repeat("(", 1000) + "1" + repeat(")", 1000) + "))$x; $x",
		"many alternatives":        repeat("if ls; then a=1; else a=2; fi; ", 1) + repeat("if ls; then b=$b$a; else b=$a$b; fi; ", 200) + "$b",
		"long pipeline":            "ls" + repeat("|cat", 15000) + "; $x",
		"find with many -exec":     "find . " + repeat("-exec ls {} ; ", 3000) + "; $x",
		"here-documents":           repeat("cat <<A;", 3000),
		"globs":                    "rm -rf /" + repeat("*?", 20000),
		"awk":                      "awk '" + repeat("{print > \"/etc/passwd\" ", 500) + "'",
		"python":                   "python3 -c '" + repeat("os.system(\"", 2000) + "rm -rf /'",
		"patterns":                 "x=" + repeat("a", 3000) + "; ${x//" + repeat("*a", 200) + "/b}",
		"extended patterns":        "x=" + repeat("a", 500) + "; ${x##" + repeat("+(a)", 50) + "b}",
		"printf":                   "$(printf '%s' " + repeat("x ", 20000) + ")",
		"recursive function":       "f(){ f; f; }; f; $x",
		"mutual functions":         "f(){ g; g; }; g(){ f; f; }; f; $x",
		"trap in trap":             repeat("trap 'trap ", 100) + "ls" + repeat("' EXIT", 100),
		"arrays":                   "a=(" + repeat("x ", 30000) + "); \"${a[@]}\" ; $x",
		"padding":                  repeat("true;", 12000) + "$x",
		"padding of calls":         repeat("ls;", 12000) + "$x",
		"padding of pipes":         "ls" + repeat("|cat -", 8000) + "; $x",
		"padding of assignments":   repeat("a=b ", 12000) + "; $x",
		"padding of substitutions": repeat(":$(:)", 10000) + "; $x",
		"padding of comments":      repeat("#\\\n", 15000) + "$x",
		"hidden comments":          repeat("ls #\\\n", 9000) + "$x",
		"aliases that double":      "shopt -s expand_aliases\nalias a='b;b' b='c;c' c='d;d' d='e;e' e='f;f' f='g;g' g='h;h' h='i;i' i='j;j' j='k;k' k='l;l' l='m;m' m='n;n' n='o;o' o='p;p' p='q;q' q=ls\na\n$x",
		"eval that doubles":        "v='eval \"$v;$v\"'; " + repeat("v=\"eval '$v;$v'\"; ", 30) + "eval \"$v\"; $x",
		"replacements that grow":   "v=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; " + repeat("v=${v//a/$v};", 200) + "$x",
		"many trims":               "v=" + repeat("ab", 250) + "; " + repeat(": ${v%%*c};", 4000) + "$x",
		"many replacements":        "v=" + repeat("ab", 2000) + "; " + repeat(": ${v//a*b*a/c};", 3000) + "$x",
		"many expressions":         "v='" + repeat("a+", 15000) + "1'; " + repeat("((v));", 5000) + "$x",
		"expressions that refer":   "a=b+b b=c+c c=d+d d=e+e e=f+f f=g+g g=h+h h=i+i i=j+j j=k+k k=l+l l=m+m m=n+n n=o+o o=p+p p=q+q q=r+r r=s+s s=t+t t=1; ((a)); $x",
		"many descriptors":         repeat("exec {a}>f;", 5000) + "$x",
		"many files":               repeat("echo a>>f;", 3000) + repeat("bash f*;", 3000) + "$x",
		"a file that grows":        repeat("echo aaaaaaaaaaaaaaaaaaaaaaaaa>>f;", 1800) + "bash f; $x",
		"a file that reads itself": "echo a>f;" + repeat("cat f f>g;cat g g>f;", 2000) + "bash f; $x",
		"many directories":         repeat("pushd a;", 7000) + "$x",
		"many traps":               repeat("trap ls 0;", 5000) + "$x",
		"many arrays":              "a=(" + repeat("x ", 4000) + ");" + repeat("a+=(y);", 5000) + "$x",
		"many loops":               repeat("for a in {1..16};do ", 6) + "ls" + repeat(";done", 6) + ";$x",
		"many databases":           repeat("psql -h h.example.org a;", 2500) + "$x",
		"many kills":               repeat("kill $p;", 6000) + "$x",
		"quotes in quotes":         repeat("\"$(", 390) + "ls" + repeat(")\"", 390) + "; $x",
		"backquotes":               repeat("`", 30000),
		"brace sequences":          repeat("{1..9}", 2000) + "; $x",
		"letters":                  repeat("{a..z}", 500) + "; $x",
		"case":                     repeat("case x in x) ", 300) + "ls" + repeat(";; esac", 300) + "; $x",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			v := e.Decide(Request{Command: cmd})
			// A last "$x" is an unknown command: whatever came before it, the
			// text is denied.
			if strings.HasSuffix(cmd, "$x") && v.Decision != Deny {
				t.Errorf("got %s (%s)", v.Decision, v.Rule)
			}
			// Not a measurement: what is not bounded takes minutes here, on any
			// machine and also with the race detector.
			if took := time.Since(start); took > time.Minute {
				t.Errorf("took %v (%s)", took, v.Rule)
			} else if took > 100*time.Millisecond {
				t.Logf("took %v (%s)", took, v.Rule)
			}
		})
	}
}
