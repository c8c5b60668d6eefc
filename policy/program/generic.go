package program

import (
	"slices"
	"strings"

	"savepoint/policy/shell"
)

// generic judges a program as its table describes it.
func (j *Judge) generic(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options = append(u.Options, p.options...)
	changed := j.options(w, sc, &u, p.options)
	inner := sc
	if o, ok := workDir(p.options); ok {
		inner = sc.In(sc.Path(o))
	}
	if spec.Effect == "launch" && p.odd || spec.Guess {
		j.guess(w, inner, c, u.Name, args)
	}
	if len(spec.options) == 0 && spec.Effect == "change" {
		results(sc, &u, args)
	}
	list, fit := spec.slots(p.operands)
	u.Operands = p.operands
	if u.Name == "echo" || u.Name == "printf" && len(args) > 0 && !strings.HasPrefix(args[0], "-v") {
		p.odd = false // a word of dashes is printed, or refused
	}
	for i, k := range list {
		if k == Command {
			u.Operands = p.operands[:i]
			u.ReadOnly = spec.Alone == "read" && !changed && !p.odd && j.plainFront(w, inner, c, args[:len(args)-len(p.operands)+i])
			j.use(u)
			if p.operands[i] == "-c" && i+1 < len(p.operands) {
				return w.Source(inner.Fresh(u.Name, "sh", nil).WithStdin(c.Stdin), p.operands[i+1], c.Span)
			}
			return w.Exec(inner.Under(u.Name), shell.Call{Argv: p.operands[i:], Env: c.Env, Stdin: c.Stdin, Span: c.Span})
		}
	}
	for i, k := range list {
		if j.operand(w, inner, &u, k, p.operands[i]) {
			changed = true
		}
	}
	j.beyond(inner, sc, &u, spec, p)
	if spec.Effect == "launch" {
		u.ReadOnly = spec.Alone == "read" && !changed && !p.odd && fit
		j.use(u)
		return shell.Stream{}
	}
	if u.Name == "apt-cache" && (sc.Home() == "/root" || slices.Contains(u.Via, "sudo") || slices.Contains(u.Via, "doas")) {
		changed = true // as root it writes its index of the packages anew
	}
	u.ReadOnly = spec.Effect == "read" && !changed && !p.odd && fit && u.Known && trusted(c.Argv[0]) && (spec.Inert || !p.loose && !loose(p.options))
	j.use(u)
	j.runs(w, inner, c, &u, args)
	if len(p.rest) > 0 {
		w.Exec(inner.Under(u.Name), shell.Call{Argv: p.rest, Env: c.Env, Stdin: c.Stdin, Span: c.Span})
	}
	return output(spec, u, p, c)
}

// beyond notes what a few programs do to files apart from their operands.
func (j *Judge) beyond(inner, sc *shell.Scope, u *Use, spec *Spec, p parsed) {
	if u.Name == "split" || u.Name == "csplit" {
		for _, a := range slices.Clone(u.Accesses) {
			if a.Action == Write { // the start of the names of the parts
				u.Accesses = append(u.Accesses, Access{Action: Write, Path: a.Path + "/aa"}, Access{Action: Write, Path: a.Path + "aa"})
			}
		}
	}
	if dir, ok := workDir(p.options); ok && u.Name == "patch" {
		u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(dir)})
	}
	if u.Name == "zip" && hasFlag(p, "-m", "--move") {
		for _, o := range p.operands[min(1, len(p.operands)):] {
			u.Accesses = append(u.Accesses, Access{Action: Remove, Path: inner.Path(o), Tree: true})
		}
	}
}

// plainFront reports whether what stands in front of the command word of a
// launcher surely is not the command word itself. Without quotes, what another
// command printed may be several words, and the second one is what runs.
func (j *Judge) plainFront(w *shell.Walker, sc *shell.Scope, c shell.Call, front []string) bool {
	plain := true
	for _, a := range front {
		if strings.ContainsAny(a, "\x06\x0e\x10") {
			w.Report(sc, shell.FactUnresolved, strings.Join(c.Argv, " "), c.Span)
			return false
		}
		plain = plain && !splits(a) && !unknownStart(a)
	}
	return plain
}

// loose reports whether an option's value is not known and may be a path.
func loose(options []Option) bool {
	for _, o := range options {
		if o.Has && o.kind != Text && o.kind != Input && !shell.Known(o.Value) {
			return true
		}
	}
	return false
}

// workDir returns the value of the option that sets the working directory.
func workDir(options []Option) (string, bool) {
	for _, o := range options {
		if o.kind == Dir && o.Has {
			return o.Value, true
		}
	}
	return "", false
}

// options judges option values; it reports whether one changes something.
func (j *Judge) options(w *shell.Walker, sc *shell.Scope, u *Use, list []Option) bool {
	changed := false
	for _, o := range list {
		if o.kind == Change {
			changed = true
		}
		if o.Has && o.kind != "" && o.kind != Text && o.kind != Change && o.kind != Dir {
			if j.operand(w, sc, u, o.kind, o.Value) {
				changed = true
			}
		}
	}
	return changed
}

// operand judges one argument by its kind; it reports whether the program is
// more than read-only because of it.
func (j *Judge) operand(w *shell.Walker, sc *shell.Scope, u *Use, k Kind, v string) bool {
	path := sc.Path(v)
	switch k {
	case Input, Dir:
		u.Accesses = append(u.Accesses, Access{Action: Read, Path: path})
		return shell.Has(v, shell.HoleFetched)
	case Output:
		u.Accesses = append(u.Accesses, Access{Action: Write, Path: path})
		return !sinkhole(path)
	case Delete:
		u.Accesses = append(u.Accesses, Access{Action: Remove, Path: path})
		return true
	case Perms:
		u.Accesses = append(u.Accesses, Access{Action: Mode, Path: path})
		return true
	case URL:
		u.Accesses = append(u.Accesses, Access{Action: Fetch, Path: v})
		return true
	case Send:
		u.Accesses = append(u.Accesses, Access{Action: Upload, Path: v})
		return true
	case Code, Words:
		if u.Name == "gdb" {
			v = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(v), "!"), "shell ")
		}
		w.Source(sc.Fresh(u.Name, "sh", nil).WithStdin(shell.Stream{}), v, u.Span)
		return true
	case Run:
		j.loadsPlaced(w, sc, v, u.Span)
		w.Exec(sc.Under(u.Name), shell.Call{Argv: []string{v}, Stdin: shell.Stream{}, Span: u.Span})
		return true
	case Script:
		w.Run(sc.Fresh(u.Name, v, nil), w.Content(sc, v), u.Span)
		return true
	case Expand:
		w.Hidden(sc, v)
		return true
	case Change:
		return true
	default: // Text, Digits, Command: no file, no code
		return false
	}
}
