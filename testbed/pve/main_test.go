package pve_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	proxmox "github.com/luthermonson/go-proxmox"
	"go.uber.org/goleak"

	"savepoint/testbed/pve"
	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a server with its in-memory backend and a client.
type node struct {
	t      testing.TB
	srv    *pve.Server
	mem    *memory.Backend
	url    string
	http   *http.Client
	client *proxmox.Client
}

// config is what tests start from.
func config(dir string, mem *memory.Backend) pve.Config {
	return pve.Config{
		Dir: dir, Machines: mem.Machines(), Disks: mem.Disks(),
		Storages:          []pve.Storage{{ID: "local"}, {ID: "raw", Format: "raw", Content: []string{"images"}}, {ID: "zfs", Type: "zfspool"}},
		Users:             []access.User{{ID: "sp@pve", Tokens: []access.Token{{ID: "t1"}}}},
		ACL:               []access.Entry{{Path: "/", Subject: "sp@pve", Role: "Administrator"}, {Path: "/", Subject: "sp@pve!t1", Role: "Administrator"}},
		UnauthorizedDelay: -1,
	}
}

// newNode starts a server; change may be nil.
func newNode(t testing.TB, change func(*pve.Config)) *node {
	t.Helper()
	mem := memory.New()
	cfg := config(filepath.Join(t.TempDir(), "state"), mem)
	if change != nil {
		change(&cfg)
	}
	return startNode(t, cfg, mem)
}

func startNode(t testing.TB, cfg pve.Config, mem *memory.Backend) *node {
	t.Helper()
	srv, err := pve.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := pve.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	ca, err := os.ReadFile(srv.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: false}
	n := &node{t: t, srv: srv, mem: mem, url: "https://" + l.Addr().String(), http: &http.Client{Transport: tr}}
	n.client = proxmox.NewClient(n.url+"/api2/json", proxmox.WithHTTPClient(n.http),
		proxmox.WithAPIToken("sp@pve!t1", srv.Credentials().Tokens["sp@pve!t1"].Reveal()))
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		srv.Close()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return n
}

// do sends one request with the token and returns status line and body.
func (n *node) do(method, path, form string) (status int, reason, body string) {
	n.t.Helper()
	return n.as("sp@pve!t1", method, path, form)
}

// as is do with another token.
func (n *node) as(token, method, path, form string) (status int, reason, body string) {
	n.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, n.url+"/api2/json"+path, strings.NewReader(form))
	if err != nil {
		n.t.Fatal(err)
	}
	if form == "" {
		req.Body = nil
	} else {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	req.Header.Set("Authorization", "PVEAPIToken="+token+"="+n.srv.Credentials().Tokens[token].Reveal())
	res, err := n.http.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	_, reason, _ = strings.Cut(res.Status, " ")
	return res.StatusCode, reason, string(b)
}

// post starts a task through go-proxmox and returns its end.
func (n *node) post(path string, body map[string]any) error {
	n.t.Helper()
	var upid proxmox.UPID
	var sent any // a nil map would be sent as null
	if body != nil {
		sent = body
	}
	if err := n.client.Post(n.t.Context(), path, sent, &upid); err != nil {
		return err
	}
	return n.wait(upid)
}

func (n *node) wait(upid proxmox.UPID) error {
	n.t.Helper()
	return proxmox.NewTask(upid, n.client).Wait(n.t.Context(), 5*time.Millisecond, 20*time.Second)
}

// must fails the test on an error.
func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// version makes a server behave like a release.
func version(release string) func(*pve.Config) {
	return func(c *pve.Config) { c.Version = release }
}

// login makes the client use a password instead of a token.
func (n *node) login(user, password string) {
	n.client = proxmox.NewClient(n.url+"/api2/json", proxmox.WithHTTPClient(n.http),
		proxmox.WithCredentials(&proxmox.Credentials{Username: user, Password: password}))
}
