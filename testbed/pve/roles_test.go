package pve_test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	proxmox "github.com/luthermonson/go-proxmox"

	"savepoint/testbed/pve"
	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/memory"
)

// minimal is a role for what somebody does to his own VMs, and nothing else.
func minimal(c *pve.Config) {
	agent := []string{"VM.GuestAgent.Audit", "VM.GuestAgent.FileRead", "VM.GuestAgent.FileSystemMgmt", "VM.GuestAgent.Unrestricted"}
	if strings.HasPrefix(c.Version, "8") {
		agent = []string{"VM.Monitor"}
	}
	c.Roles = map[string][]string{
		"SavepointSandbox": append([]string{
			"VM.Audit", "VM.Clone", "VM.Allocate", "VM.Config.Disk", "VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Memory",
			"VM.Config.Network", "VM.Config.HWType", "VM.Config.Options", "VM.Config.Cloudinit", "VM.PowerMgmt", "VM.Snapshot", "Pool.Audit",
		}, agent...),
		"SavepointTemplate": {"VM.Clone", "VM.Audit"},
		"SavepointStorage":  {"Datastore.AllocateSpace", "Datastore.Audit"},
		"SavepointNetwork":  {"SDN.Use"},
	}
	c.Users = append(c.Users, access.User{ID: "savepoint@pve", Tokens: []access.Token{{ID: "cli"}}})
	for _, who := range []string{"savepoint@pve", "savepoint@pve!cli"} {
		c.ACL = append(c.ACL,
			access.Entry{Path: "/pool/sandboxes", Subject: who, Role: "SavepointSandbox"},
			access.Entry{Path: "/vms/100", Subject: who, Role: "SavepointTemplate"},
			access.Entry{Path: "/storage/local", Subject: who, Role: "SavepointStorage"},
			access.Entry{Path: "/sdn/zones/localnetwork", Subject: who, Role: "SavepointNetwork"},
		)
	}
}

// F117 F118 F120: a token with the minimal role runs a sandbox's whole life,
// and can do nothing to anybody else's VM.
func TestMinimalRole(t *testing.T) {
	for _, version := range []string{"8.4", "9.2"} {
		t.Run(version, func(t *testing.T) {
			n := newNode(t, func(c *pve.Config) { c.Version = version; minimal(c) })
			n.makeVM("100", "&agent=1")
			n.makeVM("101", "")
			n.run("POST", "/nodes/pve1/qemu/100/template", "")
			if status, reason, _ := n.do("POST", "/pools", "poolid=sandboxes"); status != 200 {
				t.Fatal(reason)
			}
			n.client = proxmox.NewClient(n.url+"/api2/json", proxmox.WithHTTPClient(n.http),
				proxmox.WithAPIToken("savepoint@pve!cli", n.srv.Credentials().Tokens["savepoint@pve!cli"].Reveal()))
			at := "/nodes/pve1/qemu/900"
			n.must(n.post("/nodes/pve1/qemu/100/clone", map[string]any{"newid": 900, "full": 0, "pool": "sandboxes", "name": "box"}))
			n.must(n.client.Put(t.Context(), at+"/config", map[string]any{"tags": "savepoint", "cores": 2, "ciuser": "root", "ipconfig0": "ip=10.0.0.2/24"}, nil))
			n.mem.SetAgent(900, standIn())
			n.must(n.post(at+"/status/start", nil))
			n.must(n.client.Post(t.Context(), at+"/agent/ping", nil, nil))
			n.must(n.post(at+"/snapshot", map[string]any{"snapname": "s1", "vmstate": 1}))
			n.must(n.post(at+"/snapshot/s1/rollback", map[string]any{"start": 1}))
			var up proxmox.UPID
			n.must(n.client.DeleteWithParams(t.Context(), at+"/snapshot/s1", map[string]any{"force": 1}, &up))
			n.must(n.wait(up))
			n.must(n.post(at+"/status/stop", nil))

			for _, tt := range []struct{ name, method, path, reason string }{
				{"other VM's config", "GET", "/nodes/pve1/qemu/101/config", "Permission check failed (/vms/101, VM.Audit)"},
				{"other VM's end", "DELETE", "/nodes/pve1/qemu/101", "Permission check failed (/vms/101, VM.Allocate)"},
				{"the template's end", "DELETE", "/nodes/pve1/qemu/100", "Permission check failed (/vms/100, VM.Allocate)"},
				{"node", "GET", "/nodes/pve1/status", "Permission check failed (/nodes/pve1, Sys.Audit)"},
			} {
				err := n.client.Req(t.Context(), tt.method, tt.path, nil, nil)
				if !proxmox.IsForbidden(err) || !strings.Contains(err.Error(), tt.reason) {
					t.Errorf("%s: %v", tt.name, err)
				}
			}
			if err := n.client.Post(t.Context(), "/nodes/pve1/qemu/100/clone", map[string]any{"newid": 901}, nil); !proxmox.IsForbidden(err) {
				t.Errorf("clone outside the pool: %v", err)
			}
			var vms []map[string]any
			n.must(n.client.Get(t.Context(), "/cluster/resources?type=vm", &vms))
			if len(vms) != 2 {
				t.Errorf("sees %v", vms)
			}
			n.must(n.client.Delete(t.Context(), at, &up))
			n.must(n.wait(up))
		})
	}
}

