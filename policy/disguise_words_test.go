package policy

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// spelling is one way to write a word so that the shell makes the same word of
// it. Lines in setup come first.
type spelling struct {
	name string
	// spell returns what comes before the command and what stands for the word.
	spell func(word string) (setup, word2 string)
	// anywhere is true when it works for an argument too, and for several words
	// of one line.
	anywhere bool
	// tools are programs it needs; a machine without them proves nothing.
	tools []string
}

// each joins what f makes of every byte.
func each(word string, f func(c byte) string) string {
	var b strings.Builder
	for i := 0; i < len(word); i++ {
		b.WriteString(f(word[i]))
	}
	return b.String()
}

func coded(format string) func(string) (string, string) {
	return func(w string) (string, string) {
		return "", "$'" + each(w, func(c byte) string { return fmt.Sprintf(format, c) }) + "'"
	}
}

// inline is a spelling without a setup.
func inline(f func(w string) string) func(string) (string, string) {
	return func(w string) (string, string) { return "", f(w) }
}

// shifted moves every letter up by one, for tr to move it back.
func shifted(w string) string {
	return each(w, func(c byte) string {
		switch {
		case c >= 'a' && c < 'z', c >= 'A' && c < 'Z':
			return string(rune(c + 1))
		case c == 'z':
			return "a"
		case c == 'Z':
			return "A"
		}
		return string(rune(c))
	})
}

func backwards(w string) string {
	b := []byte(w)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return string(b)
}

// letters reports whether changing the case and back keeps the word.
func letters(w string) bool { return w == strings.ToLower(w) }

