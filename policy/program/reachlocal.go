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

// serves proves for development servers that nobody but this machine reaches
// them.
func (r *reacher) serves() bool {
	bound := func(options, bind string, dirs ...string) bool {
		p, ok := r.strictly(options)
		at := 0
		for _, o := range p.options {
			switch {
			case o.Name == bind || strings.HasPrefix(bind, "--") && o.Name == bind[1:3]: // or its short form
				if at++; !localAddress(o.Value) || strings.Contains(o.Value, "0.0.0.0") {
					return false
				}
			case slices.Contains(dirs, o.Name) && !r.below(o.Value):
				return false
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
		return ok && has && localAddress(s.Value) && !strings.Contains(s.Value, "0.0.0.0") && (dir || len(p.operands) > 0) && (!dir || r.below(t.Value))
	case "ruby":
		if len(r.args) < 3 || r.args[0] != "-run" || r.args[1] != "-e" || r.args[2] != "httpd" {
			return false
		}
		r = &reacher{sc: r.sc, call: r.call, name: "httpd", args: r.args[3:]}
		p, ok := r.strictly("-p=text -b=text --port=text --bind-address=text")
		b, has := p.single("-b", "--bind-address")
		return ok && has && loopName.MatchString(b.Value) && b.Value != "0.0.0.0" && len(p.operands) < 2 && (len(p.operands) == 0 || r.below(p.operands[0]))
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
			r = &reacher{sc: r.sc, call: r.call, name: "file-server", args: r.args[1:]}
			p, ok := r.strictly("--listen=text --root=text --browse --access-log")
			l, has := p.given("--listen")
			d, dir := p.given("--root")
			return ok && has && localAddress(l.Value) && !strings.Contains(l.Value, "0.0.0.0") && (!dir || r.below(d.Value))
		}
	case "busybox", "httpd":
		if r.name == "busybox" && (len(r.args) == 0 || r.args[0] != "httpd") {
			return false
		}
		args := r.args
		if r.name == "busybox" {
			args = args[1:]
		}
		p, ok := strictly("-fv -p=text -h=text", args)
		at, has := p.given("-p")
		d, dir := p.given("-h")
		return ok && has && localAddress(at.Value) && !strings.Contains(at.Value, "0.0.0.0") && (!dir || r.below(d.Value))
	}
	return false
}

// module proves the same for the servers that come with python.
func (r *reacher) module() bool {
	i := slices.Index(r.args, "-m")
	if i < 0 || i > 1 || i+1 >= len(r.args) || i == 1 && r.args[0] != "-u" || !serveModule.MatchString(r.args[i+1]) {
		return false
	}
	module := r.args[i+1]
	r = &reacher{sc: r.sc, call: r.call, name: module, args: r.args[i+2:]}
	if module == "http.server" {
		p, ok := r.strictly("-b=text --bind=text -d=text --directory=text -p=text --protocol=text")
		b, has := p.single("-b", "--bind")
		d, dir := p.given("-d", "--directory")
		return ok && has && loopName.MatchString(b.Value) && b.Value != "0.0.0.0" && (!dir || r.below(d.Value)) && len(p.operands) < 2
	}
	p, ok := r.strictly("-n -d -c=text --class=text -l=text --listen=text --nosetuid")
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
