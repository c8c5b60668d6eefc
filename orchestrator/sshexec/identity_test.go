package sshexec_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"savepoint/orchestrator/sshexec"
)

func TestIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "id")
	made, err := sshexec.CreateIdentity(path, "lab")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sshexec.CreateIdentity(path, "lab"); err == nil {
		t.Error("an identity was replaced")
	}
	loaded, err := sshexec.LoadIdentity(path)
	if err != nil || loaded.AuthorizedKey() != made.AuthorizedKey() {
		t.Errorf("loaded %v, %v, want %v", loaded, err, made)
	}
	// However it is printed, the key is not in it.
	encoded, err := json.Marshal(sshexec.Config{Identities: []sshexec.Identity{made}}.Identities)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprint(made), fmt.Sprintf("%+v", made), fmt.Sprintf("%#v", made), fmt.Sprintf("%v", sshexec.Config{Identities: []sshexec.Identity{made}}.Identities), string(encoded)} {
		if !strings.Contains(text, "SHA256:") || len(text) > 80 {
			t.Errorf("prints as %q", text)
		}
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := sshexec.LoadIdentity(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that the group can read: %v", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("-----BEGIN NONSENSE-----"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sshexec.LoadIdentity(path); err == nil || strings.Contains(err.Error(), "NONSENSE") {
		t.Errorf("a file that is no key: %v", err)
	}
}

func TestConfig(t *testing.T) {
	id := identity(t)
	for name, cfg := range map[string]sshexec.Config{
		"no identity":       {},
		"zero identity":     {Identities: []sshexec.Identity{{}}},
		"negative timeout":  {Identities: []sshexec.Identity{id}, KillTimeout: -1},
		"jump without pin":  {Identities: []sshexec.Identity{id}, Jump: &sshexec.Jump{Address: "127.0.0.1:1", Identity: id}},
		"jump without key":  {Identities: []sshexec.Identity{id}, Jump: &sshexec.Jump{Address: "127.0.0.1:1", HostKey: id.AuthorizedKey()}},
		"pin with options":  {Identities: []sshexec.Identity{id}, Jump: &sshexec.Jump{HostKey: "no-pty " + id.AuthorizedKey(), Identity: id}},
		"more than one pin": {Identities: []sshexec.Identity{id}, Jump: &sshexec.Jump{HostKey: id.AuthorizedKey() + "\n" + id.AuthorizedKey(), Identity: id}},
	} {
		if c, err := sshexec.New(cfg); err == nil {
			c.Close()
			t.Errorf("%s: was accepted", name)
		}
	}
}
