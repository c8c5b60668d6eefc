package program

import (
	"strings"

	"savepoint/policy/shell"
)

// gitReader names the sub-commands that only read once helpers, hooks, pagers,
// fetching and locks are switched off, with the options they need for that.
// status, diff and blame are not among them: they run the clean filters of the
// repository's own configuration over changed files, which no option turns off.
func gitReader(sub string) (extra string, ok bool) {
	switch sub {
	case "rev-parse", "ls-files", "ls-tree", "rev-list", "describe", "cat-file", "shortlog", "count-objects", "merge-base", "name-rev", "for-each-ref", "show-ref":
		return "", true
	case "log", "show":
		return "--no-ext-diff --no-textconv", true
	case "grep":
		return "--no-textconv", true
	}
	return "", false
}

const hardening = "GIT_OPTIONAL_LOCKS=0 GIT_CONFIG_NOSYSTEM=1 GIT_NO_LAZY_FETCH=1 git --no-pager -c core.fsmonitor=false -c core.hooksPath=/dev/null " +
	"-c core.pager=cat -c log.showSignature=false -c gpg.program=false -c gpg.ssh.program=false -c gpg.x509.program=false -c submodule.recurse=false -c core.sshCommand=false"

// git judges options in front of the sub-command, configuration that executes,
// and the sub-command itself.
func (j *Judge) git(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options = p.options
	inner := sc
	plain := !p.odd
	for _, o := range p.options {
		switch o.Name {
		case "-c":
			plain = false
			j.gitConfig(w, sc, &u, o.Value)
		case "--config-env", "--exec-path":
			plain = plain && !o.Has
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
	if help(append([]string{""}, p.operands[1:]...)) && plain {
		u.Hardened = ""
	}
	if extra, ok := gitReader(name); ok && plain && !q.odd && gitQuiet(q) && len(c.Env) == 0 && trusted(c.Argv[0]) {
		u.Hardened = gitHardened(args, p, extra)
	}
	j.use(u)
	return shell.Stream{}
}

// gitQuiet reports whether no option writes or executes.
func gitQuiet(q parsed) bool {
	for _, o := range q.options {
		if o.kind != "" && o.kind != Text && o.kind != Input {
			return false
		}
	}
	return true
}

// gitHardened writes the command with every helper switched off.
func gitHardened(args []string, p parsed, extra string) string {
	for _, a := range args {
		if !shell.Known(a) {
			return ""
		}
	}
	n := len(args) - p.first
	front, sub, rest := args[:len(args)-n], args[p.first], args[p.first+1:]
	return strings.Join(strings.Fields(strings.Join([]string{hardening, strings.TrimSpace(quoteAll(front)), sub, extra}, " ")), " ") + tail(rest)
}

func tail(rest []string) string {
	if len(rest) == 0 {
		return ""
	}
	return " " + strings.TrimSpace(quoteAll(rest))
}

// gitConfig judges one key=value: keys that name programs are code.
func (j *Judge) gitConfig(w *shell.Walker, sc *shell.Scope, u *Use, setting string) {
	key, value, has := strings.Cut(setting, "=")
	if !has {
		return
	}
	if !gitExecutes(strings.ToLower(key)) || value == "" || value == "false" || value == "true" || value == "cat" {
		return
	}
	value = strings.TrimPrefix(value, "!")
	w.Source(sc.Fresh("git", "sh", nil).WithStdin(shell.Stream{Known: true}), value, u.Span)
}

// gitExecutes reports whether a configuration key names a program or code.
func gitExecutes(key string) bool {
	switch key {
	case "core.fsmonitor", "core.sshcommand", "core.editor", "core.pager", "core.askpass", "core.gitproxy", "core.alternaterefscommand", "sequence.editor", "diff.external",
		"gpg.program", "gpg.ssh.program", "gpg.x509.program", "gpg.ssh.defaultkeycommand", "credential.helper", "uploadpack.packobjectshook", "interactive.difffilter", "web.browser":
		return true
	}
	for _, prefix := range [...]string{"alias.", "pager.", "filter.", "merge.", "difftool.", "mergetool.", "diff.", "browser.", "man.", "remote.", "submodule.", "tar.", "credential.", "trailer.", "hook."} {
		if strings.HasPrefix(key, prefix) {
			for _, suffix := range [...]string{".cmd", ".command", ".clean", ".smudge", ".process", ".driver", ".textconv", ".path", ".uploadpack", ".receivepack", ".update", ".helper", ".vcs"} {
				if strings.HasSuffix(key, suffix) {
					return true
				}
			}
			if prefix == "alias." || prefix == "pager." {
				return true
			}
		}
	}
	return false
}

// gitSub judges what is special to one sub-command.
func (j *Judge) gitSub(w *shell.Walker, sc *shell.Scope, u *Use, name string, q parsed, raw []string) {
	run := sc.Fresh("git", "sh", nil).WithStdin(shell.Stream{Known: true})
	if name == "clone" || name == "init" {
		for _, o := range q.options {
			if o.Name == "-c" || o.Name == "--config" {
				j.gitConfig(w, sc, u, o.Value)
			}
		}
	}
	switch name {
	case "bisect":
		if len(raw) > 1 && raw[0] == "run" {
			w.Exec(sc.Under("git"), shell.Call{Argv: raw[1:], Span: u.Span})
		}
	case "submodule":
		if len(raw) > 1 && raw[0] == "foreach" {
			rest := raw[1:]
			for len(rest) > 0 && strings.HasPrefix(rest[0], "--") {
				rest = rest[1:]
			}
			w.Source(run, strings.Join(rest, " "), u.Span)
		}
	case "clone", "fetch", "pull", "ls-remote", "push", "remote":
		for _, o := range q.operands {
			if strings.HasPrefix(o, "ext::") {
				// Blanks part the words; "% " is a blank inside one.
				argv := strings.Fields(strings.ReplaceAll(strings.TrimPrefix(o, "ext::"), "% ", "\ue020"))
				for i := range argv {
					argv[i] = strings.ReplaceAll(argv[i], "\ue020", " ")
				}
				w.Exec(run, shell.Call{Argv: argv, Stdin: shell.Stream{Known: true}, Span: u.Span})
			}
			if name != "push" && (strings.Contains(o, "://") || remotePath(o)) {
				u.Accesses = append(u.Accesses, Access{Action: Fetch, Path: o})
			}
		}
		if (name == "fetch" || name == "pull" || name == "ls-remote") && len(u.Accesses) == 0 {
			u.Accesses = append(u.Accesses, Access{Action: Fetch, Path: "origin"})
		}
	case "clean":
		if hasFlag(q, "-f", "--force") && !hasFlag(q, "-n", "--dry-run") {
			dir := "."
			if len(q.operands) > 0 {
				dir = q.operands[0]
			}
			u.Accesses = append(u.Accesses, Access{Action: Remove, Path: sc.Path(dir), Tree: true})
		}
	case "config":
		if len(q.operands) >= 2 && gitExecutes(strings.ToLower(q.operands[0])) {
			w.Source(run, strings.TrimPrefix(q.operands[1], "!"), u.Span)
		}
	case "filter-branch":
		for _, o := range q.options {
			if o.Has && strings.HasSuffix(o.Name, "-filter") {
				w.Source(run, o.Value, u.Span)
			}
		}
	}
}
