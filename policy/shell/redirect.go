package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

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
	if n, ok := fdNumber(Clean(path, "")); ok {
		if n == "0" {
			return sc.stdin
		}
		return sc.fds[n].in
	}
	if f, ok := sc.File(path); ok {
		s := f.Content
		s.File, s.Made = path, true
		return s
	}
	switch {
	case path == "/dev/null":
		return Stream{Known: true}
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
		return r.Hdoc.Lit()
	}
	x := w.expander(sc)
	x.document = true
	return x.quoted(r.Hdoc.Parts, true)
}
