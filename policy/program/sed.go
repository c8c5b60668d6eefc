package program

import (
	"strings"

	"savepoint/policy/shell"
)

// sed judges a sed script: the commands e, w, r and their flags.
func (j *Judge) sed(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	u.ReadOnly = !p.odd && !p.loose && trusted(c.Argv[0])
	inPlace := hasFlag(p, "-i", "--in-place", "-I")
	var scripts []string
	named := false
	for _, o := range p.options {
		switch o.Name {
		case "-e", "--expression":
			scripts, named = append(scripts, o.Value), true
		case "-f", "--file":
			named, u.ReadOnly = true, false
			if f := w.Content(sc, o.Value); f.Known {
				scripts = append(scripts, f.Text)
			}
		}
	}
	inputs := p.operands
	if !named && len(inputs) > 0 {
		scripts, inputs = append(scripts, inputs[0]), inputs[1:]
	}
	for _, in := range inputs {
		a := Access{Action: Read, Path: sc.Path(in)}
		if inPlace {
			a.Action = Write
		}
		u.Accesses = append(u.Accesses, a)
	}
	u.ReadOnly = u.ReadOnly && !inPlace
	var commands []string
	for _, s := range scripts {
		if !shell.Known(s) {
			u.ReadOnly = false
		}
		r := scanSed(s)
		u.ReadOnly = u.ReadOnly && !r.odd && len(r.commands) == 0 && !r.executes
		for _, f := range r.writes {
			path := sc.Path(f)
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: path})
			u.ReadOnly = u.ReadOnly && sinkhole(path)
		}
		commands = append(commands, r.commands...)
		if r.executes {
			w.Report(sc, FactCodeSpawn, "sed", c.Span)
		}
	}
	j.use(u)
	for _, cmd := range commands {
		w.Source(sc.Fresh("sed", "sh", nil).WithStdin(shell.Stream{}), cmd, c.Span)
	}
	out := shell.Stream{Fetched: c.Stdin.Fetched, Decoded: decodes(u, c)}
	if len(scripts) == 1 {
		if front, ok := sedFront(scripts[0]); ok {
			out.Listing = pathsBelow(front)
		}
	}
	return out
}

// sedFront is what a script such as s,^,/etc/, puts in front of every line.
func sedFront(script string) (string, bool) {
	if len(script) < 5 || script[0] != 's' {
		return "", false
	}
	parts := strings.Split(strings.ReplaceAll(script[2:], `\`+script[1:2], "\ue021"), script[1:2])
	if len(parts) != 3 || strings.Trim(parts[2], "gp") != "" {
		return "", false
	}
	front := strings.ReplaceAll(parts[1], "\ue021", script[1:2])
	switch parts[0] {
	case "^":
	case ".*", "^.*", ".*$", "^.*$", ".+":
		before, _, ok := strings.Cut(front, "&")
		if !ok {
			return "", false
		}
		front = before
	default:
		return "", false
	}
	return front, true
}

// pathsBelow is a list of paths that begin with the given text.
func pathsBelow(front string) []string {
	if !strings.HasPrefix(front, "/") || !shell.Known(front) {
		return nil
	}
	return []string{front + "\x01"}
}

type sedScript struct {
	commands []string // run by e COMMAND or by the replacement of s///e
	writes   []string
	executes bool // runs what it reads
	odd      bool // not understood
}

// scanSed reads a script command by command.
func scanSed(src string) sedScript {
	var out sedScript
	i := 0
	for i < len(src) {
		i = skipSet(src, i, " \t\n;")
		if i >= len(src) {
			break
		}
		if src[i] == '#' {
			i = lineEnd(src, i)
			continue
		}
		var ok bool
		if i, ok = sedAddress(src, i); !ok || i >= len(src) {
			out.odd = true
			return out
		}
		cmd := src[i]
		i++
		switch cmd {
		case '{', '}', '=', 'd', 'D', 'g', 'G', 'h', 'H', 'n', 'N', 'p', 'P', 'x', 'z', 'F':
		case 'q', 'Q', 'l', 'L':
			i = skipSet(src, i, " 0123456789")
		case ':', 'b', 't', 'T':
			for i < len(src) && src[i] != '\n' && src[i] != ';' && src[i] != '}' {
				i++
			}
		case 'a', 'i', 'c':
			for i < len(src) && src[i] != '\n' {
				if src[i] == '\\' {
					i++
				}
				i++
			}
		case 'r', 'R':
			i = lineEnd(src, i)
		case 'w', 'W':
			end := lineEnd(src, i)
			out.writes = append(out.writes, strings.TrimSpace(src[i:end]))
			i = end
		case 'e':
			end := lineEnd(src, i)
			if cmd := strings.TrimSpace(src[i:end]); cmd != "" {
				out.commands = append(out.commands, cmd)
			} else {
				out.executes = true
			}
			i = end
		case 's':
			i = out.substitute(src, i)
		case 'y':
			if i >= len(src) {
				out.odd = true
				return out
			}
			d := src[i]
			_, i = sedPart(src, i+1, d)
			_, i = sedPart(src, i, d)
		default:
			out.odd = true
			return out
		}
		if out.odd {
			return out
		}
	}
	return out
}

func (out *sedScript) substitute(src string, i int) int {
	if i >= len(src) {
		out.odd = true
		return i
	}
	d := src[i]
	_, i = sedPart(src, i+1, d)
	replacement, i := sedPart(src, i, d)
	for i < len(src) {
		switch c := src[i]; {
		case c == 'e':
			out.commands = append(out.commands, filled.Replace(replacement))
		case c == 'w':
			end := lineEnd(src, i)
			out.writes = append(out.writes, strings.TrimSpace(src[i+1:end]))
			return end
		case strings.IndexByte("gpiImM0123456789", c) >= 0:
		default:
			return i
		}
		i++
	}
	return i
}

// sedPart reads up to the delimiter and returns the text and what follows.
func sedPart(src string, i int, d byte) (string, int) {
	start, bracket := i, false
	for i < len(src) {
		switch c := src[i]; {
		case c == '\\':
			i++
		case c == d && !bracket:
			return src[start:i], i + 1
		}
		i++
	}
	return src[min(start, len(src)):], len(src)
}

func sedAddress(src string, i int) (int, bool) {
	for {
		i = skipSet(src, i, " \t")
		switch {
		case i >= len(src):
			return i, true
		case src[i] == '/':
			_, i = sedPart(src, i+1, '/')
			i = skipSet(src, i, "IM")
		case src[i] == '\\' && i+1 < len(src):
			_, i = sedPart(src, i+2, src[i+1])
			i = skipSet(src, i, "IM")
		case src[i] == '$' || src[i] >= '0' && src[i] <= '9':
			i = skipSet(src, i+1, "0123456789~")
		case src[i] == ',' || src[i] == '+' || src[i] == '~' || src[i] == '!':
			i++
		default:
			return i, true
		}
	}
}

func skipSet(s string, i int, set string) int {
	for i < len(s) && strings.IndexByte(set, s[i]) >= 0 {
		i++
	}
	return i
}

func lineEnd(s string, i int) int {
	if n := strings.IndexByte(s[i:], '\n'); n >= 0 {
		return i + n
	}
	return len(s)
}

// filled puts text that is not known in the place of what a replacement takes
// over from the line.
var filled = strings.NewReplacer(`\&`, "&", `\/`, "/", "&", "\x01", `\1`, "\x01")
