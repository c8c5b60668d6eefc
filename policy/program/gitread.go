package program

import (
	"regexp"
	"slices"
	"strings"

	"savepoint/policy/shell"
)

// gitForm is how a reading sub-command is written so that it provably reads.
type gitForm struct {
	extra string // options behind the sub-command
	end   bool   // needs "--" behind the revisions
	bare  bool   // reads the configuration: nothing may be set in it
}

// Switched off for every reader: locks and the index refresh, fetching of
// missing objects, traces into files that the account's configuration names.
const (
	gitEnvironment = "GIT_OPTIONAL_LOCKS=0 GIT_NO_LAZY_FETCH=1 GIT_ALLOW_PROTOCOL=none GIT_TRACE2=0 GIT_TRACE2_EVENT=0 GIT_TRACE2_PERF=0"
	gitHardening   = gitEnvironment + " GIT_CONFIG_NOSYSTEM=1 git --no-pager -c core.fsmonitor=false -c core.hooksPath=/dev/null " +
		"-c core.pager=cat -c log.showSignature=false -c gpg.program=false -c gpg.ssh.program=false -c gpg.x509.program=false -c submodule.recurse=false -c core.sshCommand=false " +
		"-c diff.submodule=short -c log.diffMerges=separate"
	gitBare = gitEnvironment + " git --no-pager"
)

// gitReader says how a sub-command is made to read only, if it can be. The
// argument for each is in tables/git.yaml.
func gitReader(name string, sub *Spec, q parsed, raw []string) (gitForm, bool) {
	first := ""
	if len(q.operands) > 0 {
		first = q.operands[0]
	}
	n := len(q.operands)
	switch name {
	case "rev-parse", "ls-files", "ls-tree", "rev-list", "describe", "cat-file", "shortlog", "count-objects", "merge-base", "name-rev", "for-each-ref", "show-ref",
		"cherry", "show-branch", "check-ignore", "check-attr", "version":
		return gitForm{}, true
	case "log", "show", "whatchanged", "diff-tree":
		return gitForm{extra: "--no-ext-diff --no-textconv"}, true
	case "reflog": // no option in the table prints differences
		return gitForm{}, n == 0 || first == "show" && n < 3
	case "grep":
		return gitForm{extra: "--no-textconv"}, true
	case "branch":
		return gitForm{}, n == 0 || hasFlag(q, "-l", "--list", "--merged", "--no-merged", "--contains", "--no-contains", "--points-at")
	case "tag":
		return gitForm{}, n == 0 || hasFlag(q, "-l", "--list", "-n", "--merged", "--no-merged", "--contains", "--no-contains", "--points-at")
	case "remote":
		return gitForm{}, n == 0 || first == "get-url"
	case "stash":
		return gitForm{}, n == 1 && first == "list" && len(q.options) == 0
	case "worktree":
		return gitForm{}, n == 1 && first == "list"
	case "symbolic-ref":
		return gitForm{}, n == 1
	case "var":
		return gitForm{bare: true}, true
	case "config":
		reads := hasFlag(q, "-l", "--list", "--get", "--get-all", "--get-regexp")
		return gitForm{bare: true}, reads || n == 1 && !strings.Contains(first, "=") || n == 2 && first == "get"
	case "diff":
		revs, ended := gitRevisions(sub, raw)
		two := len(revs) == 2 && !strings.Contains(revs[0]+revs[1], "..") || len(revs) == 1 && strings.Contains(revs[0], "..")
		if !ended {
			two = two && !slices.ContainsFunc(revs, func(r string) bool { return !gitSurely.MatchString(r) })
		}
		objects := two && !hasFlag(q, "--cached", "--staged", "--no-index")
		return gitForm{extra: "--no-ext-diff --no-textconv", end: !ended}, objects
	case "blame":
		revs, ended := gitRevisions(sub, raw)
		return gitForm{extra: "--no-textconv"}, len(revs) == 1 && ended
	}
	return gitForm{}, false
}

// gitRevision is a name that stands for exactly one commit, or a range.
var gitRevision = regexp.MustCompile(`^[A-Za-z0-9_@][A-Za-z0-9_./~@{}+-]*(\^[0-9]*)*(~[0-9]*)?(\.\.\.?[A-Za-z0-9_./~@{}+-]*(\^[0-9]*)*(~[0-9]*)?)?$`)

// gitSurely is a revision that is hardly ever the name of a file as well: with
// "--" behind it, a file would be an error.
var gitSurely = regexp.MustCompile(`\.\.|[~^@]|^[A-Z_]*HEAD$|^[0-9a-f]{7,40}$|^v?[0-9]+(\.[0-9]+)*([-.](rc|beta|alpha)[0-9.]*)?$|^(origin|upstream)/|^(main|master|develop|trunk)$`)

// gitRevisions returns the operands in front of "--" when all of them are
// plain revisions, and whether there is a "--".
func gitRevisions(sub *Spec, raw []string) (revs []string, ended bool) {
	front := raw
	if i := slices.Index(raw, "--"); i >= 0 {
		front, ended = raw[:i], true
	}
	revs = sub.parse(front).operands
	for _, r := range revs {
		if !gitRevision.MatchString(r) {
			return nil, ended
		}
	}
	return revs, ended
}

// gitHardened writes the command with every helper switched off.
func gitHardened(args []string, p parsed, form gitForm) string {
	for _, a := range args {
		if !shell.Known(a) {
			return ""
		}
	}
	front, sub, rest := args[:p.first], args[p.first], args[p.first+1:]
	start := gitHardening
	if form.bare {
		start = gitBare
	}
	text := strings.Join(strings.Fields(strings.Join([]string{start, strings.TrimSpace(quoteAll(front)), sub, form.extra}, " ")), " ")
	if len(rest) > 0 {
		text += " " + strings.TrimSpace(quoteAll(rest))
	}
	if form.end {
		text += " --"
	}
	return text
}
