package sim

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
)

func exportedEnviron(env []string) expand.Environ { return expand.ListEnviron(env...) }

func runTee(ctx context.Context, p *proc, args []string) int {
	flags, names, ok := p.options(args, "a")
	if !ok {
		return 2
	}
	mode := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if has(flags, "a") {
		mode = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	}
	to := []io.Writer{p.out}
	code := 0
	for _, n := range names {
		f, err := p.open(at(p.dir, n), mode, 0o666)
		if err != nil {
			code = p.fail(1, "tee", n+": "+errno(err))
			continue
		}
		to = append(to, f)
	}
	if p.copy(ctx, io.MultiWriter(to...), p.stdin()) != nil {
		return 1
	}
	return code
}

// amount reads the number of -n or -c, or of the old form -5.
func (p *proc) amount(args []string, known string) (flags map[string]string, names []string, n int, ok bool) {
	args = slices.Clone(args)
	if len(args) > 1 && len(args[1]) > 1 && args[1][0] == '-' && args[1][1] >= '0' && args[1][1] <= '9' {
		args[1] = "-n" + args[1][1:]
	}
	flags, names, ok = p.options(args, known)
	n = 10
	for _, f := range []string{"n", "c"} {
		if v, set := flags[f]; set && ok {
			unit := 1
			if s, kilo := strings.CutSuffix(v, "K"); kilo {
				v, unit = s, 1<<10
			} else if s, mega := strings.CutSuffix(v, "M"); mega {
				v, unit = s, 1<<20
			}
			got, err := strconv.Atoi(strings.TrimPrefix(v, "+"))
			if err != nil || got < 0 {
				p.fail(1, args[0], "invalid number "+v)
				return nil, nil, 0, false
			}
			n = got * unit
		}
	}
	return flags, names, n, ok
}

