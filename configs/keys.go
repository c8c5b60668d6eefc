package configs

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// key is one leaf of Config.
type key struct {
	name  string // "cluster.url"
	index []int  // for reflect.Value.FieldByIndex
	typ   reflect.Type
	path  bool // a path or a list of paths
}

// env is the environment variable that sets the key.
func (k key) env() string {
	return "SAVEPOINT_" + strings.ToUpper(strings.ReplaceAll(k.name, ".", "_"))
}

// keys lists the leaves of Config in the order of its fields.
func keys() []key { return walkKeys(reflect.TypeFor[Config](), "", nil) }

func walkKeys(t reflect.Type, prefix string, index []int) []key {
	var out []key
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("mapstructure")
		if tag == "-" {
			continue
		}
		k := key{
			name:  prefix + tag,
			index: append(append([]int(nil), index...), i),
			typ:   f.Type,
			path:  f.Tag.Get("kind") == "path",
		}
		if isSection(f.Type) {
			out = append(out, walkKeys(f.Type, k.name+".", k.index)...)
			continue
		}
		out = append(out, k)
	}
	return out
}

// isSection reports whether a type is a struct of keys and not one value.
func isSection(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[Secret](), reflect.TypeFor[netip.Addr](), reflect.TypeFor[netip.Prefix]():
		return false
	}
	return t.Kind() == reflect.Struct
}

// convert makes a value of type t of what a file, the environment or the
// command line holds. It is stricter than viper's casts: 1.5 is no integer and
// true is no number. The error says what is wrong; want says what is right.
func convert(t reflect.Type, from any) (value any, want string, err error) {
	if from != nil && reflect.TypeOf(from) == t {
		return from, "", nil
	}
	switch {
	case t == reflect.TypeFor[[]string]():
		return convertList(from)
	case t == reflect.TypeFor[[]int]():
		return convertNumbers(from)
	case isItems(t):
		return convertItems(t, from, "")
	}
	text, ok := scalar(from)
	if !ok {
		return nil, "write one value", fmt.Errorf("is a %s, not one value", kindWord(from))
	}
	switch t {
	case reflect.TypeFor[Secret]():
		return NewSecret(text), "", nil
	case reflect.TypeFor[time.Duration]():
		d, err := ParseDuration(text)
		return d, `write a number with a unit, like "30s", "5m" or "1h30m"`, plain(err, "is not a duration")
	case reflect.TypeFor[netip.Prefix]():
		p, err := netip.ParsePrefix(text)
		return p, `write a network, like "10.99.0.0/24"`, plain(err, "is not a network")
	case reflect.TypeFor[netip.Addr]():
		a, err := netip.ParseAddr(text)
		return a, `write an address, like "10.99.0.1"`, plain(err, "is not an IP address")
	case reflect.TypeFor[Size]():
		s, err := ParseSize(text)
		return s, `write a whole number with a unit, like "1MiB" or "500KB"`, plain(err, "is not a size")
	}
	switch t.Kind() {
	case reflect.Int:
		n, err := strconv.Atoi(text)
		return n, "write a whole number", plain(err, "is not a whole number")
	case reflect.Bool:
		switch text {
		case "true":
			return true, "", nil
		case "false":
			return false, "", nil
		}
		return nil, "write true or false", fmt.Errorf("is neither true nor false")
	default:
		return text, "", nil
	}
}

// convertList takes a list of scalars, or one text with commas.
func convertList(from any) (any, string, error) {
	const want = "write a list, or one text with commas"
	var items []any
	switch from := from.(type) {
	case []any:
		items = from
	case string:
		for part := range strings.SplitSeq(from, ",") {
			if part = strings.TrimSpace(part); part != "" {
				items = append(items, part)
			}
		}
	default:
		return nil, want, fmt.Errorf("is a %s, not a list", kindWord(from))
	}
	var out []string
	for i, item := range items {
		text, ok := scalar(item)
		if !ok || text == "" {
			return nil, want, fmt.Errorf("has an item %d that is no text", i+1)
		}
		out = append(out, text)
	}
	return out, "", nil
}

// convertNumbers is convertList for whole numbers.
func convertNumbers(from any) (any, string, error) {
	list, want, err := convertList(from)
	if err != nil {
		return nil, want, err
	}
	var out []int
	texts, _ := list.([]string)
	for i, text := range texts {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, "write whole numbers", fmt.Errorf("has an item %d that is no whole number", i+1)
		}
		out = append(out, n)
	}
	return out, "", nil
}

// scalar returns the text of a value that YAML or a flag gave.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case fmt.Stringer: // time.Duration and netip types from flags
		return v.String(), true
	case bool, int, int64, uint64:
		return fmt.Sprint(v), true
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return strconv.FormatFloat(v, 'f', -1, 64), true
		}
		return strconv.FormatFloat(v, 'g', -1, 64), true
	}
	return "", false
}

func kindWord(v any) string {
	switch v.(type) {
	case []any, []string:
		return "list"
	case map[string]any:
		return "section"
	case nil:
		return "null"
	}
	return "single value"
}

// plain replaces the wording of the standard library's parsers.
func plain(err error, cause string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s", cause)
}
