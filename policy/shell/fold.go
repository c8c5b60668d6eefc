package shell

import (
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"
)

// printed computes what a few programs print when all they print comes from
// their arguments and a known standard input.
func printed(name string, args []string, in Stream) (string, bool) {
	switch name {
	case "echo":
		return echo(args), true
	case "printf":
		return printf(args)
	case "basename", "dirname":
		if len(args) != 1 || !Known(args[0]) || args[0] == "" || args[0][0] == '-' {
			return "", false
		}
		p := strings.TrimRight(args[0], "/")
		i := strings.LastIndexByte(p, '/')
		switch {
		case p == "":
			return "/\n", true
		case name == "basename":
			return p[i+1:] + "\n", true
		case i < 0:
			return ".\n", true
		case strings.Trim(p[:i], "/") == "":
			return "/\n", true
		}
		return strings.TrimRight(p[:i], "/") + "\n", true
	case "true", ":", "false":
		return "", true
	case "cat", "tac", "tee", "head", "tail", "sort", "uniq":
		if !in.Known || len(args) > 0 && !(len(args) == 1 && args[0] == "-") {
			if name == "tee" && in.Known {
				return in.Text, true
			}
			return "", false
		}
		if (name == "head" || name == "tail" || name == "sort" || name == "tac" || name == "uniq") && strings.Count(in.Text, "\n") > 1 {
			return "", false
		}
		return in.Text, true
	case "rev":
		if in.Known && Known(in.Text) && len(args) == 0 {
			return reverse(in.Text), true
		}
	case "base64":
		if in.Known && Known(in.Text) && len(args) == 1 && (args[0] == "-d" || args[0] == "--decode" || args[0] == "-D") {
			b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(in.Text), ""))
			return inert(string(b)), err == nil
		}
	case "xxd":
		if in.Known && Known(in.Text) {
			joined := strings.Join(args, " ")
			if joined == "-r -p" || joined == "-p -r" || joined == "-rp" || joined == "-pr" {
				b, err := hex.DecodeString(strings.Join(strings.Fields(in.Text), ""))
				return inert(string(b)), err == nil
			}
		}
	case "tr":
		if in.Known && Known(in.Text) && len(args) == 2 && Known(args[0]) && Known(args[1]) {
			return translate(in.Text, args[0], args[1])
		}
	}
	return "", false
}

func echo(args []string) string {
	newline, escapes := true, false
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' && strings.Trim(args[0][1:], "neE") == "" {
		newline = newline && !strings.Contains(args[0], "n")
		escapes = strings.Contains(args[0], "e") || escapes && !strings.Contains(args[0], "E")
		args = args[1:]
	}
	out := strings.Join(args, " ")
	if escapes {
		out = unbackslash(out)
	}
	if newline {
		out += "\n"
	}
	return out
}

func unbackslash(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 >= len(s) {
			b.WriteByte(s[i])
			continue
		}
		if s[i+1] == 'c' {
			break
		}
		i += escapeInert(&b, s[i+1:])
	}
	return b.String()
}

// escapeInert is escape with the characters it makes stripped of meaning.
func escapeInert(b *strings.Builder, s string) int {
	var one strings.Builder
	n := escape(&one, s, false)
	b.WriteString(inert(one.String()))
	return n
}

// printf formats as the builtin does. The format is used again until the
// arguments are used up.
func printf(args []string) (string, bool) {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 || !Known(args[0]) {
		return "", false
	}
	format, rest := args[0], args[1:]
	var out strings.Builder
	for round := 0; round < 64; round++ {
		used := false
		for i := 0; i < len(format); i++ {
			switch c := format[i]; {
			case c == '\\' && i+1 < len(format):
				i += escapeInert(&out, format[i+1:])
			case c == '%' && i+1 < len(format) && format[i+1] == '%':
				out.WriteByte('%')
				i++
			case c == '%':
				j := i + 1
				for j < len(format) && strings.IndexByte("-+ #0123456789.", format[j]) >= 0 {
					j++
				}
				if j >= len(format) {
					return "", false
				}
				arg := ""
				if len(rest) > 0 {
					arg, rest, used = rest[0], rest[1:], true
				}
				if arg == string(HoleFields) {
					return "", false
				}
				text, ok := conversion(format[j], format[i+1:j], arg)
				if !ok {
					return "", false
				}
				out.WriteString(text)
				i = j
			default:
				out.WriteByte(c)
			}
			if out.Len() > maxValue {
				return "", false
			}
		}
		if len(rest) == 0 || !used {
			return out.String(), true
		}
	}
	return "", false
}

func conversion(verb byte, flags, arg string) (string, bool) {
	if flags != "" {
		if n, err := strconv.Atoi(strings.TrimPrefix(flags, ".")); verb == 's' && strings.HasPrefix(flags, ".") && err == nil && n >= 0 && Known(arg) {
			return arg[:min(n, len(arg))], true
		}
		return "", false
	}
	switch verb {
	case 's':
		return arg, true
	case 'b':
		return unbackslash(arg), true
	case 'c':
		if arg != "" && Known(arg) {
			return arg[:1], true
		}
	case 'd', 'i', 'u':
		if n, ok := printfNumber(arg); ok {
			return strconv.Itoa(n), true
		}
	case 'o':
		if n, ok := printfNumber(arg); ok {
			return strconv.FormatInt(int64(n), 8), true
		}
	case 'x':
		if n, ok := printfNumber(arg); ok {
			return strconv.FormatInt(int64(n), 16), true
		}
	}
	return "", false
}

func printfNumber(s string) (int, bool) {
	if len(s) >= 2 && (s[0] == '\'' || s[0] == '"') {
		return int(s[1]), true
	}
	if s == "" {
		return 0, true
	}
	return number(s)
}

func reverse(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		r := []rune(l)
		for a, b := 0, len(r)-1; a < b; a, b = a+1, b-1 {
			r[a], r[b] = r[b], r[a]
		}
		lines[i] = string(r)
	}
	return strings.Join(lines, "\n")
}

// translate is tr with two sets, ranges included, classes not.
func translate(s, from, to string) (string, bool) {
	a, ok1 := set(from)
	b, ok2 := set(to)
	if !ok1 || !ok2 || len(b) == 0 {
		return "", false
	}
	return inert(strings.Map(func(r rune) rune {
		for i := len(a) - 1; i >= 0; i-- {
			if a[i] == r {
				return b[min(i, len(b)-1)]
			}
		}
		return r
	}, s)), true
}

func set(s string) ([]rune, bool) {
	if strings.Contains(s, "[:") || strings.HasPrefix(s, "-") {
		return nil, false
	}
	r := []rune(unbackslash(s))
	var out []rune
	for i := 0; i < len(r); i++ {
		if i+2 < len(r) && r[i+1] == '-' && r[i] <= r[i+2] && r[i+2]-r[i] < 128 {
			for c := r[i]; c <= r[i+2]; c++ {
				out = append(out, c)
			}
			i += 2
			continue
		}
		out = append(out, r[i])
	}
	return out, true
}