func runHead(ctx context.Context, p *proc, args []string) int {
	flags, names, n, ok := p.amount(args, "n:c:q")
	if !ok {
		return 2
	}
	return p.inputs(names, "head", func(_ string, r io.Reader) error {
		if has(flags, "c") {
			return p.copy(ctx, p.out, io.LimitReader(r, int64(n)))
		}
		buf := make([]byte, 32<<10)
		for left := n; left > 0; {
			got, err := r.Read(buf)
			part := buf[:got]
			for i, c := range part {
				if c == '\n' {
					if left--; left == 0 {
						part = part[:i+1]
						break
					}
				}
			}
			if _, werr := p.out.Write(part); werr != nil {
				return werr
			}
			if err == io.EOF || ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func runTail(_ context.Context, p *proc, args []string) int {
	flags, names, n, ok := p.amount(args, "n:c:q")
	if !ok {
		return 2
	}
	return p.inputs(names, "tail", func(_ string, r io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(r, maxFile))
		if err != nil {
			return err
		}
		if has(flags, "c") {
			text = text[max(0, len(text)-n):]
		} else {
			lines := slices.Collect(bytes.Lines(text))
			from := max(0, len(lines)-n)
			if strings.HasPrefix(flags["n"], "+") {
				from = min(len(lines), max(0, n-1))
			}
			text = bytes.Join(lines[from:], nil)
		}
		_, err = p.out.Write(text)
		return err
	})
}

func runWc(ctx context.Context, p *proc, args []string) int {
	flags, names, ok := p.options(args, "lcwm")
	if !ok {
		return 2
	}
	if len(flags) == 0 {
		flags = map[string]string{"l": "", "w": "", "c": ""}
	}
	return p.inputs(names, "wc", func(label string, r io.Reader) error {
		var lines, words, size int
		inside := false
		err := p.copy(ctx, writerFunc(func(b []byte) {
			size += len(b)
			for _, c := range b {
				space := c == ' ' || c >= 9 && c <= 13
				if c == '\n' {
					lines++
				}
				if !space && !inside {
					words++
				}
				inside = !space
			}
		}), r)
		if err != nil {
			return err
		}
		var out []string
		for _, f := range []struct {
			name string
			n    int
		}{{"l", lines}, {"w", words}, {"c", size}, {"m", size}} {
			if has(flags, f.name) {
				out = append(out, strconv.Itoa(f.n))
			}
		}
		if label != "-" {
			out = append(out, label)
		}
		fmt.Fprintln(p.out, strings.Join(out, " "))
		return nil
	})
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

// lines reads all inputs as lines without their ends.
func (p *proc) lines(names []string, name string, sep string) ([]string, int) {
	var all []string
	code := p.inputs(names, name, func(_ string, r io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(r, maxFile))
		if s := strings.TrimSuffix(string(text), sep); err == nil && s != "" {
			all = append(all, strings.Split(s, sep)...)
		}
		return err
	})
	return all, code
}

func runSort(_ context.Context, p *proc, args []string) int {
	flags, names, ok := p.options(args, "runzk:")
	if !ok {
		return 2
	}
	sep := "\n"
	if has(flags, "z") {
		sep = "\x00"
	}
	all, code := p.lines(names, "sort", sep)
	key := func(s string) string {
		if n, err := strconv.Atoi(strings.Split(flags["k"], ",")[0]); err == nil {
			if f := strings.Fields(s); n >= 1 && n <= len(f) {
				return strings.Join(f[n-1:], " ")
			}
			return ""
		}
		return s
	}
	slices.SortStableFunc(all, func(a, b string) int {
		ka, kb := key(a), key(b)
		order := strings.Compare(ka, kb)
		if has(flags, "n") {
			order = int(leading(ka) - leading(kb))
		}
		if order == 0 {
			order = strings.Compare(a, b)
		}
		if has(flags, "r") {
			order = -order
		}
		return order
	})
	if has(flags, "u") {
		all = slices.Compact(all)
	}
	for _, l := range all {
		fmt.Fprint(p.out, l, sep)
	}
	return code
}

// leading is the number a line begins with.
func leading(s string) int64 {
	s = strings.TrimSpace(s)
	end := 0
	for end < len(s) && (s[end] >= '0' && s[end] <= '9' || end == 0 && s[end] == '-') {
		end++
	}
	n, _ := strconv.ParseInt(s[:end], 10, 64)
	return n
}

func runUniq(_ context.Context, p *proc, args []string) int {
	flags, names, ok := p.options(args, "c")
	if !ok {
		return 2
	}
	all, code := p.lines(names, "uniq", "\n")
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && all[j] == all[i] {
			j++
		}
		if has(flags, "c") {
			fmt.Fprintf(p.out, "%7d ", j-i)
		}
		fmt.Fprintln(p.out, all[i])
		i = j
	}
	return code
}

func runGrep(_ context.Context, p *proc, args []string) int {
	flags, names, ok := p.options(args, "qivcFErnle:")
	if !ok {
		return 2
	}
	pattern, given := flags["e"]
	if !given {
		if len(names) == 0 {
			return p.fail(2, "grep", "no pattern")
		}
		pattern, names = names[0], names[1:]
	}
	if has(flags, "F") {
		pattern = regexp.QuoteMeta(pattern)
	}
	if has(flags, "i") {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return p.fail(2, "grep", "invalid pattern")
	}
	if has(flags, "r") {
		names = p.below(names)
	}
	found := 0
	code := p.inputs(names, "grep", func(label string, r io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(r, maxFile))
		here := 0
		for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
			if len(text) == 0 || re.MatchString(line) == has(flags, "v") {
				continue
			}
			here++
			if has(flags, "q", "c", "l") {
				continue
			}
			if len(names) > 1 || has(flags, "r") {
				fmt.Fprint(p.out, label, ":")
			}
			if has(flags, "n") {
				fmt.Fprint(p.out, i+1, ":")
			}
			fmt.Fprintln(p.out, line)
		}
		if has(flags, "c") {
			fmt.Fprintln(p.out, here)
		}
		if has(flags, "l") && here > 0 {
			fmt.Fprintln(p.out, label)
		}
		found += here
		return err
	})
	switch {
	case found > 0:
		return 0
	case code != 0:
		return 2
	}
	return 1
}

func runBase64(_ context.Context, p *proc, args []string) int {
	flags, names, ok := p.options(args, "dw:")
	if !ok {
		return 2
	}
	return p.inputs(names, "base64", func(_ string, r io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(r, maxFile))
		if err != nil {
			return err
		}
		if has(flags, "d") {
			text, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(text)), ""))
			if err == nil {
				_, err = p.out.Write(text)
			}
			return err
		}
		_, err = fmt.Fprintln(p.out, base64.StdEncoding.EncodeToString(text))
		return err
	})
}

