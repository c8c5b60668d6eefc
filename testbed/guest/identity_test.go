package guest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// unpack writes the embedded guest files to a directory and returns it.
func unpack(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, embedded); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "files")
}

func awk(t *testing.T, script, input string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath("awk"); err != nil {
		t.Skip("needs awk")
	}
	cmd := exec.Command("awk", "-f", script)
	cmd.Stdin = strings.NewReader(input)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, errs.String())
	}
	return out.String(), err
}

// flatten is what yaml.awk must print, by a full YAML parser.
func flatten(n *yaml.Node, path string, out *[]string) {
	at := func(k string) string {
		if path == "" {
			return k
		}
		return path + "." + k
	}
	switch n.Kind {
	case yaml.DocumentNode:
		flatten(n.Content[0], path, out)
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			flatten(n.Content[i+1], at(n.Content[i].Value), out)
		}
	case yaml.SequenceNode:
		for i, c := range n.Content {
			flatten(c, at(fmt.Sprint(i)), out)
		}
	case yaml.ScalarNode:
		if n.Tag != "!!null" || n.Value != "" {
			*out = append(*out, path+"="+n.Value)
		}
	}
}

const userData = `#cloud-config
hostname: sb1
manage_etc_hosts: true
fqdn: sb1.lab
user: root
password: $5$salt$hash/with.dots
ssh_authorized_keys:
  - ssh-ed25519 AAAAC3Nz= someone@host
  - ssh-rsa AAAAB3= another
chpasswd:
  expire: False
users:
  - default
package_upgrade: true
`

const networkV1 = `version: 1
config:
    - type: physical
      name: eth0
      mac_address: 'bc:24:11:aa:bb:cc'
      subnets:
      - type: static
        address: '10.0.0.2'
        netmask: '255.255.240.0'
        gateway: '10.0.0.1'
      - type: static6
        address: 'fd00::2/64'
    - type: physical
      name: eth1
      mac_address: 'BC:24:11:AA:BB:CD'
      subnets:
      - type: dhcp4
    - type: nameserver
      address:
      - '10.0.0.1'
      - '10.0.0.9'
      search:
      - 'lab.test'
`

const networkV2 = `version: 2
ethernets:
  eth0:
    match:
      macaddress: "bc:24:11:aa:bb:cc"
    dhcp4: false
    addresses:
      - 10.0.0.2/24
      - "fd00::2/64"
    gateway4: 10.0.0.1
    nameservers:
      addresses: [10.0.0.1, '10.0.0.9']
      search: [lab.test]
`

