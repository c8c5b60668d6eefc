package configs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/viper"
)

// LoadOptions says where to look. The zero value reads the defaults only.
type LoadOptions struct {
	// File is the file to read. It must exist. Empty: $SAVEPOINT_CONFIG, then
	// what SearchDefault finds, then none.
	File string
	// Env looks up an environment variable; os.LookupEnv in production. Nil:
	// the environment is empty.
	Env func(name string) (string, bool)
	// Flags are overrides from the command line by key ("run.timeout"). A
	// value has the type of the key or is its text. Only flags that the user
	// gave belong here.
	Flags map[string]any
	// SearchDefault looks for a file in the usual places when none is named.
	SearchDefault bool
	// NeedCluster makes the keys that are needed to talk to a cluster
	// required, and looks at the files that they name.
	NeedCluster bool
	// Unfinished accepts a file without what only setting up the cluster brings:
	// the token's secret and the host keys of jump host and nodes.
	Unfinished bool
	// Dir stands for the working directory; "" is the process's own.
	Dir string
}

func (o LoadOptions) env(name string) string {
	if o.Env == nil {
		return ""
	}
	v, _ := o.Env(name)
	return v
}

// StateDir is the state directory as the environment has it:
// $SAVEPOINT_STATE_DIR, $XDG_STATE_HOME/savepoint or ~/.local/state/savepoint.
// A nil lookup is an empty environment. The result may be relative.
func StateDir(env func(string) (string, bool)) string {
	o := LoadOptions{Env: env}
	if d := o.env("SAVEPOINT_STATE_DIR"); d != "" {
		return d
	}
	if d := o.env("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "savepoint")
	}
	return filepath.Join(o.env("HOME"), ".local", "state", "savepoint")
}

// LabFile is where a lab with this state directory keeps its configuration.
func LabFile(stateDir string) string { return filepath.Join(stateDir, "lab", "savepoint.yaml") }

// Load puts the configuration together and validates it. The error is an
// [*Error] with every problem, or the operating system's when the working
// directory is gone.
//
// One key has an exception to the order of layers: when the file that is read
// is the one of the lab in the state directory, its state_dir stands. The
// directory named by the environment or the command line is then where the lab
// was found, and the lab keeps a journal of its own inside of it.
func Load(o LoadOptions) (Config, error) {
	if o.Dir == "" {
		wd, err := os.Getwd()
		if err != nil {
			return Config{}, err
		}
		o.Dir = wd
	}
	r := &report{}
	home := o.env("HOME")
	state := resolve(StateDir(o.Env), o.Dir, home)
	if s, ok := o.Flags["state_dir"].(string); ok && s != "" {
		state = resolve(s, o.Dir, home)
	}

	f := &file{}
	if path := findFile(o, state, home, r); path != "" {
		f = readFile(path, r)
	}
	v := viper.New()
	if err := v.MergeConfigMap(f.values); err != nil {
		return Config{}, err
	}
	m := merge{o: o, file: f, v: v, home: home, state: state, source: Source{File: f.path, Keys: map[string]string{}}}
	m.overrides(r)
	m.convert(Default(state), r)

	var c Config
	if err := v.UnmarshalExact(&c); err != nil {
		r.add(Problem{Origin: f.path, Cause: strings.ReplaceAll(err.Error(), "\n", " ")})
		return Config{}, r.err()
	}
	c.Source = m.source
	validate(&c, f, o.NeedCluster, r)
	if o.Unfinished {
		r.problems = slices.DeleteFunc(r.problems, func(p Problem) bool { return slices.Contains(broughtBySetup, p.Key) })
	}
	if err := r.err(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// broughtBySetup are the keys that nobody can fill in before the cluster is set up.
var broughtBySetup = []string{"cluster.token_secret", "cluster.token_secret_file", "ssh.jump.host_key", "workspace.nodes"}

// findFile names the file to read, absolute, or "".
func findFile(o LoadOptions, state, home string, r *report) string {
	if o.File != "" {
		return resolve(o.File, o.Dir, home)
	}
	if p := o.env("SAVEPOINT_CONFIG"); p != "" {
		return resolve(p, o.Dir, home)
	}
	if !o.SearchDefault {
		return ""
	}
	candidates := []string{filepath.Join(o.Dir, "savepoint.yaml")}
	if d := o.env("XDG_CONFIG_HOME"); filepath.IsAbs(d) {
		candidates = append(candidates, filepath.Join(d, "savepoint", "savepoint.yaml"))
	} else if home != "" {
		candidates = append(candidates, filepath.Join(home, ".config", "savepoint", "savepoint.yaml"))
	}
	for _, path := range append(candidates, LabFile(state)) {
		// A file that is there but cannot be looked at must not be passed
		// over for a weaker one.
		switch _, err := os.Stat(path); {
		case err == nil:
			return path
		case !errors.Is(err, fs.ErrNotExist):
			r.add(Problem{Origin: path, Cause: pathCause(err), Mend: "make it readable, or name another file with --config"})
			return ""
		}
	}
	return ""
}

// merge is one run of Load.
type merge struct {
	o      LoadOptions
	file   *file
	v      *viper.Viper
	home   string
	state  string // where the lab is looked for
	source Source
}

const commandLine = "command line"

// overrides lays the environment and then the command line over the file.
func (m *merge) overrides(r *report) {
	flags := m.o.Flags
	for _, k := range keys() {
		if line, ok := m.file.lines[k.name]; ok {
			m.source.Keys[k.name] = m.file.at(line)
		}
		if k.name == "state_dir" && m.file.lines[k.name] != 0 && m.file.path == LabFile(m.state) {
			continue
		}
		if text := m.o.env(k.env()); text != "" {
			m.v.Set(k.name, text)
			m.source.Keys[k.name] = k.env()
		}
		if value, ok := flags[k.name]; ok {
			m.v.Set(k.name, value)
			m.source.Keys[k.name] = commandLine
		}
	}
	for name := range flags {
		if !slices.ContainsFunc(keys(), func(k key) bool { return k.name == name }) {
			r.add(Problem{Key: name, Origin: commandLine, Cause: "is not a key", Mend: nearest(name)})
		}
	}
}

// convert gives every key its type, its default and its absolute path.
func (m *merge) convert(defaults Config, r *report) {
	// The default of the identity follows the state directory that was chosen.
	if s, ok := m.v.Get("state_dir").(string); ok && s != "" {
		defaults = Default(resolve(s, m.base("state_dir"), m.home))
	}
	d := reflect.ValueOf(defaults)
	for _, k := range keys() {
		value := d.FieldByIndex(k.index).Interface()
		if found := m.v.Get(k.name); found != nil {
			typed, want, err := convert(k.typ, found)
			if err != nil {
				shown, _ := scalar(found)
				r.add(Problem{Key: k.name, Value: shown, Origin: m.source.Keys[k.name], Cause: err.Error(), Mend: want})
			} else {
				value = typed
			}
		}
		if k.path {
			value = resolveValue(value, m.base(k.name), m.home)
		}
		m.v.Set(k.name, value)
	}
}

// base is the directory that a relative path of the key starts from.
func (m *merge) base(name string) string {
	_, inFile := m.file.lines[name]
	if inFile && strings.HasPrefix(m.source.Keys[name], m.file.path+":") {
		return filepath.Dir(m.file.path)
	}
	return m.o.Dir
}
