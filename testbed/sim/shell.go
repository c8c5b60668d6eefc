package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// proc is one process: a shell or a program, with what it inherited.
type proc struct {
	g   *guest
	grp *group
	who who
	dir string
	env expand.Environ
	in  io.Reader
	out io.Writer
	err io.Writer

	depth int // of shells in shells

	report *report // of the session, for the command's own shell
}

// environment is what helper.pl gives a command.
func environment(w who, added []string) []string {
	dirs := "/usr/local/bin:/usr/bin:/bin"
	if w.uid == 0 {
		dirs = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	return append([]string{"HOME=" + w.home, "USER=" + w.name, "LOGNAME=" + w.name, "SHELL=/bin/bash", "LANG=C.UTF-8", "PATH=" + dirs}, added...)
}

// shell interprets text like "bash -c" and returns the exit status.
func (p *proc) shell(ctx context.Context, env []string, text string, args []string) int {
	if p.depth > 20 {
		return p.fail(2, "bash", "too many shells in shells")
	}
	prog, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "bash")
	if err != nil {
		return p.fail(2, "bash", err.Error())
	}
	foreign := false
	syntax.Walk(prog, func(n syntax.Node) bool {
		if _, ok := n.(*syntax.ProcSubst); ok { // the interpreter would make a fifo on the host
			foreign = true
		}
		return !foreign
	})
	if foreign {
		return p.fail(2, "bash", "process substitution is not simulated")
	}
	in, ok := p.in.(*os.File)
	if !ok && p.in != nil {
		var feed *os.File
		if in, feed, err = pipe(); err != nil {
			return p.fail(2, "bash", err.Error())
		}
		defer in.Close()
		go func() {
			io.Copy(feed, p.in) //nolint:errcheck // ends with either side
			feed.Close()
		}()
	}
	r, err := interp.New(
		interp.Env(expand.ListEnviron(append(env, fmt.Sprintf("UID=%d", p.who.uid), fmt.Sprintf("EUID=%d", p.who.uid))...)),
		interp.StdIO(stdinOf(in), p.out, p.err),
		interp.Params(append([]string{"--"}, args...)...),
		interp.OpenHandler(p.openHandler),
		interp.StatHandler(p.statHandler),
		interp.ReadDirHandler2(p.readDirHandler),
		interp.AccessHandler(p.accessHandler),
		interp.CallHandler(func(ctx context.Context, args []string) ([]string, error) {
			if p.grp.ctx.Err() != nil {
				return nil, errKilled
			}
			p.report.watch(args)
			if args[0] == "printf" { // the built-in one is not binary-safe
				args = append([]string{"/usr/bin/printf"}, args[1:]...)
			}
			return args, nil
		}),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return p.execHandler }),
	)
	if err != nil {
		return p.fail(2, "bash", err.Error())
	}
	r.Dir = p.dir
	p.grp.busy.Add(1)
	defer p.grp.busy.Add(-1)
	err = r.Run(ctx, prog)
	p.report.take(r)
	var status interp.ExitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	case ctx.Err() != nil || errors.Is(err, errKilled):
		return 137
	}
	return p.fail(1, "bash", err.Error())
}

func stdinOf(f *os.File) io.Reader {
	if f == nil {
		return nil
	}
	return f
}

func (p *proc) fail(code int, name, text string) int {
	fmt.Fprintf(p.err, "%s: %s\n", name, text)
	return code
}

// at makes a name absolute.
func at(dir, name string) string {
	if path.IsAbs(name) {
		return name
	}
	// Not path.Join: "x/" and "x/." must stay what they are for the resolver.
	return dir + "/" + name
}

func (p *proc) execHandler(ctx context.Context, args []string) error {
	hc := interp.HandlerCtx(ctx)
	child := &proc{g: p.g, grp: p.grp, who: p.who, dir: hc.Dir, env: hc.Env, in: hc.Stdin, out: hc.Stdout, err: hc.Stderr, depth: p.depth}
	p.grp.busy.Add(1)
	defer p.grp.busy.Add(-1)
	if code := child.exec(ctx, args); code != 0 {
		return interp.ExitStatus(code)
	}
	return nil
}

