package chaos

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// bystander is the VM of somebody else: made by an administrator, without a
// mark of savepoint's, but where savepoint's token could harm it. It is in the
// same pool, has an id that savepoint may take, and a snapshot with the name
// that every sandbox has.
const bystander = 9990

// standing is what the cluster knows of a VM, part by part.
type standing map[string]string

// changes says which parts differ; nil when none does.
func (s standing) changes(got standing) []string {
	var out []string
	for _, part := range slices.Sorted(maps.Keys(s)) {
		if now, ok := got[part]; !ok {
			out = append(out, part+" is gone")
		} else if now != s[part] {
			out = append(out, fmt.Sprintf("%s was %s and is %s", part, s[part], now))
		}
	}
	for _, part := range slices.Sorted(maps.Keys(got)) {
		if _, ok := s[part]; !ok {
			out = append(out, part+" is new: "+got[part])
		}
	}
	return out
}

// settleIn makes the bystander, lets it run and takes a snapshot with its memory.
func (w *world) settleIn() {
	w.t.Helper()
	vm := fmt.Sprintf("qemu/%d/", bystander)
	for _, o := range []struct {
		path   string
		values url.Values
	}{
		{"qemu", url.Values{
			"vmid": {fmt.Sprint(bystander)}, "name": {"bystander"}, "pool": {"savepoint"}, "memory": {"64"},
			"scsihw": {"virtio-scsi-pci"}, "scsi0": {"local:1"}, "net0": {"virtio,bridge=vmbr0"}, "description": {"not yours"},
		}},
		{vm + "status/start", url.Values{}},
		{vm + "snapshot", url.Values{"snapname": {pristine}, "vmstate": {"1"}, "description": {"not yours either"}}},
	} {
		if err := w.order(o.path, o.values); err != nil {
			w.t.Fatalf("make the bystander: %v", err)
		}
	}
	var err error
	if w.beside, err = w.standing(); err != nil {
		w.t.Fatalf("look at the bystander: %v", err)
	}
	parts := strings.Join(slices.Sorted(maps.Keys(w.beside)), ", ")
	for _, part := range []string{"configuration", "file vm-9990-disk-0.qcow2", "file vm-9990-state-" + pristine, "power", "snapshot " + pristine} {
		if !strings.Contains(parts, part) {
			w.t.Fatalf("of the bystander only these parts are seen: %s", parts)
		}
	}
	if !strings.Contains(w.beside["power"], "Status:running") {
		w.t.Fatalf("the bystander does not run: %s", w.beside["power"])
	}
}

// order makes something with all rights and waits for its task.
func (w *world) order(path string, values url.Values) error {
	return w.change(http.MethodPost, path, values)
}

// change is order for any method.
func (w *world) change(method, path string, values url.Values) error {
	var task string
	if err := w.request(method, path, values, &task); err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var st struct{ Status, ExitStatus string }
		if err := w.request(http.MethodGet, "tasks/"+url.PathEscape(task)+"/status", nil, &st); err != nil {
			return err
		}
		if st.Status == "stopped" {
			if st.ExitStatus != "OK" {
				return fmt.Errorf("%s: %s", task, st.ExitStatus)
			}
			return nil
		}
		select {
		case <-w.ctx.Done():
			return w.ctx.Err()
		case <-tick.C:
		}
	}
}

// standing reads the bystander: its configuration, its snapshots with theirs,
// its power state with the process, which a restart would change, and what its
// files hold. Its guest does nothing, so they stay as they are.
func (w *world) standing() (standing, error) {
	s := standing{}
	vm := fmt.Sprintf("qemu/%d/", bystander)
	read := func(part, path string) error {
		var v any
		if err := w.request(http.MethodGet, vm+path, nil, &v); err != nil {
			return err
		}
		text, err := json.Marshal(v) // sorts the keys
		s[part] = string(text)
		return err
	}
	var snaps []struct{ Name string }
	if err := w.request(http.MethodGet, vm+"snapshot", nil, &snaps); err != nil {
		return nil, err
	}
	for _, snap := range snaps {
		if snap.Name == "current" {
			continue
		}
		if err := read("snapshot "+snap.Name, "snapshot/"+snap.Name+"/config"); err != nil {
			return nil, err
		}
	}
	if err := read("configuration", "config"); err != nil {
		return nil, err
	}
	var power struct {
		Status    string
		QMPStatus string
		Lock      string
		PID       int
	}
	if err := w.request(http.MethodGet, vm+"status/current", nil, &power); err != nil {
		return nil, err
	}
	s["power"] = fmt.Sprintf("%+v", power)
	dir := filepath.Join(w.labDir(), "pve", "storage", "local", "images", fmt.Sprint(bystander))
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		s["file "+f.Name()] = fmt.Sprintf("%x", sha256.Sum256(content))
	}
	return s, nil
}

// checkBystander compares. What was changed once is not told again in each
// round that follows.
func (w *world) checkBystander(r *report) {
	if w.ctx.Err() != nil {
		return
	}
	got, err := w.standing()
	if err != nil {
		r.violate("look at the bystander: %v", err)
		return
	}
	changes := w.beside.changes(got)
	for _, c := range changes {
		r.violate("the bystander was touched: %s", c)
	}
	r.apart = len(changes) == 0
	w.beside = got
}

// A change of any part is seen. F22 F121
func TestStanding(t *testing.T) {
	was := standing{"configuration": "a", "snapshot sp-pristine": "b", "power": "running", "file disk": "c"}
	if c := was.changes(maps.Clone(was)); c != nil {
		t.Errorf("nothing has changed, and yet %q", c)
	}
	for part := range was {
		other := maps.Clone(was)
		other[part] = "changed"
		if c := was.changes(other); len(c) != 1 {
			t.Errorf("%s changed: %q", part, c)
		}
		delete(other, part)
		if c := was.changes(other); len(c) != 1 || c[0] != part+" is gone" {
			t.Errorf("%s gone: %q", part, c)
		}
		if c := other.changes(was); len(c) != 1 {
			t.Errorf("%s new: %q", part, c)
		}
	}
}
