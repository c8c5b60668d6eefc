package configs

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// No way of printing shows a secret, wherever it is held.
func TestSecretIsRedacted(t *testing.T) {
	const text = "hunter2-0123"
	type hidden struct{ inner Secret }
	c := Default("/s")
	c.Cluster.TokenSecret = NewSecret(text)
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T %[1]v", "%p"} {
		fmt.Fprintf(&out, verb+"\n", c.Cluster.TokenSecret)
		fmt.Fprintf(&out, verb+"\n", &c.Cluster.TokenSecret)
		fmt.Fprintf(&out, verb+"\n", c)
		fmt.Fprintf(&out, verb+"\n", &c)
		fmt.Fprintf(&out, verb+"\n", hidden{c.Cluster.TokenSecret})
		fmt.Fprintf(&out, verb+"\n", map[string]any{"k": c.Cluster.TokenSecret})
	}
	for _, marshal := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal} {
		for _, v := range []any{c, &c, c.Cluster.TokenSecret, []Secret{c.Cluster.TokenSecret}, map[string]Secret{"k": c.Cluster.TokenSecret}} {
			b, err := marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(b)
		}
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "secret", c.Cluster.TokenSecret, "config", c)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "secret", c.Cluster.TokenSecret, "config", c)
	shown, err := Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(shown)
	fmt.Fprint(&out, c.Cluster.TokenSecret.String(), c.Cluster.TokenSecret.GoString())

	for _, form := range []string{text, fmt.Sprintf("%x", text), fmt.Sprintf("%X", text), fmt.Sprintf("%d", []byte(text))} {
		if strings.Contains(out.String(), form) {
			t.Errorf("the secret is shown as %s in:\n%s", form, out.String())
		}
	}
	if !strings.Contains(string(shown), "token_secret: redacted") {
		t.Errorf("Marshal does not say that there is a secret:\n%s", shown)
	}
	if got := c.Cluster.TokenSecret.Reveal(); got != text {
		t.Errorf("Reveal returned %q", got)
	}
	if !NewSecret("").IsZero() || NewSecret("").String() != "" {
		t.Error("an empty secret is not empty")
	}
}

// What the lab writes is read back unchanged, and only its owner can read it.
func TestWriteAndLoad(t *testing.T) {
	dir := t.TempDir()
	want := Default(filepath.Join(dir, "state"))
	want.Cluster.URL = "https://127.0.0.1:8006"
	want.Cluster.TokenID = "savepoint@pve!engine"
	want.Cluster.TokenSecret = NewSecret("a: 'tricky' #secret")
	want.Cluster.Nodes = []string{"pve1", "123"}
	want.Sandbox.Subnet = prefix("10.9.0.0/24")
	want.Sandbox.Gateway = want.Sandbox.Subnet.Addr().Next()
	want.Sandbox.FullClone = true
	want.SSH.Jump = Jump{Address: "127.0.0.1:2222", User: "root", IdentityFile: filepath.Join(dir, "k"),
		HostKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"}
	want.Policy.Rules = []string{filepath.Join(dir, "r,1.yaml")}
	want.Network.Tenants = []Tenant{{Name: "alpha", Zone: "evpn", VNets: []VNet{{Name: "main", Subnets: []Subnet{{Prefix: want.Sandbox.Subnet, Gateway: want.Sandbox.Gateway}}}}}}
	want.Network.Places = []Place{{Role: "outside", Name: "0x10: #", Addresses: []string{"192.0.2.1"}, TCP: []int{80}, UDP: []int{53, 123}}}

	path := filepath.Join(dir, "savepoint.yaml")
	write(t, path, "old", 0o644)
	if err := WriteWithSecrets(path, want); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode())
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	got, err := Load(LoadOptions{File: path})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, compare); d != "" {
		t.Errorf("(-written +read):\n%s", d)
	}
}

// A secret that has a file of its own is not copied into the configuration.
func TestWriteKeepsSecretFile(t *testing.T) {
	c := Default("/s")
	c.Cluster.TokenSecret, c.Cluster.TokenSecretFile = NewSecret("hunter2"), "/s/token"
	text, err := MarshalWithSecrets(c)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "hunter2") || !strings.Contains(string(text), "token_secret_file: /s/token") {
		t.Errorf("got:\n%s", text)
	}
}

func TestWriteIntoMissingDirectory(t *testing.T) {
	if err := WriteWithSecrets(filepath.Join(t.TempDir(), "none", "f"), Default("/s")); err == nil {
		t.Error("no error")
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{"0": 0, "17": 17, "17B": 17, "1KiB": 1024, "1 MiB": 1 << 20, "3GiB": 3 << 30, "1KB": 1000, "2MB": 2e6, "1GB": 1e9} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", text, got, err, want)
		}
		again, err := ParseSize(got.String())
		if err != nil || again != got {
			t.Errorf("%d is written %q and read %d, %v", got, got, again, err)
		}
	}
	for _, text := range []string{"", "-1", "1.5MiB", "MiB", "1mib", "0x10", "99999999999GiB", "9223372036854775808"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", text, got)
		}
	}
}
