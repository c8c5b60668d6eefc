package model

import (
	"encoding/json"
	"strings"
)

// maxDepth bounds how far a schema is followed: it may be deeper than any value
// that a client means.
const maxDepth = 16

type schema struct {
	Type       any                `json:"type"` // a name or a list of names
	Enum       []any              `json:"enum"`
	Properties map[string]*schema `json:"properties"`
	Items      *schema            `json:"items"`
	Minimum    *float64           `json:"minimum"`
	AnyOf      []*schema          `json:"anyOf"`
}

// plainest returns the JSON of the plainest value that a schema allows. A schema
// that is not understood is answered with an empty object.
func plainest(raw json.RawMessage) string {
	var s *schema
	if json.Unmarshal(raw, &s) != nil || s == nil {
		return "{}"
	}
	out, err := json.Marshal(s.value(maxDepth))
	if err != nil {
		return "{}"
	}
	return string(out)
}

func (s *schema) value(depth int) any {
	switch {
	case s == nil || depth == 0:
		return map[string]any{}
	case len(s.Enum) > 0:
		return s.Enum[0]
	case len(s.AnyOf) > 0:
		return s.AnyOf[0].value(depth - 1)
	}
	name, _ := s.Type.(string)
	if names, ok := s.Type.([]any); ok && len(names) > 0 {
		name, _ = names[0].(string)
	}
	switch strings.ToLower(name) { // Gemini's own form is in capitals
	case "string":
		return Name
	case "number", "integer":
		if s.Minimum != nil {
			return *s.Minimum
		}
		return 1
	case "boolean":
		return false
	case "null":
		return nil
	case "array":
		return []any{}
	}
	out := map[string]any{}
	for key, p := range s.Properties {
		out[key] = p.value(depth - 1)
	}
	return out
}
