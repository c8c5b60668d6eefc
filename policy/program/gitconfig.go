package program

import (
	"strings"

	"savepoint/policy/shell"
)

// gitConfig judges one key=value of an option.
func (j *Judge) gitConfig(w *shell.Walker, sc *shell.Scope, u *Use, setting string) {
	key, value, has := strings.Cut(setting, "=")
	if !has {
		return
	}
	if _, rest, ok := strings.Cut(setting, "ext::"); ok {
		w.Source(sc.Fresh("git", "sh", nil).WithStdin(shell.Stream{Known: true}), strings.ReplaceAll(rest, ".insteadOf", " "), u.Span) // an address that starts a program
	}
	j.gitSetting(w, sc, u, key, value, false)
}

// gitSetting judges one setting: keys that name programs are code, and so are
// directories of hooks.
func (j *Judge) gitSetting(w *shell.Walker, sc *shell.Scope, u *Use, key, value string, global bool) {
	key = strings.ToLower(key)
	switch {
	case value == "" || value == "false" || value == "true" || value == "cat":
		return
	case key == "core.hookspath" || key == "init.templatedir":
		// Hooks of the project are like its other code. Those of another place
		// run in every repository, and nobody sees them there.
		path := sc.Path(value)
		if path != "/dev/null" && (global || strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "/workspace/") && !strings.HasPrefix(path, "/usr/share/git-core/")) {
			w.Report(sc, FactCodeLoad, key+"="+value, u.Span)
		}
		return
	case strings.HasPrefix(key, "alias.") && !strings.HasPrefix(value, "!"):
		if j.aliases == nil {
			j.aliases = map[string]string{}
		}
		if len(j.aliases) < 64 {
			j.aliases[strings.TrimPrefix(key, "alias.")] = value
		}
		return
	case !gitExecutes(key):
		return
	}
	value = strings.TrimPrefix(value, "!")
	j.loadsPlaced(w, sc, value, u.Span)
	w.Source(sc.Fresh("git", "sh", nil).WithStdin(shell.Stream{Known: true}), value, u.Span)
}

// gitAlias judges the sub-command that an alias of the line stands for.
func (j *Judge) gitAlias(w *shell.Walker, sc *shell.Scope, u *Use, line string, rest []string) {
	if j.aliasing > 8 {
		return
	}
	j.aliasing++
	defer func() { j.aliasing-- }()
	w.Source(sc.Fresh("git", "sh", nil).WithStdin(shell.Stream{Known: true}), "git "+line+" "+quoteAll(rest), u.Span)
}

// gitExecutes reports whether a configuration key names a program or code.
func gitExecutes(key string) bool {
	switch key {
	case "core.fsmonitor", "core.sshcommand", "core.editor", "core.pager", "core.askpass", "core.gitproxy", "core.alternaterefscommand", "sequence.editor", "diff.external",
		"gpg.program", "gpg.openpgp.program", "gpg.ssh.program", "gpg.x509.program", "gpg.ssh.defaultkeycommand", "credential.helper", "uploadpack.packobjectshook", "interactive.difffilter", "web.browser":
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
