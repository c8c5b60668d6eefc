package program

import (
	"net/url"
	"path"
	"slices"
	"strings"

	"savepoint/policy/shell"
)

// fetch judges curl and wget beyond their options: what they write, and
// whether their arguments carry data out.
func (j *Judge) fetch(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	j.options(w, sc, &u, p.options)
	sends := false
	for _, o := range p.options {
		sends = sends || o.kind == Send
	}
	if sends && len(p.operands) > 0 {
		// What is sent goes to the addresses: they are the targets.
		u.Accesses = slices.DeleteFunc(u.Accesses, func(a Access) bool { return a.Action == Upload })
	}
	toFile := false
	fetched := shell.Stream{Fetched: true}
	urls := p.operands
	for _, o := range p.options {
		if o.Name == "--url" {
			urls = append(urls[:len(urls):len(urls)], o.Value)
		}
	}
	for _, o := range p.options {
		switch {
		case u.Name == "curl" && (o.Name == "-o" || o.Name == "--output"), u.Name != "curl" && (o.Name == "-O" || o.Name == "--output-document" || o.Name == "-o" && u.Name == "aria2c"):
			if o.Value == "-" {
				toFile = false
				continue
			}
			toFile = true
			sc.Wrote(o.Value, fetched)
		}
	}
	saves := u.Name != "curl" || hasFlag(p, "-O", "--remote-name", "--remote-name-all", "-J")
	prefix := ""
	if o, ok := p.given("-P", "--directory-prefix", "--output-dir", "-d", "--dir"); ok && (u.Name != "curl" || o.Name == "--output-dir") {
		prefix = o.Value + "/"
	}
	for _, raw := range urls {
		action := Fetch
		if sends || carries(raw) || c.Stdin.Decoded && shell.Has(raw, shell.HoleDecoded) {
			action = Upload
		}
		u.Accesses = append(u.Accesses, Access{Action: action, Path: raw})
		if saves && !toFile {
			sc.Wrote(prefix+baseName(raw), fetched)
		}
	}
	if saves && !toFile {
		if o, ok := p.given("-O", "--output-document"); u.Name != "wget" || !ok || o.Value != "-" {
			dir := "."
			if prefix != "" {
				dir = prefix
			}
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(dir)})
		}
	}
	j.use(u)
	if toFile {
		return shell.Stream{Known: true}
	}
	return fetched
}

// carries reports whether the address of a request holds text that other
// commands or files of the machine gave.
func carries(raw string) bool {
	return shell.Has(raw, shell.HoleOutput) || shell.Has(raw, shell.HoleDecoded)
}

func baseName(raw string) string {
	u, err := url.Parse(shell.Show(raw))
	if err != nil || u.Path == "" || u.Path == "/" {
		return "index.html"
	}
	return path.Base(u.Path)
}

// remote judges scp, rsync and sftp: an operand with a host in front decides
// the direction.
func (j *Judge) remote(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	j.options(w, sc, &u, p.options)
	n := len(p.operands)
	for i, o := range p.operands {
		last := i == n-1 && n > 1
		switch {
		case remotePath(o) && last:
			u.Accesses = append(u.Accesses, Access{Action: Upload, Path: o})
		case remotePath(o):
			u.Accesses = append(u.Accesses, Access{Action: Fetch, Path: o})
		case last:
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(o)})
			if hasFlag(p, "--delete", "--del", "--delete-before", "--delete-after", "--delete-during", "--delete-excluded") {
				u.Accesses = append(u.Accesses, Access{Action: Remove, Path: sc.Path(o), Tree: true})
			}
		default:
			u.Accesses = append(u.Accesses, Access{Action: Read, Path: sc.Path(o)})
		}
	}
	j.use(u)
	return shell.Stream{}
}

func remotePath(o string) bool {
	if strings.HasPrefix(o, "rsync://") || strings.HasPrefix(o, "scp://") || strings.HasPrefix(o, "sftp://") {
		return true
	}
	i := strings.IndexByte(o, ':')
	return i > 0 && !strings.Contains(o[:i], "/")
}
