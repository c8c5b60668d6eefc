package configs

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var compare = cmp.Options{
	cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
	cmpopts.IgnoreFields(Config{}, "Source"),
}

// lookup makes an environment of pairs.
func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	return path
}

func problems(t *testing.T, err error) []Problem {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an *Error", err)
	}
	if len(e.Problems) == 0 {
		t.Fatal("an *Error without a problem")
	}
	for _, p := range e.Problems {
		if p.Cause == "" || p.Key == "" && p.Origin == "" {
			t.Errorf("problem without subject or cause: %+v", p)
		}
	}
	return e.Problems
}

func TestDefaults(t *testing.T) {
	dir := t.TempDir()
	got, err := Load(LoadOptions{Dir: dir, Env: lookup(map[string]string{"HOME": "/home/me"})})
	if err != nil {
		t.Fatal(err)
	}
	want := Default("/home/me/.local/state/savepoint")
	if d := cmp.Diff(want, got, compare); d != "" {
		t.Errorf("without anything set (-want +got):\n%s", d)
	}
	if got.Source.File != "" || len(got.Source.Keys) != 0 {
		t.Errorf("source %+v, want none", got.Source)
	}
}

func TestWholeFile(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "conf", "secret"), " hunter2\n", 0o600)
	path := write(t, filepath.Join(dir, "conf", "s.yaml"), `
state_dir: state
cluster:
  url: https://pve1.example:8006/api2/json/
  ca_file: ca.pem
  fingerprint: "AA:BB`+strings.Repeat(":0c", 30)+`"
  token_id: savepoint@pve!engine
  token_secret_file: ./secret
  nodes: [pve1, pve2]
  drained_nodes: [pve2]
  max_per_node: 12
  memory_reserve: 4GiB
  pool: agents
  storage: local-zfs
  state_storage: fast
  vmid_first: 5000
  vmid_last: 5999
  vmid_rest: 24h
  request_timeout: 10s
  task_timeout: 20m
  poll_interval: 100ms
  clones_per_storage: 3
  limits:
    full_clones: 2
    linked_clones: 8
    per_node: 16
sandbox:
  template: debian12
  full_clone: true
  bridge: vnet1
  subnet: 10.1.0.0/16
  gateway: 10.1.0.1
  boot_timeout: 90s
  root_boundary: disk
  tenant: beta
pool:
  size: 3
  max_per_node: 2
  tenants: [beta, alpha]
  proof_age: 30m
ssh:
  identity_file: id
  jump:
    address: "[2001:db8::1]:22"
    user: root
    host_key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f root@pve1
    identity_file: ~/jump
policy:
  profile: open-egress
  rules: [a.yaml, /etc/savepoint/b.yaml]
  open_hosts: [registry.example, "*.mirror.example"]
run:
  timeout: 1m30s
  output_limit: 512KiB
  rollback_timeout: 2m
  snapshot_timeout: 7s
  validate_timeout: 5s
  session: true
transaction:
  idle: 20m
journal:
  keep_for: 30d
validate:
  protected: [default, /srv/app]
  watch: [/, /data]
  volatile: [/data/log]
  max_entries: 5000
  min_free: 2%
  min_inodes: 1000
  max_clock_skew: 3s
network:
  underlay_mtu: 9000
  peers: [192.0.2.1, 192.0.2.2]
  vni_first: 5000
  vni_last: 5100
  controller: fabric1
  asn: 65010
  tenants:
    - name: alpha
      vrf: 5001
      mtu: 1400
      nodes: [pve1]
      vnets:
        - name: main
          vni: 5002
          guests: 40
          subnets:
            - {prefix: 10.2.0.0/24, gateway: 10.2.0.1}
            - prefix: fd00:2::/64
    - {name: beta, zone: vxlan, vnets: [{name: b10, subnets: [{prefix: 10.3.0.0/24}]}]}
  places:
    - {role: outside, name: proxy, addresses: [192.0.2.9, "2001:db8::9"], tcp: [80, 3128], udp: [53]}
workspace:
  storage: tank
  driver: zfs
  size: 8GiB
  reserve: 1GiB
  freeze: 5s
  user: zfs-user
  identity_file: zfs_key
  nodes:
    - {name: pve1, address: "pve1.example:22", host_key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f root@pve1}
template:
  image: https://cloud.example/debian-12.qcow2
  checksum: SHA512:`+strings.Repeat("AB", 64)+`
  cpu: host,flags=+aes
  cores: 4
  memory: 2GiB
  bridge: vmbr9
  address: 10.9.0.9/24
  gateway: 10.9.0.1
redact: ['customer-[0-9]{8}', '(a), b']
log:
  level: debug
  format: json
`, 0o644)
	conf := filepath.Join(dir, "conf")
	got, err := Load(LoadOptions{File: "conf/s.yaml", Dir: dir, Env: lookup(map[string]string{"HOME": "/home/me"})})
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		StateDir: filepath.Join(conf, "state"),
		Cluster: Cluster{
			URL: "https://pve1.example:8006", CAFile: filepath.Join(conf, "ca.pem"),
			Fingerprint: "aabb" + strings.Repeat("0c", 30), TokenID: "savepoint@pve!engine",
			TokenSecret: NewSecret("hunter2"), TokenSecretFile: filepath.Join(conf, "secret"),
			Nodes: []string{"pve1", "pve2"}, DrainedNodes: []string{"pve2"}, MaxPerNode: 12, MemoryReserve: 4 << 30, Pool: "agents", Storage: "local-zfs", StateStorage: "fast",
			VMIDFirst: 5000, VMIDLast: 5999, VMIDRest: 24 * time.Hour,
			RequestTimeout: 10 * time.Second, TaskTimeout: 20 * time.Minute, PollInterval: 100 * time.Millisecond,
			ClonesPerStorage: 3, Limits: Limits{FullClones: 2, LinkedClones: 8, PerNode: 16},
		},
		Sandbox: Sandbox{
			Template: "debian12", FullClone: true, Bridge: "vnet1",
			Subnet: netip.MustParsePrefix("10.1.0.0/16"), Gateway: netip.MustParseAddr("10.1.0.1"),
			BootTimeout: 90 * time.Second, RootBoundary: "disk", Tenant: "beta",
		},
		Pool: Pool{Size: 3, MaxPerNode: 2, Tenants: []string{"beta", "alpha"}, ProofAge: 30 * time.Minute},
		SSH: SSH{
			IdentityFile: filepath.Join(conf, "id"),
			Jump: Jump{
				Address: "[2001:db8::1]:22", User: "root",
				HostKey:      "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f",
				IdentityFile: "/home/me/jump",
			},
		},
		Policy: Policy{Profile: "open-egress", Rules: []string{filepath.Join(conf, "a.yaml"), "/etc/savepoint/b.yaml"}, OpenHosts: []string{"registry.example", "*.mirror.example"}},
		Run:    Run{Timeout: 90 * time.Second, OutputLimit: 512 << 10, RollbackTimeout: 2 * time.Minute, SnapshotTimeout: 7 * time.Second, ValidateTimeout: 5 * time.Second, Session: true},
		Log:    Log{Level: "debug", Format: "json"},

		Transaction: Transaction{Idle: 20 * time.Minute}, Journal: Journal{KeepFor: 720 * time.Hour},
		Validate: Validate{
			Protected: []string{"default", "/srv/app"}, Watch: []string{"/", "/data"}, Volatile: []string{"/data/log"}, MaxEntries: 5000,
			MinFree: "2%", MinInodes: "1000", MaxClockSkew: 3 * time.Second,
		},
		Network: Network{
			UnderlayMTU: 9000, Peers: []string{"192.0.2.1", "192.0.2.2"}, VNIFirst: 5000, VNILast: 5100, Controller: "fabric1", ASN: 65010,
			Tenants: []Tenant{
				{Name: "alpha", Zone: "evpn", VRF: 5001, MTU: 1400, Nodes: []string{"pve1"}, VNets: []VNet{
					{Name: "main", VNI: 5002, Guests: 40, Subnets: []Subnet{
						{Prefix: netip.MustParsePrefix("10.2.0.0/24"), Gateway: netip.MustParseAddr("10.2.0.1")},
						{Prefix: netip.MustParsePrefix("fd00:2::/64")},
					}},
				}},
				{Name: "beta", Zone: "vxlan", VNets: []VNet{{Name: "b10", Subnets: []Subnet{{Prefix: netip.MustParsePrefix("10.3.0.0/24")}}}}},
			},
			Places: []Place{{Role: "outside", Name: "proxy", Addresses: []string{"192.0.2.9", "2001:db8::9"}, TCP: []int{80, 3128}, UDP: []int{53}}},
		},
		Workspace: Workspace{
			Storage: "tank", Driver: "zfs", Size: 8 << 30, Reserve: 1 << 30, Freeze: 5 * time.Second, User: "zfs-user", IdentityFile: filepath.Join(conf, "zfs_key"),
			Nodes: []NodeSSH{{Name: "pve1", Address: "pve1.example:22", HostKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"}},
		},
		Template: Template{
			Image: "https://cloud.example/debian-12.qcow2", Checksum: strings.Repeat("ab", 64), Bridge: "vmbr9",
			CPU: "host,flags=+aes", Cores: 4, Memory: 2 << 30,
			Address: netip.MustParsePrefix("10.9.0.9/24"), Gateway: netip.MustParseAddr("10.9.0.1"),
		},
		Redact: []string{"customer-[0-9]{8}", "(a), b"},
	}
	if d := cmp.Diff(want, got, compare); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got.Source.File != path {
		t.Errorf("source file %q, want %q", got.Source.File, path)
	}
	if o := got.Source.Keys["cluster.url"]; o != path+":4" {
		t.Errorf("origin of cluster.url %q, want line 4 of the file", o)
	}
	// Every key is in the file above: a new one must be added to it.
	for _, k := range keys() {
		if _, ok := got.Source.Keys[k.name]; !ok && k.name != "cluster.token_secret" {
			t.Errorf("key %s is not covered by this test", k.name)
		}
	}
}

