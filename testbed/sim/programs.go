package sim

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// program is one program of the guest. It returns its exit status.
type program func(ctx context.Context, p *proc, args []string) int

// programs returns every program a guest has, by name.
func programs() map[string]program {
	return map[string]program{
		"bash": runShell, "sh": runShell, "nohup": runPrefix, "setsid": runPrefix, "nice": runPrefix, "env": runEnv,
		"timeout": runTimeout, "xargs": runXargs, "printf": runPrintf,
		"cat": runCat, "tee": runTee, "head": runHead, "tail": runTail, "wc": runWc, "sort": runSort, "uniq": runUniq, "grep": runGrep,
		"sha256sum": sum(sha256.New), "md5sum": sum(md5.New), "base64": runBase64, "dd": runDd, "yes": runYes, "seq": runSeq,
		"ls": runLs, "rm": runRm, "rmdir": runRmdir, "mkdir": runMkdir, "cp": runCp, "mv": runMv, "touch": runTouch, "ln": runLn,
		"find": runFind, "chmod": runChmod, "chown": runChown, "stat": runStat, "du": runDu, "df": runDf, "truncate": runTruncate,
		"readlink": runReadlink, "realpath": runReadlink, "basename": runBasename, "dirname": runBasename, "mktemp": runMktemp,
		"sleep": runSleep, "date": runDate, "id": runID, "whoami": runID, "hostname": runHostname, "uname": runUname,
		"pkill": runPkill, "sync": runNothing, "true": runNothing, "false": runFalse, "nproc": runNproc, "echo": runEcho, "printenv": runPrintenv,
	}
}

// runPkill ends a daemon of the guest for what tells its health; connections
// are served all the same.
func runPkill(_ context.Context, p *proc, args []string) int {
	_, names, ok := p.options(args, "x9")
	if !ok || len(names) != 1 {
		return 2
	}
	if p.who.uid != 0 || names[0] != "sshd" && names[0] != "qemu-ga" {
		return 1 // nothing of that name that it may end
	}
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	if p.g.killed == nil {
		p.g.killed = map[string]bool{}
	}
	p.g.killed[names[0]] = true
	return 0
}

func runNothing(context.Context, *proc, []string) int { return 0 }
func runFalse(context.Context, *proc, []string) int   { return 1 }

func runEcho(_ context.Context, p *proc, args []string) int {
	fmt.Fprintln(p.out, strings.Join(args[1:], " "))
	return 0
}

func runNproc(_ context.Context, p *proc, _ []string) int {
	fmt.Fprintln(p.out, 1)
	return 0
}

// options splits flags from operands. known holds the letters that are
// accepted, each followed by ':' if it takes a value; long options are given
// by name in long. The result maps letter or name to its last value.
func (p *proc) options(args []string, known string, long ...string) (map[string]string, []string, bool) {
	flags := map[string]string{}
	rest := args[1:]
	var operands []string
	for len(rest) > 0 {
		a := rest[0]
		rest = rest[1:]
		switch {
		case a == "--":
			return flags, append(operands, rest...), true
		case strings.HasPrefix(a, "--"):
			name, value, _ := strings.Cut(a[2:], "=")
			if !slices.Contains(long, name) {
				p.fail(2, args[0], "option "+a+" is not simulated")
				return nil, nil, false
			}
			flags[name] = value
		case len(a) > 1 && a[0] == '-':
			for i := 1; i < len(a); i++ {
				at := strings.IndexByte(known, a[i])
				if at < 0 || a[i] == ':' {
					p.fail(2, args[0], "option -"+a[i:i+1]+" is not simulated")
					return nil, nil, false
				}
				if at+1 < len(known) && known[at+1] == ':' {
					value := a[i+1:]
					if value == "" && len(rest) > 0 {
						value, rest = rest[0], rest[1:]
					}
					flags[a[i:i+1]] = value
					break
				}
				flags[a[i:i+1]] = ""
			}
		default:
			operands = append(operands, a)
		}
	}
	return flags, operands, true
}

func has(flags map[string]string, names ...string) bool {
	for _, n := range names {
		if _, ok := flags[n]; ok {
			return true
		}
	}
	return false
}

