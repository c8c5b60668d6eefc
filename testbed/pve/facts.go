package pve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Facts are what is out of the ordinary on a node. The zero value is a node with
// nothing wrong with it. Tests say what there is.
type Facts struct {
	// Skew is how far the node's clock is ahead of the server's.
	Skew time.Duration
	// CertificateEnds is when its certificate runs out; zero is in many years.
	// What the server presents stays as it is.
	CertificateEnds time.Time
	// Packages have other versions than usual; "" is one that is not installed.
	Packages map[string]string
	// Free is what storages have left, in bytes, instead of what their file
	// systems say.
	Free map[string]int64
	// Version is the release that the node runs; "" is the server's.
	Version string
}

// nodeFacts has those of all nodes, and the certificates made for them.
type nodeFacts struct {
	mu      sync.Mutex
	of      map[string]Facts
	certs   map[string][]byte // DER, by node
	backups []BackupJob
}

// SetFacts replaces what is out of the ordinary on a node.
func (s *Server) SetFacts(node string, f Facts) error {
	if s.member(node) == nil {
		return fmt.Errorf("set facts of node %s: no such node; there are %v", node, s.nodeNames())
	}
	s.facts.mu.Lock()
	defer s.facts.mu.Unlock()
	if s.facts.of == nil {
		s.facts.of = map[string]Facts{}
	}
	s.facts.of[node] = f
	delete(s.facts.certs, node)
	return nil
}

// oddities are what is out of the ordinary on this node.
func (s *Server) oddities() Facts {
	s.facts.mu.Lock()
	defer s.facts.mu.Unlock()
	return s.facts.of[s.cfg.Node]
}

// BackupJob is one job of the cluster's own backups.
type BackupJob struct {
	ID      string
	All     bool   // every VM but Exclude
	Pool    string // every VM of the pool
	VMs     []int
	Exclude []int
	Off     bool
}

// SetBackupJobs replaces the jobs. They never run.
func (s *Server) SetBackupJobs(jobs ...BackupJob) {
	s.facts.mu.Lock()
	defer s.facts.mu.Unlock()
	s.facts.backups = slices.Clone(jobs)
}

// factsTable has what a node tells of itself, and who else works on its VMs.
func factsTable() []route {
	const node = "/nodes/{node}"
	return []route{
		{method: "GET", path: "/cluster/backup", perm: perm("/", "Sys.Audit"), handler: listBackups},
		{method: "GET", path: node + "/apt", perm: users, handler: index("id", "versions")},
		{method: "GET", path: node + "/apt/versions", perm: perm(node, "Sys.Audit"), proxy: true, handler: aptVersions},
		{method: "GET", path: node + "/certificates", perm: users, handler: index("name", "info")},
		{method: "GET", path: node + "/certificates/info", perm: users, proxy: true, handler: certificates},
		{method: "GET", path: node + "/subscription", perm: users, proxy: true, handler: subscription},
	}
}

// listBackups is GET /cluster/backup.
func listBackups(c *call) (any, error) {
	c.s.facts.mu.Lock()
	defer c.s.facts.mu.Unlock()
	ids := func(list []int) string {
		var out []string
		for _, id := range list {
			out = append(out, itoa(id))
		}
		return strings.Join(out, ",")
	}
	out := []map[string]any{}
	for _, j := range c.s.facts.backups {
		item := map[string]any{
			"id": j.ID, "type": "vzdump", "enabled": flag(!j.Off), "schedule": "21:00", "mode": "snapshot", "storage": "local", "next-run": 1,
		}
		for key, v := range map[string]string{"pool": j.Pool, "vmid": ids(j.VMs), "exclude": ids(j.Exclude)} {
			if v != "" {
				item[key] = v
			}
		}
		if j.All {
			item["all"] = 1
		}
		out = append(out, item)
	}
	return out, nil
}

