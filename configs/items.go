package configs

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"
)

// isItems reports whether a type is a list of structs, each written as a
// mapping of its own in the file.
func isItems(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && isSection(t.Elem())
}

// convertItems makes a list of structs of type t of what a file holds. path
// says where in an error: "[0].vnets[1]".
func convertItems(t reflect.Type, from any, path string) (any, string, error) {
	items, ok := from.([]any)
	if !ok {
		return nil, "write a list in the file, each item with its keys", problemAt(path, "is a %s, not a list", kindWord(from))
	}
	out := reflect.MakeSlice(t, len(items), len(items))
	for i, item := range items {
		if want, err := convertItem(out.Index(i), item, fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return nil, want, err
		}
	}
	return out.Interface(), "", nil
}

func convertItem(into reflect.Value, item any, path string) (string, error) {
	values, ok := item.(map[string]any)
	if !ok {
		return "write keys below it, each with a value", problemAt(path, "is a %s, not keys with values", kindWord(item))
	}
	t := into.Type()
	for i := range t.NumField() {
		name := t.Field(i).Tag.Get("mapstructure")
		from, set := values[name]
		delete(values, name)
		if !set || from == nil {
			continue
		}
		at, kind := path+"."+name, t.Field(i).Type
		var value any
		var want string
		var err error
		if isItems(kind) {
			value, want, err = convertItems(kind, from, at)
		} else if value, want, err = convert(kind, from); err != nil {
			text, _ := scalar(from)
			err = problemAt(at, "%q %w", text, err)
		}
		if err != nil {
			return want, err
		}
		if value != nil {
			into.Field(i).Set(reflect.ValueOf(value))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		return "remove it; configs/cluster.example.yaml lists all keys", problemAt(path+"."+name, "is not a key")
	}
	return "", nil
}

func problemAt(path, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if path == "" {
		return err
	}
	return fmt.Errorf("at %s: %w", path, err)
}

// plainValue is what a node says, every scalar as it is written: 010 and 1_000
// are no octal here, and an unquoted 2026-01-02 is a text and no time.
func plainValue(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.SequenceNode:
		out := make([]any, len(n.Content))
		for i, c := range n.Content {
			v, err := plainValue(c)
			if err != nil {
				return nil, err
			}
			out[i] = v
		}
		return out, nil
	case yaml.MappingNode:
		out := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			if _, twice := out[k.Value]; twice || k.Kind != yaml.ScalarNode || k.Value == "<<" {
				return nil, fmt.Errorf("has the key %q twice, or one that is not plain, in line %d", k.Value, k.Line)
			}
			v, err := plainValue(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			out[k.Value] = v
		}
		return out, nil
	}
	if isNull(n) {
		return nil, nil
	}
	return n.Value, nil
}

// itemsNode writes a list of structs as convertItems reads it.
func itemsNode(list reflect.Value, clear bool) (*yaml.Node, error) {
	out := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range list.Len() {
		item, m := list.Index(i), &yaml.Node{Kind: yaml.MappingNode}
		for f := range item.NumField() {
			field := item.Field(f)
			if field.IsZero() || field.Kind() == reflect.Slice && field.Len() == 0 {
				continue
			}
			n, err := valueNode(field.Interface(), clear)
			if err != nil {
				return nil, err
			}
			m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: item.Type().Field(f).Tag.Get("mapstructure")}, n)
		}
		out.Content = append(out.Content, m)
	}
	return out, nil
}