// --- Programs that run others ---------------------------------------------------

func runShell(ctx context.Context, p *proc, args []string) int {
	rest := args[1:]
	pre := ""
	for len(rest) > 0 && strings.HasPrefix(rest[0], "-") && len(rest[0]) > 1 {
		opt := rest[0]
		rest = rest[1:]
		if opt == "--norc" || opt == "--noprofile" || opt == "--login" {
			continue
		}
		command := false
		for _, c := range opt[1:] {
			switch c {
			case 'c':
				command = true
			case 'e', 'u', 'x', 'f':
				pre += "set -" + string(c) + "\n"
			case 'l', 'i', 's':
			case 'o':
				if len(rest) > 0 {
					pre += "set -o " + rest[0] + "\n"
					rest = rest[1:]
				}
			default:
				return p.fail(2, args[0], "option "+opt+" is not simulated")
			}
		}
		if command {
			if len(rest) == 0 {
				return p.fail(2, args[0], "-c: option requires an argument")
			}
			sub := *p
			sub.depth++
			var params []string
			if len(rest) > 2 {
				params = rest[2:]
			}
			return sub.shell(ctx, p.exported(), pre+rest[0], params)
		}
	}
	sub := *p
	sub.depth++
	if len(rest) == 0 {
		text, err := io.ReadAll(p.stdin())
		if err != nil {
			return 1
		}
		return sub.shell(ctx, p.exported(), pre+string(text), nil)
	}
	text, err := p.g.tree.read(p.who, at(p.dir, rest[0]))
	if err != nil {
		return p.fail(127, args[0], rest[0]+": "+errno(err))
	}
	return sub.shell(ctx, p.exported(), pre+text, rest[1:])
}

// runPrefix runs the rest of its arguments: in a simulated guest nothing that
// nohup, setsid or nice do makes a difference.
func runPrefix(ctx context.Context, p *proc, args []string) int {
	rest := args[1:]
	for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
		if rest[0] == "-n" && args[0] == "nice" && len(rest) > 1 {
			rest = rest[1:]
		}
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return p.fail(125, args[0], "missing operand")
	}
	return p.exec(ctx, rest)
}

func runEnv(ctx context.Context, p *proc, args []string) int {
	rest := args[1:]
	env := p.exported()
	for len(rest) > 0 && (rest[0] == "-i" || strings.Contains(rest[0], "=")) {
		if rest[0] == "-i" {
			env = nil
		} else {
			name, _, _ := strings.Cut(rest[0], "=")
			env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
			env = append(env, rest[0])
		}
		rest = rest[1:]
	}
	if len(rest) == 0 {
		for _, e := range env {
			fmt.Fprintln(p.out, e)
		}
		return 0
	}
	child := *p
	child.env = exportedEnviron(env)
	return child.exec(ctx, rest)
}

func runPrintenv(_ context.Context, p *proc, args []string) int {
	code := 0
	if len(args) == 1 {
		for _, e := range p.exported() {
			fmt.Fprintln(p.out, e)
		}
	}
	for _, name := range args[1:] {
		v := p.variable(name)
		if v == "" {
			code = 1
			continue
		}
		fmt.Fprintln(p.out, v)
	}
	return code
}

func runTimeout(ctx context.Context, p *proc, args []string) int {
	rest := args[1:]
	for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
		if (rest[0] == "-s" || rest[0] == "-k") && len(rest) > 1 {
			rest = rest[1:]
		}
		rest = rest[1:]
	}
	if len(rest) < 2 {
		return p.fail(125, "timeout", "missing operand")
	}
	d, ok := seconds(rest[0])
	if !ok {
		return p.fail(125, "timeout", "invalid time interval "+rest[0])
	}
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	code := p.exec(limited, rest[1:])
	if limited.Err() != nil && ctx.Err() == nil {
		return 124
	}
	return code
}