// Tickets: go-proxmox logs in with a password, writes with a CSRF token, and
// unlocks what no token can.
func TestPassword(t *testing.T) {
	n := newNode(t, nil)
	n.makeVM("100", "")
	n.must(n.srv.SetLock(100, "backup"))
	n.client = proxmox.NewClient(n.url+"/api2/json", proxmox.WithHTTPClient(n.http), proxmox.WithCredentials(&proxmox.Credentials{
		Username: "root@pam", Password: n.srv.Credentials().Passwords["root@pam"].Reveal(),
	}))
	n.must(n.client.Put(t.Context(), "/nodes/pve1/qemu/100/config", map[string]any{"delete": "lock", "skiplock": 1}, nil))
	n.must(n.post("/nodes/pve1/qemu/100/status/start", nil))
}

// The usual wait of a 401, and that nobody waits for anything else.
func TestUnauthorizedWaits(t *testing.T) {
	n := newNode(t, func(c *pve.Config) { c.UnauthorizedDelay = 300 * time.Millisecond })
	begin := time.Now()
	res, err := n.http.Get(n.url + "/api2/json/version")
	n.must(err)
	res.Body.Close()
	if res.StatusCode != 401 || res.Status != "401 No ticket" || time.Since(begin) < 300*time.Millisecond {
		t.Errorf("%s after %s", res.Status, time.Since(begin))
	}
	begin = time.Now()
	for range 20 {
		n.do("GET", "/version", "")
	}
	if d := time.Since(begin); d > 6*time.Second {
		t.Errorf("20 requests took %s", d)
	}
}

// State, secrets and the CA survive a restart; secrets are for the owner alone.
func TestRestart(t *testing.T) {
	mem := memory.New()
	cfg := config(filepath.Join(t.TempDir(), "state"), mem)
	n := startNode(t, cfg, mem)
	if second, err := pve.New(cfg); err == nil {
		second.Close()
		t.Error("two servers use one directory")
	}
	n.makeVM("100", "&description=a%0Ab%25&tags=x%3BA")
	ca, err := os.ReadFile(n.srv.CAFile())
	n.must(err)
	cred := n.srv.Credentials()
	conf := n.object("/nodes/pve1/qemu/100/config")
	n.srv.Close()
	for _, f := range []string{"ca.key", "secrets.json", "qemu-server/100.conf"} {
		info, err := os.Stat(filepath.Join(cfg.Dir, f))
		n.must(err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", f, info.Mode())
		}
	}

	n = startNode(t, cfg, mem)
	again, err := os.ReadFile(n.srv.CAFile())
	n.must(err)
	if !bytes.Equal(ca, again) || n.srv.Credentials().Tokens["sp@pve!t1"] != cred.Tokens["sp@pve!t1"] || n.srv.Credentials().Passwords["root@pam"] != cred.Passwords["root@pam"] {
		t.Error("secrets or CA changed")
	}
	now := n.object("/nodes/pve1/qemu/100/config")
	if now["digest"] != conf["digest"] || now["description"] != "a\nb%" || now["tags"] != "a;x" {
		t.Errorf("configuration %v, was %v", now, conf)
	}
	if st := n.run("DELETE", "/nodes/pve1/qemu/100", ""); st != "OK" || len(mem.Paths()) != 0 {
		t.Errorf("destroy: %q, left %v", st, mem.Paths())
	}
}

// Nobody trusts the server who does not have its CA, and it listens nowhere
// but on loopback.
func TestTrust(t *testing.T) {
	n := newNode(t, nil)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	if _, err := client.Get(n.url + "/api2/json/version"); err == nil {
		t.Error("a client without the CA was served")
	}
	if l, err := pve.Listen("0.0.0.0:0"); err == nil {
		l.Close()
		t.Error("listens on all addresses")
	}
}

func TestConfigChecks(t *testing.T) {
	mem := memory.New()
	for name, change := range map[string]func(*pve.Config){
		"no dir":         func(c *pve.Config) { c.Dir = "" },
		"no machines":    func(c *pve.Config) { c.Machines = nil },
		"version":        func(c *pve.Config) { c.Version = "7.4" },
		"node":           func(c *pve.Config) { c.Node = "a b" },
		"storage type":   func(c *pve.Config) { c.Storages = []pve.Storage{{ID: "x", Type: "rbd"}} },
		"storage path":   func(c *pve.Config) { c.Storages = []pve.Storage{{ID: "x", Path: "rel"}} },
		"chain before 9": func(c *pve.Config) { c.Version = "8.4"; c.Storages = []pve.Storage{{ID: "x", VolumeChain: true}} },
		"role":           func(c *pve.Config) { c.ACL = []access.Entry{{Path: "/", Subject: "a@pve", Role: "Nope"}} },
	} {
		cfg := config(t.TempDir(), mem)
		change(&cfg)
		if s, err := pve.New(cfg); err == nil {
			s.Close()
			t.Errorf("%s: accepted", name)
		}
	}
}
