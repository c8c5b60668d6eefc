package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"savepoint/configs"
	"savepoint/orchestrator/journal"
	"savepoint/orchestrator/sshexec"
	"savepoint/proxmox"
	"savepoint/testbed/jump"
	"savepoint/testbed/pve"
	"savepoint/testbed/pve/access"
	"savepoint/testbed/sim"
)

// cluster is a Proxmox-compatible cluster with simulated guests in this
// process, as savepoint sees a real one: API, jump host, template.
type cluster struct {
	api     *pve.Server
	backend *sim.Backend
	jump    *jump.Server
	config  configs.Config
	file    string
	tags    string           // of the VM that was disowned last
	web     *httptest.Server // the nodes trust it when they fetch a file
	images  sync.Map         // what it has, by path
	serving errgroup.Group
}

// startCluster starts one in dir, with these nodes, and writes the configuration
// for it.
func startCluster(dir string, nodes []string, storages ...pve.Storage) (*cluster, error) {
	return startClusterOf(dir, "", nodes, storages...)
}

// startClusterOf starts one of that release.
func startClusterOf(dir, release string, nodes []string, storages ...pve.Storage) (_ *cluster, err error) {
	c := &cluster{backend: sim.New(sim.Behaviour{})}
	c.web = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		image, ok := c.images.Load(r.URL.Path)
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(image.([]byte))
	}))
	trusted := x509.NewCertPool()
	trusted.AddCert(c.web.Certificate())
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if len(storages) == 0 {
		storages = []pve.Storage{{ID: "local"}}
	}
	const user = "savepoint@pve"
	c.api, err = pve.New(pve.Config{
		Dir: filepath.Join(dir, "pve"), Version: release, Nodes: nodes, Machines: c.backend.Machines(), Disks: c.backend.Disks(),
		Storages: storages, Pools: []string{"savepoint"}, DownloadCAs: trusted, UnauthorizedDelay: -1, LockTimeout: time.Second, AgentTimeout: 200 * time.Millisecond,
		Users: []access.User{{ID: user, Tokens: []access.Token{{ID: "cli", Shared: true}}}},
		ACL:   []access.Entry{{Path: "/", Subject: user, Role: "Administrator"}}, Logger: zerolog.Nop(),
	})
	if err != nil {
		return nil, err
	}
	listen, err := pve.Listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c.serving.Go(func() error { return c.api.Serve(listen) })
	id, err := sshexec.CreateIdentity(filepath.Join(dir, "id_ed25519"), "test")
	if err != nil {
		return nil, err
	}
	c.jump, err = jump.Listen(jump.Config{
		Dir: dir, Authorized: []string{id.AuthorizedKey()},
		Resolve: func(guest netip.Addr, _ uint16) (netip.AddrPort, bool) { return c.api.SSHEndpoint(guest) },
	})
	if err != nil {
		return nil, err
	}
	cfg := configs.Default(filepath.Join(dir, "state"))
	cfg.Cluster.URL, cfg.Cluster.CAFile = "https://"+listen.Addr().String(), c.api.CAFile()
	cfg.Cluster.TokenID = user + "!cli"
	cfg.Cluster.TokenSecret = configs.NewSecret(c.api.Credentials().Tokens[cfg.Cluster.TokenID].Reveal())
	cfg.Cluster.VMIDFirst, cfg.Cluster.VMIDLast = 9000, 9099
	cfg.Cluster.PollInterval = 10 * time.Millisecond
	cfg.Sandbox.Subnet = netip.MustParsePrefix("10.99.0.0/24")
	cfg.Sandbox.BootTimeout = 20 * time.Second
	cfg.SSH.IdentityFile = filepath.Join(dir, "id_ed25519")
	cfg.SSH.Jump = configs.Jump{Address: c.jump.Addr().String(), User: "jump", HostKey: c.jump.HostKey(), IdentityFile: cfg.SSH.IdentityFile}
	c.config, c.file = cfg, filepath.Join(dir, "cluster.yaml")
	return c, configs.WriteWithSecrets(c.file, cfg)
}

func (c *cluster) close() {
	if c.web != nil {
		c.web.Close()
	}
	if c.jump != nil {
		c.jump.Close()
	}
	if c.api != nil {
		c.api.Close()
		_ = c.serving.Wait()
	}
	c.backend.Close()
}

// disown takes the tags off a VM, through the API and with our own token; own
// puts them back.
func (c *cluster) disown(vmid int) error {
	raw, err := c.configure(http.MethodGet, vmid, "")
	if err != nil {
		return err
	}
	var conf struct {
		Data struct {
			Tags string `json:"tags"`
		} `json:"data"`
	}
	if err := json.Unmarshal(raw, &conf); err != nil {
		return err
	}
	c.tags = conf.Data.Tags
	_, err = c.configure(http.MethodPut, vmid, "delete=tags")
	return err
}

func (c *cluster) own(vmid int) error {
	_, err := c.configure(http.MethodPut, vmid, url.Values{"tags": {c.tags}}.Encode())
	return err
}

// configure reads or writes the configuration of a VM as any client does.
func (c *cluster) configure(method string, vmid int, form string) ([]byte, error) {
	return c.request(method, fmt.Sprintf("/nodes/pve1/qemu/%d/config", vmid), form)
}

