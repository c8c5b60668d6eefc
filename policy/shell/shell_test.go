package shell

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// recorder is a Host that remembers what would run and what was found.
type recorder struct {
	calls [][]string
	facts []Fact
	paths []string
}

func (r *recorder) Run(_ *Walker, _ *Scope, c Call) Stream {
	r.calls = append(r.calls, c.Argv)
	return Stream{}
}
func (r *recorder) Write(_ *Walker, _ *Scope, path string) { r.paths = append(r.paths, ">"+path) }
func (r *recorder) Read(_ *Walker, _ *Scope, path string)  { r.paths = append(r.paths, "<"+path) }
func (r *recorder) Report(f Fact)                          { r.facts = append(r.facts, f) }

func (r *recorder) has(kind string) bool {
	for _, f := range r.facts {
		if f.Kind == kind {
			return true
		}
	}
	return false
}

func walk(src string) *recorder {
	r := &recorder{}
	NewWalker(r).Walk(NewScope(NewLogin("/home/agent", "agent")), src)
	return r
}

// F111: what the walker says a word becomes is what bash makes of it.
func TestWordsExpandAsInBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here to compare with")
	}
	for _, script := range []string{
		`show a 'b c' "d e" f\ g`,
		`show r""m r''m r\m "r"m $'\x72\155\u002f'`,
		`show $'a\nb\tc\'d' $'\101\x41\u0041'`,
		`show {a,b}{1,2} x{1..3}y {c..e} {5..3} {a,} pre{,fix}`,
		`x=rm; show $x ${x} "$x" ${x}x ${#x} ${x^^} ${x^} ${x:0:1} ${x: -1} ${x:1}`,
		`x=MiXed; show ${x,,} ${x,} ${x^^} ${x@L} ${x@U}`,
		`x=/a/b/c.tar.gz; show ${x#*/} ${x##*/} ${x%.*} ${x%%.*} ${x/b/B} ${x//\//-} ${x/#\/a/z} ${x/%gz/xz}`,
		`x=aXbXc; show ${x#a[A-Z]} ${x#[a-q]} ${x#?} ${x%[!a]*} ${x//[A-Z]/_}`,
		`x=; show a$x "$x" ${x:-d} ${x-e} ${x:+f} ${x+g}; show ${y:-d} ${y-e}`,
		`x='a  b'; show $x "$x" pre${x}post`,
		`IFS=,; x='a,b,c'; show $x`,
		`IFS=:; x='a:b c'; show $x "$x"`,
		`a=(1 '2 3' 4); show "${a[@]}" ${a[1]} "${a[1]}" ${#a[@]} ${a[-1]} "${a[@]:1:2}" "${a[*]}"`,
		`a=(x); a+=(y z); a[1]=Q; show "${a[@]}"`,
		`set -- one 'two three' four; show "$@" $2 "$2" $# "${@:2}" ${3}; shift; show "$@"`,
		`v=n; n=deep; show ${!v}`,
		`declare -n r=t; t=target; show $r; r=new; show $t`,
		`declare -l low=ABC; declare -u up=abc; show $low $up`,
		`x=a; x+=b; show $x; y=$x$x; show $y`,
		`show $((1+2*3)) $((10/3)) $((7%4)) $[2+2] $((x=5)) $x`,
		`show "$(echo hi)" $(printf '%s-%s' a b) "$(printf '\x41\102')" $(echo a b)`,
		`show "$(printf '%b' '\0101')" "$(printf %o 8)" "$(printf %d "'A")" "$(printf '%s.' x y)"`,
		`show "$(echo cm0= | base64 -d)" "$(echo abc | rev)" "$(echo abc | tr a-c x-z)" "$(printf 4142 | xxd -r -p)"`,
		`read a <<< 'one'; show "$a"`,
		`printf -v p '%s%s' r m; show $p`,
		`f() { show "$1" "$#"; }; f 'x y' z`,
		`show "${u:-a'b'c}" "${u:-"q"}"`,
		`show a"$(echo "b c")"d`,
		`x='$HOME'; show "$x" $x`,
		`show ~root/x "~" a~`,
		`case x in x) show hit;; esac`,
		`for i in 1 2; do show $i; done`,
		"show a\\\nb 'c\\\nd'",
		`show "a\"b\\c\d"`,
		`x=5; show ${x:=7} ${z:=8} $z`,
		`IFS=-; set -- a b; show "$*" "${@}"; a=(c d); show "${a[*]}"`,
		`declare -A m=([k]=1); show "${!m[@]}"; a=(x y); show "${!a[@]}"`,
		`read -r a b <<< 'one two three'; show "$a" "$b"; IFS=: read -r c d <<< x:y; show "$c" "$d"`,
		`mapfile -t l <<< $'p\nq'; show "${l[@]}"; read -ra w <<< 'u v'; show "${w[1]}"`,
		`x=re; show ${x/e/&o} ${x/#/p} ${x/%/s}; show $'\x{72}m'`,
		`exec 3<<< three; read -r -u 3 t; show "$t"; read -r u <<< four; show "$u"`,
		`show "$(basename /a/b)" "$(dirname /a/b)" "$(dirname /a)"`,
	} {
		t.Run(script, func(t *testing.T) {
			out, err := exec.Command(bash, "-c", "show() { printf '<%s>' \"$@\"; echo; }\n"+script).Output()
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, argv := range walk(script).calls {
				if argv[0] != "show" {
					continue
				}
				for _, a := range argv[1:] {
					got.WriteString("<" + a + ">")
				}
				got.WriteByte('\n')
			}
			if got.String() != string(out) {
				t.Errorf("got  %qwant %q", got.String(), out)
			}
		})
	}
}

