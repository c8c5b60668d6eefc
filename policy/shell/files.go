package shell

import (
	"slices"
	"strings"
)

// File returns what the line did to a file earlier, if anything. A name that
// is only partly known may be any file that the line made and that ends the
// same way.
func (sc *Scope) File(name string) (File, bool) {
	if len(sc.disk.files) == 0 {
		return File{}, false
	}
	f, ok := sc.fileHere(name)
	if len(name) > 0 && name[0] != '/' {
		for _, p := range sc.places {
			g, found := sc.In(p).fileHere(name)
			switch {
			case found && ok && f.version != g.version:
				f = File{Content: oneOf(f.Content, g.Content)}
			case found && !ok:
				f, ok = File{Content: oneOf(g.Content, Stream{File: name})}, true
			}
		}
	}
	return f, ok
}

// fileHere is File in the nearest of the working directories.
func (sc *Scope) fileHere(name string) (File, bool) {
	key := Clean(name, sc.cwd)
	if f, ok := sc.disk.files[key]; ok {
		return f, true
	}
	if key == "" {
		return File{}, false
	}
	var found []string
	if Known(key) {
		for _, k := range sc.disk.vague {
			if sameFile(k, key) {
				found = append(found, k)
			}
		}
		if sc.cwd != "" && !strings.HasPrefix(name, "/") {
			if f, ok := sc.disk.files[Clean(name, "")]; ok && !strings.HasPrefix(sc.cwd, "/") {
				return f, true
			}
		}
	} else {
		if len(sc.disk.files) > 256 {
			return File{}, true // too many to compare: it may be any of them
		}
		for k := range sc.disk.files {
			if !strings.HasPrefix(k, "/dev/fd/p") && sameFile(key, k) {
				found = append(found, k)
			}
		}
	}
	if len(found) == 0 {
		return File{}, false
	}
	slices.Sort(found)
	content := Stream{Known: true}
	for _, k := range found {
		content = content.then(sc.disk.files[k].Content)
	}
	return File{Content: content}, true
}

// sameFile reports whether a path with holes may be the file that another path
// names: what follows its last hole must be the same.
func sameFile(vague, other string) bool {
	i := strings.LastIndexAny(vague, holes)
	if rest := vague[i+1:]; strings.HasPrefix(rest, "/") {
		o := other
		if j := strings.LastIndexAny(o, holes); j >= 0 {
			o = o[j+1:]
		}
		return strings.HasSuffix("/"+o, rest) || strings.HasSuffix(rest, "/"+strings.TrimPrefix(o, "/"))
	}
	if Has(vague, HoleStar) || Has(vague, HoleChar) || strings.Contains(vague, "/") {
		return Matches(vague, other) || other[0] != '/' && Matches(vague, "./"+other)
	}
	return vague == string(HoleOutput) // computed from what is there
}

// Wrote notes that the line writes content to a file.
func (sc *Scope) Wrote(name string, content Stream) {
	p := Clean(name, sc.cwd)
	if n, ok := fdNumber(p); ok {
		if h := sc.fds[n]; h.path != "" {
			sc.deliver(h, content)
		}
		return
	}
	if p == "" {
		return
	}
	if len(sc.disk.files) >= maxFields {
		sc.shared.over = true
		return
	}
	content.File, content.Inherit = "", false
	for _, place := range sc.places {
		if q := Clean(name, place); q != p {
			old, ok := sc.disk.files[q]
			if !ok {
				old = File{Content: Stream{File: q}}
			}
			sc.disk.put(q, sc.oneFile(old, File{Content: content}))
		}
	}
	sc.shared.version++
	f := File{Content: content, version: sc.shared.version, racing: sc.behind}
	if old, ok := sc.disk.files[p]; ok && (old.racing || f.racing) {
		f = sc.oneFile(old, f)
	}
	sc.disk.put(p, f)
}

