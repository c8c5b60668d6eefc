package program

import (
	"regexp"
	"slices"
	"strings"

	"savepoint/policy/shell"
)

var serveModule = regexp.MustCompile(`^(?:http\.server|smtpd|aiosmtpd)$`)

// below reports whether a directory is one that may be shown on a port of this
// machine: of the work, not of the system.
func (r *reacher) below(dir string) bool {
	clean := r.sc.Path(dir)
	return dir != "" && shell.Known(dir) && !strings.Contains(dir, "..") && !strings.HasPrefix(dir, "~") && (!strings.HasPrefix(clean, "/") || strings.HasPrefix(clean, "/tmp/") || strings.HasPrefix(clean, "/workspace"))
}

// onlyHere reports whether a server that listens at an address is reached from
// this machine alone; 0.0.0.0 is this machine for a client only.
func onlyHere(address string) bool {
	return localAddress(address) && !strings.Contains(address, "0.0.0.0")
}

// loopOnly is onlyHere for a host without a port.
func loopOnly(host string) bool { return loopName.MatchString(host) && host != "0.0.0.0" }

// serves proves for development servers that nobody but this machine reaches
// them.
func (r *reacher) serves() bool {
	bound := func(options, bind string) bool {
		p, ok := r.strictly(options)
		at := 0
		for _, o := range p.options {
			if o.Name == bind || strings.HasPrefix(bind, "--") && o.Name == bind[1:3] { // or its short form
				if at++; !onlyHere(o.Value) {
					return false
				}
			}
		}
		return ok && at > 0 && !slices.ContainsFunc(p.operands, func(o string) bool { return !portWord.MatchString(o) && !r.below(o) })
	}
	switch r.name {
	case "python", "python3", "pypy3":
		return r.module()
	case "php": // without a directory or a router it runs whatever lies around
		p, ok := r.strictly("-S=text --server=text -t=text --docroot=text -q -n")
		s, has := p.single("-S", "--server")
		t, dir := p.given("-t", "--docroot")
		return ok && has && onlyHere(s.Value) && (dir || len(p.operands) > 0) && (!dir || r.below(t.Value))
	case "ruby":
		if len(r.args) < 3 || r.args[0] != "-run" || r.args[1] != "-e" || r.args[2] != "httpd" {
			return false
		}
		p, ok := strictly("-p=text -b=text --port=text --bind-address=text", r.args[3:])
		b, has := p.single("-b", "--bind-address")
		return ok && has && loopOnly(b.Value) && len(p.operands) < 2 && (len(p.operands) == 0 || r.below(p.operands[0]))
	case "serve":
		return bound("-snCLdu -l=text --listen=text --single --no-clipboard --cors --no-request-logging", "--listen")
	case "http-server":
		return bound("-sgbdio -p=text -a=text -c=text --cors --gzip", "-a")
	case "live-server":
		return bound("--port=text --host=text --no-browser --quiet", "--host")
	case "darkhttpd":
		return bound("--port=text --addr=text --index=text --no-listing", "--addr")
	case "miniserve":
		return bound("-v -i=text -p=text --interfaces=text --port=text --index=text --spa", "--interfaces")
	case "caddy":
		if len(r.args) > 0 && r.args[0] == "file-server" {
			p, ok := strictly("--listen=text --root=text --browse --access-log", r.args[1:])
			l, has := p.given("--listen")
			d, dir := p.given("--root")
			return ok && has && onlyHere(l.Value) && (!dir || r.below(d.Value))
		}
	case "busybox", "httpd":
		args := r.args
		if r.name == "busybox" {
			if len(args) == 0 || args[0] != "httpd" {
				return false
			}
			args = args[1:]
		}
		p, ok := strictly("-fv -p=text -h=text", args)
		at, has := p.given("-p")
		d, dir := p.given("-h")
		return ok && has && onlyHere(at.Value) && (!dir || r.below(d.Value))
	}
	return false
}

// module proves the same for the servers that come with python.
func (r *reacher) module() bool {
	i := slices.Index(r.args, "-m")
	if i < 0 || i > 1 || i+1 >= len(r.args) || i == 1 && r.args[0] != "-u" || !serveModule.MatchString(r.args[i+1]) {
		return false
	}
	module, args := r.args[i+1], r.args[i+2:]
	if module == "http.server" {
		p, ok := strictly("-b=text --bind=text -d=text --directory=text -p=text --protocol=text", args)
		b, has := p.single("-b", "--bind")
		d, dir := p.given("-d", "--directory")
		return ok && has && loopOnly(b.Value) && (!dir || r.below(d.Value)) && len(p.operands) < 2
	}
	p, ok := strictly("-n -d -c=text --class=text -l=text --listen=text --nosetuid", args)
	class, has := p.given("-c", "--class")
	listen, l := p.single("-l", "--listen")
	switch {
	case !ok || has && !strings.HasSuffix(class.Value, "DebuggingServer") && !strings.HasSuffix(class.Value, "handlers.Debugging") && class.Value != "Debugging":
		return false
	case l:
		return localAddress(listen.Value) && len(p.operands) == 0
	}
	return has && len(p.operands) == 1 && localAddress(p.operands[0]) && module == "smtpd"
}
