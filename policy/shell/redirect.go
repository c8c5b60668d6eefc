package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// redirects judges the redirections of a statement. It returns the standard
// input they set, if ok, and whether standard output goes away, into path when
// that is one file.
func (w *Walker) redirects(sc *Scope, list []*syntax.Redirect) (in Stream, path string, out, ok bool) {
	for _, r := range list {
		fd := ""
		if r.N != nil {
			fd = r.N.Value
			if strings.HasPrefix(fd, "{") {
				sc.set(strings.Trim(fd, "{}"), string(HoleText))
			}
		}
		switch r.Op {
		case syntax.Hdoc, syntax.DashHdoc:
			text := ""
			if r.Hdoc != nil {
				text = w.heredoc(sc, r)
			}
			if fd == "" || fd == "0" {
				in, ok = literal(text), true
			}
			continue
		case syntax.WordHdoc:
			text := w.word(sc, r.Word)
			if fd == "" || fd == "0" {
				in, ok = literal(text+"\n"), true
			}
			continue
		}
		targets := w.fields(sc, r.Word)
		if len(targets) == 0 {
			targets = []string{""}
		}
		target := targets[0]
		switch r.Op {
		case syntax.RdrIn:
			w.host.Read(w, sc, target)
			if fd == "" || fd == "0" {
				in, ok = w.content(sc, target), true
			}
		case syntax.RdrInOut:
			w.host.Read(w, sc, target)
			w.host.Write(w, sc, target)
			if fd == "" || fd == "0" {
				in, ok = Stream{File: target}, true
			}
		case syntax.DplIn:
			if fd == "" || fd == "0" {
				in, ok = Stream{}, true
			}
			if !descriptor(target) {
				w.host.Read(w, sc, target)
			}
		case syntax.DplOut:
			if descriptor(target) {
				if fd == "" || fd == "1" {
					out = out || target != "1"
				}
				continue
			}
			w.host.Write(w, sc, target)
			path, out = target, true
		case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll:
			w.host.Write(w, sc, target)
			if fd == "" || fd == "1" || r.Op == syntax.RdrAll || r.Op == syntax.AppAll {
				path, out = target, true
				if r.Op == syntax.AppOut || r.Op == syntax.AppAll {
					if old, seen := sc.File(target); seen && (old.Content.Fetched || old.Content.Decoded) {
						path = "" // what was written before still counts
					}
				}
			}
		default:
			w.report(sc, FactParse, "a redirection that is not known here", w.span(r))
		}
	}
	return in, path, out, ok
}

func descriptor(s string) bool {
	if s == "-" {
		return true
	}
	s = strings.TrimSuffix(s, "-")
	if s == "" || len(s) > 4 {
		return false
	}
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// literal is a stream whose text comes from the line.
func literal(text string) Stream {
	return Stream{Known: true, Text: text, Fetched: Has(text, HoleFetched), Decoded: Has(text, HoleDecoded)}
}

// content is what is known of a file that is read.
func (w *Walker) content(sc *Scope, path string) Stream {
	if f, ok := sc.File(path); ok {
		s := f.Content
		s.File = path
		return s
	}
	switch {
	case path == "/dev/null":
		return Stream{Known: true}
	case path == "/dev/stdin" || path == "/dev/fd/0" || path == "/proc/self/fd/0":
		return sc.stdin
	case strings.HasPrefix(path, "/dev/tcp/") || strings.HasPrefix(path, "/dev/udp/") || Has(path, HoleFetched):
		return Stream{Fetched: true}
	case Has(path, HoleDecoded):
		return Stream{Decoded: true}
	}
	return Stream{File: path}
}

// Content is what the line knows of a file that is read.
func (w *Walker) Content(sc *Scope, path string) Stream { return w.content(sc, path) }

func (w *Walker) heredoc(sc *Scope, r *syntax.Redirect) string {
	quoted := false
	for _, p := range r.Word.Parts {
		switch p := p.(type) {
		case *syntax.SglQuoted, *syntax.DblQuoted:
			quoted = true
		case *syntax.Lit:
			quoted = quoted || strings.Contains(p.Value, `\`)
		}
	}
	if quoted {
		return inert(r.Hdoc.Lit())
	}
	x := w.expander(sc)
	return x.quoted(r.Hdoc.Parts, true)
}
