package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"savepoint/policy/program"
)

// maxRuleFile is the longest rules file that is read.
const maxRuleFile = 1 << 20

// LoadError says what is wrong with a rules file, and where.
type LoadError struct {
	File  string
	Line  int    // from 1; 0 when the file as a whole is meant
	Rule  string // id of the rule, "" outside of rules
	Key   string // the key, as a path such as "when[1].program"
	Cause error  // what is wrong and what to do
}

func (e *LoadError) Error() string {
	var b strings.Builder
	b.WriteString("rules file " + e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ": line %d", e.Line)
	}
	if e.Rule != "" {
		b.WriteString(": rule " + e.Rule)
	}
	if e.Key != "" {
		b.WriteString(": " + e.Key)
	}
	return b.String() + ": " + e.Cause.Error()
}

// Unwrap returns the cause.
func (e *LoadError) Unwrap() error { return e.Cause }

// parseRules reads one file. The node is the tree it was decoded from, for the
// lines of its parts.
func parseRules(f RuleFile) (*ruleFile, *yaml.Node, error) {
	whole := func(cause error) error { return &LoadError{File: f.Name, Cause: cause} }
	if len(f.Data) > maxRuleFile {
		return nil, nil, whole(fmt.Errorf("%d bytes; the longest file that is read has %d: split it", len(f.Data), maxRuleFile))
	}
	dec := yaml.NewDecoder(bytes.NewReader(f.Data))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil, whole(errors.New(`empty; start it with "version: 1"`))
	case err != nil:
		return nil, nil, whole(fmt.Errorf("not YAML: %w", err))
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, nil, whole(errors.New("more than one document; keep all rules in the first"))
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, nil, whole(errors.New(`empty; start it with "version: 1"`))
	}
	top := doc.Content[0]
	s := &strict{file: f.Name, seen: map[nodeType]bool{}, fields: map[reflect.Type]map[string]reflect.Type{}}
	s.node(top, reflect.TypeFor[ruleFile](), "")
	if len(s.wrong) > 0 {
		return nil, nil, errors.Join(s.wrong...)
	}
	var file ruleFile
	if err := doc.Decode(&file); err != nil {
		return nil, nil, whole(fmt.Errorf("cannot be read: %w", err))
	}
	if file.Version != 1 {
		return nil, nil, &LoadError{File: f.Name, Line: top.Line, Key: "version", Cause: fmt.Errorf("version %d; this program reads version 1: write version: 1", file.Version)}
	}
	return &file, top, nil
}

// strict compares a tree with the types it is to be decoded into: every key
// must exist once and hold the right type, and nothing may be empty, because
// an empty condition holds always. The YAML package alone lets much of that
// pass and does not name the rule.
type strict struct {
	file   string
	rule   string
	seen   map[nodeType]bool // what an alias can lead back to is checked once
	fields map[reflect.Type]map[string]reflect.Type
	wrong  []error
}

type nodeType struct {
	node *yaml.Node
	t    reflect.Type
}

func (s *strict) fail(n *yaml.Node, key, format string, args ...any) {
	if len(s.wrong) < 20 {
		s.wrong = append(s.wrong, &LoadError{File: s.file, Line: n.Line, Rule: s.rule, Key: key, Cause: fmt.Errorf(format, args...)})
	}
}

func (s *strict) node(n *yaml.Node, t reflect.Type, key string) {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n.Anchor != "" {
		if s.seen[nodeType{n, t}] {
			return
		}
		s.seen[nodeType{n, t}] = true
	}
	switch t.Kind() {
	case reflect.Struct:
		s.mapping(n, t, key)
	case reflect.Slice:
		s.list(n, t, key)
	case reflect.Map:
		s.pairs(n, key, func(k, v *yaml.Node) { s.node(v, t.Elem(), join(key, k.Value)) })
	default:
		s.scalar(n, t, key)
	}
}

// mapping checks a node against the fields of a struct.
func (s *strict) mapping(n *yaml.Node, t reflect.Type, key string) {
	if t == reflect.TypeFor[rule]() {
		s.rule = idOf(n)
		defer func() { s.rule = "" }()
		key = ""
	}
	known := s.fields[t]
	if known == nil {
		known = fieldsOf(t)
		s.fields[t] = known
	}
	s.pairs(n, key, func(k, v *yaml.Node) {
		f, ok := known[k.Value]
		if !ok {
			names := []string{}
			for name := range known {
				names = append(names, name)
			}
			slices.Sort(names)
			s.fail(k, join(key, readable(k.Value)), "no such key; the keys here are %s", strings.Join(names, ", "))
			return
		}
		if v.Kind == yaml.ScalarNode && v.Tag == "!!str" && v.Value == "" && t != reflect.TypeFor[program.Spec]() {
			s.fail(v, join(key, k.Value), "empty text; leave the key out or fill it in")
			return
		}
		s.node(v, f, join(key, k.Value))
	})
}

func (s *strict) pairs(n *yaml.Node, key string, each func(k, v *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		s.fail(n, key, "holds %s; want keys with values", kindOfNode(n))
		return
	}
	taken := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			s.fail(k, key, "a key is %s; want a word", kindOfNode(k))
			continue
		}
		if taken[k.Value] {
			s.fail(k, join(key, readable(k.Value)), "given twice; keep one")
			continue
		}
		taken[k.Value] = true
		each(k, v)
	}
}

func (s *strict) list(n *yaml.Node, t reflect.Type, key string) {
	if n.Kind != yaml.SequenceNode {
		s.fail(n, key, "holds %s; want a list: [a, b]", kindOfNode(n))
		return
	}
	if len(n.Content) == 0 {
		s.fail(n, key, "the list is empty; leave the key out or fill it in")
	}
	for i, v := range n.Content {
		at := fmt.Sprintf("%s[%d]", key, i+1)
		if t.Elem().Kind() == reflect.String && v.Kind == yaml.ScalarNode && v.Value == "" {
			s.fail(v, at, "empty text in a list; take it out")
			continue
		}
		s.node(v, t.Elem(), at)
	}
}

func (s *strict) scalar(n *yaml.Node, t reflect.Type, key string) {
	var want, tag string
	switch t.Kind() {
	case reflect.Bool:
		want, tag = "true or false", "!!bool"
	case reflect.Int:
		want, tag = "a number", "!!int"
	default:
		want = "a text" // of any tag: 1 and yes are words too
	}
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Tag == "!!binary" || tag != "" && n.Tag != tag {
		s.fail(n, key, "holds %s; want %s", kindOfNode(n), want)
	}
}

// fieldsOf returns the types of a struct's keys.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		if name := f.Tag.Get("yaml"); name != "" {
			out[name] = f.Type
		}
	}
	return out
}

func idOf(n *yaml.Node) string {
	if n.Kind == yaml.MappingNode {
		if v := child(n, "id"); v != nil && v.Kind == yaml.ScalarNode {
			return readable(v.Value)
		}
	}
	return ""
}

// child returns the value of a key, or nil.
func child(n *yaml.Node, key string) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// lineOf returns the line of the i-th part of a list, or 0.
func lineOf(list *yaml.Node, i int) int {
	for list != nil && list.Kind == yaml.AliasNode {
		list = list.Alias
	}
	if list == nil || i >= len(list.Content) {
		return 0
	}
	return list.Content[i].Line
}

func kindOfNode(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "keys with values"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return "nothing"
		}
		return fmt.Sprintf("%q", readable(n.Value))
	}
	return "something else"
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}
