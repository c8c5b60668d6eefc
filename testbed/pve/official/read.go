package official

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"savepoint/testbed/pve/schema"
)

// Env names the schema's files, joined by ':'.
const Env = "SAVEPOINT_PVE_APIDATA"

// Release is the schema of one release.
type Release struct {
	File  string           // its name
	Major string           // "8", "9"
	Calls map[string]*Call // by "METHOD path"
}

// Call is one call of the API.
type Call struct {
	Parameters struct {
		Properties map[string]Param `json:"properties"`
		Additional any              `json:"additionalProperties"`
	} `json:"parameters"`
	Permissions struct {
		Check []any  `json:"check"`
		User  string `json:"user"`
	} `json:"permissions"`
	ProxyTo    string `json:"proxyto"`
	AllowToken any    `json:"allowtoken"`

	name string // "METHOD path"
	path []string
	once sync.Once
	set  *schema.Set
	lax  []string // parameters whose pattern is not checked
}

// Param is one parameter, or one key of a property string.
type Param struct {
	Type     string          `json:"type"`
	Optional any             `json:"optional"`
	Format   json.RawMessage `json:"format"`
	Minimum  any             `json:"minimum"`
	Maximum  any             `json:"maximum"`
	MinLen   any             `json:"minLength"`
	MaxLen   any             `json:"maxLength"`
	Enum     []string        `json:"enum"`
	Pattern  string          `json:"pattern"`
	Requires string          `json:"requires"`
	DefKey   any             `json:"default_key"`
	Alias    string          `json:"alias"`
	KeyAlias string          `json:"keyAlias"`
}

// FormatOf is the name of the parameter's format, or the keys of its property string.
func (p Param) FormatOf() (name string, keys map[string]Param, err error) {
	if len(p.Format) == 0 || json.Unmarshal(p.Format, &name) == nil {
		return name, nil, nil
	}
	if err := json.Unmarshal(p.Format, &keys); err != nil {
		return "", nil, fmt.Errorf("format %s: %w", p.Format, err)
	}
	return "", keys, nil
}

// Number reads a value that the schema gives as number, text, bool or not at all.
func Number(v any) float64 {
	switch n := v.(type) {
	case float64:
		return n
	case string:
		f, _ := strconv.ParseFloat(n, 64)
		return f
	case bool:
		if n {
			return 1
		}
	}
	return 0
}

// Releases are those that the environment names; none without it.
var Releases = sync.OnceValues(func() ([]*Release, error) {
	var all []*Release
	for _, file := range filepath.SplitList(os.Getenv(Env)) {
		r, err := Read(file)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
})

// Of is the release of a version ("9", "8.4"); nil when the environment names
// no file for it.
func Of(version string) (*Release, error) {
	all, err := Releases()
	if err != nil {
		return nil, err
	}
	major, _, _ := strings.Cut(version, ".")
	for _, r := range all {
		if r.Major == major {
			return r, nil
		}
	}
	return nil, nil
}

// directory is one path as the file has it.
type directory struct {
	Path     string           `json:"path"`
	Info     map[string]*Call `json:"info"`
	Children []directory      `json:"children"`
}

// Read reads one file, as JSON or as a node's script.
func Read(file string) (*Release, error) {
	b, err := os.ReadFile(file) //nolint:gosec // whoever runs the tests names the file
	if err != nil {
		return nil, fmt.Errorf("read the official schema: %w", err)
	}
	if at := bytes.Index(b, []byte("apiSchema = [")); at >= 0 {
		b = b[at+len("apiSchema = "):]
	}
	var roots []directory
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&roots); err != nil {
		return nil, fmt.Errorf("read the official schema %s: %w", file, err)
	}
	// The root itself is not in the file.
	top := &Call{AllowToken: 1.0}
	top.Permissions.User = "all"
	r := &Release{File: filepath.Base(file), Major: "8", Calls: map[string]*Call{}}
	r.add(directory{Path: "/", Info: map[string]*Call{"GET": top}, Children: roots})
	if r.Calls["POST /cluster/sdn/lock"] != nil { // came with 9
		r.Major = "9"
	}
	return r, nil
}

func (r *Release) add(d directory) {
	for method, c := range d.Info {
		c.name, c.path = method+" "+d.Path, split(d.Path)
		r.Calls[c.name] = c
	}
	for _, child := range d.Children {
		r.add(child)
	}
}

func split(path string) []string {
	return strings.FieldsFunc(path, func(c rune) bool { return c == '/' })
}
