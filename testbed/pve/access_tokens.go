package pve

import (
	"slices"

	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/schema"
)

// listTokens is GET /access/users/{userid}/token.
func listTokens(c *call) (any, error) {
	u, err := c.user()
	if err != nil {
		return nil, err
	}
	return tokenItems(u), nil
}

func noToken(user, id string) error { return fail("no such token '%s' for user '%s'", id, user) }

// readToken is GET /access/users/{userid}/token/{tokenid}.
func readToken(c *call) (any, error) {
	u, err := c.user()
	if err != nil {
		return nil, err
	}
	t := u.Token(c.p.Str("tokenid"))
	if t == nil {
		return nil, noToken(u.ID, c.p.Str("tokenid"))
	}
	return tokenItem(*t), nil
}

// setToken takes over what a call tells of a token.
func (c *call) setToken(t *access.Token) {
	if c.p.Has("privsep") {
		t.Shared = !c.p.Bool("privsep")
	}
	if c.p.Has("expire") {
		t.Expire = int64(c.p.Int("expire", 0))
	}
	if c.p.Has("comment") {
		t.Comment = c.p.Str("comment")
	}
	for _, k := range schema.SplitList(c.p.Str("delete")) {
		switch k {
		case "comment":
			t.Comment = ""
		case "expire":
			t.Expire = 0
		case "privsep":
			t.Shared = false
		}
	}
}

// createToken is POST /access/users/{userid}/token/{tokenid}. Nothing tells
// the secret a second time.
func createToken(c *call) (any, error) {
	user, t := c.p.Str("userid"), access.Token{ID: c.p.Str("tokenid"), Secret: access.Secret(newUUID())}
	c.setToken(&t)
	err := c.changeAccess("generating token failed", func(st *access.State) error {
		u := st.Users[user]
		switch {
		case u == nil:
			return noUser(user)
		case u.Token(t.ID) != nil:
			return badParam("tokenid", "Token already exists.")
		}
		u.Tokens = append(u.Tokens, t)
		return nil
	})
	if err != nil {
		return nil, err
	}
	info := tokenItem(t)
	if !c.p.Has("expire") {
		delete(info, "expire")
	}
	return map[string]any{"full-tokenid": user + "!" + t.ID, "info": info, "value": t.Secret.Reveal()}, nil
}

// updateToken is PUT /access/users/{userid}/token/{tokenid}.
func updateToken(c *call) (any, error) {
	user, id := c.p.Str("userid"), c.p.Str("tokenid")
	var now access.Token
	err := c.changeAccess("updating token info failed", func(st *access.State) error {
		u := st.Users[user]
		if u == nil {
			return noUser(user)
		}
		t := u.Token(id)
		if t == nil {
			return noToken(user, id)
		}
		c.setToken(t)
		now = *t
		return nil
	})
	if err != nil {
		return nil, err
	}
	return tokenItem(now), nil
}

// deleteToken is DELETE /access/users/{userid}/token/{tokenid}.
func deleteToken(c *call) (any, error) {
	user, id := c.p.Str("userid"), c.p.Str("tokenid")
	return nil, c.changeAccess("deleting token failed", func(st *access.State) error {
		u := st.Users[user]
		switch {
		case u == nil:
			return noUser(user)
		case u.Token(id) == nil:
			return noToken(user, id)
		}
		u.Tokens = slices.DeleteFunc(u.Tokens, func(t access.Token) bool { return t.ID == id })
		st.Drop(user + "!" + id)
		return nil
	})
}