var spellings = []spelling{
	{name: "empty quotes", spell: inline(func(w string) string { return w[:1] + `""` + w[1:] }), anywhere: true},
	{name: "single quotes", spell: inline(func(w string) string { return `'` + w + `'` }), anywhere: true},
	{name: "quoted letters", spell: inline(func(w string) string {
		return each(w, func(c byte) string { return `"` + string(rune(c)) + `"` })
	}), anywhere: true},
	{name: "backslashes", spell: inline(func(w string) string { return each(w, func(c byte) string { return `\` + string(rune(c)) }) }), anywhere: true},
	{name: "mixed quotes", spell: inline(func(w string) string { return `$'` + w[:1] + `'"` + w[1:] + `"` }), anywhere: true},
	{name: "hex", spell: coded(`\x%02x`), anywhere: true},
	{name: "hex in braces", spell: coded(`\x{%x}`), anywhere: true},
	{name: "octal", spell: coded(`\%03o`), anywhere: true},
	{name: "four digits", spell: coded(`\u%04x`), anywhere: true},
	{name: "eight digits", spell: coded(`\U%08X`), anywhere: true},
	{name: "locale string", spell: inline(func(w string) string { return `$"` + w[:1] + `"` + w[1:] }), anywhere: true},
	{name: "line continuation", spell: inline(func(w string) string { return w[:1] + "\\\n" + w[1:] }), anywhere: true},
	{name: "nothing inside", spell: inline(func(w string) string { return w[:1] + "${zz}" + w[1:] }), anywhere: true},
	{name: "no arguments", spell: inline(func(w string) string { return w[:1] + "$9$8" + w[1:] })},
	{name: "empty command", spell: inline(func(w string) string { return w[:1] + "$(:)" + w[1:] }), anywhere: true},
	{name: "brace", spell: inline(func(w string) string { return "{" + w + ",}" })},
	{name: "default", spell: inline(func(w string) string { return "${zz:-" + w + "}" }), anywhere: true},
	{name: "assigned default", spell: inline(func(w string) string { return "${zzd=" + w + "}" })},
	{name: "variable", spell: func(w string) (string, string) { return "zv=" + w, "$zv" }},
	{name: "two variables", spell: func(w string) (string, string) { return "za=" + w[:1] + " zb=" + w[1:], `$za"${zb}"` }},
	{name: "appended", spell: func(w string) (string, string) { return "zv=" + w[:1] + "; zv+=" + w[1:], "$zv" }},
	{name: "exported", spell: func(w string) (string, string) { return "export zv=" + w, "$zv" }},
	{name: "declared", spell: func(w string) (string, string) { return "declare 'zv=" + w + "'", "${zv}" }},
	{name: "lower-cased", spell: func(w string) (string, string) {
		if !letters(w) {
			return "zv=" + w, "$zv"
		}
		return "declare -l zv=" + strings.ToUpper(w), "$zv"
	}},
	{name: "prefix removed", spell: func(w string) (string, string) { return "zv=Q/" + w, "${zv#*/}" }},
	{name: "suffix removed", spell: func(w string) (string, string) { return "zv=" + w + "QQ", "${zv%%Q*}" }},
	{name: "replaced", spell: func(w string) (string, string) { return "zv=" + w[:1] + "QQ" + w[1:], "${zv//Q}" }},
	{name: "replaced once", spell: func(w string) (string, string) { return "zv=Q" + w[1:], "${zv/Q/" + w[:1] + "}" }},
	{name: "sliced", spell: func(w string) (string, string) { return "zv=QQ" + w + "Q", fmt.Sprintf("${zv:2:%d}", len(w)) }},
	{name: "sliced from the end", spell: func(w string) (string, string) { return "zv=QQ" + w, fmt.Sprintf("${zv: -%d}", len(w)) }},
	{name: "case", spell: func(w string) (string, string) {
		if !letters(w) {
			return "zv=" + w, "${zv}"
		}
		return "zv=" + strings.ToUpper(w), "${zv,,}"
	}},
	{name: "case operator", spell: func(w string) (string, string) {
		if !letters(w) {
			return "zv=" + w, "${zv}"
		}
		return "zv=" + strings.ToUpper(w), "${zv@L}"
	}},
	{name: "escapes in a variable", spell: func(w string) (string, string) {
		return "zv='" + each(w, func(c byte) string { return fmt.Sprintf(`\x%02x`, c) }) + "'", "${zv@E}"
	}},
	{name: "prompt expansion", spell: func(w string) (string, string) { return "zv=" + w, "${zv@P}" }},
	{name: "indirect", spell: func(w string) (string, string) { return "zi=zj zj=" + w, "${!zi}" }},
	{name: "nameref", spell: func(w string) (string, string) { return "declare -n zr=zt; zt=" + w, "$zr" }},
	{name: "array element", spell: func(w string) (string, string) { return "zl=(x " + w + ")", "${zl[1]}" }},
	{name: "last array element", spell: func(w string) (string, string) { return "zl=(x " + w + ")", `"${zl[-1]}"` }},
	{name: "rest of an array", spell: func(w string) (string, string) { return "zl=(x " + w + ")", `"${zl[@]:1}"` }},
	{name: "joined array", spell: func(w string) (string, string) {
		return "zl=(" + w[:1] + " " + w[1:] + "); IFS=; zv=\"${zl[*]}\"; unset IFS", "$zv"
	}},
	{name: "key of an array", spell: func(w string) (string, string) { return "declare -A zm=([" + w + "]=1)", `"${!zm[@]}"` }},
	{name: "value of a key", spell: func(w string) (string, string) { return "declare -A zm=([k]=" + w + ")", `"${zm[k]}"` }},
	{name: "positional", spell: func(w string) (string, string) { return "set -- x " + w, "$2" }},
	{name: "last argument", spell: func(w string) (string, string) { return ": " + w, "$_" }},
	{name: "IFS", spell: func(w string) (string, string) { return "zv=" + w + "~; IFS='~'; set -- $zv; unset IFS", "$1" }},
	{name: "loop variable", spell: func(w string) (string, string) { return "for zv in " + w + "; do :; done", "$zv" }},
	{name: "printf -v", spell: func(w string) (string, string) { return "printf -v zv '%s%s' " + w[:1] + " " + w[1:], "$zv" }},
	{name: "read", spell: func(w string) (string, string) { return "read -r _ zv <<< 'x " + w + "'", "$zv" }},
	{name: "mapfile", spell: func(w string) (string, string) { return "mapfile -t zl <<< " + w, "${zl[0]}" }},
	{name: "getopts", spell: func(w string) (string, string) { return "OPTIND=1; getopts z: zo -z " + w, "$OPTARG" }},
	{name: "eval assignment", spell: func(w string) (string, string) { return "eval zv=" + w[:1] + "''" + w[1:], "$zv" }},
	{name: "echo", spell: inline(func(w string) string { return "$(echo " + w + ")" }), anywhere: true},
	{name: "backquotes", spell: inline(func(w string) string { return "`printf " + w + "`" })},
	{name: "printf octal", spell: inline(func(w string) string {
		return "$(printf '" + each(w, func(c byte) string { return fmt.Sprintf(`\%03o`, c) }) + "')"
	}), anywhere: true},
	{name: "echo -e", spell: inline(func(w string) string {
		return "$(echo -e '" + each(w, func(c byte) string { return fmt.Sprintf(`\x%02x`, c) }) + "')"
	}), anywhere: true},
	{name: "rev", spell: inline(func(w string) string { return "$(echo " + backwards(w) + " | rev)" }), anywhere: true, tools: []string{"rev"}},
	{name: "tr", spell: inline(func(w string) string { return "$(tr b-zaB-ZA a-zA-Z <<< " + shifted(w) + ")" }), anywhere: true, tools: []string{"tr"}},
	{name: "tr of a case", spell: inline(func(w string) string {
		if !letters(w) {
			return "$(tr b-zaB-ZA a-zA-Z <<< " + shifted(w) + ")"
		}
		return "$(echo " + strings.ToUpper(w) + " | tr A-Z a-z)"
	}), anywhere: true, tools: []string{"tr"}},
	{name: "base64", spell: inline(func(w string) string {
		return "$(base64 -d <<< " + base64.StdEncoding.EncodeToString([]byte(w)) + ")"
	}), anywhere: true, tools: []string{"base64"}},
	{name: "xxd", spell: inline(func(w string) string { return "$(echo " + hex.EncodeToString([]byte(w)) + " | xxd -r -p)" }), anywhere: true, tools: []string{"xxd"}},
	{name: "cut", spell: inline(func(w string) string { return "$(cut -c2- <<< Q" + w + ")" }), tools: []string{"cut"}},
	{name: "sed", spell: inline(func(w string) string { return "$(sed s/Q// <<< Q" + w + ")" }), tools: []string{"sed"}},
	{name: "awk", spell: inline(func(w string) string { return "$(awk 'BEGIN{print \"" + w + "\"}')" }), tools: []string{"awk"}},
	{name: "od", spell: inline(func(w string) string {
		return "$(printf " + w + " | od -An -c | tr -d ' \\n')"
	}), tools: []string{"od", "tr"}},
	{name: "here-document", spell: inline(func(w string) string { return "$(cat <<ZZ\n" + w + "\nZZ\n)" })},
	{name: "function", spell: func(w string) (string, string) { return `zf() { "$@"; }`, "zf " + w }},
	{name: "function with the name", spell: func(w string) (string, string) { return "zf() { " + w + ` "$@"; }`, "zf" }},
	{name: "function that prints", spell: func(w string) (string, string) { return "zf() { echo " + w + "; }", "$(zf)" }},
	{name: "function of a nameref", spell: func(w string) (string, string) {
		return `zf() { local -n zr=$1; shift; $zr "$@"; }; zn=` + w, "zf zn"
	}},
	{name: "alias", spell: func(w string) (string, string) { return "shopt -s expand_aliases\nalias zq='" + w + "'", "zq" }},
	{name: "alias of an alias", spell: func(w string) (string, string) {
		return "shopt -s expand_aliases\nalias zp='" + w + "'\nalias zq=zp", "zq"
	}},
	{name: "command", spell: inline(func(w string) string { return "command -- " + w })},
	{name: "builtin", spell: inline(func(w string) string { return "builtin command " + w })},
	{name: "eval", spell: inline(func(w string) string { return "eval " + w })},
	{name: "exec", spell: inline(func(w string) string { return "exec -a ls " + w })},
	{name: "negated", spell: inline(func(w string) string { return "! " + w })},
	{name: "timed", spell: inline(func(w string) string { return "time -p -- " + w })},
	{name: "redirect first", spell: inline(func(w string) string { return "3<&0 4>/dev/null " + w })},
	{name: "assignment first", spell: inline(func(w string) string { return "zv=1 zw=$zv " + w })},
	{name: "env", spell: inline(func(w string) string { return "env -- " + w }), tools: []string{"env"}},
	{name: "located", spell: inline(func(w string) string { return "$(command -v " + w + ")" })},
	{name: "located by type", spell: inline(func(w string) string { return "`type -P " + w + "`" })},
	{name: "command_not_found_handle", spell: func(w string) (string, string) {
		return "command_not_found_handle() { " + w + ` "${@:2}"; }`, "zz-no-such-program"
	}},
	{name: "unknown pattern", spell: inline(func(w string) string { return "/bin/../bin/" + w[:1] + "?" + w[min(2, len(w)):] }), tools: []string{"never"}},
	{name: "absolute", spell: inline(func(w string) string { return "/usr/./sbin//../bin/" + w }), tools: []string{"never"}},
}
