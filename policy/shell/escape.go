package shell

import (
	"strconv"
	"strings"
)

// ansiC decodes the inside of $'...'.
func ansiC(v string) string {
	if !strings.Contains(v, `\`) {
		return v
	}
	var out strings.Builder
	for i := 0; i < len(v); i++ {
		if v[i] != '\\' || i+1 >= len(v) {
			out.WriteByte(v[i])
			continue
		}
		i++
		n := escape(&out, v[i:], true)
		i += n - 1
	}
	return out.String()
}

// escape writes the character that the escape at the start of s (without its
// backslash) stands for, and returns how many bytes of s it took.
func escape(out *strings.Builder, s string, ansi bool) int {
	simple := map[byte]byte{'a': 7, 'b': 8, 'e': 27, 'E': 27, 'f': 12, 'n': '\n', 'r': 13, 't': '\t', 'v': 11, '\\': '\\', '\'': '\'', '"': '"', '?': '?'}
	if c, ok := simple[s[0]]; ok {
		out.WriteByte(c)
		return 1
	}
	digits := func(from, most int, set string) (int, string) {
		n := from
		for n < len(s) && n < from+most && strings.IndexByte(set, s[n]) >= 0 {
			n++
		}
		return n, s[from:n]
	}
	const hex = "0123456789abcdefABCDEF"
	switch s[0] {
	case 'x':
		if ansi && len(s) > 1 && s[1] == '{' { // \x{72}: bash takes any number of digits
			if n, d := digits(2, len(s), hex); d != "" {
				if n < len(s) && s[n] == '}' {
					n++
				}
				v, _ := strconv.ParseUint(d[max(0, len(d)-2):], 16, 8)
				out.WriteByte(byte(v))
				return n
			}
		}
		if n, d := digits(1, 2, hex); d != "" {
			v, _ := strconv.ParseUint(d, 16, 8)
			out.WriteByte(byte(v))
			return n
		}
	case 'u', 'U':
		most := 4
		if s[0] == 'U' {
			most = 8
		}
		if n, d := digits(1, most, hex); d != "" {
			v, _ := strconv.ParseUint(d, 16, 32)
			out.WriteRune(rune(min(v, 0x10ffff)))
			return n
		}
	case 'c':
		if ansi && len(s) > 1 {
			out.WriteByte(s[1] & 0x1f)
			return 2
		}
	case '0', '1', '2', '3', '4', '5', '6', '7':
		most := 3
		if !ansi && s[0] == '0' {
			most = 4
		}
		n, d := digits(0, most, "01234567")
		v, _ := strconv.ParseUint(d, 8, 32)
		out.WriteByte(byte(v))
		return n
	}
	out.WriteByte('\\')
	out.WriteByte(s[0])
	return 1
}
