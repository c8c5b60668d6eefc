package program

import (
	"strings"

	"savepoint/policy/shell"
)

// git judges options in front of the sub-command, configuration that executes,
// and the sub-command itself.
func (j *Judge) git(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options = p.options
	inner := sc
	for _, e := range c.Env {
		if e.Name == "GIT_WORK_TREE" {
			inner = inner.In(sc.Path(e.Value))
		}
	}
	plain := !p.odd
	for _, o := range p.options {
		switch o.Name {
		case "-c":
			plain = false
			j.gitConfig(w, sc, &u, o.Value)
		case "--config-env", "--exec-path":
			plain = plain && !o.Has
			if key, _, ok := strings.Cut(o.Value, "="); ok && o.Name == "--config-env" && (gitExecutes(strings.ToLower(key)) || strings.EqualFold(key, "core.hooksPath")) {
				w.Report(sc, shell.FactOpaque, o.Value, c.Span) // the code is in a variable
			}
		case "-C":
			inner = inner.In(shell.Clean(o.Value, inner.Cwd()))
		case "--work-tree":
			inner = inner.In(sc.Path(o.Value))
		}
	}
	if len(p.operands) == 0 {
		u.ReadOnly = plain
		j.use(u)
		return shell.Stream{}
	}
	name := p.operands[0]
	if line, ok := j.aliases[name]; ok && spec.Sub[name] == nil {
		j.gitAlias(w, inner, &u, line, p.operands[1:])
	}
	u.Sub = []string{name}
	sub := spec.Sub[name]
	if sub == nil {
		sub = spec.Sub["*"]
		u.Operands = p.operands[1:]
	}
	q := sub.parse(p.operands[1:])
	u.Options = append(u.Options, q.options...)
	u.Operands = q.operands
	if len(q.operands) > 0 {
		switch name {
		case "bisect", "submodule", "stash", "remote", "worktree", "config", "lfs", "svn", "subtree", "notes", "bundle", "reflog", "flow":
			u.Sub = append(u.Sub, q.operands[0])
		}
	}
	j.options(w, inner, &u, q.options)
	j.gitSub(w, inner, &u, name, q, p.operands[1:])
	if form, ok := gitReader(name, sub, q, p.operands[1:]); ok && plain && !q.odd && gitQuiet(q) && len(c.Env) == 0 && trusted(c.Argv[0]) {
		u.Hardened = gitHardened(args, p, form)
	}
	j.use(u)
	return shell.Stream{}
}

// gitQuiet reports whether no option writes or executes.
func gitQuiet(q parsed) bool {
	for _, o := range q.options {
		if o.kind != "" && o.kind != Text && o.kind != Input && o.kind != Digits {
			return false
		}
	}
	return true
}
