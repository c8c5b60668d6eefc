package program

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Clone returns tables that Describe may change; the original stays as it is.
func (t *Tables) Clone() *Tables { return &Tables{specs: maps.Clone(t.specs)} }

// describable is a name that no path, pattern or redirection looks like.
var describable = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+-]*$`)

// Describe adds a program that a deployment knows. It is for a name that
// nothing here knows yet: what is built in cannot be described again, since
// the rules rely on it. It must not be called on tables that are in use.
func (t *Tables) Describe(s *Spec) error {
	if len(s.Names) == 0 {
		return errors.New("a program without names; list them under names")
	}
	for i, n := range s.Names {
		switch {
		case !describable.MatchString(n):
			return fmt.Errorf("name %q: want the plain name of a program, without directory or pattern", n)
		case slices.Contains(builtins[:], n):
			return fmt.Errorf("name %q: it is a word of the shell, which never starts a program of that name; choose another", n)
		case slices.Contains(s.Names[:i], n):
			return fmt.Errorf("name %q: given twice", n)
		case t.resolves(n):
			return fmt.Errorf("name %q: the policy describes this program already; a rule can make it stricter, a description cannot replace it", n)
		}
	}
	if err := s.plain(true); err != nil {
		return fmt.Errorf("program %s: %w", s.Names[0], err)
	}
	if err := s.compile(); err != nil {
		return fmt.Errorf("program %s: %w", s.Names[0], err)
	}
	for _, n := range s.Names {
		t.specs[n] = s
	}
	return nil
}

// resolves reports whether Run finds a table for the name, also by the family
// of the name or without a version behind it.
func (t *Tables) resolves(name string) bool {
	if t.Known(name) || t.Known(strings.TrimRight(name, "0123456789.-")) {
		return true
	}
	i := strings.IndexByte(name, '.')
	return i > 0 && t.Known(name[:i]+".*")
}

// plain checks what a description from outside may say, and completes it.
func (s *Spec) plain(top bool) error {
	switch {
	case s.Handler != "":
		return errors.New("handler: only built-in descriptions have one; leave it out")
	case !top && len(s.Names) > 0:
		return errors.New("names: a sub-command is named by its key under sub; leave names out")
	case s.Alone != "" && s.Alone != "read":
		return fmt.Errorf(`alone %q: want "read", or leave it out`, s.Alone)
	case s.Alone != "" && s.Effect != "launch":
		return errors.New("alone: only for a program with effect launch")
	}
	if len(s.Sub) > 0 {
		s.Stop = true // what follows the sub-command is its own
	}
	for _, name := range slices.Sorted(maps.Keys(s.Sub)) {
		sub := s.Sub[name]
		if sub == nil {
			return fmt.Errorf("sub-command %s is empty; give its effect", name)
		}
		if name == "" || strings.HasPrefix(name, "-") || strings.ContainsAny(name, " \t\n") {
			return fmt.Errorf("sub-command %q: want one word that does not start with a dash", name)
		}
		if err := sub.plain(false); err != nil {
			return fmt.Errorf("sub-command %s: %w", name, err)
		}
	}
	return nil
}

// builtins are the words that bash takes before it looks for a program.
var builtins = [...]string{
	"alias", "bg", "bind", "break", "builtin", "caller", "case", "cd", "command", "compgen", "complete", "compopt", "continue", "coproc", "declare", "dirs",
	"disown", "do", "done", "echo", "elif", "else", "enable", "esac", "eval", "exec", "exit", "export", "false", "fc", "fg", "fi", "for", "function", "getopts",
	"hash", "help", "history", "if", "in", "jobs", "kill", "let", "local", "logout", "mapfile", "popd", "printf", "pushd", "pwd", "read", "readarray",
	"readonly", "return", "select", "set", "shift", "shopt", "source", "suspend", "test", "then", "time", "times", "trap", "true", "type", "typeset", "ulimit",
	"umask", "unalias", "unset", "until", "wait", "while", "chdir",
}
