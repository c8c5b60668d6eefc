package pve

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/schema"
)

// userInfo are the options of a user that are kept as they are given.
var userInfo = []string{"comment", "email", "firstname", "lastname", "keys"}

// realmTypes are the realms that users can be of.
var realmTypes = map[string]string{"pam": "pam", "pve": "pve"}

// changeAccess changes users and grants; what is wrong is told behind what was
// to be done, as all calls do that take the lock of the users' file.
func (c *call) changeAccess(what string, f func(*access.State) error) error {
	err := c.s.access.Change(f)
	if err == nil {
		return nil
	}
	if e := asAPI(err); e.params != nil {
		return e
	}
	return fail("%s: %w", what, err)
}

// userItem is what the calls tell of a user.
func userItem(u *access.User) map[string]any {
	out := map[string]any{"enable": 1, "expire": u.Expire}
	if u.Disabled {
		out["enable"] = 0
	}
	for k, v := range u.Info {
		if v != "" {
			out[k] = v
		}
	}
	return out
}

// tokenItem is what the calls tell of a token: everything but its secret.
func tokenItem(t access.Token) map[string]any {
	out := map[string]any{"privsep": 1, "expire": t.Expire}
	if t.Shared {
		out["privsep"] = 0
	}
	if t.Comment != "" {
		out["comment"] = t.Comment
	}
	return out
}

// listUsers is GET /access/users.
func listUsers(c *call) (any, error) {
	st := c.s.access.State()
	all := c.may("/access/groups", "User.Modify", "Sys.Audit")
	out := []map[string]any{}
	for _, id := range slices.Sorted(maps.Keys(st.Users)) {
		u := st.Users[id]
		mine := func(g string) bool { return c.may("/access/groups/"+g, "User.Modify", "Sys.Audit") }
		if !all && id != c.who.name && !slices.ContainsFunc(u.Groups, mine) {
			continue
		}
		if c.p.Has("enabled") && c.p.Bool("enabled") == u.Disabled {
			continue
		}
		item := userItem(u)
		item["userid"] = id
		if kind := realmTypes[id[strings.LastIndexByte(id, '@')+1:]]; kind != "" {
			item["realm-type"] = kind
		}
		if c.p.Bool("full") {
			item["groups"] = strings.Join(u.Groups, ",")
			item["tokens"] = tokenItems(u)
		}
		out = append(out, item)
	}
	return out, nil
}

func tokenItems(u *access.User) []map[string]any {
	out := []map[string]any{}
	for _, t := range u.Tokens {
		item := tokenItem(t)
		item["tokenid"] = t.ID
		out = append(out, item)
	}
	return out
}

// user returns the user that the path names.
func (c *call) user() (*access.User, error) {
	id := c.p.Str("userid")
	if u := c.s.access.State().Users[id]; u != nil {
		return u, nil
	}
	return nil, noUser(id)
}

// readUser is GET /access/users/{userid}.
func readUser(c *call) (any, error) {
	u, err := c.user()
	if err != nil {
		return nil, err
	}
	out, tokens := userItem(u), map[string]any{}
	for _, t := range u.Tokens {
		tokens[t.ID] = tokenItem(t)
	}
	if len(tokens) > 0 {
		out["tokens"] = tokens
	}
	out["groups"] = append([]string{}, u.Groups...)
	return out, nil
}

// setUser takes over what a call tells of a user.
func (c *call) setUser(st *access.State, u *access.User) error {
	if c.p.Has("enable") {
		u.Disabled = !c.p.Bool("enable")
	}
	if c.p.Has("expire") {
		u.Expire = int64(c.p.Int("expire", 0))
	}
	if c.p.Has("groups") && !c.p.Bool("append") {
		u.Groups = nil
	}
	for _, g := range schema.SplitList(c.p.Str("groups")) {
		if _, ok := st.Groups[g]; !ok {
			return fmt.Errorf("no such group '%s'", g)
		}
		if !slices.Contains(u.Groups, g) {
			u.Groups = append(u.Groups, g)
		}
	}
	slices.Sort(u.Groups)
	if u.Info == nil {
		u.Info = map[string]string{}
	}
	for _, k := range userInfo {
		if c.p.Has(k) {
			u.Info[k] = c.p.Str(k)
		}
	}
	return nil
}

// createUser is POST /access/users.
func createUser(c *call) (any, error) {
	id := c.p.Str("userid")
	return nil, c.changeAccess("create user failed", func(st *access.State) error {
		realm := id[strings.LastIndexByte(id, '@')+1:]
		switch {
		case st.Users[id] != nil:
			return fmt.Errorf("user '%s' already exists", id)
		case c.p.Has("password") && realmTypes[realm] == "":
			return fmt.Errorf("auth domain '%s' does not exist", realm)
		}
		u := &access.User{ID: id, Password: access.Secret(c.p.Str("password"))}
		st.Users[id] = u
		return c.setUser(st, u)
	})
}

// updateUser is PUT /access/users/{userid}.
func updateUser(c *call) (any, error) {
	id := c.p.Str("userid")
	return nil, c.changeAccess("update user failed", func(st *access.State) error {
		if st.Users[id] == nil {
			return noUser(id)
		}
		return c.setUser(st, st.Users[id])
	})
}

// deleteUser is DELETE /access/users/{userid}; the superuser comes back at once.
func deleteUser(c *call) (any, error) {
	id := c.p.Str("userid")
	return nil, c.changeAccess("delete user failed", func(st *access.State) error {
		u := st.Users[id]
		if u == nil {
			return nil
		}
		st.Drop(id)
		for _, t := range u.Tokens {
			st.Drop(id + "!" + t.ID)
		}
		delete(st.Users, id)
		if id == access.Superuser {
			st.Users[id] = &access.User{ID: id, Password: u.Password}
		}
		return nil
	})
}

// putPassword is PUT /access/password.
func putPassword(c *call) (any, error) {
	id := c.p.Str("userid")
	if _, err := c.user(); err != nil {
		return nil, err
	}
	if !c.who.root() {
		switch {
		case id == access.Superuser:
			return nil, forbidden("")
		case !c.p.Has("confirmation-password"):
			return nil, badParam("confirmation-password", "password is required to modify user")
		case c.s.access.Login(c.who.name, c.p.Str("confirmation-password")) != nil:
			return nil, access.ErrUnauthenticated
		}
	}
	return nil, c.s.access.Change(func(st *access.State) error {
		if st.Users[id] == nil {
			return noUser(id)
		}
		st.Users[id].Password = access.Secret(c.p.Str("password"))
		return nil
	})
}
