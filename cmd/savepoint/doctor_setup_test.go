package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/orchestrator/provision"
	"savepoint/proxmox"
	"savepoint/proxmox/evpn"
	"savepoint/proxmox/zfs"
)

// stubs stand for the programs of a node. They write down how they were called,
// a word a line, and say what a fresh cluster says.
const stubs = `
for name in pveum pvesh pvesm pveversion zfs apt-get systemctl useradd id install chown chmod mkdir hostname sshd; do
	cat >"$BIN/$name" <<'STUB'
#!/bin/sh
{ echo "${0##*/}"; for word; do echo "$word"; done; echo; } >>"$CALLS"
case "${0##*/} ${1:-} ${2:-}" in
'pveversion '*) echo "pve-manager/$RELEASE/0000000000000000 (running kernel: 6.8.12-1-pve)" ;;
'pveum role list') [ -z "${NO_QUORUM:-}" ] || { echo 'cluster not ready - no quorum?' >&2; exit 255; }; echo "${HAS_ROLES:-[]}" ;;
*' list') echo '[]' ;;
'pvesh get /storage') echo '[]' ;;
'pvesh get /storage/tank') printf '{"content":"images","pool":"%s","storage":"tank","type":"%s"}\n' "${DATASET:-fast/vms}" "${KIND:-zfspool}" ;;
'zfs list '*) exit 1 ;;
'id '*) exit 1 ;;
'sshd -T -C') printf 'port 22\nallowtcpforwarding %s\nallowstreamlocalforwarding no\n' "${FORWARDS:-local}" ;;
esac
exit 0
STUB
	chmod +x "$BIN/$name"
done
`

// node is a machine on which the set-up script runs.
type setupHost struct {
	t           *testing.T
	dir, script string
	release     string
	env         []string
}

