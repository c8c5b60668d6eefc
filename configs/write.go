package configs

import (
	"bytes"
	"encoding"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Marshal writes c as YAML for people to read; secrets are redacted, so Load
// refuses the result when it holds one. Empty values are left out.
func Marshal(c Config) ([]byte, error) { return marshal(c, false) }

// MarshalWithSecrets writes c as YAML that Load reads back, secrets in clear.
// A secret that came from token_secret_file stays there and is not repeated.
func MarshalWithSecrets(c Config) ([]byte, error) { return marshal(c, true) }

// WriteWithSecrets puts MarshalWithSecrets into a file of mode 0600. After a
// crash the file is the old or the new one, never a part; a temporary file
// beside it may be left. The directory must exist.
func WriteWithSecrets(path string, c Config) error {
	text, err := MarshalWithSecrets(c)
	if err != nil {
		return err
	}
	t, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp") // mode 0600
	if err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	_, err = t.Write(text)
	if err == nil {
		err = t.Sync()
	}
	if closing := t.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(t.Name(), path)
	}
	if err != nil {
		os.Remove(t.Name())
		return fmt.Errorf("write configuration: %w", err)
	}
	return nil
}

func marshal(c Config, clear bool) ([]byte, error) {
	if c.Cluster.TokenSecretFile != "" {
		c.Cluster.TokenSecret = Secret{}
	}
	root := &yaml.Node{Kind: yaml.MappingNode}
	v := reflect.ValueOf(c)
	for _, k := range keys() {
		field := v.FieldByIndex(k.index)
		if field.IsZero() || field.Kind() == reflect.Slice && field.Len() == 0 {
			continue
		}
		n, err := valueNode(field.Interface(), clear)
		if err != nil {
			return nil, fmt.Errorf("write configuration: %s: %w", k.name, err)
		}
		parts := strings.Split(k.name, ".")
		into := root
		for _, section := range parts[:len(parts)-1] {
			into = child(into, section)
		}
		into.Content = append(into.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: parts[len(parts)-1]}, n)
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(root); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	return b.Bytes(), nil
}

// child returns the mapping under name, making it at the end when missing.
func child(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	m := &yaml.Node{Kind: yaml.MappingNode}
	n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, m)
	return m
}

// valueNode writes one value in the form that convert reads.
func valueNode(value any, clear bool) (*yaml.Node, error) {
	switch v := value.(type) {
	case Secret:
		if clear {
			value = v.Reveal()
		} else {
			value = v.String()
		}
	case encoding.TextMarshaler:
		text, err := v.MarshalText()
		if err != nil {
			return nil, err
		}
		value = string(text)
	case fmt.Stringer: // time.Duration
		value = v.String()
	}
	if v := reflect.ValueOf(value); isItems(v.Type()) {
		return itemsNode(v, clear)
	}
	n := &yaml.Node{}
	return n, n.Encode(value)
}
