package program

import (
	"slices"
	"strings"

	"savepoint/policy/shell"
)

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
		for _, o := range q.operands {
			if _, rest, ok := strings.Cut(o, "ext::"); ok {
				w.Source(run, rest, u.Span)
			}
		}
		if i := slices.Index(raw, "foreach"); i >= 0 {
			rest := raw[i+1:]
			for len(rest) > 0 && strings.HasPrefix(rest[0], "--") {
				rest = rest[1:]
			}
			w.Source(run, strings.Join(rest, " "), u.Span)
		}
	case "clone", "fetch", "pull", "ls-remote", "push", "remote":
		j.gitRemote(w, run, u, name, q)
	case "clean":
		if hasFlag(q, "-f", "--force") && !hasFlag(q, "-n", "--dry-run") {
			dir := "."
			if len(q.operands) > 0 {
				dir = q.operands[0]
			}
			u.Accesses = append(u.Accesses, Access{Action: Remove, Path: sc.Path(dir), Tree: true})
		}
	case "config":
		j.gitStores(w, sc, u, q)
	case "checkout", "restore", "reset", "switch", "merge", "rebase", "stash", "apply", "am", "cherry-pick", "revert", "read-tree", "checkout-index", "rm", "mv", "sparse-checkout":
		// They write files of the work tree, wherever an option puts it.
		u.Accesses = append(u.Accesses, Access{Action: Write, Path: shell.Clean(".", sc.Cwd())})
		if o, ok := q.given("--prefix"); ok && name == "checkout-index" {
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(o.Value)})
		}
	case "bundle", "worktree":
		if len(q.operands) > 1 && (q.operands[0] == "create" || q.operands[0] == "add") {
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(q.operands[1])})
		}
	case "format-patch":
		if o, ok := q.given("-o", "--output-directory"); ok {
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(o.Value)}, Access{Action: Write, Path: sc.Path(o.Value + "/0001.patch")})
		}
	case "filter-branch":
		for _, o := range q.options {
			if o.Has && strings.HasSuffix(o.Name, "-filter") {
				w.Source(run, o.Value, u.Span)
			}
		}
	}
}

// gitRemote judges the addresses that a sub-command speaks to.
func (j *Judge) gitRemote(w *shell.Walker, run *shell.Scope, u *Use, name string, q parsed) {
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
}

// gitStores judges what git config keeps.
func (j *Judge) gitStores(w *shell.Walker, sc *shell.Scope, u *Use, q parsed) {
	set := q.operands
	if len(set) > 2 && (set[0] == "set" || set[0] == "add") {
		set = set[1:]
	}
	for _, o := range q.options { // "--add key value" takes the key for its own
		if (o.Name == "--add" || o.Name == "--replace-all") && o.Has {
			set = append([]string{o.Value}, set...)
		}
	}
	if len(set) >= 2 {
		j.gitSetting(w, sc, u, set[0], set[1], hasFlag(q, "--global", "--system"))
	}
}
