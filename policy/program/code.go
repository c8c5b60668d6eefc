package program

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"savepoint/policy/shell"
)

// Facts about code in other languages.
const (
	FactCodeNetwork = "code-network" // code opens a connection or sends data
	FactCodeSpawn   = "code-spawn"   // code starts a program that is not a plain text
	FactCodeKill    = "code-kill"    // code ends the first or every process
	FactCodeDecode  = "code-decode"  // code runs text that it decodes itself
)

// interpreter judges python, perl, node and their like.
func (j *Judge) interpreter(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	if u.Name == "bun" {
		j.runs(w, sc, c, &u, args)
	}
	if len(p.operands) > 0 && p.operands[0] == "eval" && (u.Name == "deno" || u.Name == "crystal") {
		p.options = append(p.options, Option{Name: "-e", Value: strings.Join(p.operands[1:], " "), Has: true, Known: true})
		p.operands = p.operands[1:]
	}
	u.Options, u.Operands = p.options, p.operands
	if version(u.Name, p) && trusted(c.Argv[0]) {
		u.ReadOnly = true
		j.use(u)
		return shell.Stream{}
	}
	if o, ok := p.given("-i"); ok && o.kind == Change && (u.Name == "perl" || u.Name == "ruby") {
		for _, f := range p.operands {
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(f)})
		}
	}
	j.use(u)
	inline := false
	// perl -MModule makes the module's functions known to the code.
	prelude := ""
	for _, o := range p.options {
		if o.Name == "-M" {
			prelude += "use " + o.Value + ";"
		}
	}
	for _, o := range p.options {
		if o.kind == Code || o.Name == "-e" && o.Has {
			inline = true
			j.code(w, sc, &u, u.Name, prelude+o.Value)
		}
		if o.Name == "-m" && o.Has {
			inline = true
			j.module(w, sc, c, &u, o.Value, afterModule(args, o.Value))
		}
		if o.Name == "-n" && u.Name == "perl" && evalsLines(p) {
			w.Report(sc, shell.FactOpaque, u.Name, c.Span)
		}
	}
	switch {
	case inline:
	case len(p.operands) > 0 && strings.Contains(script(u.Name, p.operands), "://"):
		w.Report(sc, shell.FactFetched, script(u.Name, p.operands), c.Span)
	case len(p.operands) > 0 && p.operands[0] != "-" && !fromInput(u.Name, p.operands):
		f := w.Content(sc, p.operands[0])
		switch {
		case f.Fetched, f.Decoded:
			w.Run(sc, f, c.Span)
		case f.Known:
			j.code(w, sc, &u, u.Name, f.Text)
		}
	case c.Stdin.Known:
		j.code(w, sc, &u, u.Name, c.Stdin.Text)
	case (u.Name == "dc" || u.Name == "gnuplot") && !c.Stdin.Fetched && !c.Stdin.Decoded: // what they read is numbers, as a rule
	case c.Stdin.Inherit || c.Stdin.File != "" && !c.Stdin.Fetched && !c.Stdin.Decoded:
	default:
		w.Run(sc, c.Stdin, c.Span)
	}
	return shell.Stream{}
}

// fromInput reports whether the code that bun or deno is told to run comes in
// by standard input.
func fromInput(name string, operands []string) bool {
	return (name == "deno" || name == "bun") && operands[0] == "run" && slices.Contains(operands[1:], "-")
}

// script is the operand that names the code.
func script(name string, operands []string) string {
	if (name == "deno" || name == "bun") && operands[0] == "run" {
		for _, o := range operands[1:] {
			if !strings.HasPrefix(o, "-") {
				return o
			}
		}
	}
	return operands[0]
}

// afterModule is what stands behind -m NAME: all of it is the module's.
func afterModule(args []string, name string) []string {
	for i, a := range args {
		if a == name || strings.HasPrefix(a, "-") && strings.HasSuffix(a, "m"+name) {
			return args[i+1:]
		}
	}
	return nil
}

