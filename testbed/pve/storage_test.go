package pve_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"savepoint/testbed/pve"
)

// F70 F74 F78: what each kind of storage can do with snapshots.
func TestStorageProfiles(t *testing.T) {
	n := newNode(t, func(c *pve.Config) {
		c.Storages = append(c.Storages, pve.Storage{ID: "chain", Content: []string{"images"}, VolumeChain: true})
	})
	for i, tt := range []struct {
		storage, disk string
		feature       int    // snapshot
		older         string // exit status of a rollback to the older of two
		fromSnap      string // reason of a full clone from a snapshot; "" = works
	}{
		{"local", "local:1", 1, "OK", ""},
		{"raw", "raw:1", 0, "", ""},
		{"local raw", "local:1,format=raw", 0, "", ""},
		{"zfs", "zfs:1", 1, "can't rollback, 's1' is not most recent snapshot on 'zfs:vm-102-disk-0'", "Full clone feature is not supported for a snapshot of 'zfs:vm-102-disk-0' (scsi0)"},
		{"chain", "chain:1", 1, "can't rollback, 's1' is not most recent snapshot on '102/vm-102-disk-0.qcow2'", ""},
	} {
		t.Run(tt.storage, func(t *testing.T) {
			at := "/nodes/pve1/qemu/102"
			if st := n.run("POST", "/nodes/pve1/qemu", "vmid=102&memory=64&scsi0="+url.QueryEscape(tt.disk)); st != "OK" {
				t.Fatal(st)
			}
			defer func() {
				if st := n.run("DELETE", at, ""); st != "OK" {
					t.Error(st)
				}
			}()
			if got := n.object(at + "/feature?feature=snapshot")["hasFeature"]; got != float64(tt.feature) {
				t.Errorf("feature %v", got)
			}
			st := n.run("POST", at+"/snapshot", "snapname=s1")
			if tt.feature == 0 {
				if st != "snapshot feature is not available" {
					t.Errorf("snapshot: %q", st)
				}
				return
			}
			var disk string
			for _, p := range n.mem.Paths() {
				if strings.Contains(p, "vm-102") {
					disk = p
				}
			}
			n.must(n.mem.Write(disk, "one"))
			if st := n.run("POST", at+"/snapshot", "snapname=s2"); st != "OK" {
				t.Fatal(st)
			}
			n.must(n.mem.Write(disk, "two"))
			if st := n.run("POST", at+"/snapshot/s1/rollback", ""); st != tt.older {
				t.Errorf("rollback to the older: %q", st)
			}
			if st := n.run("POST", at+"/snapshot/s2/rollback", ""); st != "OK" {
				t.Errorf("rollback to the newest: %q", st)
			}
			if got, _ := n.mem.Read(disk); got != "one" {
				t.Errorf("content %q", got)
			}
			status, reason, _ := n.do("POST", at+"/clone", "newid=20"+string(rune('0'+i))+"&snapname=s1&full=1")
			if tt.fromSnap == "" && status != 200 || tt.fromSnap != "" && reason != tt.fromSnap {
				t.Errorf("clone from a snapshot: %d %q", status, reason)
			}
			if tt.older != "OK" { // F72: newest first is the way back
				for _, s := range []string{"s2", "s1"} {
					if st := n.run("POST", at+"/snapshot/"+s+"/rollback", ""); st != "OK" {
						t.Errorf("rollback to %s: %q", s, st)
					}
					if st := n.run("DELETE", at+"/snapshot/"+s, ""); st != "OK" {
						t.Errorf("delete %s: %q", s, st)
					}
				}
			}
		})
	}
}

// qcow2 is the smallest head of an image that tells its size.
func qcow2(size uint64) []byte {
	b := make([]byte, 512)
	copy(b, "QFI\xfb\x00\x00\x00\x03")
	for i := range 8 {
		b[24+i] = byte(size >> (8 * (7 - i)))
	}
	return b
}