func TestUnknownTextStaysUnknown(t *testing.T) {
	for script, want := range map[string]string{
		`show $unset`:                 "\x02",
		`show "$unset/x"`:             "\x02/x",
		`show *.go a?b [ab]c`:         "\x03.go a\x04b \x04c",
		`show "*.go" \*`:              "*.go *",
		`show $(date)`:                "\x10",
		`x=$(date); show "$x"`:        "\x10",
		`show $RANDOM`:                "\x05",
		`show "$RANDOM"`:              "\x01",
		`read x; show "$x"`:           "\x01",
		`show {1..100000}`:            "\x01",
		`show "${PWD}"`:               "/\x01",
		`if a; then x=1; fi; show $x`: "\x02",
	} {
		var got []string
		for _, argv := range walk(script).calls {
			if argv[0] == "show" {
				got = append(got, strings.Join(argv[1:], " "))
			}
		}
		if !slices.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", script, got, want)
		}
	}
}

func TestEveryBranchIsWalked(t *testing.T) {
	for _, src := range []string{
		"if a; then X; fi", "if a; then b; elif c; then X; fi", "if a; then b; else X; fi", "while a; do X; done", "until X; do b; done", "for i in a; do X; done",
		"for ((;;)); do X; break; done", "select i in a; do X; done", "case a in b) X;; esac", "a && X", "a || X", "a | X", "X | a", "X & a", "! X", "time X", "coproc X", "(X)", "{ X; }",
		"f() { X; }", "f() { X; }; f", "function f { X; }; f", "a $(X)", "a `X`", "a <(X)", "a >(X)", "x=$(X)", "x[$(X)]=1", "x=(a $(X))", "declare x=$(X)", "export x=$(X)", "a > $(X)",
		"a <<E\n$(X)\nE", "a <<< $(X)", "echo ${x:-$(X)}", "echo ${x/$(X)/}", "echo ${x:$(X)}", "echo $(($(X)))", "(($(X)))", "let x=$(X)", "[[ $(X) ]]", "[[ a == $(X) ]]", "eval X", "trap X EXIT",
		"echo \"${x:-'$(X)'}\"", "[[ -v 'a[$(X)]' ]]", "x='a[$(X)]'; echo $((x))", "x='$(X)'; echo ${x@P}", "printf -v 'a[$(X)]' v", "mapfile -C X f", "command X", "builtin eval X", "exec X",
		"ls # \\\nX", "eval 'ls # \\\nX'", "a $(ls #\\\nX)", "alias a=X\na b", "exec 3<<< X; eval \"$(cat <&3)\"", "{ echo X >&2; } 2>&1 | while read c; do $c; done", "f() { ((x)); }; x='a[$(X)]' f",
		"command_not_found_handle() { X; }; nope", "f() { X; }; sh -c f", "trap '$c' EXIT; c=X", "time -- X", "coproc a=1 X", "declare -a 'a=($(X))'", "c=X; IFS=; set -- $c; \"$*\"",
	} {
		found := false
		for _, argv := range walk(src).calls {
			found = found || argv[0] == "X"
		}
		if !found {
			t.Errorf("%q: X is not found", src)
		}
	}
}

