package schema

import (
	"encoding/json"
	"strconv"
)

// Values are the parameters of one call by name. Before Set.Check a value is
// what the body held: a string, json.Number, bool, nil, []any or
// map[string]any. Afterwards it is a string, a []string, or nil for JSON's null.
type Values map[string]any

// Has reports whether the parameter was given.
func (v Values) Has(name string) bool {
	_, ok := v[name]
	return ok
}

// Str returns the parameter, or "" when it was not given.
func (v Values) Str(name string) string {
	s, _ := scalar(v[name])
	return s
}

// Int returns the parameter, or def when it was not given.
func (v Values) Int(name string, def int) int {
	n, err := strconv.Atoi(v.Str(name))
	if err != nil {
		return def
	}
	return n
}

// Bool returns the parameter, or false when it was not given.
func (v Values) Bool(name string) bool { return v.Str(name) == "1" }

// Strings returns a parameter of type array.
func (v Values) Strings(name string) []string {
	l, _ := v[name].([]string)
	return l
}

// scalar is the string form of a value that is neither list nor object.
func scalar(value any) (string, bool) {
	switch t := value.(type) {
	case string:
		return t, true
	case json.Number:
		return t.String(), true
	case bool:
		if t {
			return "1", true
		}
		return "0", true
	}
	return "", false
}

func kindName(value any) string {
	switch value.(type) {
	case []any, []string:
		return "ARRAY"
	case map[string]any:
		return "HASH"
	}
	return "''"
}
