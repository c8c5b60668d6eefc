package program

import (
	"slices"
	"strings"

	"savepoint/policy/shell"
)

// results notes the absolute paths that options usually name as the place for
// what a program makes, for programs whose options are not in a table.
func results(sc *shell.Scope, u *Use, args []string) {
	add := func(v string) {
		if strings.HasPrefix(v, "/") || strings.HasPrefix(v, "~") {
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(v)})
		}
	}
	for i, a := range args {
		name, value, has := strings.Cut(a, "=")
		switch name {
		case "-o", "-keyout", "--output", "-out", "--out", "--outfile", "--output-file", "-output", "--log", "--log-file", "--logfile", "--report", "-w", "-oN", "-oX", "-oG", "-oA", "-oS", "--outdir",
			"--output-dir", "--output-directory", "--dest", "--destination":
			switch {
			case has:
				add(value)
			case i+1 < len(args):
				add(args[i+1])
			}
		default:
			if rest, ok := strings.CutPrefix(a, "-o"); ok {
				add(rest)
			}
		}
	}
}

// remoteSchemes are addresses that a converter writes to over the network.
var remoteSchemes = [...]string{"udp", "tcp", "rtp", "rtmp", "rtmps", "rtsp", "srt", "http", "https", "ftp", "sftp", "icecast", "tls", "rist", "smb", "amqp", "zmq", "scp", "s3", "gs"}

// converter judges programs that write what their last argument names.
func (j *Judge) converter(w *shell.Walker, sc *shell.Scope, c shell.Call, u Use, args []string) shell.Stream {
	u.Operands = args
	results(sc, &u, args)
	if n := len(args); n > 0 && !strings.HasPrefix(args[n-1], "-") {
		last := args[n-1]
		scheme, _, ok := strings.Cut(last, "://")
		switch {
		case ok && slices.Contains(remoteSchemes[:], strings.ToLower(scheme)):
			u.Accesses = append(u.Accesses, Access{Action: Upload, Path: last})
		case n > 1 || u.Name == "objcopy" || u.Name == "strip":
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: sc.Path(last)})
		}
	}
	j.use(u)
	j.guess(w, sc, c, u.Name, args)
	return shell.Stream{}
}

// compress judges gzip and its like, which replace the files they are given
// unless they write to standard output.
func (j *Judge) compress(w *shell.Walker, sc *shell.Scope, c shell.Call, spec *Spec, u Use, args []string) shell.Stream {
	p := spec.parse(args)
	u.Options, u.Operands = p.options, p.operands
	changed := j.options(w, sc, &u, p.options)
	reads := len(p.operands) == 0 || hasFlag(p, "-l", "--list", "-t", "--test", "-c", "--stdout", "--to-stdout")
	if u.Name == "lz4" && len(p.operands) > 1 {
		reads = false // the second one is written
	}
	for _, o := range p.operands {
		path := sc.Path(o)
		switch {
		case reads:
			u.Accesses = append(u.Accesses, Access{Action: Read, Path: path})
		case hasFlag(p, "-r", "--recursive"):
			u.Accesses = append(u.Accesses, Access{Action: Remove, Path: path, Tree: true})
		case shell.Known(path): // a directory is left alone without -r
			u.Accesses = append(u.Accesses, Access{Action: Write, Path: strings.TrimSuffix(path, "."+extension(path))})
			if !hasFlag(p, "-k", "--keep") {
				u.Accesses = append(u.Accesses, Access{Action: Write, Path: path})
			}
		}
	}
	u.ReadOnly = reads && !changed && !p.odd && !p.loose && trusted(c.Argv[0])
	j.use(u)
	return output(spec, u, p, c)
}

func extension(path string) string {
	name := shell.Name(path)
	return name[strings.LastIndexByte(name, '.')+1:]
}