// Flags beat the environment, the environment beats the file, the file beats
// the defaults; also for list and nested keys.
func TestPrecedence(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "f.yaml"), "run: {timeout: 2m}\ncluster: {nodes: [a], pool: filepool}\nssh: {jump: {address: 'h:1', user: u, host_key: "+
		"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f}}\n", 0o600)
	env := map[string]string{
		"SAVEPOINT_RUN_TIMEOUT":      "3m",
		"SAVEPOINT_CLUSTER_NODES":    "b, c",
		"SAVEPOINT_SSH_JUMP_ADDRESS": "env:22",
		"SAVEPOINT_LOG_LEVEL":        "", // empty counts as not set
		"SAVEPOINT_SANDBOX_SUBNET":   "10.2.0.0/24",
		"SAVEPOINT_STATE_DIR":        "st",
	}
	flags := map[string]any{"run.timeout": 4 * time.Minute, "sandbox.full_clone": true, "run.output_limit": "2MiB"}

	load := func(o LoadOptions) Config {
		t.Helper()
		o.Dir = dir
		c, err := Load(o)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := load(LoadOptions{File: file}); c.Run.Timeout != 2*time.Minute || c.Cluster.Pool != "filepool" {
		t.Errorf("file alone: %v %v", c.Run.Timeout, c.Cluster.Pool)
	}
	c := load(LoadOptions{File: file, Env: lookup(env)})
	if c.Run.Timeout != 3*time.Minute || c.SSH.Jump.Address != "env:22" || c.SSH.Jump.User != "u" || c.Log.Level != "warn" {
		t.Errorf("environment over file: %+v %+v %+v", c.Run, c.SSH, c.Log)
	}
	if d := cmp.Diff([]string{"b", "c"}, c.Cluster.Nodes); d != "" {
		t.Errorf("list in the environment (-want +got):\n%s", d)
	}
	if c.StateDir != filepath.Join(dir, "st") || c.SSH.IdentityFile != filepath.Join(dir, "st", "ssh", "id_ed25519") {
		t.Errorf("state directory %q with identity %q", c.StateDir, c.SSH.IdentityFile)
	}
	c = load(LoadOptions{File: file, Env: lookup(env), Flags: flags})
	if c.Run.Timeout != 4*time.Minute || !c.Sandbox.FullClone || c.Run.OutputLimit != 2<<20 || c.Cluster.Pool != "filepool" {
		t.Errorf("flags over all: %+v", c)
	}
	want := map[string]string{"run.timeout": "command line", "sandbox.subnet": "SAVEPOINT_SANDBOX_SUBNET", "cluster.pool": file + ":2"}
	for k, w := range want {
		if got := c.Source.Keys[k]; got != w {
			t.Errorf("origin of %s: got %q, want %q", k, got, w)
		}
	}
}

