package proxmox

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"
)

// certificateOf makes one, signed by the parent or by itself.
func certificateOf(t *testing.T, name string, ends time.Time, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: ends.Add(-24 * time.Hour), NotAfter: ends,
		IsCA: parent == nil, BasicConstraintsValid: true,
	}
	if parent == nil {
		parent, by = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// A node's certificate is judged by the authority that we trust: its time apart,
// which is told, and the one of its own before the one that the cluster made.
func TestNodeCertificate(t *testing.T) {
	s := newScripted(t)
	day := time.Now().Add(24 * time.Hour).Truncate(time.Second)
	ca, caKey, caText := certificateOf(t, "ours", day, nil, nil)
	_, _, good := certificateOf(t, "pve1", day, ca, caKey)
	_, _, old := certificateOf(t, "pve1", day.Add(-60*time.Hour), ca, caKey)
	_, _, foreign := certificateOf(t, "self", day, nil, nil)
	pool := s.caPool()
	pool.AddCert(ca)
	c := s.open(t, func(cfg *Config) { cfg.CAs = pool })
	item := func(file, text string) map[string]any {
		return map[string]any{"filename": file, "pem": text, "notafter": "1"}
	}
	for name, tt := range map[string]struct {
		list     []map[string]any
		file     string
		distrust string
		ends     time.Time
	}{
		"the cluster's":          {[]map[string]any{item("pve-root-ca.pem", caText), item("pve-ssl.pem", good)}, "pve-ssl.pem", "", day},
		"run out":                {[]map[string]any{item("pve-ssl.pem", old)}, "pve-ssl.pem", "", day.Add(-60 * time.Hour)},
		"signed by somebody":     {[]map[string]any{item("pve-ssl.pem", foreign)}, "pve-ssl.pem", "not signed by an authority", day},
		"one of its own":         {[]map[string]any{item("pve-ssl.pem", good), item("pveproxy-ssl.pem", foreign)}, "pveproxy-ssl.pem", "not signed by", day},
		"one of its own, before": {[]map[string]any{item("pveproxy-ssl.pem", good), item("pve-ssl.pem", foreign)}, "pveproxy-ssl.pem", "", day},
		"only its end":           {[]map[string]any{item("pve-ssl.pem", "")}, "pve-ssl.pem", "", time.Unix(1, 0)},
	} {
		s.always("GET /nodes/pve1/certificates/info", answer{data: tt.list})
		got, err := c.certificate(t.Context(), "pve1")
		if err != nil || got.File != tt.file || !got.Ends.Equal(tt.ends) || (tt.distrust == "") != (got.Distrust == "") || !strings.Contains(got.Distrust, tt.distrust) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	s.always("GET /nodes/pve1/certificates/info", answer{data: []map[string]any{item("pve-root-ca.pem", caText)}})
	if _, err := c.certificate(t.Context(), "pve1"); err == nil {
		t.Error("a node without a certificate is not told")
	}
}

// What a storage can follows from its type and from how it is configured.
func TestStorageAbilities(t *testing.T) {
	for _, tt := range []struct {
		s                               Storage
		possible, latest, thick, linked bool
	}{
		{Storage{Type: "zfspool"}, true, true, true, true},
		{Storage{Type: "zfspool", Sparse: true}, true, true, false, true},
		{Storage{Type: "lvmthin"}, true, false, false, true},
		{Storage{Type: "rbd"}, true, false, false, true},
		{Storage{Type: "dir"}, true, false, false, true},
		{Storage{Type: "dir", Chain: true}, true, true, false, true},
		{Storage{Type: "lvm"}, false, false, true, false},
		{Storage{Type: "lvm", Chain: true}, true, true, true, false},
		{Storage{Type: "iscsi"}, false, false, false, false},
	} {
		can := tt.s.Snapshots()
		if can.Possible != tt.possible || can.LatestOnly != tt.latest || tt.s.Thick() != tt.thick || tt.s.LinkedClones() != tt.linked {
			t.Errorf("%+v: %+v, thick %v, linked clones %v", tt.s, can, tt.s.Thick(), tt.s.LinkedClones())
		}
	}
}
