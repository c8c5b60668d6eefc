package pve

import (
	"slices"
	"strings"

	"savepoint/testbed/pve/schema"
)

func accessTable() []route {
	return append(slices.Concat(userTable(), grantTable()), []route{
		{method: "GET", path: "/access", perm: users, handler: index("subdir", "acl", "domains", "groups", "password", "permissions", "roles", "ticket", "users")},
		{method: "GET", path: "/access/domains", perm: world, handler: listDomains},
		{method: "GET", path: "/access/domains/{realm}", perm: anyOf("/access/realm", "Realm.Allocate", "Sys.Audit"), handler: readDomain},
		{method: "GET", path: "/access/permissions", perm: users, handler: permissions, params: params{
			schema.Str("path").Opt(),
			schema.Str("userid").Opt().Match(`^[^\s:/]+@[A-Za-z][A-Za-z0-9._-]+(?:![A-Za-z][A-Za-z0-9._-]+)?$`),
		}},
		{method: "GET", path: "/access/ticket", perm: world, handler: getTicket},
		{method: "POST", path: "/access/ticket", perm: world, handler: postTicket, noToken: true, params: params{
			schema.Str("username").Len(64),
			schema.Str("password"),
			schema.Str("realm").Opt().Fmt("pve-realm").Len(32),
			schema.Str("otp").Opt(),
			schema.Str("tfa-challenge").Opt(),
			schema.Bool("new-format").Opt(),
			schema.Str("path").Opt().Len(64).Needs("privs"),
			schema.Str("privs").Opt().Len(64).Fmt("pve-priv-list").Needs("path"),
		}},
	}...)
}

// userTable has the calls about users and their tokens.
func userTable() []route {
	const of = "/access/users/{userid}"
	const token = of + "/token/{tokenid}"
	userid := schema.Str("userid").Fmt("pve-userid").Len(64)
	info := func(more ...schema.Param) params {
		return append(params{
			userid,
			schema.Str("comment").Opt().Len(2048),
			schema.Str("email").Opt().Fmt("email-opt").Len(254),
			schema.Bool("enable").Opt(),
			schema.Int("expire").Opt().Min(0),
			schema.Str("firstname").Opt().Len(1024),
			schema.Str("groups").Opt().Fmt("pve-groupid-list"),
			schema.Str("keys").Opt().MatchBy(`[0-9a-zA-Z!=]{0,4096}`, strings.Repeat(`[0-9a-zA-Z!=]{0,1000}`, 4)+`[0-9a-zA-Z!=]{0,96}`),
			schema.Str("lastname").Opt().Len(1024),
		}, more...)
	}
	tokenInfo := params{schema.Str("comment").Opt(), schema.Int("expire").Opt().Min(0), schema.Bool("privsep").Opt()}
	mine := either(self, groupOf("", "User.Modify"))
	return []route{
		{method: "GET", path: "/access/users", perm: users, handler: listUsers, params: params{schema.Bool("enabled").Opt(), schema.Bool("full").Opt()}},
		{
			method: "POST", path: "/access/users", perm: both(realmUser, groupOf("create", "User.Modify")), handler: createUser,
			params: info(schema.Str("password").Opt().AtLeast(8).Len(64)),
		},
		{method: "GET", path: of, perm: groupOf("", "User.Modify", "Sys.Audit"), handler: readUser},
		{method: "PUT", path: of, perm: groupOf("update", "User.Modify"), handler: updateUser, params: info(schema.Bool("append").Opt().Needs("groups"))},
		{method: "DELETE", path: of, perm: both(realmUser, groupOf("", "User.Modify")), handler: deleteUser},
		{method: "GET", path: of + "/token", perm: mine, handler: listTokens},
		{method: "GET", path: token, perm: mine, handler: readToken},
		{method: "POST", path: token, perm: mine, handler: createToken, params: tokenInfo},
		{method: "PUT", path: token, perm: mine, handler: updateToken, params: append(tokenInfo, schema.Str("delete").Opt().Fmt("pve-configid-list").From("9"))},
		{method: "DELETE", path: token, perm: mine, handler: deleteToken},
		{
			method: "PUT", path: "/access/password", perm: either(self, both(realmUser, groupOf("", "User.Modify"))), noToken: true, handler: putPassword,
			params: params{userid, schema.Str("password").AtLeast(8).Len(64), schema.Str("confirmation-password").Opt().AtLeast(5).Len(64)},
		},
	}
}

// grantTable has the calls about groups, roles and access entries.
func grantTable() []route {
	allocate, modify := perm("/access/groups", "Group.Allocate"), perm("/access", "Sys.Modify")
	groupid, roleid := schema.Str("groupid").Fmt("pve-groupid"), schema.Str("roleid").Fmt("pve-roleid")
	comment, privs := schema.Str("comment").Opt(), schema.Str("privs").Opt().Fmt("pve-priv-list")
	const group, role = "/access/groups/{groupid}", "/access/roles/{roleid}"
	return []route{
		{method: "GET", path: "/access/groups", perm: users, handler: listGroups},
		{method: "POST", path: "/access/groups", perm: allocate, handler: createGroup, params: params{groupid, comment}},
		{method: "GET", path: group, perm: anyOf("/access/groups", "Sys.Audit", "Group.Allocate"), handler: readGroup},
		{method: "PUT", path: group, perm: allocate, handler: updateGroup, params: params{comment}},
		{method: "DELETE", path: group, perm: allocate, handler: deleteGroup},
		{method: "GET", path: "/access/roles", perm: users, handler: listRoles},
		{method: "POST", path: "/access/roles", perm: modify, handler: createRole, params: params{roleid, privs}},
		{method: "GET", path: role, perm: users, handler: readRole},
		{method: "PUT", path: role, perm: modify, handler: updateRole, params: params{privs, schema.Bool("append").Opt().Needs("privs")}},
		{method: "DELETE", path: role, perm: modify, handler: deleteRole},
		{method: "GET", path: "/access/acl", perm: users, handler: listACL},
		{method: "PUT", path: "/access/acl", perm: mayModify, handler: putACL, params: params{
			schema.Str("path"),
			schema.Str("roles").Fmt("pve-roleid-list"),
			schema.Str("users").Opt().Fmt("pve-userid-list"),
			schema.Str("groups").Opt().Fmt("pve-groupid-list"),
			schema.Str("tokens").Opt().Fmt("pve-tokenid-list"),
			schema.Bool("delete").Opt(),
			schema.Bool("propagate").Opt(),
		}},
	}
}