// usualPackages are those of a node with the version of each release.
var usualPackages = map[string]map[string]string{
	"8": {"ifupdown2": "3.2.0-1+pmx11", "frr-pythontools": "8.5.2-1+pve1", "libpve-network-perl": "0.11.3", "zfsutils-linux": "2.2.7-pve2"},
	"9": {"ifupdown2": "3.3.0-1+pmx12", "frr-pythontools": "10.4.1-1+pve1", "libpve-network-perl": "1.3.0", "zfsutils-linux": "2.4.0-pve1"},
}

// aptVersions is GET /nodes/{node}/apt/versions.
func aptVersions(c *call) (any, error) {
	s := c.s
	_, version := s.cfg.release()
	all := maps.Clone(usualPackages[s.cfg.major()])
	all["pve-manager"] = version
	maps.Copy(all, s.oddities().Packages)
	out := []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		item := map[string]any{
			"Package": name, "Title": name, "Description": "", "Section": "admin", "Priority": "optional", "Arch": "amd64",
			"Origin": "Proxmox", "Version": all[name], "OldVersion": all[name], "CurrentState": "Installed",
		}
		if all[name] == "" {
			delete(item, "OldVersion")
			item["CurrentState"], item["Version"] = "NotInstalled", usualPackages[s.cfg.major()][name]
		}
		out = append(out, item)
	}
	return out, nil
}

// certificates is GET /nodes/{node}/certificates/info: the cluster's authority,
// and the node's own certificate, which is the one that is presented unless the
// test said otherwise.
func certificates(c *call) (any, error) {
	s := c.s
	ca, _, err := loadCA(s.root, time.Now())
	if err != nil {
		return nil, err
	}
	own, err := s.ownCertificate()
	if err != nil {
		return nil, err
	}
	return []map[string]any{certificateItem("pve-root-ca.pem", ca.Raw), certificateItem("pve-ssl.pem", own)}, nil
}

// ownCertificate is the node's certificate, signed by the cluster's authority.
func (s *Server) ownCertificate() ([]byte, error) {
	s.facts.mu.Lock()
	defer s.facts.mu.Unlock()
	name, ends := s.cfg.Node, s.facts.of[s.cfg.Node].CertificateEnds
	if der := s.facts.certs[name]; der != nil {
		return der, nil
	}
	if s == s.members[0] && ends.IsZero() {
		return s.tls.Certificates[0].Certificate[0], nil
	}
	ca, caKey, err := loadCA(s.root, time.Now())
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a node's key: %w", err)
	}
	tmpl := certTemplate("savepoint lab "+name, time.Now())
	tmpl.DNSNames, tmpl.ExtKeyUsage = []string{name}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if !ends.IsZero() {
		tmpl.NotBefore, tmpl.NotAfter = ends.Add(-certLife), ends
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca, key.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("make a node's certificate: %w", err)
	}
	if s.facts.certs == nil {
		s.facts.certs = map[string][]byte{}
	}
	s.facts.certs[name] = der
	return der, nil
}

func certificateItem(file string, der []byte) map[string]any {
	item := map[string]any{
		"filename": file, "fingerprint": fingerprint(der),
		"pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return item
	}
	san := append([]string{}, cert.DNSNames...)
	for _, ip := range cert.IPAddresses {
		san = append(san, ip.String())
	}
	for k, v := range map[string]any{
		"issuer": "/CN=" + cert.Issuer.CommonName, "subject": "/CN=" + cert.Subject.CommonName, "san": san,
		"notbefore": cert.NotBefore.Unix(), "notafter": cert.NotAfter.Unix(),
		"public-key-type": "id-ecPublicKey", "public-key-bits": 256,
	} {
		item[k] = v
	}
	return item
}

// subscription is GET /nodes/{node}/subscription: there is none.
func subscription(*call) (any, error) {
	return map[string]any{
		"status": "notfound", "message": "There is no subscription key", "serverid": strings.Repeat("0", 32),
		"url": "https://www.proxmox.com/en/proxmox-virtual-environment/pricing",
	}, nil
}
