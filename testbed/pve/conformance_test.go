package pve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"testing"

	"savepoint/testbed/pve/schema"
)

// unsupported are parameters of the official schema that our calls do not
// take, by "METHOD path name", with the reason.
var unsupported = map[string]string{}

// TestConformance compares the table with the official schema: every call we
// declare must exist, with the same parameters, permission and proxying.
func TestConformance(t *testing.T) {
	files := os.Getenv("SAVEPOINT_PVE_APIDATA")
	if files == "" {
		t.Skip("SAVEPOINT_PVE_APIDATA does not name the official schema")
	}
	for _, file := range strings.Split(files, ":") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			official := readOfficial(t, file)
			major := "8"
			if _, ok := official["POST /cluster/sdn/lock"]; ok { // came with 9
				major = "9"
			}
			calls, params := 0, 0
			for _, r := range table() {
				if r.since > major || r.until != "" && r.until < major {
					continue
				}
				key := r.method + " " + r.path
				want, ok := official[key]
				if !ok {
					t.Errorf("%s: not in the official schema", key)
					continue
				}
				calls++
				params += compareCall(t, key, want, &r, major)
			}
			t.Logf("version %s: %d calls with %d parameters compared", major, calls, params)
		})
	}
}

// officialCall is the part of the schema's form that is compared.
type officialCall struct {
	Parameters struct {
		Properties map[string]officialParam `json:"properties"`
		Additional any                      `json:"additionalProperties"`
	} `json:"parameters"`
	Permissions struct {
		Check []any  `json:"check"`
		User  string `json:"user"`
	} `json:"permissions"`
	ProxyTo    string `json:"proxyto"`
	AllowToken any    `json:"allowtoken"`
}

type officialParam struct {
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

// readOfficial reads the schema, as JSON or as a node's script.
func readOfficial(t *testing.T, file string) map[string]officialCall {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if at := bytes.Index(b, []byte("apiSchema = [")); at >= 0 {
		b = b[at+len("apiSchema = "):]
	}
	type dir struct {
		Path     string                     `json:"path"`
		Info     map[string]json.RawMessage `json:"info"`
		Children []json.RawMessage          `json:"children"`
	}
	out := map[string]officialCall{}
	var walk func(raw json.RawMessage)
	walk = func(raw json.RawMessage) {
		var d dir
		if err := json.Unmarshal(raw, &d); err != nil {
			t.Fatal(err)
		}
		for method, info := range d.Info {
			var c officialCall
			if err := json.Unmarshal(info, &c); err != nil {
				t.Fatalf("%s %s: %v", method, d.Path, err)
			}
			out[method+" "+d.Path] = c
		}
		for _, child := range d.Children {
			walk(child)
		}
	}
	var roots []json.RawMessage
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&roots); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, r := range roots {
		walk(r)
	}
	// the root itself is not in the file
	out["GET /"] = officialCall{AllowToken: 1.0}
	root := out["GET /"]
	root.Permissions.User = "all"
	out["GET /"] = root
	return out
}

// compareCall compares one call and returns how many parameters it has.
func compareCall(t *testing.T, key string, want officialCall, r *route, major string) int {
	ours := map[string]schema.Param{}
	for _, p := range r.all() {
		if p.In(major) {
			name := p.Name
			if p.Count > 0 {
				name += "[n]"
			}
			if _, twice := ours[name]; twice {
				t.Errorf("%s %s: declared twice", key, name)
			}
			ours[name] = p
		}
	}
	all := maps.Clone(ours)
	for name := range want.Parameters.Properties {
		all[name] = schema.Param{}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p, have := ours[name]
		w, exists := want.Parameters.Properties[name]
		_, excused := unsupported[key+" "+name]
		switch {
		case !exists:
			t.Errorf("%s %s: not in the official schema", key, name)
		case !have && !excused:
			t.Errorf("%s %s: missing here", key, name)
		case have && excused:
			t.Errorf("%s %s: listed as unsupported, but here", key, name)
		case have:
			compareParam(t, key+" "+name, w, p, major)
		}
	}
	if got := number(want.Parameters.Additional) == 1; got != r.open {
		t.Errorf("%s: takes more parameters: official %v, here %v", key, got, r.open)
	}
	if got := want.ProxyTo == "node"; got != r.proxy {
		t.Errorf("%s: proxied: official %v, here %v", key, got, r.proxy)
	}
	if got := number(want.AllowToken) == 0; got != r.noToken {
		t.Errorf("%s: refuses tokens: official %v, here %v", key, got, r.noToken)
	}
	official := officialPermission(want)
	if ours := r.perm.text(); official != ours {
		t.Errorf("%s: permission: official %s, here %s", key, official, ours)
	}
	return len(ours)
}

