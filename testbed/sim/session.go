package sim

import (
	"slices"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
)

// report is what a command's shell tells of its session at its end. A nil
// report wants to know nothing.
type report struct {
	mu    sync.Mutex
	gone  bool // the shell cannot report any more
	taken bool
	dir   string
	vars  []string
}

// watch notices what keeps a shell from reporting: it becomes another program,
// or the command has an EXIT trap of its own. That of a subshell counts too.
func (r *report) watch(args []string) {
	if r == nil {
		return
	}
	own := args[0] == "exec" && len(args) > 1 ||
		args[0] == "trap" && len(args) > 2 && (slices.Contains(args[2:], "EXIT") || slices.Contains(args[2:], "0"))
	if own {
		r.mu.Lock()
		r.gone = true
		r.mu.Unlock()
	}
}

// take notes where the shell is at its end and what it exports.
func (r *report) take(sh *interp.Runner) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken, r.dir = true, sh.Dir
	for name, v := range sh.Vars {
		if v.Exported && v.Kind == expand.String && name != "UID" && name != "EUID" {
			r.vars = append(r.vars, name+"="+v.Str)
		}
	}
	slices.Sort(r.vars)
}

// bounds of a session, as helper.pl has them.
const (
	maxSession   = 66000
	maxVariables = 256
)

// fields is the payload of the session's frame, nil if there is none. login
// are the variables that every command begins with.
func (r *report) fields(login []string) []string {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone || !r.taken || len(strings.Join(r.vars, "\x00")) > maxSession {
		return nil
	}
	out := []string{r.dir}
	for _, v := range r.vars {
		if !slices.Contains(login, v) {
			out = append(out, v)
		}
	}
	if len(out) > 1+maxVariables {
		return nil
	}
	return out
}
