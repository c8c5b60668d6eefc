package pve

import (
	"regexp"
	"strings"

	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/schema"
)

// permission is what a caller needs for a call. The zero value denies.
type permission struct {
	world bool // also without authentication
	all   bool // every authenticated caller; the call's own code may check more
	path  string
	privs []string
	any   bool // one of privs is enough
	// needs names a parameter without which the permission is not had.
	needs string
	and   []permission
	or    []permission
	// about is a check of the user that the call is about, or of the path that
	// an access entry is for; "" is none.
	about string
	// groups tells how a call that is about a user names his groups: "create",
	// "update" or "" for not at all.
	groups string
}

var (
	world = permission{world: true}
	users = permission{all: true}
)

// perm needs all the privileges on the path, whose {names} are parameters.
func perm(path string, privs ...string) permission { return permission{path: path, privs: privs} }

// anyOf needs one of the privileges on the path.
func anyOf(path string, privs ...string) permission {
	return permission{path: path, privs: privs, any: true}
}

func both(ps ...permission) permission   { return permission{and: ps} }
func either(ps ...permission) permission { return permission{or: ps} }

// given is the permission, but never had without the parameter.
func (p permission) given(param string) permission { p.needs = param; return p }

var reTemplate = regexp.MustCompile(`\{([a-z]+)\}`)

// check returns nil or the refusal.
func (p permission) check(d *access.Directory, who caller, v schema.Values) error {
	if p.world || p.all || who.root() {
		return nil
	}
	if p.about != "" {
		return p.checkAbout(d, who, v)
	}
	if p.needs != "" && !v.Has(p.needs) {
		return forbidden("")
	}
	for _, q := range p.and {
		if err := q.check(d, who, v); err != nil {
			return err
		}
	}
	if p.and != nil {
		return nil
	}
	for _, q := range p.or {
		if q.check(d, who, v) == nil {
			return nil
		}
	}
	if p.or != nil {
		return forbidden("")
	}
	path := reTemplate.ReplaceAllStringFunc(p.path, func(m string) string { return v.Str(m[1 : len(m)-1]) })
	return checkPrivs(d, who, path, p.any, p.privs...)
}

// checkPrivs refuses unless the caller has all, or with any one, of the privileges.
func checkPrivs(d *access.Directory, who caller, path string, any bool, privs ...string) error {
	normal, ok := access.NormalizePath(path)
	if !ok {
		return forbidden(", " + strings.Join(privs, "|"))
	}
	has := d.Privs(who.name, normal)
	for _, p := range privs {
		_, ok := has[p]
		switch {
		case ok && any:
			return nil
		case !ok && !any:
			return forbidden(normal + ", " + p)
		}
	}
	if any {
		return forbidden(normal + ", " + strings.Join(privs, "|"))
	}
	return nil
}
