package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"savepoint/policy/shell"
)

// uses collects what the judge finds.
type uses struct{ list []Use }

func (s *uses) Use(u Use)         { s.list = append(s.list, u) }
func (s *uses) Fact(_ shell.Fact) {}

func judged(t *testing.T, command string) []Use {
	t.Helper()
	tables, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	s := &uses{}
	shell.NewWalker(NewJudge(tables, s)).Walk(shell.NewScope(shell.NewLogin("/home/agent", "agent")), command)
	return s.list
}

func hardened(t *testing.T, command string) string {
	t.Helper()
	for _, u := range judged(t, command) {
		if u.Name == "git" {
			return u.Hardened
		}
	}
	return ""
}

// hostile is a repository in which everything that git may start leaves a mark.
func hostile(t *testing.T) (dir string, env []string, mark string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed; the forms are not run")
	}
	root := t.TempDir()
	dir, mark = filepath.Join(root, "r"), filepath.Join(root, "mark")
	env = append(os.Environ(), "HOME="+root, "XDG_CONFIG_HOME="+root, "GIT_CONFIG_NOSYSTEM=1")
	helper := filepath.Join(root, "helper")
	script := "#!/bin/sh\nprintf '%s\\n' \"$0 $*\" >> " + mark + "\ncat\n"
	if err := os.WriteFile(helper, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	setup := `set -e
git init -q . && git config user.email a@example.org && git config user.name A
printf 'a\n' > a.go && git add a.go && git commit -qm one && printf 'b\n' >> a.go && git commit -qam two
for k in core.fsmonitor core.pager core.editor core.sshCommand core.alternateRefsCommand diff.external gpg.program gpg.openpgp.program gpg.ssh.program \
  gpg.x509.program diff.x.textconv diff.x.command filter.x.clean filter.x.smudge filter.x.process merge.x.driver pager.log pager.branch pager.tag pager.config \
  pager.diff credential.helper man.x.cmd; do git config $k "$HELPER"; done
git config log.showSignature true; git config log.diffMerges remerge; git config diff.submodule diff
mkdir -p .git/hooks
for h in post-index-change reference-transaction post-checkout; do cp "$HELPER" .git/hooks/$h; done
printf '*.go diff=x filter=x merge=x\n' > .gitattributes; printf 'c\n' >> a.go
git config --global trace2.eventTarget "$MARK"
rm -f "$MARK"`
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sh", "-c", setup)
	c.Dir, c.Env = dir, append(env, "HELPER="+helper, "MARK="+mark)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("make the repository: %v\n%s", err, out)
	}
	return dir, env, mark
}

// The hardened forms run on real git, in a repository whose configuration,
// attributes and hooks start a helper wherever git allows one.
func TestHardenedGitStartsNothing(t *testing.T) {
	dir, env, mark := hostile(t)
	run := func(text string) (string, error) {
		c := exec.Command("sh", "-c", text)
		c.Dir, c.Env = dir, env
		out, err := c.CombinedOutput()
		return string(out), err
	}
	for _, cmd := range []string{
		"git log -p -m", "git log '--format=%G? %h'", "git show HEAD", "git diff HEAD~1 HEAD", "git diff HEAD~1..HEAD -- a.go", "git diff-tree -p HEAD", "git reflog", "git branch -vv",
		"git tag -l", "git remote -v", "git stash list", "git worktree list", "git ls-files -o -d", "git blame HEAD -- a.go", "git grep b", "git cat-file -p HEAD", "git describe --always",
		"git shortlog -sn HEAD", "git whatchanged -1", "git config --list", "git config user.email", "git var GIT_AUTHOR_IDENT", "git symbolic-ref HEAD", "git check-attr -a a.go",
	} {
		text := hardened(t, cmd)
		if text == "" {
			t.Errorf("%q has no hardened form", cmd)
			continue
		}
		out, err := run(text)
		if err != nil {
			t.Errorf("%q: %v\n%s", text, err, out)
		}
		if left, err := os.ReadFile(mark); err == nil {
			t.Errorf("%q started a helper or wrote a trace: %s", text, left)
			os.Remove(mark)
		}
	}
	// The repository does what it is for: the plain form starts helpers.
	if _, err := run("git status"); err != nil {
		t.Log(err)
	}
	if left, err := os.ReadFile(mark); err != nil || !strings.Contains(string(left), "helper") {
		t.Errorf("plain git status left %q (%v): the test proves nothing", left, err)
	}
}

func TestGitFormsThatAreNotProved(t *testing.T) {
	for _, cmd := range []string{
		"git status", "git diff", "git diff HEAD", "git diff HEAD^@", "git diff a.txt b.txt", "git diff main README.md", "git diff --cached", "git blame a.go", "git blame HEAD a.go",
		"git ls-files -m", "git branch x", "git branch -v x", "git tag x", "git remote show origin", "git stash list -p", "git config a.b c", "git config --unset a.b", "git reflog expire --all",
		"git log --remerge-diff", "git describe --dirty", "git cat-file --filters HEAD:a", "git symbolic-ref HEAD refs/heads/x", "git worktree prune", "git -c a.b=c branch", "git log \"$x\"",
	} {
		if text := hardened(t, cmd); text != "" {
			t.Errorf("%q is taken for a reader: %s", cmd, text)
		}
	}
}
