package sim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// each does something to every operand and reports what failed.
func (p *proc) each(name string, operands []string, do func(file string) error) int {
	code := 0
	if len(operands) == 0 {
		return p.fail(1, name, "missing operand")
	}
	for _, o := range operands {
		file := at(p.dir, o)
		if err := p.grp.effect(func() error { return do(file) }); err != nil {
			if errors.Is(err, errKilled) {
				return 137
			}
			code = p.fail(1, name, fmt.Sprintf("'%s': %s", o, errno(err)))
		}
	}
	return code
}

// below returns every file under the names, in order.
func (p *proc) below(names []string) []string {
	var out []string
	for _, n := range names {
		p.walk(n, 0, func(name string, f node, _ int) bool {
			if f.mode.IsRegular() {
				out = append(out, name)
			}
			return true
		}, nil)
	}
	return out
}

// walk visits a name and everything below it, parents first. visit says
// whether to go deeper; bad gets what could not be read.
func (p *proc) walk(name string, depth int, visit func(name string, n node, depth int) bool, bad func(string, error)) {
	n, err := p.g.tree.stat(p.who, at(p.dir, name), false)
	if err != nil {
		if bad != nil {
			bad(name, err)
		}
		return
	}
	if p.grp.ctx.Err() != nil || !visit(name, n, depth) || !n.mode.IsDir() {
		return
	}
	names, err := p.g.tree.list(p.who, at(p.dir, name))
	if err != nil && bad != nil {
		bad(name, err)
	}
	for _, c := range names {
		p.walk(strings.TrimSuffix(name, "/")+"/"+c, depth+1, visit, bad)
	}
}

func runLs(_ context.Context, p *proc, args []string) int {
	flags, names, ok := p.options(args, "1aAldhRtr")
	if !ok {
		return 2
	}
	if len(names) == 0 {
		names = []string{"."}
	}
	show := func(name string, n node) {
		if has(flags, "l") {
			owner := strconv.Itoa(n.uid)
			if n.uid == 0 {
				owner = "root"
			} else if n.uid == agentUser.uid {
				owner = "agent"
			}
			fmt.Fprintf(p.out, "%s 1 %s %s %d %s ", n.mode, owner, owner, len(n.data), n.mtime.UTC().Format("2006-01-02 15:04"))
		}
		fmt.Fprintln(p.out, name)
	}
	code := 0
	for _, name := range names {
		n, err := p.g.tree.stat(p.who, at(p.dir, name), !has(flags, "l", "d"))
		if err != nil {
			code = p.fail(2, "ls", fmt.Sprintf("cannot access '%s': %s", name, errno(err)))
			continue
		}
		if !n.mode.IsDir() || has(flags, "d") {
			show(name, n)
			continue
		}
		list, err := p.g.tree.list(p.who, at(p.dir, name))
		if err != nil {
			code = p.fail(2, "ls", fmt.Sprintf("cannot open directory '%s': %s", name, errno(err)))
			continue
		}
		if len(names) > 1 {
			fmt.Fprintf(p.out, "%s:\n", name)
		}
		for _, c := range list {
			if strings.HasPrefix(c, ".") && !has(flags, "a", "A") {
				continue
			}
			if n, err := p.g.tree.stat(p.who, at(p.dir, name)+"/"+c, false); err == nil {
				show(c, n)
			}
		}
	}
	return code
}

func runRm(_ context.Context, p *proc, args []string) int {
	flags, names, ok := p.options(args, "rRfvd", "no-preserve-root", "recursive", "force")
	if !ok {
		return 2
	}
	force := has(flags, "f", "force")
	if len(names) == 0 && force {
		return 0
	}
	code := 0
	for _, name := range names {
		file := at(p.dir, name)
		n, err := p.g.tree.stat(p.who, file, false)
		if err != nil {
			if !force || !errors.Is(err, fs.ErrNotExist) {
				code = p.fail(1, "rm", fmt.Sprintf("cannot remove '%s': %s", name, errno(err)))
			}
			continue
		}
		if path.Clean(file) == "/" && !has(flags, "no-preserve-root") {
			code = p.fail(1, "rm", "it is dangerous to operate recursively on '/'")
			continue
		}
		if n.mode.IsDir() && !has(flags, "r", "R", "recursive") {
			code = p.fail(1, "rm", fmt.Sprintf("cannot remove '%s': Is a directory", name))
			continue
		}
		var all []string
		p.walk(name, 0, func(name string, _ node, _ int) bool { all = append(all, name); return true }, nil)
		for i := len(all) - 1; i >= 0; i-- { // children before parents
			err := p.grp.effect(func() error { return p.g.tree.remove(p.who, at(p.dir, all[i])) })
			if errors.Is(err, errKilled) {
				return 137
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				code = p.fail(1, "rm", fmt.Sprintf("cannot remove '%s': %s", all[i], errno(err)))
			}
		}
	}
	return code
}

