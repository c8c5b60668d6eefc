package pve_test

import (
	"encoding/json"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"savepoint/testbed/pve/memory"
)

// wire is one request and what is to come of it.
type wire struct {
	name, method, path, form string
	status                   int
	reason                   string // "" = not compared
	body                     string // a part of it
}

func (n *node) exchange(token string, list []wire) {
	n.t.Helper()
	for _, w := range list {
		status, reason, body := n.as(token, w.method, w.path, w.form)
		if status != w.status || w.reason != "" && reason != w.reason || !strings.Contains(body, w.body) {
			n.t.Errorf("%s: %d %q %s\nwant %d %q …%s…", w.name, status, reason, body, w.status, w.reason, w.body)
		}
	}
}

// secretOf makes a token through the API and returns its secret.
func (n *node) newToken(user, id, form string) string {
	n.t.Helper()
	status, reason, body := n.do("POST", "/access/users/"+user+"/token/"+id, form)
	var out struct {
		Data struct {
			Full  string `json:"full-tokenid"`
			Value string `json:"value"`
		} `json:"data"`
	}
	if status != 200 || json.Unmarshal([]byte(body), &out) != nil || out.Data.Full != user+"!"+id || len(out.Data.Value) != 36 {
		n.t.Fatalf("token %s!%s: %d %q %s", user, id, status, reason, body)
	}
	return out.Data.Value
}

func TestUsersAndTokens(t *testing.T) {
	n := newNode(t, nil)
	n.exchange("sp@pve!t1", []wire{
		{"make", "POST", "/access/users", "userid=op@pve&password=long+enough&comment=a+b&groups=", 200, "OK", `{"data":null}`},
		{"twice", "POST", "/access/users", "userid=op@pve", 500, "create user failed: user 'op@pve' already exists", ""},
		{"short password", "POST", "/access/users", "userid=a@pve&password=short", 400, "Parameter verification failed.", "value must be at least 8 characters long"},
		{"bad name", "POST", "/access/users", "userid=nobody", 500, "value 'nobody' does not look like a valid user name", ""},
		{"group missing", "POST", "/access/users", "userid=a@pve&groups=crew", 500, "create user failed: no such group 'crew'", ""},
		{"group", "POST", "/access/groups", "groupid=crew&comment=c", 200, "OK", ""},
		{"group twice", "POST", "/access/groups", "groupid=crew", 500, "create group failed: group 'crew' already exists", ""},
		{"into the group", "PUT", "/access/users/op@pve", "groups=crew&append=1&email=a@b.org", 200, "OK", ""},
		{"append alone", "PUT", "/access/users/op@pve", "append=1", 400, "Parameter verification failed.", "missing property - 'append' requires this property"},
		{"read", "GET", "/access/users/op@pve", "", 200, "OK", `{"data":{"comment":"a b","email":"a@b.org","enable":1,"expire":0,"groups":["crew"]}}`},
		{"read nobody", "GET", "/access/users/no@pve", "", 500, "no such user ('no@pve')", ""},
		{"group's members", "GET", "/access/groups/crew", "", 200, "OK", `{"data":{"comment":"c","members":["op@pve"]}}`},
		{"groups", "GET", "/access/groups", "", 200, "OK", `"users":"op@pve"`},
		{"no token", "GET", "/access/users/op@pve/token/tk", "", 500, "no such token 'tk' for user 'op@pve'", ""},
		{"password by token", "PUT", "/access/password", "userid=op@pve&password=long+enough", 403, "Permission check failed (token not allowed)", ""},
	})
	n.newToken("op@pve", "tk", "comment=x&expire=0")
	n.exchange("sp@pve!t1", []wire{
		{"token twice", "POST", "/access/users/op@pve/token/tk", "", 400, "Parameter verification failed.", `"errors":{"tokenid":"Token already exists."}`},
		{"token", "GET", "/access/users/op@pve/token/tk", "", 200, "OK", `{"data":{"comment":"x","expire":0,"privsep":1}}`},
		{"change", "PUT", "/access/users/op@pve/token/tk", "privsep=0", 200, "OK", `{"data":{"comment":"x","expire":0,"privsep":0}}`},
		{"delete an option", "PUT", "/access/users/op@pve/token/tk", "delete=comment", 200, "OK", `{"data":{"expire":0,"privsep":0}}`},
		{"list", "GET", "/access/users/op@pve/token", "", 200, "OK", `[{"expire":0,"privsep":0,"tokenid":"tk"}]`},
		{"full list", "GET", "/access/users?full=1", "", 200, "OK", `"groups":"crew"`},
		{"disabled only", "GET", "/access/users?enabled=0", "", 200, "OK", `{"data":[]}`},
		{"remove", "DELETE", "/access/users/op@pve/token/tk", "", 200, "OK", ""},
		{"remove twice", "DELETE", "/access/users/op@pve/token/tk", "", 500, "deleting token failed: no such token 'tk' for user 'op@pve'", ""},
		{"leave the group", "PUT", "/access/users/op@pve", "groups=", 200, "OK", ""},
		{"remove group", "DELETE", "/access/groups/crew", "", 200, "OK", ""},
		{"remove user", "DELETE", "/access/users/op@pve", "", 200, "OK", ""},
		{"remove user twice", "DELETE", "/access/users/op@pve", "", 500, "no such user ('op@pve')", ""},
	})
	n8 := newNode(t, version("8.4"))
	n8.exchange("sp@pve!t1", []wire{{"delete on 8", "PUT", "/access/users/sp@pve/token/t1", "delete=comment", 400, "", "not defined in schema"}})
}

