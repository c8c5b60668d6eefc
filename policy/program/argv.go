package program

import (
	"strings"

	"savepoint/policy/shell"
)

// Option is one option as given.
type Option struct {
	Name  string // canonical: "-f" or "--force"
	Value string
	Has   bool // it has a value
	Known bool // it is in the table
	kind  Kind
}

// parsed is a command line taken apart.
type parsed struct {
	options  []Option
	operands []string
	first    int      // index in the arguments of the first operand; len when none
	loose    bool     // an argument may be an option, or more than one word: it is not known
	rest     []string // the command that an option takes with all that follows
	odd      bool     // an option is not in the table
}

// parse takes arguments apart as getopt does, long options abbreviated too.
func (s *Spec) parse(args []string) parsed {
	p := parsed{first: len(args)}
	ended := false
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case ended || a == "-" || a == "" || a[0] != '-':
			if !ended && (unknownStart(a) || splits(a)) {
				p.loose = true
			}
			if len(p.operands) == 0 {
				p.first = i
			}
			p.operands = append(p.operands, a)
			if s.Stop {
				p.operands = args[i:]
				return p
			}
		case a == "--":
			ended = true
			if s.Stop {
				p.operands = args[i+1:]
				p.first = i + 1
				return p
			}
		case strings.HasPrefix(a, "--") || s.Single:
			i = s.long(&p, args, i)
			p.loose = p.loose || slotMayGrow(a, args[min(i, len(args)-1)])
		default:
			i = s.cluster(&p, args, i)
			p.loose = p.loose || slotMayGrow(a, args[min(i, len(args)-1)])
		}
	}
	return p
}

// slotMayGrow reports whether an option, or the value behind it, may turn out
// to be several words, of which the second one is an option.
func slotMayGrow(option, last string) bool {
	return splits(option) || splits(last) || last != "" && (last[0] == shell.HoleStar || last[0] == shell.HoleChar)
}

// splits reports whether an argument may turn out to be several words: without
// quotes the shell splits what a variable or a command gave.
func splits(a string) bool {
	return strings.ContainsAny(a, "\x02\x05\x06\x0e\x0f\x10")
}

// unknownStart reports whether an argument may turn out to begin with a dash.
func unknownStart(a string) bool {
	if a == "" {
		return false
	}
	switch a[0] {
	case shell.HoleText, shell.HoleMaybe, shell.HoleStar, shell.HoleChar, shell.HoleFields, shell.HoleDecoded, shell.HoleFetched, shell.HoleScript, shell.HoleOutput:
		return true
	}
	return false
}

func (s *Spec) long(p *parsed, args []string, i int) int {
	name, value, has := strings.Cut(args[i], "=")
	o, ok := s.options[name]
	if !ok && strings.HasPrefix(name, "--") {
		found := ""
		for n := range s.options {
			if strings.HasPrefix(n, name) && (found == "" || n < found) {
				found, ok = n, true
			}
		}
		if ok {
			name, o = found, s.options[found]
		}
	}
	opt := Option{Name: name, Value: value, Has: has, Known: ok && shell.Known(name), kind: o.kind}
	if !opt.Known {
		p.odd = true
	}
	if ok && o.kind != "" && !o.attached && !has && i+1 < len(args) {
		i++
		opt.Value, opt.Has = args[i], true
	}
	if ok && o.kind == Command {
		p.rest = args[i:]
		if !has && i < len(args) && opt.Has {
			p.options = append(p.options, opt)
			return len(args)
		}
	}
	if ok && o.kind == "" && has {
		opt.Known, p.odd = false, true
	}
	p.options = append(p.options, opt)
	return i
}

func (s *Spec) cluster(p *parsed, args []string, i int) int {
	a := args[i]
	if _, ok := s.options["-#"]; ok && digits(a[1:]) {
		p.options = append(p.options, Option{Name: "-#", Value: a[1:], Has: true, Known: true, kind: Text})
		return i
	}
	for j := 1; j < len(a); j++ {
		name := "-" + a[j:j+1]
		o, ok := s.options[name]
		opt := Option{Name: name, Known: ok, kind: o.kind}
		switch {
		case !ok:
			p.odd = true
			opt.Value = a[j+1:]
			p.options = append(p.options, opt)
			continue
		case o.kind == "":
		case o.kind == Digits:
			n := j + 1
			for n < len(a) && (a[n] >= '0' && a[n] <= '9' || j+1 < n && a[j+1] == '0' && strings.IndexByte("xabcdefABCDEF", a[n]) >= 0) {
				n++
			}
			opt.Value, opt.Has = a[j+1:n], n > j+1
			j = n - 1
		case j+1 < len(a):
			opt.Value, opt.Has = a[j+1:], true
			j = len(a)
		case !o.attached && i+1 < len(args):
			i++
			opt.Value, opt.Has = args[i], true
			if o.kind == Command {
				p.rest = args[i:]
				i = len(args)
			}
		}
		p.options = append(p.options, opt)
	}
	return i
}

func digits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// given returns the option by any of its names.
func (p *parsed) given(names ...string) (Option, bool) {
	for _, o := range p.options {
		for _, n := range names {
			if o.Name == n {
				return o, true
			}
		}
	}
	return Option{}, false
}

// slots gives every operand its kind. ok is false when there are more operands
// than places.
func (s *Spec) slots(operands []string) (list []Kind, ok bool) {
	list = make([]Kind, len(operands))
	specs := s.operands
	i := 0
	for n, sl := range specs {
		if sl.many {
			tail := len(specs) - n - 1
			for ; i < len(operands)-tail; i++ {
				list[i] = sl.kind
			}
			continue
		}
		if i < len(operands) {
			list[i] = sl.kind
			i++
		}
	}
	return list, i >= len(operands)
}