func newSetupHost(t *testing.T, script, release string) *setupHost {
	h := &setupHost{t: t, dir: t.TempDir(), script: script, release: release}
	if err := os.Mkdir(filepath.Join(h.dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.sh(stubs)
	return h
}

func (h *setupHost) sh(script string, args ...string) string {
	h.t.Helper()
	out, err := h.try(script, args...)
	if err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
	return out
}

func (h *setupHost) try(script string, args ...string) (string, error) {
	cmd := exec.CommandContext(h.t.Context(), "sh", append([]string{"-s", "--"}, args...)...)
	cmd.Stdin = strings.NewReader(script)
	cmd.Env = append(append(os.Environ(), "BIN="+filepath.Join(h.dir, "bin"), "CALLS="+filepath.Join(h.dir, "calls"),
		"RELEASE="+h.release, "PATH="+filepath.Join(h.dir, "bin")+":"+os.Getenv("PATH")), h.env...)
	if len(args) == 0 { // the stubs themselves need the real programs
		cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"))
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run runs a part of the script and returns the calls it made, as words.
func (h *setupHost) run(part string) [][]string {
	h.t.Helper()
	_ = os.Remove(filepath.Join(h.dir, "calls"))
	h.sh(h.script, part)
	text, err := os.ReadFile(filepath.Join(h.dir, "calls"))
	if err != nil {
		h.t.Fatal(err)
	}
	var calls [][]string
	for _, c := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
		calls = append(calls, strings.Split(c, "\n"))
	}
	return calls
}

// hasRoles has the stubs say that all roles are there, as pveum prints it.
var hasRoles = func() string {
	var list []string
	all := proxmox.Privileges("boxes", proxmox.Version{Major: 9}, proxmox.Use{
		Pooled: true, Storages: []string{"local"}, Bridges: []string{"vmbr0"}, Zones: true, ManageSDN: true,
		Peers: true, ImportStorages: []string{"local"}, Downloads: []string{"pve1"}, Collect: true, Look: true,
	})
	roles, _ := proxmox.Roles(all)
	for _, r := range roles {
		list = append(list, fmt.Sprintf(`{"privs":"","roleid":"%s","special":0}`, r.Name))
	}
	return "HAS_ROLES=[" + strings.Join(list, ",") + "]"
}()

// pveum does on the lab what a call of pveum does on a node, as root. It returns
// the secret of a new token.
func pveum(t *testing.T, c *cluster, call []string) string {
	t.Helper()
	opts := map[string]string{}
	var words []string
	for i := 1; i < len(call); i++ {
		if name, ok := strings.CutPrefix(call[i], "--"); ok {
			i++
			opts[name] = call[i]
			continue
		}
		words = append(words, call[i])
	}
	form := func(pairs ...string) string {
		v := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			v.Set(pairs[i], pairs[i+1])
		}
		return v.Encode()
	}
	must := func(raw []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatalf("%q: %v", call, err)
		}
		return raw
	}
	privs := strings.ReplaceAll(opts["privs"], " ", ",")
	switch strings.Join(words[:min(2, len(words))], " ") {
	case "pool list", "user list", "role list":
	case "pool add":
		must(c.request(http.MethodPost, "/pools", form("poolid", words[2])))
	case "user add":
		must(c.request(http.MethodPost, "/access/users", form("userid", words[2])))
	case "role add":
		must(c.request(http.MethodPost, "/access/roles", form("roleid", words[2], "privs", privs)))
	case "role modify":
		v := url.Values{"privs": {privs}}
		if opts["append"] != "" {
			v.Set("append", opts["append"])
		}
		must(c.request(http.MethodPut, "/access/roles/"+words[2], v.Encode()))
	case "acl modify":
		must(c.request(http.MethodPut, "/access/acl", form("path", words[2], "users", opts["users"], "tokens", opts["tokens"], "roles", opts["roles"])))
	case "user token":
		if words[2] == "list" {
			return ""
		}
		raw := must(c.request(http.MethodPost, "/access/users/"+words[3]+"/token/"+words[4], form("privsep", opts["privsep"])))
		var out struct {
			Data struct {
				Value string `json:"value"`
			} `json:"data"`
		}
		if err := json.Unmarshal(raw, &out); err != nil || out.Data.Value == "" {
			t.Fatalf("%q: %s, %v", call, raw, err)
		}
		return out.Data.Value
	default:
		t.Fatalf("there is no such call: %q", call)
	}
	return ""
}

// F117 F118 F119 F120: what doctor --setup prints is a script that runs, and what
// it grants suffices for templates, sandboxes, transactions and networks on both
// releases. One privilege less is named by the doctor with its path, and the
// command that it gives brings it back.
func TestSetupSuffices(t *testing.T) {
	for _, release := range []string{"8.4", "9.2"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c, err := startClusterOf(dir, release, []string{"pve1"})
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			s := setupSession(t, c, release)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			if err := s.life(ctx, c, dir); err != nil {
				t.Fatalf("with what the script grants: %v", err)
			}
			d := s.look(ctx)
			for _, f := range d.findings {
				if f.Check == "privileges" && (f.Level != levelOK || strings.Contains(f.Detail, "not granted")) || f.Level == levelProblem {
					t.Errorf("the doctor says %+v", f)
				}
				if strings.Contains(f.Detail, "not known") {
					t.Errorf("the doctor does not see all: %+v", f)
				}
			}
			s.oneLess(ctx, c, d)
			s.unseeing(ctx, c)
		})
	}
}

// setUp is a session with the token that the set-up script made.
type setUp struct {
	t *testing.T
	*session
}

