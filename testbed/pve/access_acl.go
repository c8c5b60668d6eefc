package pve

import (
	"fmt"
	"strings"

	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/schema"
)

// listACL is GET /access/acl.
func listACL(c *call) (any, error) {
	out := []map[string]any{}
	audit := c.may("/access", "Sys.Audit")
	for _, e := range c.s.access.State().ACL {
		if !audit && !c.may(e.Path, modifyPrivs(e.Path)...) {
			continue
		}
		kind, subject := "user", e.Subject
		switch {
		case strings.HasPrefix(subject, access.GroupPrefix):
			kind, subject = "group", subject[len(access.GroupPrefix):]
		case strings.Contains(subject, "!"):
			kind = "token"
		}
		propagate := 1
		if e.Here {
			propagate = 0
		}
		out = append(out, map[string]any{"path": e.Path, "type": kind, "ugid": subject, "roleid": e.Role, "propagate": propagate})
	}
	return out, nil
}

// putACL is PUT /access/acl.
func putACL(c *call) (any, error) {
	p := c.p
	if p.Str("users") == "" && p.Str("groups") == "" && p.Str("tokens") == "" {
		const text = "either 'users', 'groups' or 'tokens' is required."
		return nil, badParams(map[string]string{"users": text, "groups": text, "tokens": text})
	}
	path, ok := access.NormalizePath(p.Str("path"))
	if drop := p.Bool("delete"); !ok || !drop && !access.IsObject(path) {
		return nil, badParam("path", "invalid ACL path '%s'", p.Str("path"))
	}
	has := c.s.access.Privs(c.who.name, path)
	return nil, c.changeAccess("ACL update failed", func(st *access.State) error {
		for _, role := range schema.SplitList(p.Str("roles")) {
			privs, ok := st.Roles[role]
			if !ok {
				return fmt.Errorf("role '%s' does not exist", role)
			}
			if err := c.mayHandOut(has, role, privs); err != nil {
				return err
			}
			if err := c.entries(st, path, role); err != nil {
				return err
			}
		}
		return nil
	})
}

// mayHandOut refuses to give or take a role that goes beyond the caller's own
// privileges, unless he may change all permissions there.
func (c *call) mayHandOut(has map[string]bool, role string, privs []string) error {
	if _, all := has["Permissions.Modify"]; all || c.who.root() {
		return nil
	}
	verb := "add"
	if c.p.Bool("delete") {
		verb = "remove"
	}
	here := c.p.Has("propagate") && !c.p.Bool("propagate")
	for _, priv := range privs {
		below, ok := has[priv]
		switch {
		case !ok:
			return badParam("role", "Cannot %s role '%s' - requires 'Permissions.Modify' or superset of privileges.", verb, role)
		case !below && !here:
			return badParam("role", "Cannot %s role '%s' with propagation - requires 'Permissions.Modify' or propagated superset of privileges.", verb, role)
		}
	}
	return nil
}

// entries makes or removes the entries of one role for all that the call names.
func (c *call) entries(st *access.State, path, role string) error {
	var subjects []string
	for _, g := range schema.SplitList(c.p.Str("groups")) {
		if _, ok := st.Groups[g]; !ok {
			return fmt.Errorf("group '%s' does not exist", g)
		}
		subjects = append(subjects, access.GroupPrefix+g)
	}
	for _, id := range schema.SplitList(c.p.Str("users")) {
		if st.Users[id] == nil {
			return fmt.Errorf("user '%s' does not exist", id)
		}
		subjects = append(subjects, id)
	}
	for _, name := range schema.SplitList(c.p.Str("tokens")) {
		user, id, _ := strings.Cut(name, "!")
		switch u := st.Users[user]; {
		case u == nil:
			return noUser(user)
		case u.Token(id) == nil:
			return noToken(user, id)
		}
		subjects = append(subjects, name)
	}
	for _, subject := range subjects {
		e := access.Entry{Path: path, Subject: subject, Role: role, Here: c.p.Has("propagate") && !c.p.Bool("propagate")}
		if c.p.Bool("delete") {
			st.Unset(e)
		} else {
			st.Set(e)
		}
	}
	return nil
}
