package program

import (
	"regexp"
	"slices"
	"strings"

	"savepoint/policy/shell"
)

// awkSpawns is a loop without an end that starts something in the background.
var awkSpawns = regexp.MustCompile(`(?:while\s*\(\s*[1-9]\d*\s*\)|for\s*\(\s*;\s*;\s*\))[^}]*\bsystem\s*\([^)]*&\s*"`)

// awk judges an awk program: print into a file or a pipe, system and getline
// are what makes it more than a reader.
func (j *Judge) awk(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	u.ReadOnly = !p.odd && !p.loose && trusted(c.Argv[0])
	var programs []string
	fromFile, inPlace := false, false
	for _, o := range p.options {
		switch o.Name {
		case "-i", "--include", "-l", "--load":
			u.ReadOnly = false
			inPlace = inPlace || o.Value == "inplace"
		case "-f", "--file", "-E", "--exec":
			u.ReadOnly, fromFile = false, true
			f := w.Content(sc, o.Value)
			if o.Value == "-" {
				f = c.Stdin
			}
			if f.Known {
				programs = append(programs, f.Text)
			} else if f.Fetched || f.Decoded {
				w.Run(sc, f, c.Span)
			}
		case "-e", "--source":
			programs, fromFile = append(programs, o.Value), true
		}
		if o.kind == Output || o.kind == Change {
			u.ReadOnly = false
		}
	}
	inputs := p.operands
	if !fromFile && len(inputs) > 0 {
		programs, inputs = append(programs, inputs[0]), inputs[1:]
	}
	for _, in := range inputs {
		a := Access{Action: Read, Path: sc.Path(in)}
		if inPlace {
			a.Action = Write
		}
		u.Accesses = append(u.Accesses, a)
	}
	commands := j.awkPrograms(w, sc, &u, programs)
	j.use(u)
	inner := sc.Fresh(u.Name, "sh", nil).WithStdin(shell.Stream{})
	for _, cmd := range commands {
		w.Source(inner, cmd, c.Span)
	}
	out := shell.Stream{Fetched: c.Stdin.Fetched, Decoded: decodes(u, c)}
	if len(programs) == 1 {
		if m := awkFront.FindStringSubmatch(programs[0]); m != nil {
			out.Listing = pathsBelow(m[1])
		}
	}
	return out
}

// awkPrograms notes what programs of awk write, and returns the commands that
// they start.
func (j *Judge) awkPrograms(w *shell.Walker, sc *shell.Scope, u *Use, programs []string) []string {
	var commands []string
	for _, prog := range programs {
		a := scanAwk(prog)
		if !shell.Known(prog) {
			u.ReadOnly = false
		}
		if a.odd || len(a.writes) > 0 || len(a.commands) > 0 || a.opaque {
			u.ReadOnly = false
		}
		for _, f := range a.writes {
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(f)})
		}
		commands = append(commands, a.commands...)
		if a.opaque {
			w.Report(sc, FactCodeSpawn, u.Name, u.Span)
		}
		if awkSpawns.MatchString(prog) {
			w.Report(sc, shell.FactForkBomb, u.Name, u.Span)
		}
		if strings.Contains(prog, "/inet/") {
			w.Report(sc, FactCodeNetwork, u.Name, u.Span)
		}
	}
	return commands
}

// awkFront is a program that prints a field behind a text.
var awkFront = regexp.MustCompile(`^\s*(?:NR\s*>\s*\d+\s*)?\{\s*printf?\s*\(?\s*"(/[^"%]*)(?:%s(?:\\n)?"\s*,|")\s*\$(?:\d+|NF)\s*\)?;?\s*\}\s*$`)

type awkProgram struct {
	writes   []string
	commands []string
	opaque   bool // a command that is not a plain text
	odd      bool // something the scan does not understand
}

// scanAwk finds output redirections, pipes and system calls. Where a slash may
// be a division or begin a regular expression, both readings count.
func scanAwk(src string) awkProgram {
	a := scanTokens(awkConstants(awkTokens(src, false)))
	b := scanTokens(awkConstants(awkTokens(src, true)))
	for _, c := range b.commands {
		if !slices.Contains(a.commands, c) {
			a.commands = append(a.commands, c)
		}
	}
	for _, f := range b.writes {
		if !slices.Contains(a.writes, f) {
			a.writes = append(a.writes, f)
		}
	}
	a.odd = a.odd || b.odd || b.opaque
	return a
}

// awkConstants puts the text of a variable in its place when the program sets
// it once, to one plain text.
func awkConstants(toks []awkToken) []awkToken {
	sets, value := map[string]int{}, map[string]string{}
	for i, t := range toks {
		switch {
		case t.literal:
		case t.text == "sub" || t.text == "gsub" || t.text == "split" || t.text == "in" || t.text == "function":
			return toks // they change variables in other ways
		case t.text == "getline" && i+1 < len(toks) && !toks[i+1].literal:
			sets[toks[i+1].text]++
		case i+2 < len(toks) && toks[i+1].text == "=" && !toks[i+1].literal && (toks[i+2].literal || toks[i+2].text != "="):
			sets[t.text]++
			if toks[i+2].literal && (i+3 == len(toks) || !toks[i+3].literal && strings.Contains("; } \n", toks[i+3].text)) {
				value[t.text] = toks[i+2].text
			}
		}
	}
	if len(value) == 0 {
		return toks
	}
	out := slices.Clone(toks)
	for i, t := range toks {
		if v, ok := value[t.text]; ok && !t.literal && sets[t.text] == 1 && wordByte(t.text[0]) && !(i+1 < len(toks) && strings.Contains("= + - * / % ^", toks[i+1].text) && !toks[i+1].literal) {
			out[i] = awkToken{v, true}
		}
	}
	return out
}