// after notes what a program that copies bytes did, beyond what the host says.
func (w *Walker) after(sc *Scope, name string, c Call, out Stream) Stream {
	args := c.Argv[1:]
	switch name {
	case "ls":
		if len(operands(args)) == 0 && strings.HasPrefix(sc.cwd, "/") && len(out.Listing) == 0 {
			out.Listing = []string{string(HoleStar)}
		}
	case "dd":
		in, to := c.Stdin, ""
		for _, a := range args {
			if v, ok := strings.CutPrefix(a, "if="); ok {
				in = w.content(sc, v)
			} else if v, ok := strings.CutPrefix(a, "of="); ok {
				to = v
			}
		}
		if to != "" && (in.Known || in.Made) {
			return w.copied(sc, to, in)
		}
		if !in.Known && !in.Fetched && !in.Decoded {
			return Stream{} // blocks of a file are no script that anybody may have read
		}
		return copyOf(in)
	case "cp", "install", "mv", "ln", "rsync", "split", "csplit":
		ops := operands(args)
		if len(ops) < 2 {
			return out
		}
		from, to := ops[len(ops)-2], ops[len(ops)-1]
		if p := Clean(from, sc.cwd); ofImage(p) && Known(Name(p)) && !strings.HasSuffix(name, "split") {
			keep(sc, sc.shared.programs, Clean(to, sc.cwd), p)
			keep(sc, sc.shared.programs, Clean(to+"/"+Name(p), sc.cwd), p)
		}
		in := w.content(sc.WithStdin(c.Stdin), from)
		if from == "-" {
			in = c.Stdin
		}
		if !in.Known && !in.Made && !in.Fetched && !in.Decoded {
			return out
		}
		if strings.HasSuffix(name, "split") {
			to += "aa"
		}
		return w.copied(sc, to, in)
	case "gzip", "bzip2", "xz", "zstd", "lz4", "compress":
		for _, o := range operands(args) {
			if f, ok := sc.File(o); ok && f.Content.said() != "" {
				for _, ext := range [...]string{".gz", ".bz2", ".xz", ".zst", ".lz4", ".Z"} {
					sc.Wrote(o+ext, Stream{})
				}
			}
		}
	case "sed", "gsed", "perl", "ruby":
		for i, a := range args {
			if strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "--") && strings.Contains(a, "i") || strings.HasPrefix(a, "--in-place") {
				for _, o := range args[i:] {
					if f, ok := sc.File(o); ok && f.Content.said() != "" {
						sc.Wrote(o, Stream{}) // changed in a way that is not followed
					}
				}
				break
			}
		}
	}
	return out
}

// copied notes a copy; one to a descriptor is printed.
func (w *Walker) copied(sc *Scope, to string, in Stream) Stream {
	if _, ok := fdNumber(Clean(to, "")); ok {
		return copyOf(in)
	}
	sc.Wrote(to, copyOf(in))
	return Stream{Known: true}
}

func copyOf(in Stream) Stream {
	in.Local = in.Local || !in.Made && in.File != ""
	in.Inherit = false
	return in
}

func operands(args []string) []string {
	var out []string
	for _, a := range args {
		if a == "-" || a == "" || a[0] != '-' {
			out = append(out, a)
		}
	}
	return out
}

// local reports whether the output of a program whose text is not known comes
// from local files alone, so that the text of the line cannot shape it.
func (w *Walker) local(sc *Scope, name string, c Call) bool {
	args := c.Argv[1:]
	if strings.Contains(c.Argv[0], "/") && name != "" && Known(c.Argv[0]) && !strings.HasPrefix(Clean(c.Argv[0], "/x"), "/usr/") && !strings.Contains(c.Argv[0], "bin/") {
		return true // a program of the workspace
	}
	if generated(c.Argv) {
		return true
	}
	switch name {
	case "cat", "head", "tail", "tac", "sort", "uniq", "zcat", "gunzip", "bzcat", "xzcat", "gzip", "grep", "egrep", "fgrep", "sed", "envsubst", "fold", "column", "iconv", "dos2unix", "unix2dos":
		if name == "sed" && !slices.ContainsFunc(args, func(a string) bool { return strings.Trim(a, "0123456789,$pdq;-n") == "" && a != "-n" }) {
			return false
		}
		if c.Stdin.Known && c.Stdin.Text != "" || c.Stdin.Decoded || !c.Stdin.Known && !c.Stdin.Inherit && c.Stdin.File == "" && !c.Stdin.Local {
			return false
		}
		return !slices.ContainsFunc(args, func(a string) bool { _, made := sc.File(a); return made })
	case "git":
		return len(args) > 0 && (args[0] == "show" || args[0] == "cat-file" || args[0] == "archive") && !slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, "format") || strings.Contains(a, "pretty") })
	case "tar", "unzip", "make", "set", "export", "declare", "typeset", "alias":
		return true
	case "python", "python3", "node", "ruby", "perl", "php", "bash", "sh":
		return len(args) > 0 && args[0] != "" && args[0][0] != '-'
	}
	return false
}

// folded computes what a program prints when the state of the line decides it.
func (w *Walker) folded(sc *Scope, name string, c Call) (string, bool) {
	args := c.Argv[1:]
	switch name {
	case "pwd":
		return directory(sc.cwd) + "\n", len(operands(args)) == 0
	case "which", "type":
		if n := len(args); n > 0 && Known(args[n-1]) && len(sc.funcs[args[n-1]]) == 0 && args[n-1] != "" && args[n-1][0] != '-' &&
			(name == "which" && n == 1 || n == 2 && strings.ToLower(args[0]) == "-p") {
			return located(args[n-1]) + "\n", true
		}
		return "", false
	case "cat":
		if len(args) == 0 {
			break
		}
		var text strings.Builder
		for _, a := range args {
			if len(a) > 1 && a[0] == '-' {
				return "", false
			}
			s := c.Stdin
			if a != "-" {
				s = w.content(sc.WithStdin(c.Stdin), a)
			}
			if !s.Known || text.Len() > maxValue {
				return "", false
			}
			text.WriteString(s.Text)
		}
		return text.String(), true
	}
	return printed(name, args, c.Stdin)
}
