package pve

import (
	"fmt"
	"maps"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"savepoint/testbed/pve/official"
	"savepoint/testbed/pve/schema"
)

// unsupported are parameters of the official schema that our calls do not
// take, by "METHOD path name", with the reason.
var unsupported = map[string]string{}

// comparison is the table held against one release.
type comparison struct {
	release *official.Release
	areas   map[string]*area
	wrong   []string
}

// area counts what was compared below one part of the API.
type area struct{ calls, official, params, keys, permissions int }

func (c *comparison) add(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// areaOf is where a call is counted: its first two parts, or three below a node.
func areaOf(name string) string {
	_, path, _ := strings.Cut(name, " ")
	parts := strings.Split(path, "/")
	n := 2
	switch parts[1] {
	case "nodes":
		n = 4
	case "cluster":
		n = 3
	}
	return strings.Join(parts[:min(n, len(parts))], "/")
}

func (c *comparison) area(name string) *area {
	at := areaOf(name)
	if c.areas[at] == nil {
		c.areas[at] = &area{}
	}
	return c.areas[at]
}

// compareTable holds every call that we declare for the release against it: it
// must exist, with the same parameters, permission and proxying; and a call
// that only the other release has here must be one that this one has not.
func compareTable(release *official.Release) *comparison {
	c := &comparison{release: release, areas: map[string]*area{}}
	served := map[string]bool{}
	for _, r := range table() {
		if r.in(release.Major) {
			key := r.method + " " + r.path
			if served[key] {
				c.add("%s: declared twice", key)
			}
			served[key] = true
			if want := release.Calls[key]; want != nil {
				c.call(key, want, &r)
			} else {
				c.add("%s: not in the official schema", key)
			}
		}
	}
	for _, r := range table() {
		if key := r.method + " " + r.path; !served[key] && release.Calls[key] != nil {
			c.add("%s: held back from this release, which has it", key)
		}
	}
	for name := range release.Calls {
		c.area(name).official++
	}
	return c
}

// TestSchemaReport compares the table with the official schema of every release
// that the environment names, and prints what was compared. Every call that the
// server answers is in the table: it knows no others (newRoutes).
func TestSchemaReport(t *testing.T) {
	releases, err := official.Releases()
	if err != nil {
		t.Fatal(err)
	}
	if len(releases) == 0 {
		t.Skip(official.Env + " does not name the official schema")
	}
	for _, release := range releases {
		t.Run(release.File, func(t *testing.T) {
			c := compareTable(release)
			for _, w := range c.wrong {
				t.Error(w)
			}
			t.Log(c.report())
		})
	}
}

// report is what was compared, area by area.
func (c *comparison) report() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "area\tcalls\tof\tparameters\tkeys\tpermissions\n")
	var sum area
	for _, at := range slices.Sorted(maps.Keys(c.areas)) {
		if a := c.areas[at]; a.calls > 0 {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\n", at, a.calls, a.official, a.params, a.keys, a.permissions)
			sum.calls, sum.params, sum.keys, sum.permissions = sum.calls+a.calls, sum.params+a.params, sum.keys+a.keys, sum.permissions+a.permissions
		}
	}
	w.Flush()
	return fmt.Sprintf("Proxmox VE %s (%s): %d of %d calls served, %d parameters with %d keys of property strings and %d permissions compared, %d deviations\n%s",
		c.release.Major, c.release.File, sum.calls, len(c.release.Calls), sum.params, sum.keys, sum.permissions, len(c.wrong), b.String())
}

// A report that cannot find anything would be worth nothing: a table with one
// mistake of each kind has as many deviations.
func TestSchemaReportFinds(t *testing.T) {
	releases, err := official.Releases()
	if err != nil {
		t.Fatal(err)
	}
	if len(releases) == 0 {
		t.Skip(official.Env + " does not name the official schema")
	}
	for _, release := range releases {
		for name, spoil := range map[string]func(r *route){
			"no parameter":   func(r *route) { r.params = r.params[1:] },
			"more":           func(r *route) { r.params = append(slices.Clone(r.params), schema.Str("more")) },
			"required":       func(r *route) { r.params[0].Optional = false },
			"bounds":         func(r *route) { r.params[0] = r.params[0].Min(-7) },
			"permission":     func(r *route) { r.perm = perm("/nodes/{node}", "Sys.Audit") },
			"not proxied":    func(r *route) { r.proxy = false },
			"without tokens": func(r *route) { r.noToken = true },
		} {
			c := &comparison{release: release, areas: map[string]*area{}}
			for _, r := range table() {
				if r.method+" "+r.path == "GET /nodes/{node}/tasks" {
					spoil(&r)
					c.call("GET /nodes/{node}/tasks", release.Calls["GET /nodes/{node}/tasks"], &r)
				}
			}
			if len(c.wrong) != 1 {
				t.Errorf("%s: %s: %d deviations: %v", release.File, name, len(c.wrong), c.wrong)
			}
		}
	}
}

