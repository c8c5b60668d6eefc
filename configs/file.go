package configs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v3"
)

// maxFile bounds what is read; no honest configuration comes near it.
const maxFile = 1 << 20

// file is a configuration file after parsing: known keys only.
type file struct {
	path   string // absolute
	mode   fs.FileMode
	values map[string]any // nested, as viper wants it
	lines  map[string]int // line of each key that has a value
}

// readFile reads and parses one file. Everything wrong with it goes to r; the
// file is usable also then, without what was wrong.
func readFile(path string, r *report) *file {
	f := &file{path: path, values: map[string]any{}, lines: map[string]int{}}
	h, err := os.Open(path)
	if err != nil {
		r.add(Problem{Origin: path, Cause: pathCause(err), Mend: "name a file that can be read with --config"})
		return f
	}
	defer h.Close()
	info, err := h.Stat()
	if err != nil || !info.Mode().IsRegular() {
		r.add(Problem{Origin: path, Cause: "is not a regular file", Mend: "name a YAML file with --config"})
		return f
	}
	f.mode = info.Mode().Perm()
	text, err := io.ReadAll(io.LimitReader(h, maxFile+1))
	if err != nil {
		r.add(Problem{Origin: path, Cause: pathCause(err), Mend: "name a file that can be read with --config"})
		return f
	}
	f.parse(text, r)
	return f
}

// parse reads the YAML text. It walks the nodes itself instead of leaving it
// to viper, which drops a key with an empty value before UnmarshalExact could
// object to it, and which does not know lines.
func (f *file) parse(text []byte, r *report) {
	whole := func(cause, mend string) { r.add(Problem{Origin: f.path, Cause: cause, Mend: mend}) }
	if len(text) > maxFile {
		whole("is larger than 1 MiB", "name a configuration file with --config")
		return
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	var doc yaml.Node
	if err := decoder.Decode(&doc); err != nil {
		if !errors.Is(err, io.EOF) { // an empty file is an empty configuration
			whole("is not YAML: "+strings.TrimPrefix(err.Error(), "yaml: "), "mend that line; configs/cluster.example.yaml shows the form")
		}
		return
	}
	var second yaml.Node
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		whole("holds more than one YAML document", `remove everything after the second "---"`)
		return
	}
	root := doc.Content[0]
	if isNull(root) {
		return
	}
	f.values = f.section(root, "", r)
}

// section turns a mapping node into values, leaving out what is wrong.
func (f *file) section(n *yaml.Node, prefix string, r *report) map[string]any {
	out := map[string]any{}
	problem := func(line int, name, value, cause, mend string) {
		r.add(Problem{Key: name, Value: value, Origin: f.at(line), Cause: cause, Mend: mend})
	}
	if n.Kind != yaml.MappingNode {
		problem(n.Line, strings.TrimSuffix(prefix, "."), n.Value, "is not a section", `write keys below it, each with a value: "key: value"`)
		return out
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.Value == "<<" {
			problem(k.Line, prefix+k.Value, "", "is not a plain key", "write the keys out; merge keys and aliases are not supported")
			continue
		}
		name := prefix + k.Value
		if first, twice := seen[k.Value]; twice {
			problem(k.Line, name, "", fmt.Sprintf("was set in line %d already", first), "keep one of the two")
			continue
		}
		seen[k.Value] = k.Line
		known, isLeaf := lookupKey(name)
		switch {
		case strings.Contains(k.Value, "."): // would be set past the check for twice
			problem(k.Line, name, "", "is not a key", "write the last part below its section")
		case !known:
			problem(k.Line, name, "", "is not a key", nearest(name))
		case hasAlias(v):
			problem(v.Line, name, "", "is a YAML alias", "write the value out")
		case isNull(v): // a section or value that is commented out
		case !isLeaf:
			out[k.Value] = f.section(v, name+".", r)
		default:
			value, err := plainValue(v)
			if err != nil {
				problem(v.Line, name, "", err.Error(), "keep one of the two, and write the keys out")
				continue
			}
			out[k.Value] = value
			f.lines[name] = k.Line
		}
	}
	return out
}

// at is "FILE:LINE".
func (f *file) at(line int) string { return fmt.Sprintf("%s:%d", f.path, line) }

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func hasAlias(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode {
		return true
	}
	for _, c := range n.Content {
		if hasAlias(c) {
			return true
		}
	}
	return false
}

// lookupKey reports whether name is a key or a section, and which.
func lookupKey(name string) (known, leaf bool) {
	for _, k := range keys() {
		if k.name == name {
			return true, true
		}
		if strings.HasPrefix(k.name, name+".") {
			known = true
		}
	}
	return known, false
}

// nearest names the key that was probably meant, else where to look.
func nearest(name string) string {
	best, distance := "", 4
	last := name[strings.LastIndexByte(name, '.')+1:]
	for _, k := range keys() {
		d := distance
		if len(name) <= 100 { // no key is nearly as long
			d = levenshtein.ComputeDistance(name, k.name)
		}
		if k.name[strings.LastIndexByte(k.name, '.')+1:] == last {
			d = 3 // the right word in the wrong section
		}
		if d < distance {
			best, distance = k.name, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "remove it; configs/cluster.example.yaml lists all keys"
}

// pathCause is the cause of a failed file operation without its path.
func pathCause(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// resolve makes a path absolute: "~/" is the home directory, the rest is
// relative to dir.
func resolve(path, dir, home string) string {
	switch {
	case path == "":
		return ""
	case home != "" && (path == "~" || strings.HasPrefix(path, "~/")):
		return filepath.Join(home, path[1:])
	case filepath.IsAbs(path):
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// resolveValue is resolve for a path or a list of paths.
func resolveValue(value any, dir, home string) any {
	switch v := value.(type) {
	case string:
		return resolve(v, dir, home)
	case []string:
		if len(v) == 0 {
			return v
		}
		out := make([]string, len(v))
		for i := range v {
			out[i] = resolve(v[i], dir, home)
		}
		return out
	}
	panic("configs: a path key of type " + reflect.TypeOf(value).String())
}
