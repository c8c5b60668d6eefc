package proxmox_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"savepoint/orchestrator"
	"savepoint/proxmox"
	"savepoint/testbed/conformance"
	"savepoint/testbed/pve"
	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/memory"
)

const (
	labNode    = "pve1"
	labPool    = "savepoint"
	templateID = orchestrator.VMID(9000)
	foreignID  = orchestrator.VMID(8000)
)

var templateVM = orchestrator.VMRef{Node: labNode, ID: templateID}

// lab is a cluster of one node whose guests live in memory. cluster has
// exactly the privileges that the doctor asks for; admin may do everything.
type lab struct {
	t       *testing.T
	server  *pve.Server
	backend *memory.Backend
	cfg     proxmox.Config // of cluster
	cluster *proxmox.Cluster
	builder *proxmox.Cluster // may build templates, and nothing beyond what that takes
	admin   *proxmox.Cluster
	client  *http.Client // raw, as admin
	header  string
	started time.Time
	// requests are those that the clusters made.
	requests *recorder
	next     atomic.Int64
}

func labUse() proxmox.Use {
	return proxmox.Use{
		Templates: []orchestrator.VMRef{templateVM},
		Storages:  []string{"local"}, Bridges: []string{"vmbr0"},
	}
}

// grants makes one role per path, so that the user's token has on each path
// what the doctor asks for there and nothing else, F118.
func grants(t *testing.T, version, user, token string, use proxmox.Use) (map[string][]string, []access.Entry) {
	t.Helper()
	c, err := proxmox.Open(proxmox.Config{URL: "https://pve:8006", TokenID: "sp@pve!t1", TokenSecret: "x", Pool: labPool, Instance: "lab"})
	if err != nil {
		t.Fatal(err)
	}
	roles, acl := map[string][]string{}, []access.Entry(nil)
	for _, p := range c.Privileges(proxmox.Version{Major: int(version[0] - '0')}, use) {
		role := strings.ToUpper(user[:2]) + strings.ReplaceAll(p.Path, "/", "-")
		if roles[role] == nil {
			for _, who := range []string{user, user + "!" + token} {
				acl = append(acl, access.Entry{Path: p.Path, Subject: who, Role: role})
			}
		}
		roles[role] = append(roles[role], p.AnyOf[0])
	}
	return roles, acl
}