// number reads a value that the schema gives as number, text, bool or not at all.
func number(v any) float64 {
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

func compareParam(t *testing.T, at string, w officialParam, p schema.Param, major string) {
	check := func(what string, want, got any) {
		if fmt.Sprint(want) != fmt.Sprint(got) {
			t.Errorf("%s: %s: official %v, here %v", at, what, want, got)
		}
	}
	check("alias", w.Alias, p.Alias)
	check("key alias", w.KeyAlias, p.KeyAlias)
	if w.Alias != "" {
		return
	}
	check("type", w.Type, string(p.Type))
	check("optional", number(w.Optional) == 1, p.Optional)
	check("default key", number(w.DefKey) == 1, p.DefaultKey)
	check("requires", w.Requires, p.Requires)
	check("enum", w.Enum, p.Enum)
	check("pattern", plainPattern(w.Pattern), plainPattern(p.Pattern))
	check("min length", number(w.MinLen), p.MinLength)
	check("max length", number(w.MaxLen), p.MaxLength)
	check("minimum", bound(w.Minimum), bound(p.Minimum))
	check("maximum", bound(w.Maximum), bound(p.Maximum))

	var name string
	var keys map[string]officialParam
	if len(w.Format) > 0 && json.Unmarshal(w.Format, &name) != nil {
		if err := json.Unmarshal(w.Format, &keys); err != nil {
			t.Fatalf("%s: format: %v", at, err)
		}
	}
	check("format", name, p.Format)
	if keys == nil {
		return
	}
	if p.Props == nil {
		t.Errorf("%s: keys: official %d, here none", at, len(keys))
		return
	}
	ours := map[string]schema.Param{}
	for _, k := range p.Props.Keys {
		if k.In(major) {
			ours[k.Name] = k
		}
	}
	check("keys", slices.Sorted(maps.Keys(keys)), slices.Sorted(maps.Keys(ours)))
	for k, kp := range ours {
		if wk, ok := keys[k]; ok {
			compareParam(t, at+"."+k, wk, kp, major)
		}
	}
}

func bound(v any) string {
	if p, ok := v.(*float64); ok {
		if p == nil {
			return "none"
		}
		v = *p
	}
	if v == nil {
		return "none"
	}
	return fmt.Sprint(number(v))
}

// plainPattern writes a pattern in one form, whatever groups it is written with.
func plainPattern(s string) string {
	s = strings.NewReplacer("(?^:", "(?:", "(?^i:", "(?i:", "{,", "{0,").Replace(s)
	re, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return s
	}
	return re.Simplify().String()
}

func officialPermission(c officialCall) string {
	switch {
	case c.Permissions.User != "":
		return "user " + c.Permissions.User
	case c.Permissions.Check == nil:
		return "root"
	}
	return officialCheck(c.Permissions.Check)
}

func officialCheck(check []any) string {
	switch check[0] {
	case "and", "or":
		var parts []string
		for _, part := range check[1:] {
			parts = append(parts, officialCheck(part.([]any)))
		}
		return fmt.Sprintf("%s(%s)", check[0], strings.Join(parts, "; "))
	case "userid-param":
		if check[1] == "self" {
			return self.text()
		}
		return realmUser.text()
	case "userid-group":
		p := groupOf("")
		for _, priv := range check[1].([]any) {
			p.privs = append(p.privs, priv.(string))
		}
		for i := 2; i+1 < len(check); i += 2 {
			p.groups, _ = check[i+1].(string)
		}
		return p.text()
	case "perm-modify":
		return permission{about: aboutEntry, path: check[1].(string)}.text()
	}
	p := permission{path: check[1].(string)}
	for _, priv := range check[2].([]any) {
		p.privs = append(p.privs, priv.(string))
	}
	for i := 3; i+1 < len(check); i += 2 {
		switch check[i] {
		case "any":
			p.any = true
		case "require_param":
			p.needs = check[i+1].(string)
		}
	}
	return p.text()
}

// text writes a permission in a form that can be compared.
func (p permission) text() string {
	list := func(op string, ps []permission) string {
		var parts []string
		for _, q := range ps {
			parts = append(parts, q.text())
		}
		return fmt.Sprintf("%s(%s)", op, strings.Join(parts, "; "))
	}
	switch {
	case p.world:
		return "user world"
	case p.all:
		return "user all"
	case p.about != "":
		return fmt.Sprintf("about %s %s %v %s", p.about, p.path, p.privs, p.groups)
	case p.and != nil:
		return list("and", p.and)
	case p.or != nil:
		return list("or", p.or)
	}
	privs := slices.Clone(p.privs)
	slices.Sort(privs)
	privs = slices.Compact(privs)
	how := "all"
	if p.any && len(privs) > 1 {
		how = "any"
	}
	text := fmt.Sprintf("%s of %v on %s", how, privs, p.path)
	if p.needs != "" {
		text += " if " + p.needs
	}
	return text
}
