package shell

import (
	"maps"
	"slices"
)

// File is what the line itself did to one file.
type File struct {
	Content Stream
	version int  // differs whenever the content may
	racing  bool // something in the background writes it
}

// disk is what one branch of the line sees of the files that the line makes.
// Subshells share it; branches fork it and are joined again.
type disk struct {
	files map[string]File
	vague []string // the keys of files that hold holes
	lent  bool     // the map is shared with a fork: it is copied before it changes
	stamp int      // differs whenever a file may
}

func (d *disk) fork() *disk {
	d.lent = true
	c := *d
	c.vague = slices.Clip(d.vague)
	return &c
}

func (d *disk) put(key string, f File) {
	if d.lent {
		d.files, d.lent = maps.Clone(d.files), false
	}
	if _, seen := d.files[key]; !seen && !Known(key) {
		d.vague = append(slices.Clip(d.vague), key)
	}
	d.files[key], d.stamp = f, f.version
}

// written joins the files: each is what one of the branches made of it.
func (sc *Scope) written(branches []*Scope) {
	out := branches[0].disk.fork()
	for _, b := range branches[1:] {
		if b.disk.stamp == out.stamp {
			continue
		}
		sc.shared.spend(len(b.disk.files) + len(out.files))
		for k, f := range b.disk.files {
			if old, ok := out.files[k]; !ok || old.version != f.version {
				if !ok {
					old = File{Content: Stream{File: k}} // as it was before the line
				}
				out.put(k, sc.oneFile(old, f))
			}
		}
		for k, f := range out.files {
			if _, ok := b.disk.files[k]; !ok && !numbered(k) {
				out.put(k, sc.oneFile(f, File{Content: Stream{File: k}}))
			}
		}
	}
	*sc.disk = *out
}

func (sc *Scope) oneFile(a, b File) File {
	sc.shared.version++
	sc.shared.spend((len(a.Content.said()) + len(b.Content.said())) / 16)
	return File{Content: oneOf(a.Content, b.Content), version: sc.shared.version, racing: a.racing || b.racing}
}

// numbered reports whether a key is that of a process substitution, of which
// there is only one.
func numbered(key string) bool { return len(key) > 9 && key[:9] == "/dev/fd/p" }

const maxContents = 32 // what one file may hold, as far as it is told apart

// oneOf is a stream that is one of two.
func oneOf(a, b Stream) Stream {
	out := Stream{
		Made: true, Fetched: a.Fetched || b.Fetched, Decoded: a.Decoded || b.Decoded,
		Local: (a.Known || a.Local || a.File != "" && !a.Made) && (b.Known || b.Local || b.File != "" && !b.Made), Listing: append(slices.Clip(a.Listing), b.Listing...),
	}
	for _, s := range append(a.each(), b.each()...) {
		if !slices.ContainsFunc(out.Either, func(t Stream) bool { return sameStream(s, t) }) {
			out.Either = append(out.Either, s)
		}
	}
	if len(out.Either) == 1 {
		return out.Either[0]
	}
	if len(out.Either) > maxContents {
		out.Either, out.Local = nil, false // opaque when run
		return out
	}
	for _, s := range out.Either {
		out.Said += s.said() + "\n"
	}
	if len(out.Said) > maxValue {
		out.Either, out.Said, out.Local = nil, "", false
	}
	return out
}

// each lists what a stream may be.
func (s Stream) each() []Stream {
	if len(s.Either) > 0 {
		return s.Either
	}
	return []Stream{s}
}

func sameStream(a, b Stream) bool {
	return a.Known == b.Known && a.Text == b.Text && a.File == b.File && a.Inherit == b.Inherit && a.Fetched == b.Fetched && a.Decoded == b.Decoded &&
		a.Local == b.Local && a.Said == b.Said && a.Script == b.Script && a.Made == b.Made && len(a.Either) == len(b.Either) && slices.EqualFunc(a.Either, b.Either, sameStream)
}