// request makes one request with our own token.
func (c *cluster) request(method, path, form string) ([]byte, error) {
	roots := x509.NewCertPool()
	ca, err := os.ReadFile(c.config.Cluster.CAFile)
	if err != nil {
		return nil, err
	}
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequest(method, c.config.Cluster.URL+"/api2/json"+path, strings.NewReader(form))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "PVEAPIToken="+c.config.Cluster.TokenID+"="+c.config.Cluster.TokenSecret.Reveal())
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// stray makes a VM that says it is a sandbox of that instance, or of ours when
// it is "".
func (c *cluster) stray(vmid int, instance string) error {
	if instance == "" {
		j, err := journal.OpenReadOnly(journalFile(c.config))
		if err != nil {
			return err
		}
		instance = strings.ToLower(j.Instance())
		if err := j.Close(); err != nil {
			return err
		}
	}
	form := url.Values{
		"vmid": {strconv.Itoa(vmid)}, "pool": {"savepoint"}, "scsi0": {"local:1"}, "memory": {"64"},
		"tags":        {"savepoint;savepoint-" + instance},
		"description": {fmt.Sprintf("savepoint/1 instance=%s sandbox=stray%d state=ready", instance, vmid)},
	}
	_, err := c.request(http.MethodPost, "/nodes/pve1/qemu", form.Encode())
	if err != nil {
		return err
	}
	return c.idle(vmid)
}

// snapshot takes one as another tool would.
func (c *cluster) snapshot(vmid int, name string) error {
	_, err := c.request(http.MethodPost, fmt.Sprintf("/nodes/pve1/qemu/%d/snapshot", vmid), url.Values{"snapname": {name}}.Encode())
	if err != nil {
		return err
	}
	return c.idle(vmid)
}

// idle waits until no task of the VM runs.
func (c *cluster) idle(vmid int) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 2000 {
		raw, err := c.request(http.MethodGet, fmt.Sprintf("/nodes/pve1/tasks?source=active&vmid=%d", vmid), "")
		if err != nil {
			return err
		}
		var list struct {
			Data []json.RawMessage `json:"data"`
		}
		if err := json.Unmarshal(raw, &list); err != nil {
			return err
		}
		if len(list.Data) == 0 {
			return nil
		}
		<-tick.C
	}
	return fmt.Errorf("a task of vm %d does not end", vmid)
}

// buildTemplate makes the template that sandboxes are cloned from.
func (c *cluster) buildTemplate(ctx context.Context, dir, storage string) error {
	pc, err := proxmox.Open(proxmox.Config{
		URL: c.config.Cluster.URL, CAFile: c.config.Cluster.CAFile, TokenID: c.config.Cluster.TokenID,
		TokenSecret: proxmox.Secret(c.config.Cluster.TokenSecret.Reveal()), Pool: "savepoint", Instance: "test", Bridge: "vmbr0",
		Logger: zerolog.Nop(),
	})
	if err != nil {
		return err
	}
	defer pc.Close()
	image := filepath.Join(dir, "guest.qcow2")
	// A qcow2 header: what the storage looks at. The simulated disk behind it
	// holds the standard guest.
	if err := os.WriteFile(image, append([]byte("QFI\xfb\x00\x00\x00\x03"), make([]byte, 4096)...), 0o600); err != nil {
		return err
	}
	_, err = pc.BuildTemplate(ctx, proxmox.TemplateSpec{
		Name: c.config.Sandbox.Template, ImagePath: image, Storage: storage, Node: "pve1", VMID: 8000,
		MemoryMiB: 256, Cores: 1, Bridge: "vmbr0", Description: "test guest",
	})
	if err != nil {
		return fmt.Errorf("build template: %w", err)
	}
	return nil
}

// serveImage makes an image of a guest that lacks these things, serves it as a
// publisher of cloud images does, and returns its address and digest.
func (c *cluster) serveImage(name string, lacks []string) (address, digest string) {
	text := append([]byte("QFI\xfb\x00\x00\x00\x03"), make([]byte, 4096)...)
	text = append(text, "\n"+name+"\n"...)
	for _, l := range lacks {
		text = append(text, "lacks "+l+"\n"...)
	}
	c.images.Store("/"+name, text)
	sum := sha256.Sum256(text)
	return c.web.URL + "/" + name, hex.EncodeToString(sum[:])
}

// halfTemplate makes a running VM that says it is a template of ours in the
// making.
func (c *cluster) halfTemplate(vmid int) error {
	j, err := journal.OpenReadOnly(journalFile(c.config))
	if err != nil {
		return err
	}
	instance := strings.ToLower(j.Instance())
	if err := j.Close(); err != nil {
		return err
	}
	form := url.Values{
		"vmid": {strconv.Itoa(vmid)}, "pool": {"savepoint"}, "scsi0": {"local:1"}, "memory": {"64"}, "start": {"1"},
		"tags":        {"savepoint;savepoint-" + instance + ";savepoint-template"},
		"description": {"savepoint/1 instance=" + instance + " template=" + strings.Repeat("0a", 16) + " state=building"},
	}
	if _, err := c.request(http.MethodPost, "/nodes/pve1/qemu", form.Encode()); err != nil {
		return err
	}
	return c.idle(vmid)
}

// writeOtherCA writes the certificate of an authority that signed nothing.
func writeOtherCA(path string) error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	tpl := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "another authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, &tpl, &tpl, public, private)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
}