func TestYAMLAgreesWithAFullParser(t *testing.T) {
	script := filepath.Join(unpack(t), "yaml.awk")
	for name, text := range map[string]string{
		"user data": userData, "version 1": networkV1, "version 2": networkV2,
		"quotes":            "a: 'it''s'\nb: \"say \\\"x\\\" # no comment\"\nc: x # comment\nd: 'x' # comment\n",
		"nested lists":      "a:\n- - x\n  - y\n- b: 1\n  c:\n  - 2\nd: e\n",
		"same indentation":  "a:\n- 1\n- 2\nb: 3\nc:\n- x: 1\n  y: 2\n- x: 3\n",
		"document start":    "---\na: b\n",
		"colon in a value":  "a: http://x:8/y\nb: c:d\n",
		"empty flow":        "a: []\nb: 1\n",
		"dedent by several": "a:\n  b:\n    c:\n      d: 1\ne: 2\n",
	} {
		t.Run(name, func(t *testing.T) {
			var doc yaml.Node
			if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
				t.Fatal(err)
			}
			var want []string
			flatten(&doc, "", &want)
			got, err := awk(t, script, text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, strings.Split(strings.TrimSuffix(got, "\n"), "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestYAMLRefusesWhatItDoesNotKnow(t *testing.T) {
	script := filepath.Join(unpack(t), "yaml.awk")
	for name, text := range map[string]string{
		"anchor": "a: &x 1\n", "alias": "a: *x\n", "tag": "a: !!str 1\n", "block scalar": "a: |\n  x\n", "folded": "a: >\n  x\n",
		"flow mapping": "a: {b: 1}\n", "tab": "a:\n\tb: 1\n", "open quote": "a: 'x\n", "twice": "a: 1\na: 2\n", "second document": "a: 1\n---\nb: 2\n",
		"bad indentation": "a: 1\n  b: 2\n", "bare text": "hello\n", "item among keys": "a: 1\n- b\n", "escape": "a: \"\\n\"\n", "control": "a: x\x01\n",
		"nested flow": "a: [[1]]\n",
	} {
		if out, err := awk(t, script, text); err == nil {
			t.Errorf("%s: accepted: %q", name, out)
		}
	}
}

func TestNetworkPlan(t *testing.T) {
	dir := unpack(t)
	for name, tc := range map[string]struct{ text, want string }{
		"version 1": {networkV1, `address bc:24:11:aa:bb:cc 10.0.0.2/20
address bc:24:11:aa:bb:cc fd00::2/64
link bc:24:11:aa:bb:cc
gateway bc:24:11:aa:bb:cc 10.0.0.1
link bc:24:11:aa:bb:cd
dhcp bc:24:11:aa:bb:cd
dns 10.0.0.1
dns 10.0.0.9
search lab.test
`},
		"version 2": {networkV2, `address bc:24:11:aa:bb:cc 10.0.0.2/24
address bc:24:11:aa:bb:cc fd00::2/64
link bc:24:11:aa:bb:cc
gateway bc:24:11:aa:bb:cc 10.0.0.1
dns 10.0.0.1
dns 10.0.0.9
search lab.test
`},
	} {
		flat, err := awk(t, filepath.Join(dir, "yaml.awk"), tc.text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := awk(t, filepath.Join(dir, "network.awk"), flat)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for name, flat := range map[string]string{
		"command in an address": "version=1\nconfig.0.type=physical\nconfig.0.mac_address=bc:24:11:aa:bb:cc\nconfig.0.subnets.0.type=static\nconfig.0.subnets.0.address=1.2.3.4;reboot\nconfig.0.subnets.0.netmask=255.0.0.0\n",
		"netmask with a hole":   "version=1\nconfig.0.type=physical\nconfig.0.mac_address=bc:24:11:aa:bb:cc\nconfig.0.subnets.0.type=static\nconfig.0.subnets.0.address=1.2.3.4\nconfig.0.subnets.0.netmask=255.0.255.0\n",
		"no netmask":            "version=1\nconfig.0.type=physical\nconfig.0.mac_address=bc:24:11:aa:bb:cc\nconfig.0.subnets.0.type=static\nconfig.0.subnets.0.address=1.2.3.4\n",
		"no version":            "config.0.type=physical\n",
		"bad mac":               "version=1\nconfig.0.type=physical\nconfig.0.mac_address=zz\n",
	} {
		if out, err := awk(t, filepath.Join(dir, "network.awk"), flat); err == nil {
			t.Errorf("%s: accepted: %q", name, out)
		}
	}
}

// identityRun runs the first-boot script against a directory instead of a
// machine.
type identityRun struct {
	t               *testing.T
	lib, root, seed string
}

func newIdentity(t *testing.T) *identityRun {
	for _, tool := range []string{"dash", "awk", "ssh-keygen"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s", tool)
		}
	}
	r := &identityRun{t: t, lib: unpack(t), root: t.TempDir(), seed: t.TempDir()}
	for _, d := range []string{"etc/ssh", "var/lib", "run"} {
		if err := os.MkdirAll(filepath.Join(r.root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	passwd := fmt.Sprintf("root:x:%d:%d::/root:/bin/bash\nagent:x:%d:%d::/home/agent:/bin/bash\n", os.Getuid(), os.Getgid(), os.Getuid(), os.Getgid())
	r.write(r.root, "etc/passwd", passwd)
	return r
}

func (r *identityRun) write(dir, name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *identityRun) boot(instance string) string {
	r.t.Helper()
	r.write(r.seed, "meta-data", "instance-id: "+instance+"\n")
	cmd := exec.Command("dash", filepath.Join(r.lib, "identity"))
	cmd.Env = append(os.Environ(), "SAVEPOINT_ROOT="+r.root, "SAVEPOINT_SEED="+r.seed, "SAVEPOINT_LIB="+r.lib)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func (r *identityRun) read(name string) string {
	data, err := os.ReadFile(filepath.Join(r.root, name))
	if err != nil {
		return ""
	}
	return string(data)
}

// F88: every instance gets an identity of its own, and keeps it.
func TestIdentity(t *testing.T) {
	r := newIdentity(t)
	r.write(r.seed, "user-data", userData)
	r.write(r.seed, "network-config", networkV1)
	r.boot("one")
	if got := r.read("etc/hostname"); got != "sb1\n" {
		t.Errorf("hostname: %q", got)
	}
	if got := r.read("etc/hosts"); !strings.Contains(got, "127.0.1.1 sb1.lab sb1\n") {
		t.Errorf("hosts: %q", got)
	}
	if got := r.read("root/.ssh/authorized_keys"); got != "ssh-ed25519 AAAAC3Nz= someone@host\nssh-rsa AAAAB3= another\n" {
		t.Errorf("keys: %q", got)
	}
	if st, err := os.Stat(filepath.Join(r.root, "root/.ssh/authorized_keys")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("keys: %v, %v", st, err)
	}
	if got := r.read("home/agent/.ssh/authorized_keys"); got != "" {
		t.Errorf("the other user has keys, too: %q", got)
	}
	if got := r.read("var/lib/savepoint/network"); !strings.Contains(got, "address bc:24:11:aa:bb:cc 10.0.0.2/20\n") {
		t.Errorf("network: %q", got)
	}
	id, key := r.read("etc/machine-id"), r.read("etc/ssh/ssh_host_ed25519_key.pub")
	if len(id) != 33 || !strings.HasPrefix(key, "ssh-ed25519 ") {
		t.Fatalf("machine id %q, host key %q", id, key)
	}

	// The same instance again: nothing changes, not even by new data.
	r.write(r.seed, "user-data", strings.Replace(userData, "sb1", "sb2", 1))
	r.boot("one")
	if r.read("etc/machine-id") != id || r.read("etc/ssh/ssh_host_ed25519_key.pub") != key || r.read("etc/hostname") != "sb1\n" {
		t.Error("an ordinary reboot changed the identity")
	}
	// A clone: everything is new.
	r.boot("two")
	if r.read("etc/machine-id") == id || r.read("etc/ssh/ssh_host_ed25519_key.pub") == key || r.read("etc/hostname") != "sb2\n" {
		t.Error("a new instance kept the old identity")
	}
	// An interrupted first boot is redone: the id is noted last.
	if err := os.Remove(filepath.Join(r.root, "var/lib/savepoint/instance-id")); err != nil {
		t.Fatal(err)
	}
	key = r.read("etc/ssh/ssh_host_ed25519_key.pub")
	r.boot("two")
	if r.read("etc/ssh/ssh_host_ed25519_key.pub") == key {
		t.Error("an interrupted first boot was taken for a finished one")
	}
}

func TestIdentityRefuses(t *testing.T) {
	r := newIdentity(t)
	r.write(r.seed, "user-data", "#cloud-config\nhostname: $(reboot)\nuser: ../root\nssh_authorized_keys:\n  - ssh-ed25519 AAAA x\n")
	r.write(r.seed, "network-config", "version: 1\nconfig: {}\n")
	out := r.boot("one")
	if got := r.read("etc/hostname"); got != "savepoint\n" {
		t.Errorf("hostname: %q", got)
	}
	for _, name := range []string{"root/.ssh/authorized_keys", "home/agent/.ssh/authorized_keys"} {
		if r.read(name) != "" {
			t.Errorf("%s was written", name)
		}
	}
	if r.read("var/lib/savepoint/network") != "" || !strings.Contains(out, "network-config on the cloud-init drive is not understood") {
		t.Errorf("bad network: %q", out)
	}
	if len(r.read("etc/machine-id")) != 33 {
		t.Error("the machine has no id")
	}
}
