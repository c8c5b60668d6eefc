package access_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"savepoint/testbed/pve/access"
)

func directory(t *testing.T) *access.Directory {
	t.Helper()
	d, err := access.New("9",
		[]access.User{
			{ID: "root@pam", Password: "rootpw", Tokens: []access.Token{{ID: "all", Secret: "r1", Shared: true}}},
			{ID: "sp@pve", Password: "pw", Tokens: []access.Token{{ID: "sep", Secret: "s1"}, {ID: "own", Secret: "s2", Shared: true}}},
			{ID: "mute@pve"},
		},
		map[string][]string{"Run": {"VM.PowerMgmt", "VM.Audit"}, "Look": {"VM.Audit"}},
		[]access.Entry{
			{Path: "/", Subject: "sp@pve", Role: "Look"},
			{Path: "/vms/100", Subject: "sp@pve", Role: "Run"},
			{Path: "/vms/200", Subject: "sp@pve", Role: "NoAccess"},
			{Path: "/pool/p", Subject: "sp@pve", Role: "Run"},
			{Path: "/storage", Subject: "sp@pve", Role: "PVEAuditor", Here: true},
			{Path: "/vms", Subject: "sp@pve!sep", Role: "Run"},
		},
		[]byte("key"), func(path string) string {
			if path == "/vms/300" {
				return "p"
			}
			return ""
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
	none := func(string) string { return "" }
	if _, err := access.New("9", nil, map[string][]string{"R": {"VM.Monitor"}}, nil, nil, none); err == nil {
		t.Error("9 accepts VM.Monitor")
	}
	if _, err := access.New("8", nil, map[string][]string{"R": {"VM.GuestAgent.Audit"}}, nil, nil, none); err == nil {
		t.Error("8 accepts VM.GuestAgent.Audit")
	}
	if _, err := access.New("9", nil, nil, []access.Entry{{Path: "/", Subject: "a@pve", Role: "Nope"}}, nil, none); err == nil {
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