func runRmdir(_ context.Context, p *proc, args []string) int {
	return p.each("rmdir", args[1:], func(file string) error {
		n, err := p.g.tree.stat(p.who, file, false)
		if err == nil && !n.mode.IsDir() {
			return syscall.ENOTDIR
		}
		return p.g.tree.remove(p.who, file)
	})
}

func runMkdir(_ context.Context, p *proc, args []string) int {
	flags, names, ok := p.options(args, "pm:v")
	if !ok {
		return 2
	}
	perm := fs.FileMode(0o755)
	if m, err := strconv.ParseUint(flags["m"], 8, 12); err == nil {
		perm = fs.FileMode(m)
	}
	return p.each("mkdir", names, func(file string) error {
		if !has(flags, "p") {
			return p.g.tree.mkdir(p.who, file, perm, p.g.now())
		}
		at := ""
		for part := range strings.SplitSeq(strings.Trim(path.Clean(file), "/"), "/") {
			at += "/" + part
			if n, err := p.g.tree.stat(p.who, at, true); err == nil && n.mode.IsDir() {
				continue
			}
			if err := p.g.tree.mkdir(p.who, at, perm, p.g.now()); err != nil {
				return err
			}
		}
		return nil
	})
}

// targets resolves the operands of cp and mv to pairs.
func (p *proc) targets(name string, names []string) ([][2]string, int) {
	if len(names) < 2 {
		return nil, p.fail(1, name, "missing destination")
	}
	last := at(p.dir, names[len(names)-1])
	n, err := p.g.tree.stat(p.who, last, true)
	dir := err == nil && n.mode.IsDir()
	if !dir && len(names) > 2 {
		return nil, p.fail(1, name, "target '"+names[len(names)-1]+"' is not a directory")
	}
	var out [][2]string
	for _, from := range names[:len(names)-1] {
		to := last
		if dir {
			to = path.Join(last, path.Base(from))
		}
		out = append(out, [2]string{at(p.dir, from), to})
	}
	return out, 0
}

func runCp(_ context.Context, p *proc, args []string) int {
	flags, names, ok := p.options(args, "rRapfv")
	if !ok {
		return 2
	}
	pairs, code := p.targets("cp", names)
	for _, pair := range pairs {
		n, err := p.g.tree.stat(p.who, pair[0], true)
		if err == nil && n.mode.IsDir() && !has(flags, "r", "R", "a") {
			code = p.fail(1, "cp", "-r not specified; omitting directory '"+pair[0]+"'")
			continue
		}
		bad := func(name string, err error) { code = p.fail(1, "cp", "'"+name+"': "+errno(err)) }
		p.walk(pair[0], 0, func(name string, n node, depth int) bool {
			to := pair[1] + name[len(pair[0]):]
			err := p.grp.effect(func() error {
				switch {
				case n.mode.IsDir():
					if err := p.g.tree.mkdir(p.who, to, n.mode.Perm(), p.g.now()); err != nil && !isExist(err) {
						return err
					}
					return nil
				case n.mode&fs.ModeSymlink != 0 && depth > 0:
					return p.g.tree.symlink(p.who, n.data, to, p.g.now())
				}
				text, err := p.g.tree.read(p.who, name)
				if err != nil {
					return err
				}
				return p.g.tree.write(p.who, to, text, false, n.mode.Perm(), p.g.now())
			})
			if err != nil {
				bad(name, err)
			}
			return err == nil
		}, bad)
	}
	return code
}

