package schema

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The texts that clients know.
const (
	textMissing    = "property is missing and it is not optional"
	textUndeclared = "property is not defined in schema and the schema does not allow additional properties"
)

var (
	reInteger = regexp.MustCompile(`^[+-]?\d+$`)
	reNumber  = regexp.MustCompile(`^[+-]?(\d+(\.\d*)?|\.\d+)([Ee][+-]?\d+)?$`)
	reBoolean = regexp.MustCompile(`^[01]$`)
)

// Set is the parameters of one call in one version.
type Set struct {
	params   map[string]Param
	required []string
	open     bool
}

// add describes one more parameter.
func (s *Set) add(p Param) {
	s.params[p.Name] = p
	if !p.Optional && p.Alias == "" {
		s.required = append(s.required, p.Name)
	}
}

// NewSet makes the set that the major version ("8", "9") knows.
func NewSet(major string, params ...Param) *Set {
	s := &Set{params: map[string]Param{}}
	for _, p := range params {
		if !p.In(major) {
			continue
		}
		for _, q := range p.expand() {
			s.add(q.in(major))
		}
	}
	return s
}

// AllowMore makes the set accept parameters that are not described.
func (s *Set) AllowMore() *Set { s.open = true; return s }

// Lookup returns the description of a parameter, numbered ones by their full name.
func (s *Set) Lookup(name string) (Param, bool) {
	p, ok := s.params[name]
	return p, ok
}

// Names lists the described parameters, in no order.
func (s *Set) Names() []string {
	names := make([]string, 0, len(s.params))
	for n := range s.params {
		names = append(names, n)
	}
	return names
}

// in makes the parameter the version's: it drops the keys of a property string
// that the version does not know.
func (p Param) in(major string) Param {
	if p.Props != nil {
		p.Props = p.Props.in(major)
	}
	p.major = major
	return p
}

// Check brings v into its one form and returns a text per bad parameter; an
// empty map means that everything is good.
func (s *Set) Check(v Values) map[string]string {
	errs := map[string]string{}
	s.check(v, "", errs)
	return errs
}

// check reports under prefix+name.
func (s *Set) check(v Values, prefix string, errs map[string]string) {
	add := func(name, text string) {
		if _, seen := errs[prefix+name]; !seen {
			errs[prefix+name] = text
		}
	}
	for _, name := range s.required {
		if _, given := v[name]; !given {
			add(name, textMissing)
		}
	}
	for name, value := range v {
		p, ok := s.params[name]
		if !ok {
			if !s.open {
				add(name, textUndeclared)
			}
			continue
		}
		if p.Requires != "" {
			if _, given := v[p.Requires]; !given {
				add(p.Requires, fmt.Sprintf("missing property - '%s' requires this property", name))
			}
		}
		if value == nil {
			continue
		}
		fixed, text := p.check(value)
		if text != "" {
			add(name, text)
			continue
		}
		v[name] = fixed
	}
}

// check returns the value in its one form, or a complaint.
func (p Param) check(value any) (any, string) {
	if p.Type == Array {
		return p.checkArray(value)
	}
	list, isList := value.([]any)
	if isList && strings.HasSuffix(p.Format, "-list") {
		parts := make([]string, 0, len(list))
		for _, e := range list {
			s, ok := scalar(e)
			if !ok {
				return nil, p.typeText(kindName(e))
			}
			parts = append(parts, s)
		}
		value = strings.Join(parts, ",")
	}
	s, ok := scalar(value)
	if !ok {
		return nil, p.typeText(kindName(value))
	}
	return s, p.checkScalar(s)
}

func (p Param) checkArray(value any) (any, string) {
	list, isList := value.([]any)
	if !isList {
		s, ok := scalar(value)
		if !ok {
			return nil, p.typeText(kindName(value))
		}
		return []string{s}, ""
	}
	out := make([]string, 0, len(list))
	for _, e := range list {
		s, ok := scalar(e)
		if !ok {
			return nil, p.typeText(kindName(e))
		}
		out = append(out, s)
	}
	return out, ""
}

func (p Param) typeText(got string) string {
	return fmt.Sprintf("type check ('%s') failed - got %s", p.Type, got)
}

// checkScalar applies the description to one string.
func (p Param) checkScalar(s string) string {
	var typed *regexp.Regexp
	switch p.Type {
	case Integer:
		typed = reInteger
	case Number:
		typed = reNumber
	case Boolean:
		typed = reBoolean
	default: // any text
	}
	if typed != nil && !typed.MatchString(s) {
		return p.typeText("'" + s + "'")
	}
	if p.Props != nil {
		if _, err := p.Props.Parse(p.Name, s); err != nil {
			return "invalid format - " + err.Error()
		}
	} else if f := newFormats[p.Format]; f != nil && p.major >= "9" {
		if text := f(s); text != "" {
			return text
		}
	} else if f := formats[p.Format]; f != nil {
		if err := f(s); err != nil {
			return "invalid format - " + err.Error()
		}
	}
	if p.re != nil && !p.re.MatchString(s) {
		return "value does not match the regex pattern"
	}
	if p.MaxLength > 0 && utf8.RuneCountInString(s) > p.MaxLength {
		return fmt.Sprintf("value may only be %d characters long", p.MaxLength)
	}
	if p.MinLength > 0 && utf8.RuneCountInString(s) < p.MinLength {
		return fmt.Sprintf("value must be at least %d characters long", p.MinLength)
	}
	if p.Type == Integer || p.Type == Number {
		n, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return p.typeText("'" + s + "'")
		}
		if p.Minimum != nil && n < *p.Minimum {
			return "value must have a minimum value of " + number(*p.Minimum)
		}
		if p.Maximum != nil && n > *p.Maximum {
			return "value must have a maximum value of " + number(*p.Maximum)
		}
	}
	if p.Enum != nil {
		for _, e := range p.Enum {
			if e == s {
				return ""
			}
		}
		return fmt.Sprintf("value '%s' does not have a value in the enumeration '%s'", s, strings.Join(p.Enum, ", "))
	}
	return ""
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