func runXargs(ctx context.Context, p *proc, args []string) int {
	rest, zero, each := args[1:], false, 0
	for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
		switch {
		case rest[0] == "-0":
			zero = true
		case rest[0] == "-r":
		case rest[0] == "-n" && len(rest) > 1:
			each, _ = strconv.Atoi(rest[1])
			rest = rest[1:]
		default:
			return p.fail(2, "xargs", "option "+rest[0]+" is not simulated")
		}
		rest = rest[1:]
	}
	if len(rest) == 0 {
		rest = []string{"echo"}
	}
	text, err := io.ReadAll(p.stdin())
	if err != nil {
		return 1
	}
	items := strings.Fields(string(text))
	if zero {
		items = strings.FieldsFunc(string(text), func(r rune) bool { return r == 0 })
	}
	if each <= 0 {
		each = max(1, len(items))
	}
	code := 0
	for batch := range slices.Chunk(items, each) {
		child := *p
		child.in = nil
		if child.exec(ctx, append(slices.Clone(rest), batch...)) != 0 {
			code = 123
		}
	}
	return code
}

// --- Time and identity ----------------------------------------------------------

func seconds(text string) (time.Duration, bool) {
	unit := time.Second
	if text != "" {
		switch text[len(text)-1] {
		case 's':
			text = text[:len(text)-1]
		case 'm':
			text, unit = text[:len(text)-1], time.Minute
		case 'h':
			text, unit = text[:len(text)-1], time.Hour
		}
	}
	if text == "infinity" {
		return 1 << 62, true
	}
	f, err := strconv.ParseFloat(text, 64)
	return time.Duration(min(f*float64(unit), 1<<62)), err == nil && f >= 0
}

func runSleep(ctx context.Context, p *proc, args []string) int {
	var total time.Duration
	for _, a := range args[1:] {
		d, ok := seconds(a)
		if !ok {
			return p.fail(1, "sleep", "invalid time interval "+a)
		}
		total += d
	}
	timer := time.NewTimer(total)
	defer timer.Stop()
	select {
	case <-timer.C:
		return 0
	case <-ctx.Done():
		return 137
	}
}

func runDate(_ context.Context, p *proc, args []string) int {
	now, format := p.g.now(), "%a %b %e %H:%M:%S %Z %Y"
	for i := 1; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-u" || a == "--utc":
			now = now.UTC()
		case a == "-Is" || a == "--iso-8601=seconds":
			format = "%FT%T%:z"
		case strings.HasPrefix(a, "+"):
			format = a[1:]
		case a == "-s" && i+1 < len(args):
			i++
			sec, nano, _ := strings.Cut(strings.TrimPrefix(args[i], "@"), ".")
			s, err := strconv.ParseInt(sec, 10, 64)
			if err != nil || !strings.HasPrefix(args[i], "@") {
				return p.fail(1, "date", "invalid date "+args[i])
			}
			if p.who.uid != 0 {
				return p.fail(1, "date", "cannot set date: Operation not permitted")
			}
			n, _ := strconv.ParseInt((nano + "000000000")[:9], 10, 64)
			p.g.setClock(time.Unix(s, n))
			return 0
		default:
			return p.fail(2, "date", "option "+a+" is not simulated")
		}
	}
	fmt.Fprintln(p.out, strings.NewReplacer("%s", strconv.FormatInt(now.Unix(), 10), "%N", fmt.Sprintf("%09d", now.Nanosecond()),
		"%F", now.Format("2006-01-02"), "%T", now.Format("15:04:05"), "%Y", now.Format("2006"), "%m", now.Format("01"), "%d", now.Format("02"),
		"%H", now.Format("15"), "%M", now.Format("04"), "%S", now.Format("05"), "%:z", now.Format("-07:00"), "%Z", now.Format("MST"),
		"%a", now.Format("Mon"), "%b", now.Format("Jan"), "%e", now.Format("_2"), "%%", "%").Replace(format))
	return 0
}

func runID(_ context.Context, p *proc, args []string) int {
	w := p.who
	opt := strings.Join(args[1:], "")
	switch {
	case args[0] == "whoami" || path.Base(args[0]) == "whoami", strings.Contains(opt, "n"):
		fmt.Fprintln(p.out, w.name)
	case opt == "-u" || opt == "-g":
		fmt.Fprintln(p.out, w.uid)
	default:
		fmt.Fprintf(p.out, "uid=%d(%s) gid=%d(%s) groups=%d(%s)\n", w.uid, w.name, w.uid, w.name, w.uid, w.name)
	}
	return 0
}