func TestRolesAndACL(t *testing.T) {
	for release, only := range map[string]string{"8.4": "VM.Monitor", "9.2": "VM.GuestAgent.Audit"} {
		other := map[string]string{"8.4": "VM.GuestAgent.Audit", "9.2": "VM.Monitor"}[release]
		n := newNode(t, version(release))
		n.exchange("sp@pve!t1", []wire{
			{"role", "POST", "/access/roles", "roleid=Own&privs=VM.Audit," + only, 200, "OK", ""},
			{"F117 unknown privilege", "POST", "/access/roles", "roleid=Old&privs=" + other, 400, "Parameter verification failed.", `"errors":{"privs":"invalid format - invalid privilege '` + other + `'\n"}`},
			{"twice", "POST", "/access/roles", "roleid=Own", 500, "create role failed: role 'Own' already exists", ""},
			{"reserved", "POST", "/access/roles", "roleid=pveOwn", 400, "Parameter verification failed.", "namespace"},
			{"built in", "PUT", "/access/roles/PVEAdmin", "privs=VM.Audit", 500, "auto-generated role 'PVEAdmin' cannot be modified", ""},
			{"built in", "DELETE", "/access/roles/NoAccess", "", 500, "auto-generated role 'NoAccess' cannot be deleted", ""},
			{"append", "PUT", "/access/roles/Own", "privs=VM.Clone&append=1", 200, "OK", ""},
			{"read", "GET", "/access/roles/Own", "", 200, "OK", `"VM.Clone":1`},
			{"replace", "PUT", "/access/roles/Own", "privs=VM.Audit", 200, "OK", ""},
			{"read", "GET", "/access/roles/Own", "", 200, "OK", `{"data":{"VM.Audit":1}}`},
			{"missing", "GET", "/access/roles/No", "", 500, "role 'No' does not exist", ""},
			{"missing", "PUT", "/access/roles/No", "", 500, "update role failed: role 'No' does not exist", ""},
			{"list", "GET", "/access/roles", "", 200, "OK", `{"privs":"VM.Audit","roleid":"Own","special":0}`},

			{"whom", "PUT", "/access/acl", "path=/vms&roles=Own", 400, "Parameter verification failed.", `"users":"either 'users', 'groups' or 'tokens' is required."`},
			{"where", "PUT", "/access/acl", "path=/vms/x&roles=Own&users=sp@pve", 400, "Parameter verification failed.", `"path":"invalid ACL path '/vms/x'"`},
			{"which", "PUT", "/access/acl", "path=/vms&roles=No&users=sp@pve", 500, "ACL update failed: role 'No' does not exist", ""},
			{"nobody", "PUT", "/access/acl", "path=/vms&roles=Own&users=no@pve", 500, "ACL update failed: user 'no@pve' does not exist", ""},
			{"no group", "PUT", "/access/acl", "path=/vms&roles=Own&groups=no", 500, "ACL update failed: group 'no' does not exist", ""},
			{"no token", "PUT", "/access/acl", "path=/vms&roles=Own&tokens=sp@pve!no", 500, "ACL update failed: no such token 'no' for user 'sp@pve'", ""},
			{"make", "POST", "/access/users", "userid=op@pve", 200, "OK", ""},
			{"grant", "PUT", "/access/acl", "path=vms//7000/&roles=Own&users=op@pve&propagate=0", 200, "OK", `{"data":null}`},
			{"list", "GET", "/access/acl", "", 200, "OK", `{"path":"/vms/7000","propagate":0,"roleid":"Own","type":"user","ugid":"op@pve"}`},
			{"seen", "GET", "/access/permissions?userid=op@pve&path=/vms/7000", "", 200, "OK", `{"data":{"/vms/7000":{"VM.Audit":0}}}`},
			{"take", "PUT", "/access/acl", "path=/vms/7000&roles=Own&users=op@pve&delete=1", 200, "OK", ""},
			{"gone", "GET", "/access/permissions?userid=op@pve&path=/vms/7000", "", 200, "OK", `{"data":{}}`},
			{"grant again", "PUT", "/access/acl", "path=/vms/7000&roles=Own&users=op@pve", 200, "OK", ""},
			{"role's end", "DELETE", "/access/roles/Own", "", 200, "OK", ""},
			{"its grants are gone", "GET", "/access/permissions?userid=op@pve&path=/vms/7000", "", 200, "OK", `{"data":{}}`},
		})
	}
}

