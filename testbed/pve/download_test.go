package pve_test

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"savepoint/testbed/pve"
	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/task"
)

// A node fetches an image, checks it, and leaves nothing of what it refuses.
func TestDownload(t *testing.T) {
	image := qcow2(3 << 30)
	sum := sha256.Sum256(image)
	digest := hex.EncodeToString(sum[:])
	fetched := 0
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/debian.qcow2":
			fetched++
			_, _ = w.Write(image)
		case "/away":
			http.Redirect(w, r, "http://192.0.2.7/debian.qcow2", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	defer web.Close()
	for _, v := range []string{"8.4", "9.2"} {
		t.Run(v, func(t *testing.T) {
			dir := ""
			n := newNode(t, func(c *pve.Config) {
				dir, c.Version = c.Dir, v
				c.DownloadCAs = x509.NewCertPool()
				c.DownloadCAs.AddCert(web.Certificate())
			})
			run := func(file, from, checksum string) string {
				form := url.Values{"content": {"import"}, "filename": {file}, "url": {from}, "checksum": {checksum}, "checksum-algorithm": {"sha256"}}
				return n.run("POST", "/nodes/pve1/storage/local/download-url", form.Encode())
			}
			for _, tt := range []struct{ file, from, checksum, exit string }{
				{"a.qcow2", web.URL + "/debian.qcow2", strings.Repeat("0", 64), "checksum mismatch: got"},
				{"a.qcow2", web.URL + "/none.qcow2", digest, "download failed: " + web.URL + "/none.qcow2: 404 Not Found"},
				// Another host is not even asked: not by its address, not by a redirect.
				{"a.qcow2", "http://192.0.2.7/debian.qcow2", digest, "download failed: "},
				{"a.qcow2", web.URL + "/away", digest, "download failed: "},
			} {
				got := run(tt.file, tt.from, tt.checksum)
				if !strings.HasPrefix(got, tt.exit) {
					t.Errorf("%s: %q", tt.from, got)
				}
				if strings.Contains(tt.from, "192.0.2.7") || strings.HasSuffix(tt.from, "away") {
					if !strings.Contains(got, "fetches from loopback addresses only, and 192.0.2.7 is none") {
						t.Errorf("%s: %q", tt.from, got)
					}
				}
			}
			if list := n.data("/nodes/pve1/storage/local/content?content=import").([]any); len(list) != 0 {
				t.Fatalf("content after failures: %v", list)
			}
			before := fetched
			if got := run("a.qcow2", web.URL+"/debian.qcow2", digest); got != "OK" {
				t.Fatal(got)
			}
			// What is there and right is not fetched again; what is wrong is said.
			if got := run("a.qcow2", web.URL+"/debian.qcow2", digest); got != "OK" || fetched != before+1 {
				t.Errorf("again: %q, fetched %d times", got, fetched-before)
			}
			if got := run("a.qcow2", web.URL+"/debian.qcow2", strings.Repeat("1", 64)); !strings.Contains(got, "already exists") {
				t.Errorf("another checksum: %q", got)
			}
			n.makeVM("100", "&scsi1="+url.QueryEscape("local:0,import-from=local:import/a.qcow2"))
			if got := n.object("/nodes/pve1/qemu/100/config")["scsi1"]; got != "local:100/vm-100-disk-1.qcow2,size=3G" {
				t.Errorf("disk %v", got)
			}
			if left, err := filepath.Glob(filepath.Join(dir, "uploads", "*")); err != nil || len(left) > 0 {
				t.Errorf("temporary files left: %v %v", left, err)
			}
		})
	}
}

// What the call itself refuses, and a worker that dies before its file has its
// name.
func TestDownloadRefuses(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) }))
	defer web.Close()
	dir := ""
	n := newNode(t, func(c *pve.Config) {
		dir = c.Dir
		c.Users = append(c.Users, access.User{ID: "less@pve", Tokens: []access.Token{{ID: "t", Shared: true}}})
		c.Roles = map[string][]string{"Uploader": {"Datastore.AllocateTemplate"}}
		c.ACL = append(c.ACL, access.Entry{Path: "/storage/local", Subject: "less@pve", Role: "Uploader"})
	})
	const at = "/nodes/pve1/storage/local/download-url"
	form := func(file, from string) string {
		return url.Values{"content": {"import"}, "filename": {file}, "url": {from}}.Encode()
	}
	for _, tt := range []struct{ token, path, form, reason string }{
		{"sp@pve!t1", at, form("x.txt", web.URL), "Parameter verification failed."},
		{"sp@pve!t1", at, form("x.qcow2", "ftp://127.0.0.1/x"), "Parameter verification failed."},
		{"sp@pve!t1", at, form("x.qcow2", web.URL) + "&verify-certificates=0", "certificates are always verified here"},
		{"sp@pve!t1", "/nodes/pve1/storage/zfs/download-url", form("x.qcow2", web.URL), "can't upload to storage type 'zfspool', not a file based storage!"},
		// To let a node fetch is to let the caller look around in its network.
		{"less@pve!t", at, form("x.qcow2", web.URL), "Permission check failed"},
	} {
		if status, reason, _ := n.as(tt.token, "POST", tt.path, tt.form); status == 200 || !strings.HasPrefix(reason, tt.reason) {
			t.Errorf("%s %s: %d %q", tt.path, tt.form, status, reason)
		}
	}
	n.srv.Faults.AddTask(pve.TaskFault{Type: "download", Nth: 1, Step: "downloaded", Action: task.Action{Kill: true}})
	if got := n.run("POST", at, form("x.qcow2", web.URL)); got == "OK" {
		t.Error("the worker was killed and the task is OK")
	}
	if _, err := os.Stat(filepath.Join(dir, "storage/local/import/x.qcow2")); err == nil {
		t.Error("half a download has its name")
	}
	if got := n.run("POST", at, form("x.qcow2", web.URL)); got != "OK" {
		t.Errorf("after the death of a worker: %q", got)
	}
}
