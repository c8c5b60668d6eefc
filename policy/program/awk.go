package program

import (
	"slices"
	"strings"

	"savepoint/policy/shell"
)

// awk judges an awk program: print into a file or a pipe, system and getline
// are what makes it more than a reader.
func (j *Judge) awk(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	u.ReadOnly = !p.odd && trusted(c.Argv[0])
	var programs []string
	fromFile := false
	for _, o := range p.options {
		switch o.Name {
		case "-f", "--file", "-i", "--include", "-l", "--load", "-E", "--exec":
			u.ReadOnly, fromFile = false, true
			if f := w.Content(sc, o.Value); f.Known {
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
		u.Accesses = append(u.Accesses, Access{Action: Read, Path: sc.Path(in)})
	}
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
			w.Report(sc, FactCodeSpawn, u.Name, c.Span)
		}
		if strings.Contains(prog, "/inet/") {
			w.Report(sc, FactCodeNetwork, u.Name, c.Span)
		}
	}
	j.use(u)
	inner := sc.Fresh(u.Name, "sh", nil).WithStdin(shell.Stream{})
	for _, cmd := range commands {
		w.Source(inner, cmd, c.Span)
	}
	return shell.Stream{Fetched: c.Stdin.Fetched, Decoded: decodes(u, c)}
}

type awkProgram struct {
	writes   []string
	commands []string
	opaque   bool // a command that is not a plain text
	odd      bool // something the scan does not understand
}

// scanAwk finds output redirections, pipes and system calls. Where a slash may
// be a division or begin a regular expression, both readings count.
func scanAwk(src string) awkProgram {
	a := scanTokens(awkTokens(src, false))
	b := scanTokens(awkTokens(src, true))
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
	return strings.NewReplacer(`"`, "", "'", "", `\`, "").Replace(front) + "\x01 \x01"
}

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
