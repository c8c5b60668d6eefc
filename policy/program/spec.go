package program

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Kind says what an argument is to its program.
type Kind string

// The kinds of argument.
const (
	Text    Kind = "text"    // inert
	Input   Kind = "input"   // a path that is read
	Output  Kind = "output"  // a path that is written
	Delete  Kind = "delete"  // a path that is removed
	Perms   Kind = "perms"   // a path whose mode or owner changes
	URL     Kind = "url"     // fetched from outside
	Send    Kind = "send"    // sent outside
	Code    Kind = "code"    // shell code
	Words   Kind = "words"   // a command line that the program splits itself
	Run     Kind = "run"     // one program to start, without arguments
	Script  Kind = "script"  // a file that is run as shell code
	Expand  Kind = "expand"  // text that the shell expands again
	Change  Kind = "change"  // inert text of an option that changes something
	Dir     Kind = "dir"     // the directory the rest works in
	Digits  Kind = "digits"  // inert, only digits, only attached
	Command Kind = "command" // this and all that follows is a command
)

var kinds = [...]Kind{Text, Input, Output, Delete, Perms, URL, Send, Code, Words, Run, Script, Expand, Change, Dir, Digits, Command}

// Spec describes one program, or one sub-command of it.
//
// Options is a list of tokens. "-abc" are three flags, "--long" is one,
// "-n=KIND" and "--long=KIND" take a value, "--long?=KIND" takes one only
// attached, "-#" stands for any number as in "head -5". Flags that change
// something are written with "?=change" or "=change".
//
// Operands is a list of kinds, in order: "text input*" is a text and then any
// number of inputs, "input* output" any number of inputs and one output last,
// "input?" an optional one. Empty means that none is allowed.
type Spec struct {
	Names    []string         `yaml:"names"`
	Effect   string           `yaml:"effect"` // read, change, launch
	Inert    bool             `yaml:"inert"`  // no option whatever makes it write or execute
	Options  string           `yaml:"options"`
	Operands string           `yaml:"operands"`
	Stop     bool             `yaml:"stop"`    // options end at the first operand
	Single   bool             `yaml:"single"`  // one dash starts a long option
	Alone    string           `yaml:"alone"`   // effect of a launcher without a command
	Handler  string           `yaml:"handler"` // function that knows the rest
	Guess    bool             `yaml:"guess"`   // an argument may begin a command
	Plain    bool             `yaml:"plain"`   // its output tells nothing about files
	Sub      map[string]*Spec `yaml:"sub"`

	options  map[string]option
	operands []slot
}

type option struct {
	kind     Kind // "" for a flag
	attached bool // the value is optional and only attached
}

type slot struct {
	kind     Kind
	many     bool
	optional bool
}

type table struct {
	Programs []*Spec `yaml:"programs"`
}

//go:embed tables/*.yaml
var files embed.FS

// Tables is every program that is known, by name. It is read-only.
type Tables struct{ specs map[string]*Spec }

// Load reads the built-in tables. An error is a mistake in them.
func Load() (*Tables, error) {
	t := &Tables{specs: map[string]*Spec{}}
	names, err := fs.Glob(files, "tables/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		data, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if err := t.add(name, data); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Known reports whether the tables describe the program.
func (t *Tables) Known(name string) bool { return t.specs[name] != nil }

func (t *Tables) add(name string, data []byte) error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	var file table
	if err := dec.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("load programs %s: %w", name, err)
	}
	for _, s := range file.Programs {
		if len(s.Names) == 0 {
			return fmt.Errorf("load programs %s: a program without names", name)
		}
		if err := s.compile(); err != nil {
			return fmt.Errorf("load programs %s: %s: %w", name, s.Names[0], err)
		}
		for _, n := range s.Names {
			if t.specs[n] != nil {
				return fmt.Errorf("load programs %s: %s is described twice", name, n)
			}
			t.specs[n] = s
		}
	}
	return nil
}

func (s *Spec) compile() error {
	switch s.Effect {
	case "read", "change", "launch":
	default:
		return fmt.Errorf("effect %q: want read, change or launch", s.Effect)
	}
	s.options = map[string]option{}
	for _, tok := range strings.Fields(s.Options) {
		name, kind, has := strings.Cut(tok, "=")
		attached := strings.HasSuffix(name, "?") && has
		if attached {
			name = strings.TrimSuffix(name, "?")
		}
		if has && !validKind(Kind(kind)) {
			return fmt.Errorf("option %s: no kind %q; the kinds are %v", tok, kind, kinds)
		}
		o := option{kind: Kind(kind), attached: attached || Kind(kind) == Digits}
		switch {
		case !strings.HasPrefix(name, "-") || len(name) < 2:
			return fmt.Errorf("option %q does not start with a dash", tok)
		case strings.HasPrefix(name, "--"), s.Single, name == "-#", has && len(name) == 2:
			s.options[name] = o
		default:
			for _, c := range name[1:] {
				s.options["-"+string(c)] = o
			}
		}
	}
	for _, tok := range strings.Fields(s.Operands) {
		sl := slot{kind: Kind(strings.TrimRight(tok, "*?")), many: strings.HasSuffix(tok, "*"), optional: strings.HasSuffix(tok, "?")}
		if !validKind(sl.kind) {
			return fmt.Errorf("operand %q: no such kind; the kinds are %v", tok, kinds)
		}
		s.operands = append(s.operands, sl)
	}
	for name, sub := range s.Sub {
		if sub == nil {
			return fmt.Errorf("sub-command %s is empty", name)
		}
		if err := sub.compile(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func validKind(k Kind) bool {
	for _, v := range kinds {
		if v == k {
			return true
		}
	}
	return false
}