func runMv(_ context.Context, p *proc, args []string) int {
	_, names, ok := p.options(args, "fvn")
	if !ok {
		return 2
	}
	pairs, code := p.targets("mv", names)
	for _, pair := range pairs {
		if err := p.grp.effect(func() error { return p.g.tree.rename(p.who, pair[0], pair[1]) }); err != nil {
			code = p.fail(1, "mv", "cannot move '"+pair[0]+"': "+errno(err))
		}
	}
	return code
}

func runTouch(_ context.Context, p *proc, args []string) int {
	return p.each("touch", args[1:], func(file string) error {
		return p.g.tree.write(p.who, file, "", true, 0o644, p.g.now())
	})
}

func runTruncate(_ context.Context, p *proc, args []string) int {
	flags, names, ok := p.options(args, "s:")
	n, good := size(flags["s"])
	if !ok || !good || n > maxFile {
		return p.fail(1, "truncate", "invalid size")
	}
	return p.each("truncate", names, func(file string) error {
		text, err := p.g.tree.read(p.who, file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if int64(len(text)) > n {
			text = text[:n]
		} else {
			text += strings.Repeat("\x00", int(n)-len(text))
		}
		return p.g.tree.write(p.who, file, text, false, 0o644, p.g.now())
	})
}

func runLn(_ context.Context, p *proc, args []string) int {
	flags, names, ok := p.options(args, "sfn")
	if !ok {
		return 2
	}
	if !has(flags, "s") || len(names) != 2 {
		return p.fail(1, "ln", "only ln -s TARGET NAME is simulated")
	}
	return p.each("ln", names[1:], func(file string) error {
		if n, err := p.g.tree.stat(p.who, file, true); err == nil && n.mode.IsDir() {
			file = path.Join(file, path.Base(names[0]))
		}
		if has(flags, "f") {
			if err := p.g.tree.remove(p.who, file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return p.g.tree.symlink(p.who, names[0], file, p.g.now())
	})
}

// attributes is chmod and chown: one edit for names and, with -R, all below.
func (p *proc) attributes(name string, args []string, edit func(*node)) int {
	flags, names, ok := p.options(append([]string{name}, args...), "Rfvh")
	if !ok {
		return 2
	}
	if has(flags, "R") {
		var all []string
		for _, n := range names {
			p.walk(n, 0, func(name string, _ node, _ int) bool { all = append(all, name); return true }, nil)
		}
		names = all
	}
	return p.each(name, names, func(file string) error { return p.g.tree.change(p.who, file, edit) })
}

func runChmod(_ context.Context, p *proc, args []string) int {
	for i := 1; i < len(args); i++ {
		if strings.HasPrefix(args[i], "-") && !strings.ContainsAny(args[i], "wx") {
			continue
		}
		rest := append(append([]string{}, args[1:i]...), args[i+1:]...)
		if m, err := strconv.ParseUint(args[i], 8, 12); err == nil {
			return p.attributes("chmod", rest, func(n *node) { n.mode = n.mode.Type() | fromUnix(uint32(m)) })
		}
		var bits fs.FileMode
		for _, op := range []string{"+", "-"} {
			if who, what, found := strings.Cut(args[i], op); found {
				for _, c := range what {
					bits |= map[rune]fs.FileMode{'r': 0o444, 'w': 0o222, 'x': 0o111}[c]
				}
				if who == "u" {
					bits &= 0o700
				} else if who == "go" || who == "g" || who == "o" {
					bits &= 0o077
				}
				return p.attributes("chmod", rest, func(n *node) {
					if op == "+" {
						n.mode |= bits
					} else {
						n.mode &^= bits
					}
				})
			}
		}
		return p.fail(1, "chmod", "mode "+args[i]+" is not simulated")
	}
	return p.fail(1, "chmod", "missing operand")
}

func runChown(_ context.Context, p *proc, args []string) int {
	for i := 1; i < len(args); i++ {
		if strings.HasPrefix(args[i], "-") {
			continue
		}
		name, _, _ := strings.Cut(args[i], ":")
		w, ok := account(name)
		if uid, err := strconv.Atoi(name); err == nil {
			w, ok = who{uid: uid}, true
		}
		if !ok {
			return p.fail(1, "chown", "invalid user '"+args[i]+"'")
		}
		if p.who.uid != 0 {
			return p.fail(1, "chown", "Operation not permitted")
		}
		rest := append(append([]string{}, args[1:i]...), args[i+1:]...)
		return p.attributes("chown", rest, func(n *node) { n.uid = w.uid })
	}
	return p.fail(1, "chown", "missing operand")
}

func runStat(_ context.Context, p *proc, args []string) int {
	flags, names, ok := p.options(args, "c:L")
	if !ok {
		return 2
	}
	return p.each("stat", names, func(file string) error {
		n, err := p.g.tree.stat(p.who, file, has(flags, "L"))
		if err != nil {
			return err
		}
		format := flags["c"]
		if format == "" {
			format = "%n %s %a %u"
		}
		kind := "regular file"
		if n.mode.IsDir() {
			kind = "directory"
		} else if n.mode&fs.ModeSymlink != 0 {
			kind = "symbolic link"
		}
		owner := map[int]string{0: "root", agentUser.uid: "agent"}[n.uid]
		_, err = fmt.Fprintln(p.out, strings.NewReplacer("%n", file, "%s", strconv.Itoa(len(n.data)), "%a", strconv.FormatUint(uint64(n.mode.Perm()), 8),
			"%u", strconv.Itoa(n.uid), "%g", strconv.Itoa(n.uid), "%U", owner, "%G", owner, "%F", kind, "%Y", strconv.FormatInt(n.mtime.Unix(), 10), "%A", n.mode.String()).Replace(format))
		return err
	})
}

func runDu(_ context.Context, p *proc, args []string) int {
	flags, names, ok := p.options(args, "sbkh", "apparent-size")
	if !ok {
		return 2
	}
	if len(names) == 0 {
		names = []string{"."}
	}
	for _, name := range names {
		total := 0
		p.walk(name, 0, func(_ string, n node, _ int) bool { total += len(n.data); return true }, nil)
		if !has(flags, "b") {
			total = (total + 1023) / 1024
		}
		fmt.Fprintf(p.out, "%d\t%s\n", total, name)
	}
	return 0
}

func runDf(_ context.Context, p *proc, args []string) int {
	flags, _, ok := p.options(args, "Pkhi", "output")
	if !ok {
		return 2
	}
	const size = diskKiB
	used := p.g.tree.used() / 1024
	if has(flags, "output") {
		fmt.Fprintf(p.out, "Avail\n%d\n", size-used)
		return 0
	}
	fmt.Fprintf(p.out, "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/sda1 %d %d %d %d%% /\n", size, used, size-used, used*100/size)
	return 0
}

func runReadlink(_ context.Context, p *proc, args []string) int {
	flags, names, ok := p.options(args, "femn")
	if !ok {
		return 2
	}
	return p.each(args[0], names, func(file string) error {
		if path.Base(args[0]) == "readlink" && !has(flags, "f", "e", "m") {
			n, err := p.g.tree.stat(p.who, file, false)
			if err == nil && n.mode&fs.ModeSymlink == 0 {
				err = syscall.EINVAL
			}
			if err == nil {
				fmt.Fprintln(p.out, n.data)
			}
			return err
		}
		p.g.tree.mu.RLock()
		defer p.g.tree.mu.RUnlock()
		full, err := p.g.tree.resolve(p.who, file, true)
		if err == nil {
			fmt.Fprintln(p.out, full)
		}
		return err
	})
}

func runBasename(_ context.Context, p *proc, args []string) int {
	if len(args) < 2 {
		return p.fail(1, args[0], "missing operand")
	}
	if path.Base(args[0]) == "dirname" {
		fmt.Fprintln(p.out, path.Dir(args[1]))
		return 0
	}
	base := path.Base(args[1])
	if len(args) > 2 {
		base = strings.TrimSuffix(base, args[2])
	}
	fmt.Fprintln(p.out, base)
	return 0
}

func runMktemp(_ context.Context, p *proc, args []string) int {
	flags, _, ok := p.options(args, "dp:q")
	if !ok {
		return 2
	}
	name := fmt.Sprintf("/tmp/tmp.%d", time.Now().UnixNano())
	var err error
	if has(flags, "d") {
		err = p.grp.effect(func() error { return p.g.tree.mkdir(p.who, name, 0o700, p.g.now()) })
	} else {
		_, err = p.open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err != nil {
		return p.fail(1, "mktemp", errno(err))
	}
	fmt.Fprintln(p.out, name)
	return 0
}