func TestSearch(t *testing.T) {
	dir := t.TempDir()
	env := map[string]string{"XDG_CONFIG_HOME": filepath.Join(dir, "xdg"), "SAVEPOINT_STATE_DIR": filepath.Join(dir, "state")}
	where := func(o LoadOptions) string {
		t.Helper()
		o.Dir, o.Env, o.SearchDefault = dir, lookup(env), true
		c, err := Load(o)
		if err != nil {
			t.Fatal(err)
		}
		return c.Source.File
	}
	if got := where(LoadOptions{}); got != "" {
		t.Errorf("nothing there, found %q", got)
	}
	// From the weakest place to the strongest.
	for _, path := range []string{LabFile(filepath.Join(dir, "state")), filepath.Join(dir, "xdg/savepoint/savepoint.yaml"), filepath.Join(dir, "savepoint.yaml")} {
		write(t, path, "log: {level: error}\n", 0o600)
		if got := where(LoadOptions{}); got != path {
			t.Errorf("found %q, want %q", got, path)
		}
	}
	if got := where(LoadOptions{Flags: map[string]any{"state_dir": filepath.Join(dir, "other")}}); got != filepath.Join(dir, "savepoint.yaml") {
		t.Errorf("found %q", got)
	}
	named := write(t, filepath.Join(dir, "named.yaml"), "", 0o600)
	env["SAVEPOINT_CONFIG"] = "named.yaml"
	if got := where(LoadOptions{}); got != named {
		t.Errorf("SAVEPOINT_CONFIG: read %q, want %q", got, named)
	}
	if got := where(LoadOptions{File: "savepoint.yaml"}); got != filepath.Join(dir, "savepoint.yaml") {
		t.Errorf("--config: read %q", got)
	}
}

