package schema

import (
	"errors"
	"fmt"
	"sort"
	"strings"
)

// Props describes a property string: "default-value,key=value,…".
type Props struct {
	Keys []Param

	set    *Set
	defKey string
}

// NewProps describes a property string of these keys.
func NewProps(keys ...Param) *Props { return (&Props{Keys: keys}).compile() }

func (p *Props) compile() *Props {
	p.set = &Set{params: map[string]Param{}}
	for _, k := range p.Keys {
		p.set.add(k)
		if k.DefaultKey {
			p.defKey = k.Name
		}
	}
	return p
}

func (p *Props) in(major string) *Props {
	keys := make([]Param, 0, len(p.Keys))
	for _, k := range p.Keys {
		if k.In(major) {
			keys = append(keys, k)
		}
	}
	if len(keys) == len(p.Keys) {
		return p
	}
	return NewProps(keys...)
}

// Parse reads a property string. The error's text ends in a line break, and
// names every bad key below path.
func (p *Props) Parse(path, text string) (map[string]string, error) {
	got := Values{}
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		key, value, hasKey := strings.Cut(part, "=")
		switch {
		case !hasKey && p.defKey == "":
			return nil, errors.New("value without key, but schema does not define a default key\n")
		case !hasKey:
			key, value = p.defKey, part
		case key == "" || value == "":
			return nil, errors.New("missing key in comma-separated list property\n")
		default:
			if k, ok := p.set.params[key]; ok && k.Alias != "" {
				if k.KeyAlias != "" {
					if got.Has(k.KeyAlias) {
						return nil, fmt.Errorf("duplicate key in comma-separated list property: %s\n", k.KeyAlias)
					}
					got[k.KeyAlias] = key
				}
				key = k.Alias
			}
		}
		if got.Has(key) {
			return nil, fmt.Errorf("duplicate key in comma-separated list property: %s\n", key)
		}
		got[key] = value
	}
	errs := map[string]string{}
	p.set.check(got, path+".", errs)
	if len(errs) > 0 {
		names := make([]string, 0, len(errs))
		for n := range errs {
			names = append(names, n)
		}
		sort.Strings(names)
		var b strings.Builder
		b.WriteString("format error\n")
		for _, n := range names {
			fmt.Fprintf(&b, "%s: %s\n", n, errs[n])
		}
		return nil, errors.New(b.String())
	}
	out := make(map[string]string, len(got))
	for k := range got {
		out[k] = got.Str(k)
	}
	return out, nil
}

// Print writes a property string: the default key's value first, then the
// other keys by name. A key that gives its name to another (a network card's
// model) is written as "name=value".
func (p *Props) Print(values map[string]string) string {
	rest := map[string]string{}
	for k, v := range values {
		rest[k] = v
	}
	var parts []string
	if v, ok := rest[p.defKey]; ok && p.defKey != "" {
		first := v
		for _, k := range p.Keys {
			if k.Name == v && k.KeyAlias == p.defKey {
				if av, ok := rest[k.Alias]; ok {
					first = v + "=" + av
					delete(rest, k.Alias)
				}
			}
		}
		parts = append(parts, first)
		delete(rest, p.defKey)
	}
	names := make([]string, 0, len(rest))
	for k := range rest {
		names = append(names, k)
	}
	sort.Strings(names)
	for _, k := range names {
		parts = append(parts, k+"="+rest[k])
	}
	return strings.Join(parts, ",")
}
