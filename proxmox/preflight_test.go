package proxmox

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"savepoint/orchestrator"
)

func TestVersion(t *testing.T) {
	for text, want := range map[string]Version{
		"9.1.2":    {Major: 9, Minor: 1, Text: "9.1.2"},
		"8.4.21":   {Major: 8, Minor: 4, Text: "8.4.21"},
		"7.4-3":    {},
		"9":        {Major: 9, Text: "9"},
		"nonsense": {},
	} {
		s := newScripted(t)
		s.always("GET /version", answer{data: map[string]any{"version": text, "release": "x"}})
		got, err := s.open(t).Version(t.Context())
		if (err != nil) != (want.Major == 0) || got != want {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
	}
	for v, want := range map[Version]bool{{Major: 9}: true, {Major: 8, Minor: 4}: true, {Major: 8, Minor: 3}: false, {Major: 7, Minor: 4}: false, {Major: 10}: false} {
		if v.Supported() != want {
			t.Errorf("%+v: supported = %v", v, v.Supported())
		}
	}
}

// F117 F118 F119: the role fits the release, asks for nothing else, and what
// is missing is named with its path.
func TestMissingPrivileges(t *testing.T) {
	v8, v9 := Version{Major: 8, Minor: 4}, Version{Major: 9, Minor: 1}
	use := Use{Templates: []orchestrator.VMRef{{Node: "pve1", ID: 9000}}, Storages: []string{"local"}, Bridges: []string{"vmbr0"}}
	granted := map[string][]string{
		"/pool/savepoint": {"VM.Audit", "VM.Allocate", "VM.Config.Options", "VM.Config.Cloudinit", "VM.Config.Network", "VM.PowerMgmt", "VM.Snapshot", "VM.GuestAgent.FileRead"},
		"/vms/9000":       {"VM.Clone", "VM.Audit"}, "/storage/local": {"Datastore.AllocateSpace", "Datastore.Audit"},
		"/sdn/zones/localnetwork/vmbr0": {"SDN.Use"},
	}
	s := newScripted(t)
	s.on("GET /access/permissions", func(r *http.Request, _ []byte) answer {
		path, out := r.URL.Query().Get("path"), map[string]int{}
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, p := range granted[path] {
			out[p] = i % 2 // the value is the inheritance flag, not the grant
		}
		return answer{data: map[string]any{path: out}}
	})
	c := s.open(t)
	missing, err := c.MissingPrivileges(t.Context(), v9, use)
	if err != nil || len(missing) != 0 {
		t.Fatalf("missing %v, %v", missing, err)
	}
	missing, err = c.MissingPrivileges(t.Context(), v8, use)
	if err != nil || len(missing) != 1 || missing[0].String() != "VM.Monitor on /pool/savepoint (for reading ssh host keys)" {
		t.Fatalf("missing %v, %v", missing, err)
	}
	s.mu.Lock()
	all := granted
	granted = nil // a token with separated privileges and no rules of its own
	s.mu.Unlock()
	missing, err = c.MissingPrivileges(t.Context(), v9, use)
	if err != nil || !slices.EqualFunc(missing, c.Privileges(v9, use), func(a, b Privilege) bool { return a.String() == b.String() }) {
		t.Errorf("missing %v, %v", missing, err)
	}
	asked := map[string]bool{}
	for _, p := range c.Privileges(v9, use) {
		asked[p.Path] = true
		for _, n := range p.AnyOf {
			if strings.HasPrefix(n, "Sys.") || n == "VM.Monitor" || n == "VM.Console" || n == "Permissions.Modify" {
				t.Errorf("the role asks for %s", p)
			}
		}
	}
	for path := range all {
		if !asked[path] {
			t.Errorf("nothing is asked for on %s", path)
		}
	}
}

var roleRE = regexp.MustCompile(`pveum role add (\w+) --privs "([^"]*)"`)

// F118: the roles that the example configuration tells an operator to make are
// the ones that the doctor asks for: nothing missing, nothing beyond.
func TestExampleRoles(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "configs", "cluster.example.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, m := range roleRE.FindAllStringSubmatch(string(text), -1) {
		words := strings.FieldsFunc(m[2], func(r rune) bool { return strings.ContainsRune(" \\\n#", r) })
		slices.Sort(words)
		got[m[1]] = strings.Join(words, " ")
	}
	if len(got) == 0 && strings.Contains(string(text), "savepoint doctor --setup") {
		return // it leaves them to what is made of the same list
	}
	c := newScripted(t).open(t)
	asked := func(use Use) map[string]string {
		lists := map[string][]string{}
		for _, p := range c.Privileges(Version{Major: 9}, use) {
			if name := p.AnyOf[0]; !slices.Contains(lists[p.Path], name) {
				lists[p.Path] = append(lists[p.Path], name)
			}
		}
		out := map[string]string{}
		for path, names := range lists {
			slices.Sort(names)
			out[path] = strings.Join(names, " ")
		}
		return out
	}
	plain := asked(Use{Templates: []orchestrator.VMRef{{Node: "pve1", ID: 9000}}, Storages: []string{"local-zfs"}, Bridges: []string{"vmbr0"}})
	build := asked(Use{ImportStorages: []string{"local"}})
	more := slices.DeleteFunc(strings.Fields(build["/pool/savepoint"]), func(n string) bool { return slices.Contains(strings.Fields(plain["/pool/savepoint"]), n) })
	want := map[string]string{
		"SavepointSandbox": plain["/pool/savepoint"], "SavepointTemplate": plain["/vms/9000"],
		"SavepointStorage": plain["/storage/local-zfs"], "SavepointNetwork": plain["/sdn/zones/localnetwork/vmbr0"],
		"SavepointBuild": strings.Join(more, " "), "SavepointUpload": build["/storage/local"],
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNodesAndStorages(t *testing.T) {
	s := newScripted(t)
	s.always("GET /nodes", answer{data: []map[string]any{
		{"node": "pve2", "status": "offline"}, {"node": "pve1", "status": "online", "maxcpu": 4, "maxmem": 8 << 30, "mem": "1024"},
	}})
	s.always("GET /nodes/pve1/storage", answer{data: []map[string]any{
		{"storage": "tank", "type": "zfspool", "content": "images,rootdir", "active": 1, "shared": 0, "total": 100, "avail": 60},
		{"storage": "local", "type": "dir", "content": "import,iso", "active": 1}, {"storage": "thick", "type": "lvm", "content": "images", "active": 1},
	}})
	c := s.open(t)
	nodes, err := c.Nodes(t.Context())
	if err != nil || len(nodes) != 2 || nodes[0] != (Node{Name: "pve1", Online: true, Cores: 4, MemoryTotal: 8 << 30, MemoryUsed: 1024}) || nodes[1].Online {
		t.Errorf("got %+v, %v", nodes, err)
	}
	if use, err := c.usableNodes(t.Context()); err != nil || !slices.Equal(use, []string{"pve1"}) {
		t.Errorf("usable: %v, %v", use, err)
	}
	st, err := c.Storages(t.Context(), "pve1")
	if err != nil || len(st) != 3 || st[1].ID != "tank" && st[2].ID != "thick" {
		t.Fatalf("got %+v, %v", st, err)
	}
	for _, x := range st {
		sup := x.Snapshots()
		if sup.Possible != (x.ID != "thick") || sup.LatestOnly != (x.ID == "tank") || sup.Note == "" {
			t.Errorf("%s: %+v", x.ID, sup)
		}
	}
	if _, err := c.Storages(t.Context(), "../x"); err == nil {
		t.Error("a node name that is a path was accepted")
	}
}