// exec runs a program that the guest's disk holds.
func (p *proc) exec(ctx context.Context, args []string) int {
	if err := p.grp.effect(func() error { return nil }); err != nil {
		return 137
	}
	file, code := p.lookup(args[0])
	if code != 0 {
		what := "command not found"
		if code == 126 {
			what = "Permission denied"
		}
		return p.fail(code, args[0], what)
	}
	text, err := p.g.tree.read(p.who, file)
	if err != nil {
		return p.fail(126, args[0], errno(err))
	}
	if name, ok := strings.CutPrefix(text, "program "); ok {
		if run := programs()[strings.TrimSpace(name)]; run != nil {
			return run(ctx, p, args)
		}
		return p.fail(126, args[0], "cannot execute binary file")
	}
	sub := *p
	sub.depth++
	sub.report = nil
	return sub.shell(ctx, p.exported(), text, args[1:])
}

// lookup finds a program's file, or 126 or 127.
func (p *proc) lookup(name string) (string, int) {
	var candidates []string
	if strings.Contains(name, "/") {
		candidates = []string{at(p.dir, name)}
	} else {
		dirs := "/usr/local/bin:/usr/bin:/bin"
		if set := p.variable("PATH"); set != "" {
			dirs = set
		}
		for d := range strings.SplitSeq(dirs, ":") {
			candidates = append(candidates, at(p.dir, d)+"/"+name)
		}
	}
	code := 127
	for _, c := range candidates {
		n, err := p.g.tree.stat(p.who, c, true)
		switch {
		case err != nil || n.mode.IsDir():
			continue
		case n.mode.Perm()&0o111 == 0:
			code = 126
		default:
			return c, 0
		}
	}
	return "", code
}

// exported returns the variables that a child gets.
func (p *proc) exported() []string {
	var out []string
	if p.env == nil {
		return environment(p.who, nil)
	}
	for name, v := range p.env.Each {
		if v.Exported && v.Kind == expand.String && name != "UID" && name != "EUID" {
			out = append(out, name+"="+v.Str)
		}
	}
	slices.Sort(out)
	return out
}

func (p *proc) variable(name string) string {
	if p.env == nil {
		return ""
	}
	return p.env.Get(name).String()
}

// --- Files for the shell --------------------------------------------------------

func (p *proc) openHandler(ctx context.Context, name string, flag int, perm fs.FileMode) (io.ReadWriteCloser, error) {
	return p.open(at(interp.HandlerCtx(ctx).Dir, name), flag, perm)
}

func (p *proc) statHandler(ctx context.Context, name string, follow bool) (fs.FileInfo, error) {
	name = at(interp.HandlerCtx(ctx).Dir, name)
	if _, ok := device(name); ok {
		return info{path.Base(name), node{mode: fs.ModeDevice | fs.ModeCharDevice | 0o666}}, nil
	}
	n, err := p.g.tree.stat(p.who, name, follow)
	if err != nil {
		return nil, err
	}
	return info{path.Base(name), n}, nil
}

func (p *proc) readDirHandler(ctx context.Context, name string) ([]fs.DirEntry, error) {
	name = at(interp.HandlerCtx(ctx).Dir, name)
	names, err := p.g.tree.list(p.who, name)
	if err != nil {
		return nil, err
	}
	var out []fs.DirEntry
	for _, base := range names {
		if n, err := p.g.tree.stat(p.who, name+"/"+base, false); err == nil {
			out = append(out, fs.FileInfoToDirEntry(info{base, n}))
		}
	}
	return out, nil
}

func (p *proc) accessHandler(ctx context.Context, name string, mode interp.AccessMode) error {
	n, err := p.g.tree.stat(p.who, at(interp.HandlerCtx(ctx).Dir, name), true)
	if err != nil {
		return err
	}
	if p.who.uid == 0 && mode == interp.AccessExec && !n.mode.IsDir() && n.mode.Perm()&0o111 == 0 || !p.who.may(n, fs.FileMode(mode)) {
		return fault("access", name, fs.ErrPermission)
	}
	return nil
}

// info is a node as os.FileInfo.
type info struct {
	name string
	n    node
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return int64(len(i.n.data)) }
func (i info) Mode() fs.FileMode  { return i.n.mode }
func (i info) ModTime() time.Time { return i.n.mtime }
func (i info) IsDir() bool        { return i.n.mode.IsDir() }
func (i info) Sys() any           { return nil }