// F118 F119 F120: a separated token may do nothing until it is granted
// something, one that is not separated does what its user may; neither may
// change what it may not.
func TestWhoMayGrant(t *testing.T) {
	n := newNode(t, nil)
	n.exchange("sp@pve!t1", []wire{
		{"user", "POST", "/access/users", "userid=op@pve&password=first+password", 200, "OK", ""},
		{"other", "POST", "/access/users", "userid=other@pve", 200, "OK", ""},
		{"group", "POST", "/access/groups", "groupid=crew", 200, "OK", ""},
		{"role", "POST", "/access/roles", "roleid=Run&privs=VM.Allocate,VM.PowerMgmt", 200, "OK", ""},
		{"role", "POST", "/access/roles", "roleid=Boss&privs=VM.Snapshot", 200, "OK", ""},
		{"grant", "PUT", "/access/acl", "path=/vms/100&roles=Run&users=op@pve", 200, "OK", ""},
	})
	n.newToken("op@pve", "sep", "")
	n.newToken("op@pve", "own", "privsep=0")
	start := "/nodes/pve1/qemu/100/status/start"
	n.makeVM("100", "")
	n.exchange("op@pve!sep", []wire{{"F119 separated", "POST", start, "x=1", 403, "Permission check failed (/vms/100, VM.PowerMgmt)", ""}})
	n.exchange("op@pve!own", []wire{
		{"not separated", "POST", start, "", 200, "OK", "UPID"},
		{"a role within his", "PUT", "/access/acl", "path=/vms/100&roles=Run&tokens=op@pve!sep", 200, "OK", ""},
		{"a role beyond", "PUT", "/access/acl", "path=/vms/100&roles=Boss&tokens=op@pve!sep", 400, "Parameter verification failed.", "Cannot add role 'Boss' - requires 'Permissions.Modify' or superset of privileges."},
		{"elsewhere", "PUT", "/access/acl", "path=/vms/101&roles=Run&users=op@pve", 403, "Permission check failed (/vms/101, Permissions.Modify|VM.Allocate)", ""},
		{"a role", "POST", "/access/roles", "roleid=X", 403, "Permission check failed (/access, Sys.Modify)", ""},
		{"a group", "POST", "/access/groups", "groupid=x", 403, "Permission check failed (/access/groups, Group.Allocate)", ""},
		{"a user", "POST", "/access/users", "userid=x@pve", 403, "Permission check failed (/access/realm/pve, Realm.AllocateUser)", ""},
		{"another user", "PUT", "/access/users/other@pve", "comment=x", 403, "Permission check failed (/access/groups, User.Modify)", ""},
		{"another user's token", "POST", "/access/users/other@pve/token/x", "", 403, "Permission check failed", ""},
		{"a token is not its user", "GET", "/access/users/op@pve/token", "", 403, "Permission check failed", ""},
		{"sees", "GET", "/access/users", "", 200, "OK", `{"data":[]}`},
		{"sees only where it may change", "GET", "/access/acl", "", 200, "OK", `"path":"/vms/100"`},
	})
	n.exchange("op@pve!sep", []wire{{"separated and granted", "POST", "/nodes/pve1/qemu/100/status/stop", "", 200, "OK", "UPID"}})

	// whoever may change a group's users may change those that are in it
	n.exchange("sp@pve!t1", []wire{
		{"leader", "PUT", "/access/acl", "path=/access/groups/crew&roles=PVEUserAdmin&users=op@pve", 200, "OK", ""},
		{"into the group", "PUT", "/access/users/other@pve", "groups=crew", 200, "OK", ""},
	})
	n.exchange("op@pve!own", []wire{
		{"leader", "PUT", "/access/users/other@pve", "comment=x&groups=crew", 200, "OK", ""},
		{"not outside", "PUT", "/access/users/sp@pve", "comment=x&groups=crew", 403, "Permission check failed", ""},
	})
	n.login("op@pve", "first password")
	body := url.Values{"userid": {"op@pve"}, "password": {"second password"}}
	if err := n.client.Put(t.Context(), "/access/password", map[string]any{"userid": "op@pve", "password": "second password"}, nil); err == nil || !strings.Contains(err.Error(), "Parameter verification") {
		t.Errorf("without the old one: %v", err)
	}
	n.must(n.client.Put(t.Context(), "/access/password", map[string]any{"userid": body.Get("userid"), "password": body.Get("password"), "confirmation-password": "first password"}, nil))
	n.login("op@pve", "second password")
	n.must(n.client.Get(t.Context(), "/access/users/op@pve/token", nil))
}

// What was made through the API is still there after a restart, and its
// secrets stand in no file that others can read.
func TestAccessSurvivesRestart(t *testing.T) {
	mem := memory.New()
	cfg := config(filepath.Join(t.TempDir(), "state"), mem)
	n := startNode(t, cfg, mem)
	n.exchange("sp@pve!t1", []wire{{"user", "POST", "/access/users", "userid=op@pve&password=first+password", 200, "OK", ""}})
	secret := n.newToken("op@pve", "tk", "")
	n.exchange("sp@pve!t1", []wire{{"grant", "PUT", "/access/acl", "path=/&roles=PVEAuditor&users=op@pve&tokens=op@pve!tk", 200, "OK", ""}})
	n.srv.Close()
	n = startNode(t, cfg, mem)
	if n.srv.Credentials().Tokens["op@pve!tk"].Reveal() != secret {
		t.Error("the token's secret changed")
	}
	n.exchange("op@pve!tk", []wire{{"token", "GET", "/cluster/status", "", 200, "OK", `"pve1"`}})
	n.login("op@pve", "first password")
	n.must(n.client.Get(t.Context(), "/cluster/status", nil))
}