func startLab(t *testing.T, change ...func(*pve.Config)) *lab {
	t.Helper()
	l := &lab{t: t, backend: memory.New(), started: time.Now()}
	cfg := pve.Config{
		Dir: t.TempDir(), Machines: l.backend.Machines(), Disks: l.backend.Disks(),
		UnauthorizedDelay: -1, LockTimeout: 50 * time.Millisecond, AgentTimeout: 20 * time.Millisecond,
		Users: []access.User{
			{ID: "sp@pve", Tokens: []access.Token{{ID: "t1", Secret: "token-secret"}}},
			{ID: "builder@pve", Tokens: []access.Token{{ID: "b1", Secret: "builder-secret"}}},
			{ID: "root@pam", Password: "root-password", Tokens: []access.Token{{ID: "admin", Secret: "admin-secret", Shared: true}}},
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	version := cfg.Version
	if version == "" {
		version = "9"
	}
	cfg.Roles, cfg.ACL = grants(t, version, "sp@pve", "t1", labUse())
	roles, acl := grants(t, version, "builder@pve", "b1", proxmox.Use{Storages: []string{"local"}, ImportStorages: []string{"local"}, Downloads: []string{labNode}, Bridges: []string{"vmbr0"}})
	maps.Copy(cfg.Roles, roles)
	cfg.ACL = append(cfg.ACL, acl...)
	l.requests = watch(t, version, &cfg)
	var err error
	if l.server, err = pve.New(cfg); err != nil {
		t.Fatal(err)
	}
	listener, err := pve.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = l.server.Serve(listener) }()
	t.Cleanup(func() { l.server.Close(); <-done })

	l.cfg = proxmox.Config{
		URL: "https://" + listener.Addr().String(), CAFile: l.server.CAFile(), TokenID: "sp@pve!t1", TokenSecret: "token-secret",
		Pool: labPool, Instance: "lab", Bridge: "vmbr0", PollInterval: 5 * time.Millisecond,
		TaskTimeout: 20 * time.Second, CloneTimeout: 20 * time.Second, RequestTimeout: 10 * time.Second, VerifyTimeout: 10 * time.Second,
		ReconcileTimeout: 10 * time.Second, LockWait: -1, AgentTimeout: 5 * time.Second, Logger: zerolog.Nop(),
	}
	l.cluster = l.open()
	l.builder = l.open(func(c *proxmox.Config) { c.TokenID, c.TokenSecret = "builder@pve!b1", "builder-secret" })
	l.admin = l.open(func(c *proxmox.Config) { c.TokenID, c.TokenSecret = "root@pam!admin", "admin-secret" })
	l.header = "PVEAPIToken=root@pam!admin=admin-secret"
	pem, err := os.ReadFile(l.server.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(tr.CloseIdleConnections)
	l.client = &http.Client{Transport: tr}
	l.call("POST", "/pools", map[string]any{"poolid": labPool})
	l.next.Store(100)
	return l
}

// open connects as the ordinary token; change adjusts the configuration.
func (l *lab) open(change ...func(*proxmox.Config)) *proxmox.Cluster {
	l.t.Helper()
	cfg := l.cfg
	for _, f := range change {
		f(&cfg)
	}
	c, err := proxmox.Open(cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(c.Close)
	return c
}

// call makes a raw request as admin, waits for its task if there is one, and
// fails the test if either fails.
func (l *lab) call(method, path string, params map[string]any) json.RawMessage {
	l.t.Helper()
	var body io.Reader
	if params != nil {
		b, err := json.Marshal(params)
		if err != nil {
			l.t.Fatal(err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, l.cfg.URL+"/api2/json"+path, body)
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header.Set("Authorization", l.header)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := l.client.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, _ := io.ReadAll(res.Body)
	var out struct{ Data json.RawMessage }
	if res.StatusCode != 200 || json.Unmarshal(text, &out) != nil {
		l.t.Fatalf("%s %s: %s %s", method, path, res.Status, text)
	}
	var upid string
	if json.Unmarshal(out.Data, &upid) == nil && strings.HasPrefix(upid, "UPID:") {
		if err := l.admin.Tasks().Await(l.t.Context(), orchestrator.UPID(upid)); err != nil {
			l.t.Fatalf("%s %s: %v", method, path, err)
		}
	}
	return out.Data
}

// withTemplate makes the template and a VM that is not ours.
func (l *lab) withTemplate() *lab {
	l.t.Helper()
	l.call("POST", "/nodes/pve1/qemu", map[string]any{
		"vmid": int(templateID), "name": "tpl", "pool": labPool, "memory": "256", "scsihw": "virtio-scsi-pci", "agent": "1",
		"scsi0": "local:1", "scsi1": "local:cloudinit", "net0": "virtio,bridge=vmbr0", "boot": "order=scsi0", "tags": "base",
	})
	l.call("POST", "/nodes/pve1/qemu/9000/template", nil)
	l.call("POST", "/nodes/pve1/qemu", map[string]any{
		"vmid": int(foreignID), "name": "mine", "memory": "64", "scsi0": "local:1", "pool": labPool,
		"tags": "savepoint", "description": "not yours",
	})
	return l
}

func (l *lab) newVM() orchestrator.VMRef {
	return orchestrator.VMRef{Node: labNode, ID: orchestrator.VMID(l.next.Add(1))}
}

func (l *lab) newSandbox() orchestrator.SandboxID {
	return orchestrator.SandboxID(fmt.Sprintf("01jsandbox%016d", l.next.Add(1)))
}

func (l *lab) newAddress() (netip.Prefix, netip.Addr) {
	n := l.next.Add(1)
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, byte(n >> 8), byte(n)}), 16), netip.AddrFrom4([4]byte{10, 9, 0, 1})
}

func (l *lab) cloneRequest() orchestrator.CloneRequest {
	address, gateway := l.newAddress()
	return orchestrator.CloneRequest{
		VMRequest: orchestrator.VMRequest{Sandbox: l.newSandbox(), VM: l.newVM()},
		Template:  templateVM, Name: "sb-one", SSHKeys: []string{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f a b+c"},
		Address: address, Gateway: gateway,
	}
}

// sandbox makes a sandbox's VM and starts it.
func (l *lab) sandbox() orchestrator.VMRequest {
	l.t.Helper()
	r := l.cloneRequest()
	if err := l.cluster.VMs().Clone(l.t.Context(), r); err != nil {
		l.t.Fatal(err)
	}
	if err := l.cluster.VMs().Start(l.t.Context(), r.VMRequest); err != nil {
		l.t.Fatal(err)
	}
	return r.VMRequest
}

// diskPath finds the image of a VM's first disk.
func (l *lab) diskPath(vm orchestrator.VMID) string {
	l.t.Helper()
	for _, p := range l.backend.Paths() {
		if strings.Contains(p, fmt.Sprintf("vm-%d-disk-0", vm)) {
			return p
		}
	}
	l.t.Fatalf("vm %d has no disk among %q", vm, l.backend.Paths())
	return ""
}

func (l *lab) disk(vm orchestrator.VMID) conformance.Cell {
	return conformance.Cell{
		Write: func(_ context.Context, content string) error { return l.backend.Write(l.diskPath(vm), content) },
		Read:  func(context.Context) (string, error) { return l.backend.Read(l.diskPath(vm)) },
	}
}

func (l *lab) status(vm orchestrator.VMRef) orchestrator.VMStatus {
	l.t.Helper()
	st, err := l.cluster.VMs().Status(l.t.Context(), vm)
	if err != nil {
		l.t.Fatal(err)
	}
	return st
}

// vmCount counts the VMs of the node.
func (l *lab) vmCount() int {
	l.t.Helper()
	var list []json.RawMessage
	if err := json.Unmarshal(l.call("GET", "/nodes/pve1/qemu", nil), &list); err != nil {
		l.t.Fatal(err)
	}
	return len(list)
}

// fakeImage writes a file that looks like a qcow2 image of 1 GiB.
func fakeImage(t *testing.T, salt string) string {
	t.Helper()
	b := make([]byte, 1<<20)
	copy(b, "QFI\xfb\x00\x00\x00\x03")
	binary.BigEndian.PutUint64(b[24:], 1<<30)
	copy(b[1024:], salt)
	path := filepath.Join(t.TempDir(), "image.qcow2")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// serveKey makes the guest agent give the host key file.
func serveKey(l *lab, vm orchestrator.VMID, content string) {
	var mu sync.Mutex
	read := false
	l.backend.SetAgent(int(vm), func(command string, args any) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		switch command {
		case "guest-file-open":
			if text, _ := json.Marshal(args); !strings.Contains(string(text), "/etc/ssh/ssh_host_ed25519_key.pub") {
				return nil, &pve.AgentError{Class: "GenericError", Desc: "failed to open file: No such file or directory"}
			}
			read = false
			return 1000, nil
		case "guest-file-read":
			text := content
			if read {
				text = ""
			}
			read = true
			return map[string]any{"count": len(text), "buf-b64": base64.StdEncoding.EncodeToString([]byte(text)), "eof": true}, nil
		default:
			return map[string]any{}, nil
		}
	})
}
