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
	if sends && questions(u.Name, p) {
		sends = false
		u.Accesses = slices.DeleteFunc(u.Accesses, func(a Access) bool { return a.Action == Upload })
	}
	if sends && len(p.operands) > 0 {
		// What is sent goes to the addresses: they are the targets.
		u.Accesses = slices.DeleteFunc(u.Accesses, func(a Access) bool { return a.Action == Upload })
	}
	fetched := shell.Stream{Fetched: true}
	urls := addresses(w, sc, c, u.Name, p)
	toFile := intoFile(sc, &u, p)
	saves := u.Name != "curl" || hasFlag(p, "-O", "--remote-name", "--remote-name-all", "-J")
	prefix := ""
	if o, ok := p.given("-P", "--directory-prefix", "--output-dir", "-d", "--dir"); ok && (u.Name != "curl" || o.Name == "--output-dir") {
		prefix = o.Value + "/"
	}
	stays := 0
	for _, raw := range urls {
		action := Fetch
		if sends || carries(raw) || c.Stdin.Decoded && shell.Has(raw, shell.HoleDecoded) {
			action = Upload
		}
		if staysHere(sc, c, &u, p, raw) {
			action = Write
			stays++
		}
		u.Accesses = append(u.Accesses, Access{Action: action, Path: raw})
		if saves && !toFile {
			sc.Wrote(prefix+baseName(raw), fetched)
			if prefix != "" {
				u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(prefix + baseName(raw))})
			}
		}
	}
	if stays > 0 && stays == len(urls) {
		u.Reach = Here
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

// questions reports whether curl puts its data, plain text of the line, into
// the address of a plain GET.
func questions(name string, p parsed) bool {
	return name == "curl" && hasFlag(p, "-G", "--get") && !p.odd && !slices.ContainsFunc(p.options, func(o Option) bool {
		switch o.Name {
		case "-d", "--data", "--data-urlencode", "--data-raw", "--data-ascii":
			return !shell.Known(o.Value) || strings.Contains(o.Value, "@")
		case "--next", "-:": // what follows is another request
			return true
		}
		return o.kind == Send
	})
}

// addresses is where the request goes, with the addresses that options and a
// list name.
func addresses(w *shell.Walker, sc *shell.Scope, c shell.Call, name string, p parsed) []string {
	urls := p.operands
	if o, ok := p.given("-i", "--input-file"); ok && name != "curl" {
		list := w.Content(sc, o.Value)
		if o.Value == "-" {
			list = c.Stdin
		}
		if list.Known {
			urls = append(urls[:len(urls):len(urls)], strings.Fields(list.Text)...)
		}
	}
	for _, o := range p.options {
		if o.Name == "--url" {
			urls = append(urls[:len(urls):len(urls)], o.Value)
		}
	}
	return urls
}

// intoFile notes the files that options name for what comes back, and reports
// whether it all goes there.
func intoFile(sc *shell.Scope, u *Use, p parsed) bool {
	toFile := false
	for _, o := range p.options {
		switch {
		case u.Name == "curl" && (o.Name == "-o" || o.Name == "--output"), u.Name != "curl" && (o.Name == "-O" || o.Name == "--output-document" || o.Name == "-o" && u.Name == "aria2c"):
			if o.Value == "-" {
				toFile = false
				continue
			}
			toFile = true
			sc.Wrote(o.Value, shell.Stream{Fetched: true})
			if d, ok := p.given("--output-dir", "-d", "--dir"); ok && (u.Name == "curl" && d.Name == "--output-dir" || u.Name == "aria2c") {
				u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(d.Value + "/" + o.Value)})
			}
		}
	}
	return toFile
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
	if n == 2 && remotePath(p.operands[0]) && !remotePath(p.operands[1]) {
		fetched, dest := shell.Stream{Fetched: true}, p.operands[1]
		name := shell.Name(p.operands[0][strings.IndexByte(p.operands[0], ':')+1:])
		sc.Wrote(strings.TrimSuffix(dest, "/")+"/"+name, fetched)
		if dest != "." && !strings.HasSuffix(dest, "/") {
			sc.Wrote(dest, fetched)
		}
	}
	for i, o := range p.operands {
		last := i == n-1 && n > 1
		switch {
		case remotePath(o) && last && !hasFlag(p, "--list-only"):
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
			if hasFlag(p, "--remove-source-files") {
				u.Accesses = append(u.Accesses, Access{Action: Remove, Path: sc.Path(o), Tree: true})
			}
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
