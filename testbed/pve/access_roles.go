package pve

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/schema"
)

// listRoles is GET /access/roles.
func listRoles(c *call) (any, error) {
	roles := c.s.access.State().Roles
	out := []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(roles)) {
		special := 0
		if c.special(name) {
			special = 1
		}
		privs := slices.Sorted(slices.Values(roles[name]))
		out = append(out, map[string]any{"roleid": name, "privs": strings.Join(privs, ","), "special": special})
	}
	return out, nil
}

func (c *call) special(role string) bool { return access.Special(c.s.cfg.major(), role) }

// readRole is GET /access/roles/{roleid}.
func readRole(c *call) (any, error) {
	privs, ok := c.s.access.State().Roles[c.p.Str("roleid")]
	if !ok {
		return nil, fail("role '%s' does not exist", c.p.Str("roleid"))
	}
	out := map[string]int{}
	for _, p := range privs {
		out[p] = 1
	}
	return out, nil
}

// privs are the privileges that a call names, if the version knows them.
func (c *call) privs() ([]string, error) {
	out := []string{}
	for _, p := range schema.SplitList(c.p.Str("privs")) {
		if !slices.Contains(access.Privileges(c.s.cfg.major()), p) {
			return nil, badParam("privs", "invalid format - invalid privilege '%s'\n", p)
		}
		out = append(out, p)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// createRole is POST /access/roles.
func createRole(c *call) (any, error) {
	role := c.p.Str("roleid")
	privs, err := c.privs()
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(strings.ToUpper(role), "PVE") {
		return nil, badParam("roleid", "cannot use role ID starting with the (case-insensitive) 'PVE' namespace")
	}
	return nil, c.changeAccess("create role failed", func(st *access.State) error {
		if _, taken := st.Roles[role]; taken {
			return fmt.Errorf("role '%s' already exists", role)
		}
		st.Roles[role] = privs
		return nil
	})
}

// updateRole is PUT /access/roles/{roleid}.
func updateRole(c *call) (any, error) {
	role := c.p.Str("roleid")
	privs, err := c.privs()
	switch {
	case err != nil:
		return nil, err
	case c.special(role):
		return nil, fail("auto-generated role '%s' cannot be modified", role)
	}
	return nil, c.changeAccess("update role failed", func(st *access.State) error {
		old, ok := st.Roles[role]
		if !ok {
			return fmt.Errorf("role '%s' does not exist", role)
		}
		if c.p.Bool("append") {
			privs = slices.Compact(slices.Sorted(slices.Values(slices.Concat(old, privs))))
		}
		st.Roles[role] = privs
		return nil
	})
}

// deleteRole is DELETE /access/roles/{roleid}; its entries go with it.
func deleteRole(c *call) (any, error) {
	role := c.p.Str("roleid")
	if c.special(role) {
		return nil, fail("auto-generated role '%s' cannot be deleted", role)
	}
	return nil, c.changeAccess("delete role failed", func(st *access.State) error {
		if _, ok := st.Roles[role]; !ok {
			return fmt.Errorf("role '%s' does not exist", role)
		}
		delete(st.Roles, role)
		st.ACL = slices.DeleteFunc(st.ACL, func(e access.Entry) bool { return e.Role == role })
		return nil
	})
}

// members are a group's users, sorted.
func members(st *access.State, group string) []string {
	out := []string{}
	for _, id := range slices.Sorted(maps.Keys(st.Users)) {
		if slices.Contains(st.Users[id].Groups, group) {
			out = append(out, id)
		}
	}
	return out
}

// listGroups is GET /access/groups.
func listGroups(c *call) (any, error) {
	st := c.s.access.State()
	out := []map[string]any{}
	for _, g := range slices.Sorted(maps.Keys(st.Groups)) {
		if !c.may("/access/groups/"+g, "User.Modify", "Sys.Audit", "Group.Allocate") {
			continue
		}
		item := map[string]any{"groupid": g, "users": strings.Join(members(st, g), ",")}
		if st.Groups[g] != "" {
			item["comment"] = st.Groups[g]
		}
		out = append(out, item)
	}
	return out, nil
}

// readGroup is GET /access/groups/{groupid}.
func readGroup(c *call) (any, error) {
	st, g := c.s.access.State(), c.p.Str("groupid")
	comment, ok := st.Groups[g]
	if !ok {
		return nil, fail("group '%s' does not exist", g)
	}
	out := map[string]any{"members": members(st, g)}
	if comment != "" {
		out["comment"] = comment
	}
	return out, nil
}

// createGroup is POST /access/groups.
func createGroup(c *call) (any, error) {
	g := c.p.Str("groupid")
	return nil, c.changeAccess("create group failed", func(st *access.State) error {
		if _, taken := st.Groups[g]; taken {
			return fmt.Errorf("group '%s' already exists", g)
		}
		st.Groups[g] = c.p.Str("comment")
		return nil
	})
}

// updateGroup is PUT /access/groups/{groupid}.
func updateGroup(c *call) (any, error) {
	g := c.p.Str("groupid")
	return nil, c.changeAccess("update group failed", func(st *access.State) error {
		if _, ok := st.Groups[g]; !ok {
			return fmt.Errorf("group '%s' does not exist", g)
		}
		if c.p.Has("comment") {
			st.Groups[g] = c.p.Str("comment")
		}
		return nil
	})
}

// deleteGroup is DELETE /access/groups/{groupid}.
func deleteGroup(c *call) (any, error) {
	g := c.p.Str("groupid")
	return nil, c.changeAccess("delete group failed", func(st *access.State) error {
		if _, ok := st.Groups[g]; !ok {
			return fmt.Errorf("group '%s' does not exist", g)
		}
		delete(st.Groups, g)
		st.Drop(access.GroupPrefix + g)
		for _, u := range st.Users {
			u.Groups = slices.DeleteFunc(u.Groups, func(name string) bool { return name == g })
		}
		return nil
	})
}