func runDd(ctx context.Context, p *proc, args []string) int {
	op := map[string]string{"bs": "512"}
	for _, a := range args[1:] {
		k, v, _ := strings.Cut(a, "=")
		op[k] = v
	}
	block, ok := size(op["bs"])
	if !ok {
		return p.fail(1, "dd", "invalid number "+op["bs"])
	}
	var in io.Reader = p.stdin()
	var out io.Writer = p.out
	if name := op["if"]; name != "" {
		f, err := p.open(at(p.dir, name), os.O_RDONLY, 0)
		if err != nil {
			return p.fail(1, "dd", "failed to open '"+name+"': "+errno(err))
		}
		in = f
	}
	if name := op["of"]; name != "" {
		mode := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
		if strings.Contains(op["conv"], "notrunc") {
			mode &^= os.O_TRUNC
		}
		f, err := p.open(at(p.dir, name), mode, 0o666)
		if err != nil {
			return p.fail(1, "dd", "failed to open '"+name+"': "+errno(err))
		}
		out = f
	}
	if c := op["count"]; c != "" {
		n, ok := size(c)
		if !ok {
			return p.fail(1, "dd", "invalid number "+c)
		}
		in = io.LimitReader(in, n*block)
	}
	if err := p.copy(ctx, out, in); err != nil {
		return p.fail(1, "dd", errno(err))
	}
	return 0
}

// size reads a number with a suffix of K, M or G.
func size(text string) (int64, bool) {
	unit := int64(1)
	if text != "" {
		switch text[len(text)-1] {
		case 'k', 'K':
			unit = 1 << 10
		case 'M':
			unit = 1 << 20
		case 'G':
			unit = 1 << 30
		}
	}
	if unit > 1 {
		text = text[:len(text)-1]
	}
	n, err := strconv.ParseInt(text, 10, 32)
	return n * unit, err == nil && n >= 0
}

// runPrintf knows %s %d %x %c %q %b %% and the escapes, byte by byte.
func runPrintf(_ context.Context, p *proc, args []string) int {
	if len(args) > 1 && args[1] == "--" {
		args = args[1:]
	}
	if len(args) < 2 {
		return p.fail(2, "printf", "missing format")
	}
	var out []byte
	code := 0
	operands := args[2:]
	for first := true; first || len(operands) > 0; first = false {
		before := len(operands)
		out = printf(out, args[1], &operands, &code)
		if len(operands) == before {
			break
		}
	}
	if _, err := p.out.Write(out); err != nil {
		return 1
	}
	return code
}

func printf(out []byte, format string, operands *[]string, code *int) []byte {
	next := func() string {
		if len(*operands) == 0 {
			return ""
		}
		s := (*operands)[0]
		*operands = (*operands)[1:]
		return s
	}
	for i := 0; i < len(format); i++ {
		switch c := format[i]; {
		case c == '\\':
			b, n := escape(format[i:], 3)
			out = append(out, b...)
			i += n - 1
		case c == '%' && i+1 < len(format):
			j := i + 1
			for j < len(format) && strings.IndexByte("-+ #0123456789.", format[j]) >= 0 {
				j++
			}
			if j == len(format) {
				return append(out, format[i:]...)
			}
			spec := format[i:j]
			i = j
			switch format[j] {
			case '%':
				out = append(out, '%')
			case 's':
				out = fmt.Appendf(out, spec+"s", next())
			case 'q':
				out = fmt.Appendf(out, "'%s'", strings.ReplaceAll(next(), "'", `'\''`))
			case 'b':
				s := next()
				for k := 0; k < len(s); {
					if s[k] != '\\' {
						out = append(out, s[k])
						k++
						continue
					}
					b, n := escape(s[k:], 4)
					out = append(out, b...)
					k += n
				}
			case 'c':
				if s := next(); s != "" {
					out = append(out, s[0])
				}
			case 'd', 'i', 'u', 'x', 'X', 'o':
				s := next()
				n, err := strconv.ParseInt(s, 0, 64)
				if err != nil && s != "" {
					*code = 1
				}
				verb := format[j]
				if verb == 'i' || verb == 'u' {
					verb = 'd'
				}
				out = fmt.Appendf(out, spec+string(verb), n)
			default:
				*code = 1
			}
		default:
			out = append(out, c)
		}
	}
	return out
}

// escape decodes one backslash sequence at the start of s and returns how long
// it is.
func escape(s string, octal int) ([]byte, int) {
	if len(s) < 2 {
		return []byte{'\\'}, 1
	}
	if at := strings.IndexByte(`abfnrtv\"'e`, s[1]); at >= 0 {
		return []byte{"\a\b\f\n\r\t\v\\\"'\x1b"[at]}, 2
	}
	digits := func(from, most, base int) (byte, int) {
		n, i := 0, from
		for i < len(s) && i < from+most {
			d, err := strconv.ParseInt(s[i:i+1], base, 16)
			if err != nil {
				break
			}
			n = n*base + int(d)
			i++
		}
		return byte(n), i
	}
	switch {
	case s[1] == 'x':
		if b, n := digits(2, 2, 16); n > 2 {
			return []byte{b}, n
		}
	case s[1] >= '0' && s[1] <= '7':
		b, n := digits(1, octal, 8)
		return []byte{b}, n
	}
	return []byte{'\\', s[1]}, 2
}