// A state directory named by flag or environment is where the lab is looked
// for; the lab's file names the directory of its own journal, and that stands.
func TestLabStateDir(t *testing.T) {
	dir := t.TempDir()
	lab := write(t, LabFile(filepath.Join(dir, "s")), "state_dir: journal\n", 0o600)
	other := write(t, filepath.Join(dir, "other.yaml"), "state_dir: journal\n", 0o600)
	env := lookup(map[string]string{"SAVEPOINT_STATE_DIR": "s"})
	flags := map[string]any{"state_dir": "s"}
	for _, o := range []LoadOptions{{Env: env, SearchDefault: true}, {Flags: flags, SearchDefault: true}, {Env: env, File: lab}} {
		o.Dir = dir
		c, err := Load(o)
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(dir, "s", "lab", "journal"); c.Source.File != lab || c.StateDir != want {
			t.Errorf("got file %q and state %q, want %q", c.Source.File, c.StateDir, want)
		}
	}
	c, err := Load(LoadOptions{Dir: dir, File: other, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, "s"); c.StateDir != want {
		t.Errorf("another file: state %q, want %q", c.StateDir, want)
	}
}

// A named file that is not there is a problem; it is not passed over.
func TestMissingFile(t *testing.T) {
	_, err := Load(LoadOptions{Dir: t.TempDir(), File: "none.yaml"})
	p := problems(t, err)
	if len(p) != 1 || !strings.Contains(p[0].String(), "none.yaml): no such file or directory") {
		t.Errorf("got %v", err)
	}
}

// A file that cannot be looked at is not passed over for a weaker one.
func TestUnreadableSearch(t *testing.T) {
	dir := t.TempDir()
	// A file where a directory should be: stat says ENOTDIR, for root also.
	write(t, filepath.Join(dir, "xdg"), "", 0o600)
	_, err := Load(LoadOptions{Dir: dir, SearchDefault: true, Env: lookup(map[string]string{"XDG_CONFIG_HOME": filepath.Join(dir, "xdg")})})
	if p := problems(t, err); !strings.Contains(p[0].Cause, "not a directory") {
		t.Errorf("got %v", err)
	}
}

// exampleKey is that of the example, which anybody can see is none.
const exampleKey = "AAAAC3NzaC1lZDI1NTE5AAAAIExampleExampleExampleExampleExampleExampleE"

func TestExamplesLoad(t *testing.T) {
	for _, name := range []string{"lab.example.yaml", "cluster.example.yaml"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			path := write(t, filepath.Join(dir, "savepoint.yaml"), string(text), 0o644)
			write(t, filepath.Join(dir, "token.secret"), "00000000-0000-0000-0000-000000000000\n", 0o600)
			write(t, filepath.Join(dir, "ca.pem"), "x", 0o644)
			write(t, filepath.Join(dir, "pve-root-ca.pem"), "x", 0o644)
			o := LoadOptions{File: path, NeedCluster: true, Env: lookup(map[string]string{"HOME": dir})}
			if strings.Contains(string(text), exampleKey) { // it is not to be used as it is
				_, err := Load(o)
				if p := problems(t, err); len(p) != 1 || p[0].Key != "ssh.jump.host_key" || !strings.Contains(p[0].Cause, "stand-in") {
					t.Errorf("the example as it is: %v", err)
				}
				write(t, path, strings.Replace(string(text), exampleKey, "AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f", 1), 0o644)
			}
			c, err := Load(o)
			if err != nil {
				t.Fatal(err)
			}
			if !c.SSH.Jump.Configured() || c.Cluster.TokenSecret.IsZero() {
				t.Errorf("incomplete: %+v", c)
			}
			// Every default that the file shows behind "#" is the real one.
			for line := range strings.Lines(string(text)) {
				k, v, ok := strings.Cut(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#")), ": ")
				if !ok || !strings.HasPrefix(strings.TrimSpace(line), "# ") {
					continue
				}
				v = strings.TrimSpace(v)
				if want, documented := defaultText(k); documented && v != want && (duration(v) < 0 || duration(v) != duration(want)) {
					t.Errorf("says %s: %s, the default is %s", k, v, want)
				}
			}
		})
	}
}

// defaultText returns the default of the key with this last word, for keys
// whose last word is unique and whose default is not empty.
func defaultText(word string) (string, bool) {
	text, err := Marshal(Default("~/.local/state/savepoint"))
	if err != nil {
		return "", false
	}
	found, n := "", 0
	for line := range strings.Lines(string(text)) {
		k, v, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if ok && k == word {
			found, n = v, n+1
		}
	}
	return found, n == 1 && word != "identity_file"
}

// duration is the text as a duration, or -1: Go writes 10m0s where a person
// writes 10m.
func duration(text string) time.Duration {
	d, err := ParseDuration(text)
	if err != nil {
		return -1
	}
	return d
}
