package configs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestProblems(t *testing.T) {
	const pub = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
	tests := []struct {
		name, yaml string
		want       []string // one for each problem, in order; each a part of its line
	}{
		{"unknown key", "cluster:\n  urll: x\n", []string{`cluster.urll (FILE:2): is not a key; did you mean "cluster.url"?`}},
		{"unknown section", "clutser:\n  url: x\n", []string{"clutser (FILE:1): is not a key"}},
		{"unknown key without a value", "nonsense:\n", []string{"nonsense (FILE:1): is not a key; remove it"}},
		{"unknown empty section", "nonsense: {}\n", []string{"nonsense (FILE:1): is not a key"}},
		{"wrong section", "run:\n  level: info\n", []string{`did you mean "log.level"?`}},
		{"wrong case", "Log:\n  level: info\n", []string{"Log (FILE:1): is not a key"}},
		{"dotted key", "cluster.url: https://a\n", []string{"cluster.url (FILE:1): is not a key; write the last part below its section"}},
		{"twice", "run: {}\nlog: {}\nrun: {}\n", []string{"run (FILE:3): was set in line 1 already"}},
		{"section is a value", "cluster: x\n", []string{"cluster \"x\" (FILE:1): is not a section"}},
		{"value is a section", "state_dir: {a: b}\n", []string{"state_dir (FILE:1): is a section, not one value; write one value"}},
		{"value is a list", "log: {level: [info]}\n", []string{"log.level (FILE:1): is a list, not one value"}},
		{"list is a section", "cluster: {nodes: {a: b}}\n", []string{"cluster.nodes (FILE:1): is a section, not a list"}},
		{"list of lists", "cluster: {nodes: [[a]]}\n", []string{"cluster.nodes (FILE:1): has an item 1 that is no text"}},
		{"not YAML", "a: [\n", []string{"(FILE): is not YAML: line"}},
		{"list at the top", "- a\n", []string{"(FILE:1): is not a section"}},
		{"two documents", "log: {}\n---\nlog: {}\n", []string{"more than one YAML document"}},
		{"alias", "run: &a {timeout: 1m}\nlog: *a\n", []string{"log (FILE:2): is a YAML alias"}},
		{"merge key", "run:\n  <<: {timeout: 1m}\n", []string{"run.<< (FILE:2): is not a plain key"}},
		{"empty file", "", nil},
		{"only comments", "# nothing\n", nil},
		{"null sections and values", "cluster:\n  url:\nssh:\n  jump:\n", nil},

		{"duration without a unit", "run: {timeout: 30}\n", []string{`run.timeout "30" (FILE:1): is not a duration; write a number with a unit`}},
		{"negative duration", "run: {timeout: -1s}\n", []string{`run.timeout "-1s" (FILE:1): is outside 1ms to 168h0m0s`}},
		{"poll interval zero", "cluster: {poll_interval: 0s}\n", []string{`cluster.poll_interval (FILE:1): is outside 10ms to 250ms`}},
		{"size", "run: {output_limit: 1 Mb}\n", []string{`run.output_limit "1 Mb" (FILE:1): is not a size`}},
		{"size too large", "run: {output_limit: 9000000000GiB}\n", []string{"is not a size"}},
		{"size over the range", "run: {output_limit: 2GiB}\n", []string{`run.output_limit "2GiB" (FILE:1): is outside 1 to`}},
		{"integer with a fraction", "cluster: {vmid_first: 100.5}\n", []string{`cluster.vmid_first "100.5" (FILE:1): is not a whole number`}},
		{"boolean for a number", "cluster: {vmid_first: true}\n", []string{"is not a whole number"}},
		{"word for a boolean", "sandbox: {full_clone: yes please}\n", []string{"is neither true nor false; write true or false"}},
		{"number for a boolean", "sandbox: {full_clone: 1}\n", []string{"is neither true nor false"}},
		{"octal is no octal", "cluster: {vmid_first: 0200, vmid_last: 0300}\n", nil}, // 200 to 300
		{"prefix", "sandbox: {subnet: 10.0.0.0}\n", []string{`sandbox.subnet "10.0.0.0" (FILE:1): is not a network`}},
		{"prefix with host bits", "sandbox: {subnet: 10.0.0.1/24}\n", []string{`has host bits set; write "10.0.0.0/24"`}},
		{"prefix without room", "sandbox: {subnet: 10.0.0.0/31}\n", []string{"has no room for guests"}},
		{"loopback", "sandbox: {subnet: 127.0.0.0/8}\n", []string{"is not a network for guests"}},
		{"address", "sandbox: {gateway: nowhere}\n", []string{"is not an IP address"}},
		{"gateway outside", "sandbox: {subnet: 10.0.0.0/24, gateway: 10.0.1.1}\n", []string{"is outside sandbox.subnet 10.0.0.0/24"}},
		{"gateway is the network", "sandbox: {subnet: 10.0.0.0/24, gateway: 10.0.0.0}\n", []string{"network's own or its broadcast"}},
		{"gateway is the broadcast", "sandbox: {subnet: 10.0.0.0/24, gateway: 10.0.0.255}\n", []string{"network's own or its broadcast"}},

		{"tenants are no list", "network: {tenants: {name: a}}\n", []string{`network.tenants (FILE:1): is a section, not a list; write a list`}},
		{"a tenant is a word", "network: {tenants: [a]}\n", []string{"at [0]: is a single value, not keys with values"}},
		{"unknown key of a tenant", "network: {tenants: [{nmae: a}]}\n", []string{"at [0].nmae: is not a key; remove it"}},
		{"key of a tenant twice", "network: {tenants: [{name: a, name: b}]}\n", []string{`has the key "name" twice`}},
		{"prefix of a tenant", "network: {tenants: [{name: a, vnets: [{name: b, subnets: [{prefix: 10.0.0.0}]}]}]}\n", []string{`at [0].vnets[0].subnets[0].prefix: "10.0.0.0" is not a network; write a network`}},
		{"tenant without vnets", "network: {tenants: [{name: a}]}\n", []string{"has at [0] no vnets"}},
		{"two tenants of a name", "network: {tenants: [{name: a, vnets: [{name: b, subnets: [{prefix: 10.0.0.0/24}]}]}, {name: a}]}\n", []string{`has at [1] the name "a" again`}},
		{"type of a zone", "network: {tenants: [{name: a, zone: qinq}]}\n", []string{`has at [0] the zone "qinq"; choose one of: evpn, vxlan, simple`}},
		{"tenant of sandboxes", "sandbox: {tenant: a}\n", []string{`sandbox.tenant "a" (FILE:1): is not one of network.tenants`}},
		{"VNIs", "network: {vni_first: 10, vni_last: 9}\n", []string{`network.vni_last "9" (FILE:1): is less than network.vni_first 10`}},
		{"VNI over the range", "network: {vni_last: 16777216}\n", []string{`is outside 1 to 16777215`}},
		{"peer", "network: {peers: [pve1]}\n", []string{`has "pve1", which is no IP address`}},
		{"role of a place", "network: {places: [{role: printer, name: p, addresses: [192.0.2.1], tcp: [1], udp: [1]}]}\n", []string{`has at [0] the role "printer"`}},
		{"port of a place", "network: {places: [{role: outside, name: p, addresses: [192.0.2.1], tcp: [0], udp: [1]}]}\n", []string{`has at [0] the port 0`}},
		{"port is a word", "network: {places: [{role: outside, name: p, addresses: [192.0.2.1], tcp: [http], udp: [1]}]}\n", []string{`has an item 1 that is no whole number`}},
		{"place without ports", "network: {places: [{role: outside, name: p, addresses: [192.0.2.1]}]}\n", []string{`what is not tried is not sealed`}},
		{"workspace without nodes", "workspace: {storage: tank, driver: zfs}\n", []string{`workspace.nodes: is missing although workspace.driver is zfs`}},
		{"workspace's driver", "workspace: {storage: tank, driver: lvm}\n", []string{"choose one of: auto, zfs, btrfs"}},
		{"small btrfs", "workspace: {storage: tank, driver: btrfs, size: 128MiB}\n", []string{`is too small for workspace.driver btrfs; choose 256MiB or more`}},
		{"key of a node", "workspace: {storage: tank, nodes: [{name: pve1, address: \"pve1:22\", host_key: x}]}\n", []string{`has at [0] a host key that is no public SSH key`}},
		{"address of a node", "workspace: {nodes: [{name: pve1, address: pve1, host_key: x}]}\n", []string{`has at [0] the address "pve1", which is not HOST:PORT`}},
		{"image without checksum", "template: {image: \"https://a.example/x.qcow2\"}\n", []string{`template.checksum: is missing although template.image is an URL`}},
		{"image over http", "template: {image: \"http://a.example/x.qcow2\"}\n", []string{`is neither an https URL nor a volume`}},
		{"checksum of another length", "template: {checksum: abcd}\n", []string{`has 4 digits: SHA-256 has 64 and SHA-512 has 128; copy it from SHA512SUMS`}},
		{"checksum under another name", "template: {checksum: 'sha256:" + strings.Repeat("a", 128) + "'}\n", []string{`has 128 digits, and a sha256 checksum has 64`}},
		{"checksum of another kind", "template: {checksum: 'md5:" + strings.Repeat("a", 32) + "'}\n", []string{`is of the kind "md5"; it can be sha256 or sha512`}},
		{"checksum that is a word", "template: {checksum: sha512:SHA512SUMS}\n", []string{`is not written in hexadecimal digits`}},
		{"checksum of no digits", "template: {checksum: 'sha512:'}\n", []string{`has 0 digits, and a sha512 checksum has 128`}},
		{"type of CPU", "template: {cpu: 'host aes'}\n", []string{`template.cpu "host aes" (FILE:1): is not a type of CPU`}},
		{"no CPU", "template: {cpu: ''}\n", []string{`template.cpu (FILE:1): is empty`}},
		{"cores and memory", "template: {cores: 0, memory: 1KiB}\n", []string{`template.cores (FILE:1): is outside 1 to 512`, `template.memory "1KiB" (FILE:1): is outside`}},
		{"memory by half a MiB", "template: {memory: 524289KiB}\n", []string{`is no whole number of MiB`}},

		{"stand-in", "cluster: {url: 'https://<node>:8006'}\n", []string{`cluster.url "https://<node>:8006" (FILE:1): still has the stand-in "<node>"; put the real value there`}},
		{"stand-in of the set-up", "cluster: {storage: STORAGE, nodes: [pve1, NODE]}\n", []string{`cluster.nodes "[pve1 NODE]" (FILE:1): still has the stand-in "NODE"`, `cluster.storage "STORAGE" (FILE:1): still has`}},
		{"stand-in in words", "cluster: {token_id: 'change-me@pve!CHANGE_ME'}\n", []string{`still has the stand-in "change-me"`}},
		{"stand-in for a token", "cluster: {token_secret: '<secret of mine>'}\n", []string{`cluster.token_secret "redacted" (FILE:1): still has the stand-in "redacted"`}},
		{"stand-in for a key", "workspace: {nodes: [{name: pve1, address: 'pve1:22', host_key: ssh-ed25519 AAAA...}]}\n", []string{`workspace.nodes`}},
		{"key of the example", "ssh: {jump: {address: 'a:22', user: u, host_key: ssh-ed25519 " + exampleKey + "}}\n", []string{`still has the stand-in "ExampleExample"`}},
		{"fingerprint of an example", "cluster: {fingerprint: '" + strings.Repeat("AA:", 31) + "AA'}\n", []string{`is an example: all of its bytes are the same; openssl x509`}},
		{"what only looks like one", "redact: ['(?P<key>x...)']\nvalidate: {watch: [/srv/change/me]}\n", nil},

		{"gateway of the build", "template: {address: 10.0.0.2/24, gateway: 10.0.1.1}\n", []string{`is not in the network of template.address`}},

		{"protected path", "validate: {protected: [etc]}\n", []string{`validate.protected "[etc]" (FILE:1): has "etc", which is not an absolute path`}},
		{"protected word", "validate: {protected: [none, /srv]}\n", []string{`has "none" beside other items; keep the one`}},
		{"protected pattern", "validate: {protected: ['/etc/sudoers*']}\n", []string{"patterns are not expanded; name the directory"}},
		{"watched word", "validate: {watch: [default]}\n", []string{"validate.watch \"[default]\" (FILE:1): has \"default\", which is not an absolute path"}},
		{"free part", "validate: {min_free: 101%}\n", []string{`validate.min_free "101%" (FILE:1): is not a part between 0% and 100%`}},
		{"free words", "validate: {min_free: much, min_inodes: -1}\n", []string{"validate.min_free \"much\" (FILE:1): is neither a number nor a part", "validate.min_inodes"}},
		{"free part that is no number", "validate: {min_inodes: NaN%}\n", []string{"is not a part between"}},
		{"entries", "validate: {max_entries: 0}\n", []string{"validate.max_entries (FILE:1): is outside 1 to"}},
		{"redaction", "redact: ['a(b']\n", []string{`redact "[a(b]" (FILE:1): has "a(b", which is not a regular expression`}},
		{"redaction of nothing", "redact: ['a*']\n", []string{"matches the empty text"}},

		{"http", "cluster: {url: 'http://a:8006'}\n", []string{`cluster.url "http://a:8006" (FILE:1): does not use https; write`}},
		{"no URL", "cluster: {url: pve1}\n", []string{"is not an URL"}},
		{"port of URL", "cluster: {url: 'https://a:0'}\n", []string{"has a port outside"}},
		{"path of URL", "cluster: {url: 'https://a/x'}\n", []string{"has a path"}},
		{"token id", "cluster: {token_id: root@pam}\n", []string{`cluster.token_id "root@pam" (FILE:1): is not a token id`}},
		{"fingerprint", "cluster: {fingerprint: aa:bb}\n", []string{"is not a SHA-256 fingerprint"}},
		{"node", "cluster: {nodes: [pve1, a/b]}\n", []string{`has "a/b", which is not a node's name`}},
		{"drained node", "cluster: {drained_nodes: [pve1, a/b]}\n", []string{`cluster.drained_nodes "[pve1 a/b]" (FILE:1): has "a/b", which is not a node's name`}},
		{"warm sandboxes", "pool: {size: -1, tenants: [alpha], proof_age: 1s}\n", []string{
			`pool.proof_age "1s" (FILE:1): is outside 1m0s to 168h0m0s`, `pool.size "-1" (FILE:1): is outside 0 to 1000`,
			`pool.tenants "[alpha]" (FILE:1): names "alpha", which is not one of network.tenants`,
		}},
		{"sandboxes of a node", "cluster: {max_per_node: -1}\n", []string{`cluster.max_per_node "-1" (FILE:1): is outside 0 to 100000`}},
		{"reserve that is no size", "cluster: {memory_reserve: 10%}\n", []string{`cluster.memory_reserve "10%" (FILE:1): is not a size`}},
		{"reserve beyond any node", "cluster: {memory_reserve: 2000000GiB}\n", []string{`cluster.memory_reserve "2000000GiB" (FILE:1): is outside 0 to`}},
		{"pool", "cluster: {pool: 'a b'}\n", []string{"is not a pool's name"}},
		{"empty pool", "cluster: {pool: ''}\n", []string{"cluster.pool (FILE:1): is empty"}},
		{"storage", "cluster: {storage: 'a:b'}\n", []string{"is not a storage's name"}},
		{"id below 100", "cluster: {vmid_first: 99}\n", []string{"cluster.vmid_first \"99\" (FILE:1): is outside 100"}},
		{"ids reversed", "cluster: {vmid_first: 200, vmid_last: 100}\n", []string{"cluster.vmid_last \"100\" (FILE:1): is outside 200 (cluster.vmid_first)"}},
		{"poll interval that the adapter refuses", "cluster: {poll_interval: 1s}\n", []string{`cluster.poll_interval "1s" (FILE:1): is outside 10ms to 250ms`}},
		{"no work", "cluster: {limits: {per_node: 0}}\n", []string{"cluster.limits.per_node (FILE:1): is outside 1 to 256"}},
		{"no clones", "cluster: {clones_per_storage: 0}\n", []string{"cluster.clones_per_storage (FILE:1): is outside 1 to 64"}},
		{"bridge", "sandbox: {bridge: a-name-that-is-too-long}\n", []string{"is not the name of a bridge"}},
		{"template", "sandbox: {template: a_b}\n", []string{"is not a VM's name"}},
		{"root boundary", "sandbox: {root_boundary: none}\n", []string{"choose one of: machine, disk"}},
		{"profile", "policy: {profile: ../x}\n", []string{"is not a profile's name"}},
		{"level", "log: {level: loud}\n", []string{"choose one of: debug, info, warn, error"}},
		{"format", "log: {format: xml}\n", []string{"choose one of: text, json"}},

		// A jump host by halves must not become a direct dial.
		{"jump without address", "ssh: {jump: {user: root}}\n", []string{"ssh.jump.address: is missing", "ssh.jump.host_key: is missing"}},
		{"jump without user and key", "ssh: {jump: {address: 'a:22'}}\n", []string{"ssh.jump.user: is missing", "ssh.jump.host_key: is missing"}},
		{"jump without port", "ssh: {jump: {address: a, user: u, host_key: " + pub + "}}\n", []string{"is not HOST:PORT"}},
		{"jump user", "ssh: {jump: {address: 'a:22', user: 'u v', host_key: " + pub + "}}\n", []string{"is not an account's name"}},
		{"jump key", "ssh: {jump: {address: 'a:22', user: u, host_key: ssh-ed25519 AAAA}}\n", []string{"is not a public SSH key"}},
		{"jump key of another kind", "ssh: {jump: {address: 'a:22', user: u, host_key: ssh-rsa " + pub[12:] + "}}\n", []string{"is not a public SSH key"}},

		{"several at once", "run: {timeout: 1}\nlog: {level: loud}\nnope: 1\n", []string{"nope (FILE:3)", "run.timeout", "log.level"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := write(t, filepath.Join(t.TempDir(), "f.yaml"), tt.yaml, 0o600)
			_, err := Load(LoadOptions{File: path, Dir: t.TempDir()})
			if len(tt.want) == 0 {
				if err != nil {
					t.Fatalf("got %v, want no problem", err)
				}
				return
			}
			got := problems(t, err)
			if len(got) != len(tt.want) {
				t.Fatalf("got %d problems, want %d:\n%v", len(got), len(tt.want), err)
			}
			for i, w := range tt.want {
				line := strings.ReplaceAll(got[i].String(), path, "FILE")
				if !strings.Contains(line, w) {
					t.Errorf("problem %d\n got %s\nwant %s", i, line, w)
				}
				if !strings.Contains(err.Error(), got[i].String()) {
					t.Errorf("the error does not hold problem %d: %v", i, err)
				}
				if got[i].Mend == "" {
					t.Errorf("problem %d does not say what to do: %s", i, line)
				}
			}
		})
	}
}