func runHostname(_ context.Context, p *proc, _ []string) int {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	fmt.Fprintln(p.out, p.g.host)
	return 0
}

func runUname(_ context.Context, p *proc, args []string) int {
	if len(args) > 1 && args[1] == "-r" {
		fmt.Fprintln(p.out, "6.1.0-sim")
	} else if len(args) > 1 && args[1] != "-s" {
		fmt.Fprintln(p.out, "Linux sim 6.1.0-sim x86_64 GNU/Linux")
	} else {
		fmt.Fprintln(p.out, "Linux")
	}
	return 0
}

// --- Streams ----------------------------------------------------------------------

// stdin is never nil.
func (p *proc) stdin() io.Reader {
	if f, ok := p.in.(*os.File); ok && f == nil || p.in == nil {
		return strings.NewReader("")
	}
	return p.in
}

// inputs opens the named files one after the other; "-" or none is stdin. It
// calls do for each and returns 1 if one could not be read.
func (p *proc) inputs(args []string, name string, do func(label string, r io.Reader) error) int {
	if len(args) == 0 {
		args = []string{"-"}
	}
	code := 0
	for _, a := range args {
		if a == "-" {
			if do(a, p.stdin()) != nil {
				return 1
			}
			continue
		}
		f, err := p.open(at(p.dir, a), os.O_RDONLY, 0)
		if err != nil {
			code = p.fail(1, name, a+": "+errno(err))
			continue
		}
		if do(a, f) != nil {
			return 1
		}
	}
	return code
}

// copy copies until the end, or until the process is dead.
func (p *proc) copy(ctx context.Context, w io.Writer, r io.Reader) error {
	buf := make([]byte, 64<<10)
	for {
		if ctx.Err() != nil || p.grp.ctx.Err() != nil {
			return errKilled
		}
		n, err := r.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func runCat(ctx context.Context, p *proc, args []string) int {
	_, names, ok := p.options(args, "u")
	if !ok {
		return 2
	}
	return p.inputs(names, "cat", func(_ string, r io.Reader) error { return p.copy(ctx, p.out, r) })
}

func sum(algorithm func() hash.Hash) program {
	return func(ctx context.Context, p *proc, args []string) int {
		_, names, ok := p.options(args, "b")
		if !ok {
			return 2
		}
		return p.inputs(names, args[0], func(label string, r io.Reader) error {
			h := algorithm()
			if err := p.copy(ctx, h, r); err != nil {
				return err
			}
			fmt.Fprintf(p.out, "%s  %s\n", hex.EncodeToString(h.Sum(nil)), label)
			return nil
		})
	}
}

func runYes(ctx context.Context, p *proc, args []string) int {
	line := "y\n"
	if len(args) > 1 {
		line = strings.Join(args[1:], " ") + "\n"
	}
	block := []byte(strings.Repeat(line, 1+8192/len(line)))
	for ctx.Err() == nil && p.grp.ctx.Err() == nil {
		if _, err := p.out.Write(block); err != nil {
			return 1
		}
	}
	return 137
}

func runSeq(ctx context.Context, p *proc, args []string) int {
	lo, hi := 1, 0
	var err error
	switch len(args) {
	case 2:
		hi, err = strconv.Atoi(args[1])
	case 3:
		if lo, err = strconv.Atoi(args[1]); err == nil {
			hi, err = strconv.Atoi(args[2])
		}
	default:
		return p.fail(1, "seq", "one or two operands are simulated")
	}
	if err != nil {
		return p.fail(1, "seq", "invalid number")
	}
	var b strings.Builder
	for i := lo; i <= hi; i++ {
		b.WriteString(strconv.Itoa(i))
		b.WriteByte('\n')
		if b.Len() > 32<<10 || i == hi {
			if _, err := io.WriteString(p.out, b.String()); err != nil || ctx.Err() != nil {
				return 1
			}
			b.Reset()
		}
	}
	return 0
}