func TestFacts(t *testing.T) {
	for src, kind := range map[string]string{
		"a\rb": FactControlBytes, "a\x00": FactControlBytes, "a \u202e": FactControlBytes, "a\u200b": FactControlBytes, "\xff": FactControlBytes,
		strings.Repeat("a", MaxSource+1): FactTooLarge,
		"if":                             FactParse, "a 'b": FactParse, "$x": FactUnresolved, "r? x": FactUnresolved, "$(a)": FactUnresolved, "x=$(a); eval \"$x\"": FactOpaque,
		":(){ :|:& };:": FactForkBomb, "PATH=x": FactEnvironment, "export A=1": FactEnvironment, "\uff52m": FactConfusable, "x=1": FactAssign, ". ./f": FactScript,
		strings.Repeat("(", 500): FactDepth,
	} {
		if r := walk(src); !r.has(kind) {
			t.Errorf("%.40q: no %s in %v", src, kind, r.facts)
		}
	}
}

// Text that is parsed again counts as nested code, whichever construct holds
// it: a function that is called often cannot have it parsed without an end.
func TestTextThatIsParsedAgainIsBounded(t *testing.T) {
	long := "$y" + strings.Repeat("a", 40_000)
	for _, body := range []string{`: "${x-'` + long + `'}"`, `[[ -v 'b[` + long + `]' ]]`} {
		src := "f() { " + body + "; }; f"
		if r := walk(src); r.has(FactDepth) {
			t.Errorf("%.20q: one call is too much: %v", src, r.facts)
		}
		if r := walk(src + strings.Repeat("; f", 30)); !r.has(FactDepth) {
			t.Errorf("%.20q: thirty calls have no bound", src)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"etc", "etc", true}, {"e\x04c", "etc", true}, {"\x03", "etc", true}, {"e\x03", "etc", true}, {"\x03x", "etc", false}, {"\x04\x04", "etc", false},
		{"\x03\x03\x03c", "etc", true}, {"", "", true}, {"\x03", "", true}, {"a", "", false}, {"\x01", "x", true},
	} {
		if got := Matches(c.pattern, c.text); got != c.want {
			t.Errorf("Matches(%q, %q) = %t", c.pattern, c.text, got)
		}
	}
}

func TestClean(t *testing.T) {
	for _, c := range []struct{ path, cwd, want string }{
		{"/a//b/./c/..", "", "/a/b"}, {"a", "/x", "/x/a"}, {"a", "", "a"}, {"..", "/x/y", "/x"}, {"../../..", "/x", "/"}, {"\x02/a", "", "/a"}, {"/\x02/a", "", "/a"},
		{"\x01/a", "/x", "\x01/a"}, {"\x03", "/", "/\x03"}, {"", "/x", ""},
	} {
		if got := Clean(c.path, c.cwd); got != c.want {
			t.Errorf("Clean(%q, %q) = %q, want %q", c.path, c.cwd, got, c.want)
		}
	}
}