// call compares one call.
func (c *comparison) call(key string, want *official.Call, r *route) {
	major, ours := c.release.Major, map[string]schema.Param{}
	for _, p := range r.all() {
		if p.In(major) {
			name := p.Name
			if p.Count > 0 {
				name += "[n]"
			}
			if _, twice := ours[name]; twice {
				c.add("%s %s: declared twice", key, name)
			}
			ours[name] = p
		}
	}
	all := maps.Clone(ours)
	for name := range want.Parameters.Properties {
		all[name] = schema.Param{}
	}
	at := c.area(key)
	at.calls++
	at.permissions++
	at.params += len(ours)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p, have := ours[name]
		w, exists := want.Parameters.Properties[name]
		_, excused := unsupported[key+" "+name]
		switch {
		case !exists:
			c.add("%s %s: not in the official schema", key, name)
		case !have && !excused:
			c.add("%s %s: missing here", key, name)
		case have && excused:
			c.add("%s %s: listed as unsupported, but here", key, name)
		case have:
			at.keys += c.param(key+" "+name, w, p)
		}
	}
	c.same(key, "takes more parameters", official.Number(want.Parameters.Additional) == 1, r.open)
	c.same(key, "proxied", want.ProxyTo == "node", r.proxy)
	c.same(key, "refuses tokens", official.Number(want.AllowToken) == 0, r.noToken)
	c.same(key, "permission", officialPermission(want), r.perm.text())
}

func (c *comparison) same(at, what string, want, got any) {
	if fmt.Sprint(want) != fmt.Sprint(got) {
		c.add("%s: %s: official %v, here %v", at, what, want, got)
	}
}

// param compares one parameter and returns how many keys it has.
func (c *comparison) param(at string, w official.Param, p schema.Param) int {
	check := func(what string, want, got any) { c.same(at, what, want, got) }
	check("alias", w.Alias, p.Alias)
	check("key alias", w.KeyAlias, p.KeyAlias)
	if w.Alias != "" {
		return 0
	}
	check("type", w.Type, string(p.Type))
	check("optional", official.Number(w.Optional) == 1, p.Optional)
	check("default key", official.Number(w.DefKey) == 1, p.DefaultKey)
	check("requires", w.Requires, p.Requires)
	check("enum", w.Enum, p.Enum)
	check("pattern", plainPattern(w.Pattern), plainPattern(p.Pattern))
	check("min length", official.Number(w.MinLen), p.MinLength)
	check("max length", official.Number(w.MaxLen), p.MaxLength)
	check("minimum", bound(w.Minimum), bound(p.Minimum))
	check("maximum", bound(w.Maximum), bound(p.Maximum))

	name, keys, err := w.FormatOf()
	if err != nil {
		c.add("%s: %v", at, err)
	}
	check("format", name, p.Format)
	if keys == nil {
		return 0
	}
	if p.Props == nil {
		c.add("%s: keys: official %d, here none", at, len(keys))
		return 0
	}
	ours := map[string]schema.Param{}
	for _, k := range p.Props.Keys {
		if k.In(c.release.Major) {
			ours[k.Name] = k
		}
	}
	check("keys", slices.Sorted(maps.Keys(keys)), slices.Sorted(maps.Keys(ours)))
	for k, kp := range ours {
		if wk, ok := keys[k]; ok {
			c.param(at+"."+k, wk, kp)
		}
	}
	return len(ours)
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
	return fmt.Sprint(official.Number(v))
}

// plainPattern writes a pattern in one form, whatever groups it is written with.
func plainPattern(s string) string {
	s = official.Pattern(s)
	re, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return s
	}
	return re.Simplify().String()
}

func officialPermission(c *official.Call) string {
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
