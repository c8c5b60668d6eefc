package schema

import (
	"fmt"
	"regexp"
)

// Type is the type of a parameter.
type Type string

// The types of parameters.
const (
	String  Type = "string"
	Integer Type = "integer"
	Number  Type = "number"
	Boolean Type = "boolean"
	Array   Type = "array" // of strings
)

// Param describes one parameter of a call, or one key of a property string.
// Build it with Str, Int and the like and refine it with the methods, each of
// which returns a changed copy.
type Param struct {
	Name     string
	Type     Type
	Optional bool
	Format   string // a named format, "" for none
	Props    *Props // the keys of a property string; nil for others
	Minimum  *float64
	Maximum  *float64
	// MinLength and MaxLength count characters; 0 is no bound.
	MinLength, MaxLength int
	Enum                 []string
	Pattern              string // matched against the whole value
	Requires             string // a parameter that must be given too
	// Count > 0 stands for Name0, Name1, … up to Count-1.
	Count int
	// Since and Until bound the versions that know the parameter: "9" is every
	// 9.x; "" is no bound.
	Since, Until string

	// For keys of property strings:
	DefaultKey bool   // a value without key is this key's
	Alias      string // the key this is another name of
	KeyAlias   string // the key that receives this key's own name as value

	re    *regexp.Regexp
	major string // of the set it is in
}

// Str describes a required string.
func Str(name string) Param { return Param{Name: name, Type: String} }

// Int describes a required integer.
func Int(name string) Param { return Param{Name: name, Type: Integer} }

// Num describes a required number.
func Num(name string) Param { return Param{Name: name, Type: Number} }

// Bool describes a required boolean.
func Bool(name string) Param { return Param{Name: name, Type: Boolean} }

// List describes a required array of strings.
func List(name string) Param { return Param{Name: name, Type: Array} }

// Opt makes the parameter optional.
func (p Param) Opt() Param { p.Optional = true; return p }

// Fmt gives the named format.
func (p Param) Fmt(format string) Param { p.Format = format; return p }

// PropStr makes the value a property string.
func (p Param) PropStr(props *Props) Param { p.Props = props; return p }

// Min gives the least value.
func (p Param) Min(v float64) Param { p.Minimum = &v; return p }

// Max gives the greatest value.
func (p Param) Max(v float64) Param { p.Maximum = &v; return p }

// Range gives the least and the greatest value.
func (p Param) Range(least, greatest float64) Param { return p.Min(least).Max(greatest) }

// Len gives the greatest number of characters.
func (p Param) Len(n int) Param { p.MaxLength = n; return p }

// AtLeast gives the least number of characters.
func (p Param) AtLeast(n int) Param { p.MinLength = n; return p }

// OneOf gives the allowed values.
func (p Param) OneOf(values ...string) Param { p.Enum = values; return p }

// Match gives the pattern of the whole value.
func (p Param) Match(pattern string) Param {
	p.Pattern = pattern
	p.re = regexp.MustCompile("^(?:" + pattern + ")$")
	return p
}

// MatchBy gives the pattern of the whole value, and another that means the same
// for the pattern that Go does not take.
func (p Param) MatchBy(pattern, same string) Param {
	p = p.Match(same)
	p.Pattern = pattern
	return p
}

// Needs names a parameter that must be given together with this one.
func (p Param) Needs(other string) Param { p.Requires = other; return p }

// Times makes the parameter stand for count numbered ones.
func (p Param) Times(count int) Param { p.Count = count; return p }

// From limits the parameter to this major version and later ones.
func (p Param) From(version string) Param { p.Since = version; return p }

// To limits the parameter to this major version and earlier ones.
func (p Param) To(version string) Param { p.Until = version; return p }

// Default makes a key of a property string the one of a bare value.
func (p Param) Default() Param { p.DefaultKey = true; return p }

// AliasOf describes another name of a key.
func AliasOf(name, target string) Param { return Param{Name: name, Alias: target} }

// In reports whether the major version ("8", "9") knows the parameter.
func (p Param) In(major string) bool {
	return (p.Since == "" || major >= p.Since) && (p.Until == "" || major <= p.Until)
}

// expand returns the parameter, or its numbered ones.
func (p Param) expand() []Param {
	if p.Count == 0 {
		return []Param{p}
	}
	all := make([]Param, p.Count)
	for i := range all {
		all[i] = p
		all[i].Name = fmt.Sprintf("%s%d", p.Name, i)
	}
	return all
}
