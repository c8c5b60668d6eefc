package policy

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// quoteSh quotes text for the shell in single quotes.
func quoteSh(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// disguise is one way to write a command line so that it looks different and
// runs the same.
type disguise struct {
	name string
	wrap func(string) string
	// tools are programs it needs; where one is absent, bash cannot prove that
	// it runs. "never" marks what needs root, a session bus or a network.
	tools []string
}

// around puts a line between two texts.
func around(before, after string) func(string) string {
	return func(s string) string { return before + s + after }
}

// quoted puts a line, quoted as one word, between two texts.
func quoted(before, after string) func(string) string {
	return func(s string) string { return before + quoteSh(s) + after }
}

// octal writes every byte as an escape.
func octal(format string) func(string) string {
	return func(s string) string { return each(s, func(c byte) string { return fmt.Sprintf(format, c) }) }
}

var disguises = append([]disguise{
	// Structure.
	{name: "after true", wrap: around("true && ", "")},
	{name: "after false", wrap: around("false || ", "")},
	{name: "second line", wrap: around("ls >/dev/null\n", "")},
	{name: "after a comment", wrap: around(": # it's \"only\" a comment \\\n", "")},
	{name: "after a here-document", wrap: around(": <<'ZZ' <<ZY\n$(x) '\nZZ\n'\nZY\n", "")},
	{name: "after padding", wrap: func(s string) string { return strings.Repeat("true;", 200) + "\n" + s }},
	{name: "negated", wrap: around("! { ", "\n}")},
	{name: "timed", wrap: around("time { ", "\n}"), tools: []string{"never"}}, // no keyword in text that is evaluated again
	{name: "subshell", wrap: around("( ", "\n)")},
	{name: "group", wrap: around("{ ", "\n}")},
	{name: "if", wrap: around("if true; then\n", "\nfi")},
	{name: "condition", wrap: around("if ", "\nthen :; fi")},
	{name: "else", wrap: around("if false; then ls; else\n", "\nfi")},
	{name: "elif", wrap: around("if false; then ls; elif ", "\nthen :; fi")},
	{name: "for", wrap: around("for zi in 1; do\n", "\ndone")},
	{name: "for of expressions", wrap: around("for ((zi=0;zi<1;zi++)); do\n", "\ndone")},
	{name: "while", wrap: around("while true; do\n", "\nbreak; done")},
	{name: "while condition", wrap: around("while ", "\nfalse; do :; done")},
	{name: "until", wrap: around("until ", "\ntrue; do :; done")},
	{name: "while read", wrap: around("while read -r zl; do\n", "\ndone <<< x")},
	{name: "case", wrap: around("case a in a)\n", "\n;; esac")},
	{name: "case that falls through", wrap: around("case a in a) : ;& b)\n", "\n;; esac")},
	{name: "case word", wrap: around("case $(", "\n) in x) ;; esac")},
	{name: "case pattern", wrap: around("case a in $(", "\n)) ;; esac")},
	{name: "function", wrap: around("zf() {\n", "\n}; zf")},
	{name: "function without a group", wrap: around("zf() (", "\n)\nzf")},
	{name: "function keyword", wrap: around("function zf {\n", "\n}\nzf")},
	{name: "function in a function", wrap: around("zf() { zg() {\n", "\n}; zg; }; zf")},
	{name: "function over a program", wrap: around("ls() {\n", "\n}; ls")},
	{name: "function over a builtin", wrap: around("echo() {\n", "\n}; echo hello")},
	{name: "exported function", wrap: around("zf() {\n", "\n}; export -f zf; bash -c zf")},
	{name: "command_not_found_handle", wrap: around("command_not_found_handle() {\n", "\n}; zz-no-such-program")},
	{name: "background", wrap: around("{ ", "\n} & wait")},
	{name: "pipe left", wrap: around("{ ", "\n} | cat")},
	{name: "pipe right", wrap: around("echo x | { ", "\n}")},
	{name: "coproc", wrap: around("coproc ZC { ", "\n}; wait")},
	{name: "substitution", wrap: around("echo \"$(", "\n)\"")},
	{name: "process substitution", wrap: around("cat <(", "\n)")},
	{name: "process substitution that reads", wrap: around("echo x > >(", "\n); wait; sleep 0.1")},
	{name: "assignment", wrap: around("zx=$(", "\n); echo \"$zx\"")},
	{name: "export", wrap: around("export zx=$(", "\n)")},
	{name: "declare", wrap: around("declare -r zx=\"$(", "\n)\"")},
	{name: "array value", wrap: around("zx=(1 $(", "\n))")},
	{name: "in a here-document", wrap: around("cat <<ZH\n$(", "\n)\nZH")},
	{name: "in a here-string", wrap: around("cat <<< \"$(", "\n)\"")},
	{name: "in a redirection", wrap: around("echo x 2>\"/dev/null$(", "\n)\"")},
	{name: "in a default", wrap: around("echo ${zu:-$(", "\n)}")},
	{name: "in a test", wrap: around("[[ -n $(", "\n) ]]")},
	{name: "in a comparison", wrap: around("[ \"$(", "\n)\" = x ]")},
	{name: "in a replacement", wrap: around("zx=a; echo ${zx/a/$(", "\n)}")},
	{name: "in a length", wrap: around("zx=abc; echo ${zx:$(", "\n)0}")},
	{name: "loop words", wrap: around("for zi in $(", "\n); do :; done")},
	{name: "trap", wrap: quoted("( trap ", " EXIT )")},
	{name: "trap of a later variable", wrap: quoted("( trap 'eval \"$zx\"' EXIT; zx=", " )")},
	{name: "trap of every command", wrap: quoted("( trap ", " DEBUG; : )")},
	{name: "array", wrap: quoted("za=(bash -c ", "); \"${za[@]}\"")},
	{name: "set", wrap: quoted("( set -- bash -c ", "; \"$@\" )")},
	{name: "select", wrap: quoted("select zx in ", "; do eval \"$zx\"; break; done <<< 1")},
	{name: "and in a line", wrap: around("true &&\n\n", "")},
	// Evaluated text.
	{name: "eval", wrap: quoted("eval ", "")},
	{name: "eval twice", wrap: func(s string) string { return "eval eval " + quoteSh(quoteSh(s)) }},
	{name: "eval of a variable", wrap: quoted("zv=", "; eval \"$zv\"")},
	{name: "indirect", wrap: quoted("zi=zj; zj=", "; eval \"${!zi}\"")},
	{name: "nameref", wrap: quoted("declare -n zr=zt; zt=", "; eval \"$zr\"")},
	{name: "printf -v", wrap: quoted("printf -v zv '%s' ", "; eval \"$zv\"")},
	{name: "read", wrap: func(s string) string { return "IFS= read -rd '' zv <<< " + quoteSh(s) + "; eval \"$zv\"" }},
	{name: "mapfile", wrap: quoted("mapfile zl <<< ", "; printf -v zv %s \"${zl[@]}\"; eval \"$zv\"")},
	{name: "octal", wrap: func(s string) string { return "eval $'" + octal(`\%03o`)(s) + "'" }},
	{name: "hex", wrap: func(s string) string { return "eval $'" + octal(`\x%02x`)(s) + "'" }},
	{name: "printf octal", wrap: func(s string) string { return "eval \"$(printf '%b' '" + octal(`\0%03o`)(s) + "')\"" }},
	{name: "echo escapes", wrap: func(s string) string { return "echo -e '" + octal(`\x%02x`)(s) + "' | bash" }},
	{name: "escape operator", wrap: func(s string) string { return "zv='" + octal(`\x%02x`)(s) + "'; eval \"${zv@E}\"" }},
	{name: "prompt operator", wrap: func(s string) string { return "zv=" + quoteSh("$("+s+"\n)") + "; : \"${zv@P}\"" }},
	{name: "trace prompt", wrap: func(s string) string { return "( PS4=" + quoteSh("$("+s+"\n)") + "; set -x; : )" }},
	{name: "trace prompt of a child", wrap: func(s string) string { return "PS4=" + quoteSh("$("+s+"\n)") + " bash -xc :" }, tools: []string{"never"}}, // root's shell does not take it from outside
	{name: "arithmetic", wrap: func(s string) string { return "zn=" + quoteSh("a[$("+s+"\n)]") + "; : $((zn))" }},
	{name: "arithmetic of a child", wrap: func(s string) string { return "zn=" + quoteSh("a[$("+s+"\n)]") + " bash -c ': $((zn))'" }},
	{name: "arithmetic at second hand", wrap: func(s string) string { return "zn=" + quoteSh("a[$("+s+"\n)]") + "; zm=1+zn; ((zm)); true" }},
	{name: "let", wrap: func(s string) string { return "let " + quoteSh("zn=a[$("+s+"\n)]") }},
	{name: "integer variable", wrap: func(s string) string { return "declare -i zn; zn=" + quoteSh("a[$("+s+"\n)]") }},
	{name: "test of a variable", wrap: func(s string) string { return "[[ -v " + quoteSh("a[$("+s+"\n)]") + " ]]" }},
	{name: "numeric comparison", wrap: func(s string) string { return "[[ " + quoteSh("a[$("+s+"\n)]") + " -eq 1 ]]" }},
	{name: "subscript", wrap: func(s string) string { return "zx=" + quoteSh("a[$("+s+"\n)]") + "; : \"${zl[zx]}\"" }},
	{name: "name for printf", wrap: func(s string) string { return "printf -v " + quoteSh("a[$("+s+"\n)]") + " x" }},
	{name: "name for read", wrap: func(s string) string { return "read " + quoteSh("a[$("+s+"\n)]") + " <<< x" }},
	{name: "slice", wrap: func(s string) string { return "zs=abc zx=" + quoteSh("a[$("+s+"\n)]") + "; : \"${zs:zx}\"" }},
	{name: "mapfile callback", wrap: func(s string) string { return "mapfile -c 1 -C " + quoteSh("eval "+quoteSh(s)+" #") + " zl <<< x" }},
	{name: "completion command", wrap: func(s string) string { return "compgen -C " + quoteSh("eval "+quoteSh(s)+" #") + " x" }},
	{name: "completion words", wrap: func(s string) string { return "compgen -W " + quoteSh("$("+s+"\n)") + " x" }},
	{name: "alias", wrap: func(s string) string {
		return "shopt -s expand_aliases\nalias zq=" + quoteSh("eval "+quoteSh(s)) + "\nzq"
	}},
	{name: "not found", wrap: quoted("command_not_found_handle() { eval \"$2\"; }; zz-no-such-program ", "")},
}, launchers...)

var launchers = []disguise{
	// Shells.
	{name: "sh -c", wrap: quoted("bash -c ", "")},
	{name: "sh -c of a variable", wrap: quoted("zw=", "; bash -c \"$zw\"")},
	{name: "sh -c of the environment", wrap: quoted("zw=", " bash -c 'eval \"$zw\"'")},
	{name: "positional code", wrap: quoted("bash -c 'eval \"$1\"' _ ", "")},
	{name: "code as name", wrap: quoted("bash -c 'eval \"$0\"' ", "")},
	{name: "options before code", wrap: quoted("bash +o posix -e -c -- ", "")},
	{name: "$BASH", wrap: quoted("\"$BASH\" -c ", "")},
	{name: "$SHELL", wrap: quoted("SHELL=/bin/bash; $SHELL -c ", "")},
	{name: "here-string", wrap: quoted("bash <<< ", "")},
	{name: "here-string of options", wrap: quoted("bash -s -- a b <<< ", "")},
	{name: "here-document", wrap: around("bash <<'ZEOF'\n", "\nZEOF")},
	{name: "echo pipe", wrap: quoted("printf '%s\\n' ", " | bash")},
	{name: "long pipe", wrap: quoted("printf '%s\\n' ", " | cat | tee /dev/null | bash")},
	{name: "pipe into a group", wrap: quoted("printf '%s\\n' ", " | { cat | (bash); }")},
	{name: "pipe of errors", wrap: quoted("{ printf '%s\\n' ", " >&2; } 2>&1 | bash")},
	{name: "pipe through a device", wrap: quoted("printf '%s\\n' ", " > /dev/stdout | bash")},
	{name: "source", wrap: quoted("source /dev/stdin <<< ", "")},
	{name: "source substitution", wrap: quoted(". <(printf '%s' ", ")")},
	{name: "shell of a substitution", wrap: quoted("bash <(printf '%s\\n' ", ")")},
	{name: "descriptor", wrap: quoted("exec 7<<< ", "; bash <&7")},
	{name: "descriptor as file", wrap: quoted("exec 7<<< ", "; . /dev/fd/7")},
	{name: "descriptor read", wrap: quoted("exec {zd}<<< ", "; IFS= read -rd '' -u $zd zv; eval \"$zv\"")},
	{name: "standard input for good", wrap: quoted("( exec <<< ", "; bash )")},
	{name: "file", wrap: quoted("printf '%s\\n' ", " > zf.sh; bash zf.sh")},
	{name: "file in two parts", wrap: quoted("echo 'ls >/dev/null' > zf.sh; printf '%s\\n' ", " >> zf.sh; . ./zf.sh")},
	{name: "file through a descriptor", wrap: quoted("exec 8> zf.sh; printf '%s\\n' ", " >&8; exec 8>&-; bash zf.sh")},
	{name: "copied file", wrap: quoted("printf '%s\\n' ", " > zf; cat zf > zg; bash \"$PWD/zg\"")},
	{name: "filtered file", wrap: quoted("printf '%s\\n' ", " > zf; sed '' zf > zg; bash zg"), tools: []string{"sed"}},
	{name: "executable file", wrap: quoted("printf '#!/bin/bash\\n%s\\n' ", " > zx.sh; chmod +x zx.sh; ./zx.sh"), tools: []string{"chmod"}},
	{name: "base64", wrap: func(s string) string {
		return "echo " + base64.StdEncoding.EncodeToString([]byte(s)) + " | base64 -d | bash"
	}, tools: []string{"base64"}},
	{name: "xxd", wrap: func(s string) string { return "bash <<< \"$(xxd -r -p <<< " + hex.EncodeToString([]byte(s)) + ")\"" }, tools: []string{"xxd"}},
	{name: "BASH_ENV", wrap: quoted("printf '%s\\n' 'unset BASH_ENV' ", " > ze.sh; BASH_ENV=./ze.sh bash -c :")},
	// Programs that start another.
	{name: "xargs", wrap: quoted("echo x | xargs -I{} bash -c ", ""), tools: []string{"xargs"}},
	{name: "xargs of code", wrap: func(s string) string { return "printf '%s\\0' " + quoteSh(s) + " | xargs -0 bash -c" }, tools: []string{"xargs"}},
	{name: "find", wrap: quoted("find /dev/null -exec bash -c ", " \\;"), tools: []string{"find"}},
	{name: "find of many", wrap: quoted("find /dev/null -execdir bash -c ", " _ {} +"), tools: []string{"find"}},
	{name: "env", wrap: quoted("env A=1 bash -c ", ""), tools: []string{"env"}},
	{name: "env of a variable", wrap: quoted("env zw=", " bash -c 'eval \"$zw\"'"), tools: []string{"env"}},
	{name: "env of options", wrap: quoted("env -u ZZ -- bash -c ", ""), tools: []string{"env"}},
	{name: "timeout", wrap: quoted("timeout -k 1 9 bash -c ", ""), tools: []string{"timeout"}},
	{name: "nice", wrap: quoted("nice -n 1 bash -c ", ""), tools: []string{"nice"}},
	{name: "nohup", wrap: quoted("nohup bash -c ", ""), tools: []string{"nohup"}},
	{name: "setsid", wrap: quoted("setsid -w bash -c ", ""), tools: []string{"setsid"}},
	{name: "stdbuf", wrap: quoted("stdbuf -o0 bash -c ", ""), tools: []string{"stdbuf"}},
	{name: "flock", wrap: quoted("flock . bash -c ", ""), tools: []string{"flock"}},
	{name: "flock of code", wrap: quoted("flock . -c ", ""), tools: []string{"never"}},
	{name: "script", wrap: quoted("script -qc ", " /dev/null"), tools: []string{"never"}},
	{name: "watch", wrap: quoted("watch -n 9 -g ", ""), tools: []string{"never"}},
	{name: "parallel", wrap: func(s string) string { return "parallel " + quoteSh(s+"\n:") + " ::: 1" }, tools: []string{"never"}},
	{name: "busybox", wrap: quoted("busybox sh -c ", ""), tools: []string{"busybox"}},
	{name: "exec", wrap: quoted("( exec -a ls bash -c ", " )")},
	{name: "command", wrap: quoted("command eval ", "")},
	{name: "builtin", wrap: quoted("builtin eval ", "")},
	{name: "program time", wrap: quoted("\\time -p bash -c ", ""), tools: []string{"time"}},
	{name: "awk", wrap: func(s string) string {
		return "awk 'BEGIN{system(\"bash -c " + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "'", `'\''`, "\n", `\n`).Replace(quoteSh(s)) + "\")}'"
	}, tools: []string{"never"}},
	{name: "sudo", wrap: quoted("sudo -n -u root bash -c ", ""), tools: []string{"never"}},
	{name: "su", wrap: quoted("su root -c ", ""), tools: []string{"never"}},
	{name: "chroot", wrap: quoted("chroot / bash -c ", ""), tools: []string{"never"}},
	{name: "unshare", wrap: quoted("unshare -r bash -c ", ""), tools: []string{"never"}},
	{name: "nsenter", wrap: quoted("nsenter -t 1 -m bash -c ", ""), tools: []string{"never"}},
	{name: "systemd-run", wrap: quoted("systemd-run --user --pipe bash -c ", ""), tools: []string{"never"}},
	{name: "ssh", wrap: quoted("ssh localhost ", ""), tools: []string{"never"}},
}