// module judges the modules of python that run code of the line.
func (j *Judge) module(w *shell.Walker, sc *shell.Scope, c shell.Call, u *Use, name string, operands []string) {
	switch name {
	case "timeit", "trace", "pdb", "cProfile", "profile", "code", "runpy", "doctest", "asyncio":
		for _, o := range operands {
			switch {
			case o == "/dev/stdin" || o == "-":
				j.code(w, sc, u, u.Name, c.Stdin.Text)
			case name == "timeit" || strings.ContainsAny(o, "(;!"):
				j.code(w, sc, u, u.Name, o)
			}
		}
		if c.Stdin.Known && len(operands) == 0 {
			j.code(w, sc, u, u.Name, c.Stdin.Text)
		}
	case "zipfile", "tarfile":
		if n := len(operands); n > 2 && (operands[0] == "-e" || operands[0] == "--extract") {
			out := *u
			out.Accesses = []Access{{Action: Write, Path: sc.Path(operands[n-1])}}
			j.use(out)
		}
	}
}

// evalsLines reports whether the code runs every line of its input.
func evalsLines(p parsed) bool {
	for _, o := range p.options {
		if o.kind == Code && bareEval.MatchString(o.Value) {
			return true
		}
	}
	return false
}

// version reports whether an interpreter is only asked for its version. The
// same letter starts a session elsewhere: python -v is verbose.
func version(name string, p parsed) bool {
	if len(p.options) != 1 || len(p.operands) > 0 {
		return false
	}
	switch p.options[0].Name {
	case "--version", "--help":
		return true
	case "-V":
		return strings.HasPrefix(name, "python") || name == "deno"
	case "-v":
		return name == "node" || name == "nodejs" || name == "php" || name == "ruby" || name == "perl" || name == "bun"
	}
	return false
}

// code judges text in a language other than the shell. It looks for programs
// started with plain text, for the removal of paths, for connections, and for
// text that is decoded and run; nothing here proves that code is harmless.
func (j *Judge) code(w *shell.Walker, sc *shell.Scope, u *Use, lang, text string) {
	switch {
	case shell.Has(text, shell.HoleFetched):
		w.Report(sc, shell.FactFetched, text, u.Span)
		return
	case shell.Has(text, shell.HoleDecoded):
		w.Report(sc, shell.FactDecoded, text, u.Span)
		return
	case strings.Trim(text, "\x01\x02\x05\x10\" \n") == "" && text != "" && !shell.Known(text):
		w.Report(sc, shell.FactOpaque, text, u.Span)
		return
	}
	if words.built.MatchString(text) {
		w.Report(sc, FactCodeDecode, u.Name, u.Span) // a name put together from pieces
	}
	text = folded(lang, text)
	j.outside(w, sc, u, text)
	if words.decode.MatchString(text) && (words.run.MatchString(text) || lang == "php" && strings.Contains(text, "assert(")) {
		w.Report(sc, FactCodeDecode, u.Name, u.Span)
	}
	switch strings.TrimRight(lang, "0123456789.") {
	case "python", "pypy", "ipython", "node", "nodejs", "bun", "deno", "ruby":
		if evalUnknown.MatchString(text) && !evalFile.MatchString(text) {
			w.Report(sc, shell.FactOpaque, u.Name, u.Span)
		}
	}
	if words.fork.MatchString(text) {
		w.Report(sc, shell.FactForkBomb, u.Name, u.Span)
	}
	if words.kill.MatchString(text) {
		w.Report(sc, FactCodeKill, u.Name, u.Span)
	}
	if words.stdin.MatchString(text) && (words.run.MatchString(text) || loadsStdin.MatchString(text)) {
		w.Report(sc, shell.FactOpaque, u.Name, u.Span)
	}
	literals, spawns := literalsOf(text), words.spawn.MatchString(text)
	if pipes := pipesOf(literals); len(pipes) > 0 && (spawns || words.write.MatchString(text)) {
		for _, cmd := range pipes {
			w.Source(sc.Fresh(u.Name, "sh", nil).WithStdin(shell.Stream{Known: true}), cmd, u.Span)
			if words.shellPipe.MatchString(cmd) {
				w.Report(sc, FactCodeSpawn, u.Name, u.Span) // what is printed into it is code
			}
		}
	}
	if spawns {
		if len(literals) == 0 {
			w.Report(sc, FactCodeSpawn, u.Name, u.Span)
		}
		j.direct(w, sc, u, text, literals)
		j.spawned(w, sc, u, text, literals)
	}
	if lang == "m4" && strings.Contains(text, "syscmd") {
		w.Report(sc, FactCodeSpawn, u.Name, u.Span) // its quotes are not plain texts
	}
	j.commandLines(w, sc, u, lang, text)
	j.touched(sc, u, text, literals)
}