// scanTokens looks at operators; texts and regular expressions are tokens of
// their own by now.
func scanTokens(toks []awkToken) awkProgram {
	var out awkProgram
	printing, depth := false, 0
	for i, t := range toks {
		if t.literal {
			continue
		}
		switch t.text {
		case "print", "printf":
			printing, depth = true, 0
		case ";", "}", "\n":
			printing = false
		case "(":
			depth++
		case ")":
			depth--
		case ">", ">>":
			if printing && depth <= 0 {
				out.writes = append(out.writes, nextLiteral(toks, i))
			}
		case "|", "|&":
			switch {
			case i+1 < len(toks) && toks[i+1].text == "getline":
				if i > 0 && toks[i-1].literal {
					out.commands = append(out.commands, toks[i-1].text)
				} else {
					out.opaque = true
				}
			case i+1 < len(toks) && toks[i+1].literal:
				out.commands = append(out.commands, toks[i+1].text)
				out.pipe(toks[:i])
			default:
				out.opaque = true
			}
		case "system":
			k := i + 1
			for k < len(toks) && toks[k].text == "(" && !toks[k].literal {
				k++
			}
			if k < len(toks) && toks[k].literal {
				cmd := ""
				for k < len(toks) && toks[k].literal {
					cmd += toks[k].text
					k++
				}
				if k < len(toks) && toks[k].text != ")" {
					cmd = partial(cmd) // something follows that is not known
				}
				out.commands = append(out.commands, cmd)
			} else {
				out.opaque = true
			}
		case "getline":
			if i+1 < len(toks) && toks[i+1].text == "<" {
				continue
			}
		default:
			// @load, @include, and calls of functions by a computed name.
			out.odd = out.odd || t.text[0] == '@'
		}
	}
	return out
}

// partial is a command of which only the front is known. Quotes in it may be
// open, so they are dropped.
func partial(front string) string {
	return unquoted.Replace(front) + "\x01 \x01"
}

var unquoted = strings.NewReplacer(`"`, "", "'", "", `\`, "")

// pipe adds what is printed into a command, when that command is a shell.
func (a *awkProgram) pipe(before []awkToken) {
	last := a.commands[len(a.commands)-1]
	switch shell.Name(strings.TrimSpace(last)) {
	case "sh", "bash", "dash", "zsh", "ksh":
		a.commands = a.commands[:len(a.commands)-1]
		found := false
		for i := len(before) - 1; i >= 0; i-- {
			if before[i].literal {
				a.commands = append(a.commands, before[i].text)
				found = true
			} else if before[i].text == "print" || before[i].text == "printf" {
				break
			} else if before[i].text != "," && before[i].text != "(" && before[i].text != ")" {
				a.opaque = true // computed text is run
			}
		}
		a.opaque = a.opaque || !found
	}
}

func nextLiteral(toks []awkToken, i int) string {
	if i+1 < len(toks) && toks[i+1].literal {
		return toks[i+1].text
	}
	return string(shell.HoleText)
}

type awkToken struct {
	text    string
	literal bool
}

// awkTokens is a coarse scanner: names, texts, operators; regular expressions
// are dropped.
//
// eager takes a slash for the start of a regular expression wherever one may
// stand, also after a closing parenthesis or a keyword.
func awkTokens(src string, eager bool) []awkToken {
	var toks []awkToken
	add := func(s string, lit bool) {
		if len(toks) < 8192 {
			toks = append(toks, awkToken{s, lit})
		}
	}
	for i := 0; i < len(src); i++ {
		c := src[i]
		switch {
		case c == ' ' || c == '\t':
		case c == '#':
			for i < len(src) && src[i] != '\n' {
				i++
			}
		case c == '"':
			end := i + 1
			for end < len(src) && src[end] != '"' {
				if src[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end, len(src))
			add(unescapeLiteral(src[min(i+1, end):end]), true)
			i = end
		case c == '/' && regexpMayStart(toks, eager):
			end := i + 1
			for end < len(src) && src[end] != '/' && src[end] != '\n' {
				if src[end] == '\\' {
					end++
				}
				end++
			}
			add("//", false)
			i = end
		case wordByte(c) || c == '@':
			end := i + 1
			for end < len(src) && wordByte(src[end]) {
				end++
			}
			add(src[i:end], false)
			i = end - 1
		case strings.HasPrefix(src[i:], "||"), strings.HasPrefix(src[i:], "&&"), strings.HasPrefix(src[i:], ">="), strings.HasPrefix(src[i:], ">>"), strings.HasPrefix(src[i:], "|&"):
			add(src[i:i+2], false)
			i++
		default:
			add(string(c), false)
		}
	}
	return toks
}

func regexpMayStart(toks []awkToken, eager bool) bool {
	if len(toks) == 0 {
		return true
	}
	last := toks[len(toks)-1]
	if last.literal {
		return false
	}
	if eager {
		switch last.text {
		case ")", "print", "printf", "getline", "case", "else", "do", "in", "return", "exit", "delete", "&", "|", ">", "<", "+", "-", "*", "%", "^", "[":
			return true
		}
	}
	return strings.Contains("( , { } ; ! ~ && || \n = ? : //", last.text) && last.text != "//" || last.text == "in" || last.text == "return"
}
