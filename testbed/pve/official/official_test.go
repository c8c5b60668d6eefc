package official_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"savepoint/testbed/pve/official"
	"savepoint/testbed/pve/schema"
)

// made is a schema of our own, in the form of the official one.
const made = `const apiSchema = [
 {"path": "/box", "children": [
   {"path": "/box/{id}", "info": {
     "PUT": {"parameters": {"additionalProperties": 0, "properties": {
       "id": {"type": "integer", "minimum": 100, "maximum": 999},
       "size": {"type": "string", "pattern": "\\+?\\d+[KMGT]?"},
       "kind": {"type": "string", "enum": ["a", "b"], "optional": 1},
       "on": {"type": "boolean", "optional": 1},
       "word": {"type": "string", "maxLength": 3, "optional": 1, "requires": "kind"},
       "net[n]": {"type": "string", "optional": 1, "format": {
         "bridge": {"type": "string", "optional": 1}, "rate": {"type": "number", "minimum": 0, "optional": "1"}}},
       "odd": {"type": "string", "optional": 1, "pattern": "(?<!x)y"}
     }}}},
    "children": [{"path": "/box/{id}/file/{volume}", "info": {"GET": {"parameters": {"properties": {
       "id": {"type": "integer"}, "volume": {"type": "string"}}}}}}]},
   {"path": "/box/top", "info": {"PUT": {"parameters": {}}}}
 ]}
];
Ext.onReady(function() {});`

func read(t *testing.T) *official.Release {
	t.Helper()
	file := filepath.Join(t.TempDir(), "apidata.js")
	if err := os.WriteFile(file, []byte(made), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := official.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCheck(t *testing.T) {
	r := read(t)
	if r.Major != "8" || len(r.Calls) != 4 {
		t.Errorf("major %s, %d calls", r.Major, len(r.Calls))
	}
	type p = map[string]any
	for _, tt := range []struct {
		name, method, path string
		params             p
		want               []string // in this order, parts of the texts
	}{
		{"good", "PUT", "/box/100", p{"size": "+5G", "kind": "a", "on": "1", "word": "xyz", "net12": "bridge=v,rate=1.5"}, nil},
		{"no such call", "POST", "/box/100", nil, []string{"has no such call"}},
		{"no such path", "GET", "/boxes", nil, []string{"has no such call"}},
		{"missing", "PUT", "/box/100", nil, []string{"size: property is missing"}},
		{"undeclared", "PUT", "/box/100", p{"size": "1", "colour": "red"}, []string{"colour: property is not defined"}},
		{"pattern", "PUT", "/box/100", p{"size": "big"}, []string{"size: value does not match"}},
		{"enum", "PUT", "/box/100", p{"size": "1", "kind": "c"}, []string{"kind: value 'c'"}},
		{"type", "PUT", "/box/100", p{"size": "1", "on": "perhaps"}, []string{"on: type check"}},
		{"length, and what it requires", "PUT", "/box/100", p{"size": "1", "word": "long"}, []string{"kind: missing property", "word: value may only be"}},
		{"range, of the path", "PUT", "/box/12", p{"size": "1"}, []string{"id: value must have a minimum"}},
		{"key of a property string", "PUT", "/box/100", p{"size": "1", "net0": "bride=v"}, []string{"net0: invalid format"}},
		{"range of a key", "PUT", "/box/100", p{"size": "1", "net0": "rate=-1"}, []string{"net0: invalid format"}},
		{"fixed part before a parameter", "PUT", "/box/top", nil, nil},
		{"rest of the path", "GET", "/box/100/file/store:iso/a.iso", nil, nil},
	} {
		got := r.Check(schema.Request{Method: tt.method, Path: tt.path, Params: tt.params})
		if !slices.EqualFunc(got, tt.want, func(g, w string) bool { return strings.Contains(g, w) }) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := r.Find("PUT", "/box/100").Unchecked(); !slices.Equal(got, []string{"odd"}) {
		t.Errorf("not checked: %q", got)
	}
}

func TestRecorder(t *testing.T) {
	rec := official.NewRecorder(read(t), "ours")
	bad := schema.Request{Method: "PUT", Path: "/box/100", Agent: "ours", Params: map[string]any{"size": "big"}}
	for range 2 {
		rec.Seen(bad)
	}
	bad.Agent = "theirs"
	bad.Params = map[string]any{"nothing": 1}
	rec.Seen(bad)
	if d := rec.Deviations(); len(d) != 1 || !strings.Contains(d[0], "PUT /box/{id}: size: value does not match") || !strings.Contains(d[0], "big") {
		t.Errorf("deviations %q", d)
	}
	if c := rec.Calls(); !slices.Equal(c, []string{"PUT /box/{id}"}) {
		t.Errorf("calls %q", c)
	}
}

// The real files, where they are: every release has its own, and savepoint
// meets few patterns that cannot be checked.
func TestReleases(t *testing.T) {
	releases, err := official.Releases()
	if err != nil {
		t.Fatal(err)
	}
	if len(releases) == 0 {
		t.Skip(official.Env + " does not name the official schema")
	}
	for _, r := range releases {
		if again, err := official.Of(r.Major + ".1"); err != nil || again != r {
			t.Errorf("release %s: %v, %v", r.Major, again, err)
		}
		var lax []string
		for name, c := range r.Calls {
			for _, p := range c.Unchecked() {
				lax = append(lax, name+" "+p)
			}
		}
		slices.Sort(lax)
		t.Logf("%s: %d calls; patterns that are not checked: %q", r.File, len(r.Calls), lax)
		if len(lax) > 20 {
			t.Errorf("%s: %d patterns are not checked", r.File, len(lax))
		}
	}
	if r, err := official.Of("7.4"); r != nil || err != nil {
		t.Errorf("7.4: %v, %v", r, err)
	}
}