// pipesOf is the commands of the texts that open takes for pipes: those with a
// bar in front or behind.
func pipesOf(literals []string) []string {
	var out []string
	for _, l := range literals {
		l = strings.TrimSpace(l)
		if cmd := strings.Trim(l, "|"); cmd != l {
			out = append(out, cmd)
		}
	}
	return out
}

// spawned judges every text in the code that may be a command line, and every
// list of texts that may be an argument vector.
func (j *Judge) spawned(w *shell.Walker, sc *shell.Scope, u *Use, text string, literals []string) {
	inner := sc.Fresh(u.Name, "sh", nil).WithStdin(shell.Stream{Known: true})
	j.tentative++
	defer func() { j.tentative-- }()
	for _, l := range literals {
		if strings.TrimSpace(l) == "" || len(l) > 8192 {
			continue
		}
		if !bareWord(l) { // a guess of one word counts for nothing
			w.Source(inner, l, u.Span)
		}
		if j.tentative < 3 && len(l) < len(text) && words.spawn.MatchString(l) {
			j.spawned(w, sc, u, l, literalsOf(l)) // code in a text of the code
		}
	}
	if len(literals) > 1 {
		for i := range literals {
			if i > 8 {
				break
			}
			argv := literals[i:]
			if len(argv) > 16 {
				argv = argv[:16]
			}
			if argv[0] != "" && j.tables.Known(shell.Name(argv[0])) {
				w.Exec(inner, shell.Call{Argv: argv, Stdin: shell.Stream{Known: true}, Span: u.Span})
			}
		}
	}
}

// bareWord reports whether a text is one plain word.
func bareWord(l string) bool {
	for i := 0; i < len(l); i++ {
		if !wordByte(l[i]) && l[i] != '-' && l[i] != '_' || l[i] == '$' {
			return false
		}
	}
	return true
}

// literalsOf returns the texts inside quotes, backquotes, q() and qw(), as
// far as a scan can tell.
func literalsOf(text string) []string {
	var out []string
	for i := 0; i < len(text) && len(out) < 64; i++ {
		switch c := text[i]; {
		case c == '\'' || c == '"' || c == '`':
			end := i + 1
			for end < len(text) && text[end] != c {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end, len(text))
			out = append(out, unescapeLiteral(text[i+1:end]))
			i = end
		case c == 'q' && (i == 0 || !wordByte(text[i-1])):
			n, body := perlQuote(text[i:])
			if n > 0 {
				if strings.HasPrefix(text[i:], "qw") {
					out = append(out, strings.Fields(body)...)
				}
				out = append(out, body)
				i += n - 1
			}
		}
	}
	return out
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '.' || c == '$'
}

// perlQuote reads q(...), qq{...}, qw/.../ and qx[...] at the start of s.
func perlQuote(s string) (int, string) {
	n := 1
	if len(s) > 1 && strings.IndexByte("qwx", s[1]) >= 0 {
		n = 2
	}
	for n < len(s) && s[n] == ' ' {
		n++
	}
	if n >= len(s) {
		return 0, ""
	}
	closer, ok := map[byte]byte{'(': ')', '{': '}', '[': ']', '<': '>', '/': '/', '|': '|', '!': '!', '#': '#', '"': '"', '\'': '\''}[s[n]]
	if !ok {
		return 0, ""
	}
	end := strings.IndexByte(s[n+1:], closer)
	if end < 0 {
		return 0, ""
	}
	return n + 1 + end + 1, s[n+1 : n+1+end]
}

// unescapeLiteral resolves the escapes that languages have in common.
func unescapeLiteral(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return escape.ReplaceAllStringFunc(s, func(m string) string {
		base, digits := 8, m[1:]
		switch m[1] {
		case 'n':
			return "\n"
		case 't':
			return "\t"
		case 'x', 'u', 'U':
			base, digits = 16, strings.Trim(m[2:], "{}")
		case '\\', '\'', '"':
			return m[1:]
		}
		n, err := strconv.ParseUint(digits, base, 32)
		if err != nil || n < 0x20 && n != '\n' && n != '\t' || n > 0x10ffff {
			return m
		}
		return string(rune(n))
	})
}

var escape = regexp.MustCompile(`\\(?:[nt\\'"]|x[0-9A-Fa-f]{2}|x\{[0-9A-Fa-f]+\}|u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]+\}|U[0-9A-Fa-f]{8}|[0-7]{1,3})`)