func setupSession(t *testing.T, c *cluster, release string) setUp {
	t.Helper()
	cfg := c.config
	cfg.Cluster.TokenID = "robot@pve!engine"
	cfg.Cluster.Pool, cfg.Cluster.Storage = "boxes", "local"
	cfg.Network.Tenants = []configs.Tenant{{Name: "alpha", Zone: "simple", VNets: []configs.VNet{{
		Name: "main", Subnets: []configs.Subnet{{Prefix: netip.MustParsePrefix("10.77.0.0/24")}},
	}}}}
	script, err := setupScript(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := newSetupHost(t, script, release)
	calls, secret := h.run("cluster"), ""
	for _, call := range calls {
		if call[0] == "pveum" {
			if s := pveum(t, c, call); s != "" {
				secret = s
			}
		}
	}
	h.env = []string{hasRoles} // a second run, as after an upgrade
	again := h.run("cluster")
	if n, m := count(calls, "role", "add"), count(again, "role", "modify"); n == 0 || n != m || count(again, "role", "add") != 0 {
		t.Errorf("%d roles were made, and %d of them again", n, m)
	}
	h.env = []string{"NO_QUORUM=1"} // what goes wrong is said, and ends it
	if out, err := h.try(script, "cluster"); err == nil || !strings.Contains(out, "no quorum?") {
		t.Errorf("without quorum: %v: %s", err, out)
	}
	// What lets the token delete volumes of others is asked for on its own.
	h.env = nil
	gives := func(calls [][]string) bool {
		return slices.ContainsFunc(calls, func(c []string) bool {
			return slices.ContainsFunc(c, func(word string) bool { return slices.Contains(strings.Fields(word), "Datastore.Allocate") })
		})
	}
	optional := h.run("gc")
	if gives(calls) || !gives(optional) {
		t.Errorf("Datastore.Allocate is granted by %q, and for gc by %q", calls, optional)
	}
	for _, call := range optional {
		pveum(t, c, call)
	}
	cfg.Cluster.TokenSecret = configs.NewSecret(secret)
	a := &app{out: io.Discard, err: io.Discard, getenv: func(string) string { return "" }, format: formatText}
	t.Cleanup(func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
	})
	s, err := a.openWith(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return setUp{t, s}
}

func count(calls [][]string, words ...string) int {
	n := 0
	for _, c := range calls {
		if len(c) > len(words) && slices.Equal(c[1:1+len(words)], words) {
			n++
		}
	}
	return n
}

// look is the doctor's report.
func (s setUp) look(ctx context.Context) *doctor {
	d := &doctor{s: s.session, cfg: s.cfg}
	d.examine(ctx)
	return d
}

// life is all that savepoint does on a cluster.
func (s setUp) life(ctx context.Context, c *cluster, dir string) error {
	image := filepath.Join(dir, "guest.qcow2")
	if err := os.WriteFile(image, append([]byte("QFI\xfb\x00\x00\x00\x03"), make([]byte, 4096)...), 0o600); err != nil {
		return err
	}
	_, err := s.cluster.BuildTemplate(ctx, proxmox.TemplateSpec{
		Name: s.cfg.Sandbox.Template, ImagePath: image, Storage: "local", Node: "pve1", VMID: 8000, MemoryMiB: 256, Cores: 1, Bridge: "vmbr0",
	})
	if err != nil {
		return err
	}
	w, err := s.wanted(ctx)
	if err != nil {
		return err
	}
	if _, err := s.networks(nil).Apply(ctx, w); err != nil {
		return err
	}
	sb, err := s.prov.Create(ctx, "box", provision.Wish{})
	if err != nil {
		return err
	}
	out, err := s.engine.Run(ctx, orchestrator.Spec{Sandbox: sb, Command: "echo x > /workspace/f; false", By: "test"})
	if err != nil {
		return err
	}
	if out.State != orchestrator.StateRolledBack {
		return fmt.Errorf("the transaction is %s: %s", out.State, out.Reason)
	}
	return s.prov.Destroy(ctx, sb)
}

// oneLess takes each privilege out of its role and puts it back by the doctor's
// own command.
func (s setUp) oneLess(ctx context.Context, c *cluster, d *doctor) {
	t := s.t
	all := s.cluster.Privileges(d.version, d.use(ctx))
	roles, _ := proxmox.Roles(all)
	h := newSetupHost(t, "", d.version.Text)
	h.env = []string{hasRoles}
	for at, p := range all {
		i := slices.IndexFunc(roles, func(r proxmox.Role) bool { return r.Name == p.Role })
		left := slices.DeleteFunc(slices.Clone(roles[i].Privs), func(name string) bool { return name == p.AnyOf[0] })
		set := func(privs []string) {
			t.Helper()
			if _, err := c.request(http.MethodPut, "/access/roles/"+p.Role, url.Values{"privs": {strings.Join(privs, ",")}}.Encode()); err != nil {
				t.Fatal(err)
			}
		}
		if slices.IndexFunc(all, func(q proxmox.Privilege) bool { return q.Path == p.Path && q.AnyOf[0] == p.AnyOf[0] }) < at {
			continue // it is asked for already, for something else
		}
		set(left)
		rights := &doctor{s: s.session, cfg: s.cfg, version: d.version, sites: d.sites, facts: d.facts}
		rights.privileges(ctx)
		f := findingOf(rights.findings, p)
		if f == nil {
			if !s.madeUpFor(ctx, d, p) {
				t.Errorf("without %s the doctor says %+v", p, rights.findings)
			}
			set(roles[i].Privs)
			continue
		}
		if (f.Level == levelProblem) != (p.Only == "") {
			t.Errorf("without %s the doctor says %+v", p, *f)
		}
		if f.Level == levelOK { // of use to one command alone
			set(roles[i].Privs)
			continue
		}
		h.script = f.Mend
		for _, call := range h.run("mend") {
			if !slices.Equal(call[1:3], []string{"role", "add"}) {
				pveum(t, c, call)
			}
		}
		if missing, err := s.cluster.MissingPrivileges(ctx, d.version, d.use(ctx)); err != nil || len(missing) > 0 {
			t.Errorf("after %s: missing %v, %v", f.Mend, missing, err)
		}
	}
}

// unseeing: what a token without Sys.Audit cannot ask is a warning that says how
// to grant it, and no problem.
func (s setUp) unseeing(ctx context.Context, c *cluster) {
	if _, err := c.request(http.MethodPut, "/access/roles/SavepointLook", url.Values{"privs": {"Datastore.Audit"}}.Encode()); err != nil {
		s.t.Fatal(err)
	}
	fs := s.look(ctx).findings
	for _, check := range []string{"quorum", "clock", "packages", "schedules"} {
		if !slices.ContainsFunc(fs, func(f finding) bool {
			return f.Check == check && f.Level == levelWarning && strings.Contains(f.Detail, "not known") && strings.Contains(f.Mend, "pveum acl modify / ")
		}) {
			s.t.Errorf("%s is not among %+v", check, fs)
		}
	}
}

// findingOf finds what the doctor says of a privilege.
func findingOf(fs []finding, p proxmox.Privilege) *finding {
	for i, f := range fs {
		if strings.Contains(f.Detail, strings.Join(p.AnyOf, " or ")) && strings.Contains(f.Detail, p.Path) && !strings.HasPrefix(f.Detail, "the token may") {
			return &fs[i]
		}
	}
	return nil
}

// madeUpFor reports whether another role gives the same on that path.
func (s setUp) madeUpFor(ctx context.Context, d *doctor, p proxmox.Privilege) bool {
	missing, err := s.cluster.MissingPrivileges(ctx, d.version, d.use(ctx))
	return err == nil && !slices.ContainsFunc(missing, func(m proxmox.Privilege) bool { return m.String() == p.String() })
}

// The other parts of the script run too, install exactly our program, and write
// a line for each key that lets it do one thing.
func TestSetupOfNodes(t *testing.T) {
	cfg := configs.Default(t.TempDir())
	cfg.Network.Tenants = []configs.Tenant{{Name: "a", VNets: []configs.VNet{{Name: "m", Subnets: []configs.Subnet{
		{Prefix: netip.MustParsePrefix("10.99.0.64/27")}, {Prefix: netip.MustParsePrefix("10.98.254.0/23")},
	}}}}}
	cfg.Workspace.Storage, cfg.Workspace.IdentityFile = "tank", cfg.SSH.IdentityFile
	cfg.SSH.Jump = configs.Jump{Address: "bastion:22", User: "hop", HostKey: "ssh-ed25519 AAAA"}
	script, err := setupScript(cfg)
	if err != nil {
		t.Fatal(err)
	}
	// Its files go below a directory of ours.
	root := t.TempDir()
	for _, d := range []string{"usr/local/lib/savepoint", "var/lib/hop/.ssh", "var/lib/savepoint-zfs/.ssh", "var/lib/" + evpn.User + "/.ssh", "etc/ssh/sshd_config.d"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "etc/ssh/ssh_host_ed25519_key.pub"), []byte("ssh-ed25519 BBBB root@node\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{">/usr/local/lib", ">/var/lib", "> /var/lib", " /etc/ssh", ">/etc/ssh"} {
		script = strings.ReplaceAll(script, d, strings.Replace(d, "/", root+"/", 1))
	}
	h := newSetupHost(t, script, "9.1.2")
	calls := h.run("node")
	for _, want := range []string{
		"apt-get install -y ifupdown2 frr frr-pythontools", "zfs create -p fast/vms",
		"zfs allow -u savepoint-zfs snapshot,rollback,destroy,mount,userprop fast/vms",
		"useradd --system --create-home --home-dir /var/lib/savepoint-zfs --shell /bin/sh savepoint-zfs",
	} {
		if !slices.ContainsFunc(calls, func(c []string) bool { return strings.Join(c, " ") == want }) {
			t.Errorf("%q is not among %q", want, calls)
		}
	}
	installed := func(path string) string {
		text, _ := os.ReadFile(filepath.Join(root, path))
		return string(text)
	}
	if installed(zfs.ProgramPath) != string(zfs.Program) || installed(evpn.ProgramPath) != "" {
		t.Error("the programs that it writes are not ours")
	}
	const volumeKey = "var/lib/savepoint-zfs/.ssh/authorized_keys"
	if got, want := installed(volumeKey), fmt.Sprintf(`restrict,command="%s fast/vms" `, zfs.ProgramPath); !strings.HasPrefix(got, want) {
		t.Errorf("the key for volumes is %q, want %q", got, want)
	}
	// The dataset is the storage's, and a storage of another type has none.
	h.env = []string{"DATASET=", "KIND=lvmthin"}
	if calls := h.run("node"); slices.ContainsFunc(calls, func(c []string) bool { return c[0] == "zfs" }) {
		t.Errorf("on LVM-thin: %q", calls)
	}
	h.env = nil
	h.release = "8.4.21"
	h.run("node")
	if installed(evpn.ProgramPath) != string(evpn.Program) || !strings.HasPrefix(installed("/var/lib/"+evpn.User+"/.ssh/authorized_keys"), "restrict,command=") {
		t.Error("on release 8 routes are not to be read")
	}
	// No key before the SSH server refuses what the key cannot.
	const key = "/var/lib/hop/.ssh/authorized_keys"
	h.env = []string{"FORWARDS=yes"}
	if out, err := h.try(script, "jump"); err == nil || !strings.Contains(out, `does not take "allowtcpforwarding local" for hop`) || installed(key) != "" {
		t.Errorf("a server that lets it listen: %v: %s", err, out)
	}
	h.env = nil
	calls = h.run("jump")
	if got, want := installed("/etc/ssh/sshd_config.d/00-savepoint-jump.conf"), "Match User hop\n\tAllowTcpForwarding local\n\tAllowStreamLocalForwarding no\n"; got != want {
		t.Errorf("the SSH server is told %q, want %q", got, want)
	}
	if !slices.ContainsFunc(calls, func(c []string) bool { return strings.Join(c, " ") == "systemctl reload ssh" }) {
		t.Errorf("the SSH server is not told to read it: %q", calls)
	}
	line, err := os.ReadFile(filepath.Join(root, key))
	if err != nil {
		t.Fatal(err)
	}
	text := string(line)
	if !strings.HasPrefix(text, "restrict,port-forwarding,permitopen=") || strings.Count(text, "permitopen=") != 32+512 || strings.Count(text, "\n") != 1 || !strings.Contains(text, " ssh-ed25519 AAAA") {
		t.Errorf("the jump host's key is %.200q…", text)
	}
	for address, in := range map[string]bool{"10.99.0.64": true, "10.99.0.95": true, "10.99.0.63": false, "10.99.0.96": false, "10.98.254.0": true, "10.98.255.255": true, "10.98.253.255": false, "10.99.1.64": false} {
		if strings.Contains(text, `"`+address+`:22"`) != in {
			t.Errorf("%s can be opened: %v", address, !in)
		}
	}
}
