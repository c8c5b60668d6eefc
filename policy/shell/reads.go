package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// split is the way read distributes one line over n names: the last one gets
// what is left.
func split(line, ifs string, n int) []string {
	var out []string
	rest := strings.TrimLeft(line, " \t\n")
	for len(out) < n-1 && rest != "" {
		i := strings.IndexAny(rest, ifs)
		if ifs == "" || i < 0 {
			break
		}
		out = append(out, rest[:i])
		rest = strings.TrimLeft(rest[i+1:], " \t\n")
	}
	out = append(out, strings.TrimRight(rest, " \t\n"))
	for len(out) < n {
		out = append(out, "")
	}
	return out
}

// separators is the value of IFS when it is known.
func (sc *Scope) separators() (string, bool) {
	v := sc.get("IFS")
	if len(v) != 1 || !Known(v[0]) {
		return "", false
	}
	return v[0], true
}

// optionValues lists what getopts may put into OPTARG.
func optionValues(args []string) []string {
	var out []string
	for _, a := range args {
		switch {
		case !Known(a):
			return []string{string(HoleText)}
		case len(a) > 2 && a[0] == '-':
			out = append(out, a[2:])
		case a != "" && a[0] != '-':
			out = append(out, a)
		}
	}
	if len(out) == 0 {
		return []string{string(HoleText)}
	}
	return union(nil, append(out, string(HoleText)))
}

// readVars makes the variables that read and its like assign unknown.
func (w *Walker) readVars(sc *Scope, name string, args []string, c Call) {
	value := string(HoleText)
	if !c.Stdin.Inherit {
		value = string(HoleOutput)
	}
	switch {
	case c.Stdin.Fetched:
		value = string(HoleFetched)
	case c.Stdin.Decoded:
		value = string(HoleDecoded)
	case name == "read" && c.Stdin.Known && !strings.Contains(strings.TrimSuffix(c.Stdin.Text, "\n"), "\n"):
		value = strings.TrimSpace(c.Stdin.Text)
	}
	if name != "read" && name != "getopts" {
		value = string(HoleFields)
	}
	var names []string
	isArray := name == "mapfile" || name == "readarray"
	for i := 0; i < len(args); i++ {
		a := args[i]
		if len(a) > 1 && a[0] == '-' && name != "getopts" {
			isArray = isArray || name == "read" && strings.Contains(a, "a")
			f, v := valued(a, isArray && name != "read")
			if f == 0 {
				continue
			}
			if v == "" && i+1 < len(args) {
				i++
				v = args[i]
			}
			switch {
			case f == 'C':
				w.Source(sc.Sub(), v+" \x01 \x01", c.Span)
			case f == 'a':
				names = append(names, v)
			case strings.IndexByte("dnN", f) >= 0 && Known(value):
				value = string(HoleOutput) // a part of the line
			case f == 'u':
				value = w.descriptorValue(sc, v, value)
			}
			continue
		}
		if name == "getopts" && len(names) == 0 && i == 0 {
			continue // the option string
		}
		names = append(names, a)
	}
	if len(names) == 0 {
		names = []string{"REPLY"}
		if isArray {
			names = []string{"MAPFILE"}
		}
	}
	if name == "read" && len(names) == 1 && len(c.Stdin.Listing) > 0 && !c.Stdin.Fetched && !c.Stdin.Decoded && !Known(value) {
		w.giveTo(sc, names[0], union(nil, append([]string{string(HoleOutput)}, c.Stdin.Listing...))...) // one of the paths, and news of the machine all the same
		return
	}
	values := w.distribute(sc, name, isArray, value, names, c, args)
	if name == "getopts" {
		names = append(names[:1], "OPTARG", "OPTIND")
	}
	for i, n := range names {
		if i >= len(values) {
			w.giveTo(sc, n, string(HoleText))
			continue
		}
		switch {
		case isArray && syntax.ValidName(n):
			w.giveList(sc, n, values[i])
		default:
			w.giveTo(sc, n, values[i]...)
		}
	}
}

// distribute says what each of the names gets: the possible values, or the
// elements of a list.
func (w *Walker) distribute(sc *Scope, name string, isArray bool, value string, names []string, c Call, args []string) [][]string {
	ifs, ok := sc.separators()
	switch {
	case name == "getopts":
		from := sc.args
		if len(args) > 2 {
			from = args[2:]
		}
		unknown := []string{string(HoleText)}
		return [][]string{unknown, optionValues(from), unknown}
	case isArray && name != "read" && c.Stdin.Known && Known(c.Stdin.Text) && len(c.Stdin.Text) < maxFields && !slices.ContainsFunc(args, func(a string) bool { return len(a) > 1 && a[0] == '-' && a != "-t" }):
		lines := strings.SplitAfter(c.Stdin.Text, "\n")
		if lines[len(lines)-1] == "" {
			lines = lines[:len(lines)-1]
		}
		if slices.Contains(args, "-t") {
			for i, l := range lines {
				lines[i] = strings.TrimSuffix(l, "\n")
			}
		}
		return [][]string{lines}
	case isArray && name == "read" && Known(value) && ok:
		return [][]string{strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(ifs, r) })}
	case isArray:
		return slices.Repeat([][]string{{string(HoleFields)}}, max(1, len(names)))
	case len(names) == 1:
		return [][]string{{value}}
	case !Known(value) || !ok:
		if Known(value) {
			value = string(HoleText)
		}
		return slices.Repeat([][]string{{value}}, len(names))
	}
	var out [][]string
	for _, v := range split(value, ifs, len(names)) {
		out = append(out, []string{v})
	}
	return out
}

// valued returns the option of read or mapfile in a that takes a value, and
// the value when it is attached.
func valued(a string, lines bool) (flag byte, value string) {
	with := "adinNptu"
	if lines {
		with = "dnOsuCc"
	}
	for i := 1; i < len(a); i++ {
		if strings.IndexByte(with, a[i]) >= 0 {
			return a[i], a[i+1:]
		}
	}
	return 0, ""
}

// descriptorValue is what read gets from an open descriptor.
func (w *Walker) descriptorValue(sc *Scope, fd, before string) string {
	switch s := sc.fds[fd].in; {
	case s.Fetched:
		return string(HoleFetched)
	case s.Decoded:
		return string(HoleDecoded)
	case s.Known && strings.Count(s.Text, "\n") <= 1 && before != string(HoleFields):
		return strings.TrimSpace(s.Text)
	case before == string(HoleFields):
		return before
	}
	return string(HoleOutput)
}
