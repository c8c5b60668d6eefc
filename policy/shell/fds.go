package shell

import (
	"maps"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

const maxOpen = 64 // descriptors that stay open; no script that people write opens more

// handle is what is known of one open file descriptor.
type handle struct {
	in     Stream   // what reading from it yields
	write  bool     // writing to it is known to go to path
	path   string   // "" when what is written is lost
	append bool     // path keeps what it held
	output bool     // it is the standard output of the statement around
	others []string // where it may go as well
	guard  bool     // path may not be writable: what it holds may stay
}

// plumbing is what the redirections of one statement open.
type plumbing struct {
	fds   map[string]handle
	stdin Stream
	given bool // stdin is redirected
	both  bool // the output was duplicated before it went elsewhere
}

func (p *plumbing) set(fd string, h handle) {
	switch {
	case fd == "0":
		p.stdin, p.given = h.in, true
	case fd == "1" && h.output:
		delete(p.fds, "1")
	default:
		p.fds[fd] = h
	}
}

// get returns the descriptor with the given number.
func (p *plumbing) get(sc *Scope, fd string) handle {
	if fd == "0" {
		if p.given {
			return handle{in: p.stdin}
		}
		return handle{in: sc.stdin}
	}
	h, ok := p.fds[fd]
	switch {
	case ok:
		return h
	case fd == "1":
		p.both = true
		return handle{output: true}
	}
	return handle{write: true}
}

// fdNumber returns the descriptor that a path such as /dev/fd/3 stands for.
func fdNumber(path string) (string, bool) {
	switch path {
	case "/dev/stdin":
		return "0", true
	case "/dev/stdout":
		return "1", true
	case "/dev/stderr":
		return "2", true
	}
	for _, p := range [...]string{"/dev/fd/", "/proc/self/fd/", "/proc/$$/fd/"} {
		if n, ok := strings.CutPrefix(path, p); ok && n != "" && n != "-" && descriptor(n) {
			return n, true
		}
	}
	return "", false
}

// plumb performs the redirections of a statement, in order, and tells the host
// of every file they read and write.
func (w *Walker) plumb(sc *Scope, list []*syntax.Redirect) *plumbing {
	p := &plumbing{fds: maps.Clone(sc.fds)}
	if p.fds == nil {
		p.fds = map[string]handle{}
	}
	if len(p.fds) > maxOpen {
		w.limit(sc, w.here())
		return p
	}
	for _, r := range list {
		fd := ""
		if r.N != nil {
			fd = r.N.Value
		}
		if strings.HasPrefix(fd, "{") {
			// The shell picks a number above 9; any one that is free will do.
			name := strings.Trim(fd, "{}")
			fd = strconv.Itoa(10 + len(p.fds))
			w.giveTo(sc, name, fd)
		}
		w.redirect(sc, p, r, fd)
	}
	return p
}

func (w *Walker) redirect(sc *Scope, p *plumbing, r *syntax.Redirect, fd string) {
	input, output := fd, fd
	if fd == "" {
		input, output = "0", "1"
	}
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		text := ""
		if r.Hdoc != nil {
			text = w.heredoc(sc, r)
		}
		p.set(input, handle{in: literal(text)})
		return
	case syntax.WordHdoc:
		p.set(input, handle{in: literal(w.word(sc, r.Word) + "\n")})
		return
	}
	target := ""
	if targets := w.fields(sc, r.Word); len(targets) > 0 {
		target = targets[0]
	}
	switch r.Op {
	case syntax.RdrIn:
		w.reads(sc, target)
		p.set(input, handle{in: w.contentOf(sc, p, target)})
	case syntax.RdrInOut:
		w.reads(sc, target)
		w.writes(sc, target)
		p.set(input, handle{in: Stream{File: target, Fetched: connection(target)}, write: true, path: target, append: true})
	case syntax.DplIn, syntax.DplOut:
		if r.Op == syntax.DplIn {
			output = input
		}
		w.duplicate(sc, p, r.Op, target, output)
	case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll:
		h := w.open(sc, p, target, r.Op == syntax.AppOut || r.Op == syntax.AppAll)
		if r.Op == syntax.RdrAll || r.Op == syntax.AppAll {
			p.set("2", h)
			output = "1"
		}
		p.set(output, h)
	default:
		w.report(sc, FactParse, "a redirection that is not known here", w.span(r))
	}
}

func (w *Walker) duplicate(sc *Scope, p *plumbing, op syntax.RedirOperator, target, fd string) {
	switch number := strings.TrimSuffix(target, "-"); {
	case target == "-":
		p.set(fd, handle{write: true})
	case descriptor(target):
		h := p.get(sc, number)
		if connection(h.path) {
			w.writes(sc, h.path) // what is sent depends on the command
		}
		p.set(fd, h)
	case op == syntax.DplIn:
		w.reads(sc, target)
		p.set(fd, handle{write: true})
	default: // >&word is &>word
		h := w.open(sc, p, target, false)
		p.set(fd, h)
		p.set("2", h)
	}
}

// open returns the handle of a file that is written.
func (w *Walker) open(sc *Scope, p *plumbing, target string, app bool) handle {
	w.writes(sc, target)
	if n, ok := fdNumber(Clean(target, "")); ok {
		h := p.get(sc, n)
		if connection(h.path) {
			w.writes(sc, h.path)
		}
		return h
	}
	if target == "" || target == "/dev/null" {
		return handle{write: true}
	}
	_, made := sc.File(target)
	guard := made && (sc.options.keeping || sc.shared.guarded)
	if !app && !guard {
		sc.Wrote(target, Stream{Known: true})
	}
	return handle{write: true, path: target, append: app || !guard, guard: guard}
}

// writes tells the host of a path that is written, wherever it may be.
func (w *Walker) writes(sc *Scope, path string) {
	for _, other := range sc.worlds() {
		w.host.Write(w, other, path)
	}
	w.host.Write(w, sc, path)
}

// reads tells the host of a path that is read.
func (w *Walker) reads(sc *Scope, path string) {
	for _, other := range sc.worlds() {
		w.host.Read(w, other, path)
	}
	w.host.Read(w, sc, path)
}

// contentOf is content with the descriptors that the same statement opened.
func (w *Walker) contentOf(sc *Scope, p *plumbing, path string) Stream {
	if n, ok := fdNumber(Clean(path, "")); ok {
		return p.get(sc, n).in
	}
	return w.content(sc, path)
}

// deliver writes what a statement printed to where its output goes, and
// returns what is left for the statement around.
func (sc *Scope) deliver(h handle, out Stream) Stream {
	for _, p := range h.others {
		sc.deliver(handle{path: p, append: h.append, guard: true}, out)
	}
	if h.path != "" {
		if h.append {
			if old, ok := sc.File(h.path); ok {
				out = old.Content.then(out)
			}
		}
		if old, ok := sc.File(h.path); ok && h.guard {
			out = oneOf(old.Content, out)
		}
		sc.Wrote(h.path, out)
	}
	return Stream{Known: true}
}

// piped returns the descriptors without the standard output, for a command
// whose output goes into a pipe or is substituted.
func (sc *Scope) piped() {
	if _, ok := sc.fds["1"]; ok {
		sc.fds = maps.Clone(sc.fds)
		delete(sc.fds, "1")
	}
}
