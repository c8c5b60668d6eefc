package access_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"savepoint/testbed/pve/access"
)

func directory(t *testing.T) *access.Directory {
	t.Helper()
	d, err := access.New(access.Settings{
		Major: "9", Key: []byte("key"), Now: func() time.Time { return time.Unix(1_700_000_000, 0) },
		Users: []access.User{
			{ID: "root@pam", Password: "rootpw", Tokens: []access.Token{{ID: "all", Secret: "r1", Shared: true}}},
			{ID: "sp@pve", Password: "pw", Tokens: []access.Token{{ID: "sep", Secret: "s1"}, {ID: "own", Secret: "s2", Shared: true}}},
			{ID: "mute@pve"},
		},
		Roles: map[string][]string{"Run": {"VM.PowerMgmt", "VM.Audit"}, "Look": {"VM.Audit"}},
		ACL: []access.Entry{
			{Path: "/", Subject: "sp@pve", Role: "Look"},
			{Path: "/vms/100", Subject: "sp@pve", Role: "Run"},
			{Path: "/vms/200", Subject: "sp@pve", Role: "NoAccess"},
			{Path: "/pool/p", Subject: "sp@pve", Role: "Run"},
			{Path: "/storage", Subject: "sp@pve", Role: "PVEAuditor", Here: true},
			{Path: "/vms", Subject: "sp@pve!sep", Role: "Run"},
		},
		Pool: func(path string) string {
			if path == "/vms/300" {
				return "p"
			}
			return ""
		},
		File: filepath.Join(t.TempDir(), "access.json"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestPrivileges(t *testing.T) {
	d := directory(t)
	for _, tt := range []struct {
		who, path, priv string
		want            bool
	}{
		{"sp@pve", "/vms/101", "VM.Audit", true},
		{"sp@pve", "/vms/101", "VM.PowerMgmt", false},
		{"sp@pve", "/vms/100", "VM.PowerMgmt", true},
		{"sp@pve", "/vms/200", "VM.Audit", false},          // NoAccess replaces what is above
		{"sp@pve", "/vms/300", "VM.PowerMgmt", true},       // by its pool
		{"sp@pve", "/storage", "Datastore.Audit", true},    // here
		{"sp@pve", "/storage/x", "Datastore.Audit", false}, // and not below
		{"sp@pve!sep", "/vms/100", "VM.PowerMgmt", true},   // both have it
		{"sp@pve!sep", "/vms/101", "VM.PowerMgmt", false},  // the user has not
		{"sp@pve!sep", "/nodes/a", "VM.Audit", false},      // F119: the token has not
		{"sp@pve!own", "/nodes/a", "VM.Audit", true},       // the user's are its own
		{"sp@pve!none", "/vms/100", "VM.Audit", false},
		{"nobody@pve", "/vms/100", "VM.Audit", false},
		{"root@pam", "/x", "Sys.Modify", true},
		{"root@pam!all", "/x", "Sys.Modify", true},
		{"root@pam", "/a b", "Sys.Modify", false},
	} {
		if got := d.Has(tt.who, tt.path, tt.priv); got != tt.want {
			t.Errorf("%s on %s: %s %v, want %v", tt.who, tt.path, tt.priv, got, tt.want)
		}
	}
	got := d.Permissions("sp@pve!sep", "")
	want := map[string]map[string]int{"/vms": {"VM.Audit": 1}, "/vms/100": {"VM.Audit": 1, "VM.PowerMgmt": 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAuthentication(t *testing.T) {
	d := directory(t)
	for value, want := range map[string]string{
		"sp@pve!sep=s1": "sp@pve!sep", "sp@pve!sep=s2": "", "sp@pve!sep=": "", "sp@pve!sep": "", "x@pve!sep=s1": "", "sp@pve=s1": "",
	} {
		if got, err := d.Token(value); got != want || (err == nil) != (want != "") {
			t.Errorf("token %q: %q %v", value, got, err)
		}
	}
	if d.Login("sp@pve", "pw") != nil || d.Login("sp@pve", "no") == nil || d.Login("mute@pve", "") == nil || d.Login("x@pve", "pw") == nil {
		t.Error("passwords")
	}
	now := time.Unix(1_700_000_000, 0)
	ticket, csrf := d.Ticket("sp@pve", now), d.CSRF("sp@pve", now)
	for _, tt := range []struct {
		name, ticket string
		at           time.Time
		ok           bool
	}{
		{"fresh", ticket, now, true},
		{"two hours", ticket, now.Add(2 * time.Hour), false},
		{"from the future", ticket, now.Add(-10 * time.Minute), false},
		{"other user", "PVE:root@pam" + ticket[len("PVE:sp@pve"):], now, false},
		{"broken", ticket[:len(ticket)-2], now, false},
		{"none", "", now, false},
	} {
		if user, err := d.CheckTicket(tt.ticket, tt.at); (err == nil) != tt.ok || tt.ok && user != "sp@pve" {
			t.Errorf("ticket %s: %q %v", tt.name, user, err)
		}
	}
	if !d.CheckCSRF(csrf, "sp@pve", now) || d.CheckCSRF(csrf, "root@pam", now) || d.CheckCSRF(csrf, "sp@pve", now.Add(3*time.Hour)) || d.CheckCSRF("x", "sp@pve", now) {
		t.Error("csrf token")
	}
}

// F117: the agent's privileges differ by version.
func TestVersions(t *testing.T) {
	if _, err := access.New(access.Settings{Major: "9", Roles: map[string][]string{"R": {"VM.Monitor"}}}); err == nil {
		t.Error("9 accepts VM.Monitor")
	}
	if _, err := access.New(access.Settings{Major: "8", Roles: map[string][]string{"R": {"VM.GuestAgent.Audit"}}}); err == nil {
		t.Error("8 accepts VM.GuestAgent.Audit")
	}
	if _, err := access.New(access.Settings{Major: "9", ACL: []access.Entry{{Path: "/", Subject: "a@pve", Role: "Nope"}}}); err == nil {
		t.Error("an entry with an unknown role is accepted")
	}
	if len(access.Privileges("8")) != 42 || len(access.Privileges("9")) != 47 {
		t.Errorf("%d and %d privileges", len(access.Privileges("8")), len(access.Privileges("9")))
	}
}

func TestSecretIsRedacted(t *testing.T) {
	s := access.Secret("hunter2")
	u := access.User{ID: "a@pve", Password: s}
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%v %+v %#v %s %q", s, u, u, s, s)} {
		if s.Reveal() != "hunter2" || strings.Contains(text, "hunter2") {
			t.Errorf("secret shows in %s", text)
		}
	}
}

// No way of printing a secret shows it.
func TestSecretsAreNotShown(t *testing.T) {
	u := access.User{ID: "root@pam", Password: "hunter2", Tokens: []access.Token{{ID: "t", Secret: "hunter2"}}}
	text, err := json.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		text = fmt.Append(text, " ", fmt.Sprintf(verb, u))
	}
	if s := string(text); strings.Contains(s, "hunter2") || strings.Contains(s, fmt.Sprintf("%x", "hunter2")) {
		t.Errorf("shown: %s", s)
	}
}

// What was changed is still so in the next process, secrets included; what a
// change refused is not.
func TestChangesAreKept(t *testing.T) {
	d := directory(t)
	err := d.Change(func(st *access.State) error {
		st.Users["new@pve"] = &access.User{
			ID: "new@pve", Password: "secret one", Groups: []string{"crew"}, Info: map[string]string{"comment": "c"},
			Tokens: []access.Token{{ID: "t", Secret: "secret two", Comment: "x"}},
		}
		st.Groups["crew"] = "the crew"
		st.Roles["Own"] = []string{"VM.Console"}
		st.Set(access.Entry{Path: "/vms", Subject: "@crew", Role: "Own"})
		st.Set(access.Entry{Path: "/vms", Subject: "new@pve!t", Role: "Own"})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("no")
	if err := d.Change(func(st *access.State) error { st.Users["lost@pve"] = &access.User{}; return refused }); !errors.Is(err, refused) {
		t.Error(err)
	}
	if info, err := os.Stat(d.File); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	again, err := access.New(d.Settings)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []*access.Directory{d, again} {
		if dir.Login("new@pve", "secret one") != nil {
			t.Error("password")
		}
		if who, err := dir.Token("new@pve!t=secret two"); err != nil || !dir.Has(who, "/vms/1", "VM.Console") || dir.Has(who, "/vms/1", "VM.Audit") {
			t.Errorf("token: %q %v", who, err)
		}
		if dir.State().Users["lost@pve"] != nil || dir.Login("sp@pve", "pw") != nil {
			t.Error("a refused change is kept, or a configured user gone")
		}
	}
	if diff := cmp.Diff(d.State(), again.State()); diff != "" {
		t.Error(diff)
	}
}

// A user's own entries take the place of those of his groups, and who is
// disabled or expired is nobody, by password, token and ticket.
func TestGroupsAndExpiry(t *testing.T) {
	d := directory(t)
	now := d.Now()
	change := func(f func(*access.State)) {
		t.Helper()
		if err := d.Change(func(st *access.State) error { f(st); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	change(func(st *access.State) {
		st.Groups["crew"] = ""
		st.Users["sp@pve"].Groups = []string{"crew"}
		st.Set(access.Entry{Path: "/vms/100", Subject: "@crew", Role: "PVEVMAdmin"})
		st.Set(access.Entry{Path: "/vms/101", Subject: "@crew", Role: "PVEVMAdmin"})
	})
	if d.Has("sp@pve", "/vms/100", "VM.Snapshot") || !d.Has("sp@pve", "/vms/101", "VM.Snapshot") || !d.Has("sp@pve!own", "/vms/101", "VM.Snapshot") {
		t.Error("groups")
	}
	ticket := d.Ticket("sp@pve", now)
	known := func() [3]bool {
		_, byToken := d.Token("sp@pve!own=s2")
		_, byTicket := d.CheckTicket(ticket, now)
		return [3]bool{d.Login("sp@pve", "pw") == nil, byToken == nil, byTicket == nil}
	}
	if known() != [3]bool{true, true, true} {
		t.Error(known())
	}
	change(func(st *access.State) { st.Users["sp@pve"].Disabled = true })
	if known() != [3]bool{} {
		t.Error("disabled:", known())
	}
	change(func(st *access.State) { st.Users["sp@pve"].Disabled, st.Users["sp@pve"].Expire = false, now.Unix() })
	if known() != [3]bool{} {
		t.Error("expired:", known())
	}
	change(func(st *access.State) {
		st.Users["sp@pve"].Expire, st.Users["sp@pve"].Token("own").Expire = now.Unix()+1, now.Unix()
	})
	if known() != [3]bool{true, false, true} {
		t.Error("token expired:", known())
	}
}

func TestBuiltinRoles(t *testing.T) {
	d := directory(t)
	for role, want := range map[string]int{"Administrator": 47, "NoAccess": 0, "PVEAuditor": 6, "PVETemplateUser": 2} {
		if got, ok := d.State().Roles[role]; !ok || len(got) != want || !access.Special("9", role) {
			t.Errorf("%s: %v", role, got)
		}
	}
	if access.Special("9", "Run") {
		t.Error("a role of our own counts as built in")
	}
	for path, want := range map[string]bool{
		"/": true, "/vms": true, "/vms/100": true, "/vms/1": false, "/pool/a/b/c": true, "/pool/a/b/c/d": false, "/sdn/zones/z/v/12": true,
		"/access/groups/g": true, "/storage/local": true, "/x": false, "/nodes/a/b": false, "/sdn/controllers": true,
	} {
		if access.IsObject(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
}