// Bad values of the environment and of flags name the variable and the flag.
func TestProblemOrigin(t *testing.T) {
	_, err := Load(LoadOptions{
		Dir:   t.TempDir(),
		Env:   lookup(map[string]string{"SAVEPOINT_RUN_TIMEOUT": "soon"}),
		Flags: map[string]any{"log.level": "loud", "log.lvl": "x"},
	})
	got := problems(t, err)
	want := []string{
		`log.lvl (command line): is not a key; did you mean "log.level"?`,
		`run.timeout "soon" (SAVEPOINT_RUN_TIMEOUT): is not a duration`,
		`log.level "loud" (command line): is not a known word`,
	}
	if len(got) != len(want) {
		t.Fatalf("got %v", err)
	}
	for i := range want {
		if !strings.HasPrefix(got[i].String(), want[i]) {
			t.Errorf("got  %s\nwant %s", got[i], want[i])
		}
	}
}

func TestNeedCluster(t *testing.T) {
	dir := t.TempDir()
	_, err := Load(LoadOptions{Dir: dir, NeedCluster: true})
	var names []string
	for _, p := range problems(t, err) {
		names = append(names, p.Key)
	}
	if want := []string{"cluster.url", "cluster.token_id", "cluster.token_secret", "sandbox.subnet"}; !slices.Equal(names, want) {
		t.Errorf("missing: got %v, want %v", names, want)
	}

	write(t, filepath.Join(dir, "id"), "key", 0o644)
	env := map[string]string{
		"SAVEPOINT_CLUSTER_URL": "https://a:8006", "SAVEPOINT_CLUSTER_TOKEN_ID": "u@pve!tok", "SAVEPOINT_CLUSTER_TOKEN_SECRET": "s",
		"SAVEPOINT_SANDBOX_SUBNET": "10.0.0.0/24", "SAVEPOINT_CLUSTER_CA_FILE": "no-ca.pem", "SAVEPOINT_POLICY_RULES": "no-rules.yaml",
		"SAVEPOINT_SSH_IDENTITY_FILE": "id",
	}
	_, err = Load(LoadOptions{Dir: dir, NeedCluster: true, Env: lookup(env)})
	got := problems(t, err)
	want := []string{"cluster.ca_file", "policy.rules", "ssh.identity_file"}
	for i, p := range got {
		if i >= len(want) || p.Key != want[i] {
			t.Errorf("problem %d: %s", i, p)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %d problems, want %d", len(got), len(want))
	}
	// Without NeedCluster the same files are not looked at.
	if _, err := Load(LoadOptions{Dir: dir, Env: lookup(env)}); err != nil {
		t.Errorf("without a cluster: %v", err)
	}
}

func TestSecretFiles(t *testing.T) {
	tests := []struct {
		name string
		text string
		mode os.FileMode
		want string
	}{
		{"others can read", "s", 0o644, "can be read by others (mode 0644); chmod 600 "},
		{"group can read", "s", 0o640, "can be read by others (mode 0640)"},
		{"empty", " \n", 0o600, "does not hold one line"},
		{"two lines", "a\nb\n", 0o600, "does not hold one line"},
		{"far too long", strings.Repeat("a", 5000), 0o600, "does not hold one line"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "secret"), tt.text, tt.mode)
			_, err := Load(LoadOptions{Dir: dir, Env: lookup(map[string]string{"SAVEPOINT_CLUSTER_TOKEN_SECRET_FILE": "secret"})})
			if p := problems(t, err); len(p) != 1 || !strings.Contains(p[0].String(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		_, err := Load(LoadOptions{Dir: t.TempDir(), Env: lookup(map[string]string{"SAVEPOINT_CLUSTER_TOKEN_SECRET_FILE": "none"})})
		if p := problems(t, err); !strings.Contains(p[0].String(), "no such file") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("directory", func(t *testing.T) {
		_, err := Load(LoadOptions{Dir: t.TempDir(), Env: lookup(map[string]string{"SAVEPOINT_CLUSTER_TOKEN_SECRET_FILE": "."})})
		if p := problems(t, err); !strings.Contains(p[0].String(), "not a regular file") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("both", func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "secret"), "s", 0o600)
		_, err := Load(LoadOptions{Dir: dir, Env: lookup(map[string]string{"SAVEPOINT_CLUSTER_TOKEN_SECRET_FILE": "secret", "SAVEPOINT_CLUSTER_TOKEN_SECRET": "t"})})
		if p := problems(t, err); len(p) != 1 || !strings.Contains(p[0].String(), "keep one of the two") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("in a configuration that others can read", func(t *testing.T) {
		path := write(t, filepath.Join(t.TempDir(), "f.yaml"), "cluster: {token_secret: hunter2}\n", 0o644)
		_, err := Load(LoadOptions{File: path})
		p := problems(t, err)
		if len(p) != 1 || !strings.Contains(p[0].String(), "stands in a file that others can read") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v", err)
		}
		// From the environment it does not stand in the file.
		if _, err := Load(LoadOptions{File: path, Env: lookup(map[string]string{"SAVEPOINT_CLUSTER_TOKEN_SECRET": "t"})}); err != nil {
			t.Errorf("overridden: %v", err)
		}
	})
	t.Run("placeholder", func(t *testing.T) {
		_, err := Load(LoadOptions{Env: lookup(map[string]string{"SAVEPOINT_CLUSTER_TOKEN_SECRET": "redacted"})})
		if p := problems(t, err); !strings.Contains(p[0].String(), "placeholder") {
			t.Errorf("got %v", err)
		}
	})
}

// Credentials in the URL are not printed back.
func TestURLWithCredentials(t *testing.T) {
	_, err := Load(LoadOptions{Env: lookup(map[string]string{"SAVEPOINT_CLUSTER_URL": "https://root:hunter2@pve:8006"})})
	problems(t, err)
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("shows the password: %v", err)
	}
}