// upload sends a file the way clients do.
func (n *node) upload(content, name string, data []byte, fields map[string]string) (int, string, string) {
	n.t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	fields["content"] = content
	for k, v := range fields {
		n.must(w.WriteField(k, v))
	}
	part, err := w.CreateFormFile("filename", name)
	n.must(err)
	_, err = part.Write(data)
	n.must(err)
	n.must(w.Close())
	req, err := http.NewRequestWithContext(n.t.Context(), "POST", n.url+"/api2/json/nodes/pve1/storage/local/upload", &b)
	n.must(err)
	req.Header.Set("Content-Type", w.FormDataContentType())
	req.Header.Set("Authorization", "PVEAPIToken=sp@pve!t1="+n.srv.Credentials().Tokens["sp@pve!t1"].Reveal())
	res, err := n.http.Do(req)
	n.must(err)
	defer res.Body.Close()
	var body bytes.Buffer
	_, err = body.ReadFrom(res.Body)
	n.must(err)
	_, reason, _ := strings.Cut(res.Status, " ")
	return res.StatusCode, reason, body.String()
}

// An uploaded image becomes a disk and a template.
func TestUploadAndImport(t *testing.T) {
	dir := ""
	n := newNode(t, func(c *pve.Config) { dir = c.Dir })
	status, reason, body := n.upload("import", "debian-12.qcow2", qcow2(3<<30), map[string]string{})
	if status != 200 {
		t.Fatalf("%d %s %s", status, reason, body)
	}
	upid := strings.Split(body, `"`)[3]
	if st := n.exit(upid); st != "OK" {
		t.Fatal(st)
	}
	var volids []string
	for _, e := range n.data("/nodes/pve1/storage/local/content?content=import").([]any) {
		volids = append(volids, e.(map[string]any)["volid"].(string))
	}
	if len(volids) != 1 || volids[0] != "local:import/debian-12.qcow2" {
		t.Fatalf("content %v", volids)
	}
	n.makeVM("100", "&scsi1="+url.QueryEscape("local:0,import-from=local:import/debian-12.qcow2"))
	if got := n.object("/nodes/pve1/qemu/100/config")["scsi1"]; got != "local:100/vm-100-disk-1.qcow2,size=3G" {
		t.Errorf("disk %v", got)
	}
	for _, tt := range []struct {
		name, content, file string
		fields              map[string]string
		reason              string
	}{
		{"wrong kind of file", "import", "x.txt", nil, "Parameter verification failed."},
		{"bad kind", "images", "x.qcow2", nil, "Parameter verification failed."},
		{"checksum", "iso", "x.iso", map[string]string{"checksum-algorithm": "sha256", "checksum": "00"}, "checksum mismatch: got"},
	} {
		if tt.fields == nil {
			tt.fields = map[string]string{}
		}
		if status, reason, _ := n.upload(tt.content, tt.file, []byte("x"), tt.fields); status == 200 || !strings.HasPrefix(reason, tt.reason) {
			t.Errorf("%s: %d %q", tt.name, status, reason)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "uploads", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files left: %v %v", left, err)
	}
	// a name cannot leave the storage
	if _, reason, _ := n.do("DELETE", "/nodes/pve1/storage/local/content/import/..%2f..%2fca.pem", ""); !strings.Contains(reason, "unable to parse volume ID") {
		t.Errorf("path out of the storage: %q", reason)
	}
	if st := n.run("DELETE", "/nodes/pve1/storage/local/content/import/debian-12.qcow2", ""); st != "OK" {
		t.Errorf("delete: %q", st)
	}
	if _, err := os.Stat(filepath.Join(dir, "storage/local/import/debian-12.qcow2")); err == nil {
		t.Error("the file is still there")
	}
}

// An upload that its server did not live to finish is gone with the next one.
func TestUploadOfAKilledServer(t *testing.T) {
	left := ""
	newNode(t, func(c *pve.Config) {
		left = filepath.Join(c.Dir, "uploads", "pveupload-1")
		if err := os.MkdirAll(filepath.Dir(left), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("the half upload is still there: %v", err)
	}
}

// F75: what belongs to nobody is listed, and can be removed; what is used cannot.
func TestOrphanVolume(t *testing.T) {
	n := newNode(t, nil)
	n.makeVM("100", "")
	if _, reason, _ := n.do("DELETE", "/nodes/pve1/storage/local/content/local:100/vm-100-disk-0.qcow2", ""); !strings.HasPrefix(reason, "cannot remove image, a guest with VMID '100' exists") {
		t.Errorf("used volume: %q", reason)
	}
	n.run("PUT", "/nodes/pve1/qemu/100/resize", "disk=scsi0&size=%2B1G")
	if got := n.object("/nodes/pve1/qemu/100/config")["scsi0"]; got != "local:100/vm-100-disk-0.qcow2,size=2G" {
		t.Errorf("resized disk %v", got)
	}
}
