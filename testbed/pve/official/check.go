package official

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"savepoint/testbed/pve/schema"
)

// Find returns the call of a request; nil when the release has none. A fixed
// part of a path wins over a parameter, and a volume's name takes the rest.
func (r *Release) Find(method, path string) *Call {
	parts := split(path)
	var best *Call
	vars := 0
	for name, c := range r.Calls {
		if !strings.HasPrefix(name, method+" ") {
			continue
		}
		if n, ok := c.matches(parts); ok && (best == nil || n < vars) {
			best, vars = c, n
		}
	}
	return best
}

// matches reports whether a path is the call's, and how many parameters it has.
func (c *Call) matches(parts []string) (vars int, ok bool) {
	for i, want := range c.path {
		switch {
		case i >= len(parts):
			return 0, false
		case want == "{volume}" && i == len(c.path)-1:
			return vars + 1, true
		case strings.HasPrefix(want, "{"):
			vars++
		case want != parts[i]:
			return 0, false
		}
	}
	return vars, len(parts) == len(c.path)
}

// Name is "METHOD path", with the path's parameters in braces.
func (c *Call) Name() string { return c.name }

// Check tells what is wrong with a request; nothing when it is good.
func (r *Release) Check(q schema.Request) []string {
	c := r.Find(q.Method, q.Path)
	if c == nil {
		return []string{fmt.Sprintf("%s %s: %s has no such call", q.Method, q.Path, r.File)}
	}
	given := schema.Values(maps.Clone(q.Params))
	if given == nil {
		given = schema.Values{}
	}
	for i, part := range split(q.Path) {
		if i < len(c.path) && strings.HasPrefix(c.path[i], "{") {
			name := strings.Trim(c.path[i], "{}")
			if _, ok := given[name]; !ok {
				given[name] = part
			}
		}
	}
	var out []string
	for name, text := range c.params().Check(given) {
		out = append(out, fmt.Sprintf("%s: %s: %s", c.name, name, text))
	}
	slices.Sort(out)
	return out
}

// params are the call's parameters in the form that can be checked.
func (c *Call) params() *schema.Set {
	c.once.Do(func() {
		var list []schema.Param
		for name, p := range c.Parameters.Properties {
			list = append(list, c.param(name, p))
		}
		c.set = schema.NewSet("9", list...)
		if Number(c.Parameters.Additional) == 1 {
			c.set.AllowMore()
		}
	})
	return c.set
}

// numbered is how many parameters a name with "[n]" stands for.
const numbered = 256

// param turns a description into one that can be checked.
func (c *Call) param(name string, p Param) schema.Param {
	out := schema.Param{
		Name: strings.TrimSuffix(name, "[n]"), Type: schema.Type(p.Type), Optional: Number(p.Optional) == 1,
		MinLength: int(Number(p.MinLen)), MaxLength: int(Number(p.MaxLen)), Enum: p.Enum, Requires: p.Requires,
		Alias: p.Alias, KeyAlias: p.KeyAlias, DefaultKey: Number(p.DefKey) == 1,
	}
	if strings.HasSuffix(name, "[n]") {
		out.Count = numbered
	}
	if p.Minimum != nil {
		out = out.Min(Number(p.Minimum))
	}
	if p.Maximum != nil {
		out = out.Max(Number(p.Maximum))
	}
	if p.Pattern != "" {
		if pattern := Pattern(p.Pattern); compiles(pattern) {
			out = out.Match(pattern)
		} else {
			c.lax = append(c.lax, name)
		}
	}
	format, keys, err := p.FormatOf()
	if err != nil {
		c.lax = append(c.lax, name)
	}
	out.Format = format
	if keys != nil {
		var list []schema.Param
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			list = append(list, c.param(k, keys[k]))
		}
		out = out.PropStr(schema.NewProps(list...))
	}
	return out
}

// Unchecked are the parameters whose pattern Go cannot read.
func (c *Call) Unchecked() []string { c.params(); return c.lax }

// Pattern writes a Perl pattern as Go takes it, where that is a matter of form.
func Pattern(s string) string {
	return strings.NewReplacer("(?^:", "(?:", "(?^i:", "(?i:", "{,", "{0,").Replace(s)
}

func compiles(pattern string) bool {
	_, err := regexp.Compile("^(?:" + pattern + ")$")
	return err == nil
}
