package proxmox_test

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"savepoint/orchestrator"
	"savepoint/proxmox"
)

// sent is one request of the adapter, with its parameters' names and values.
type sent struct {
	method, path string
	params       map[string]any
}

// recorder passes requests on to the lab and keeps them.
type recorder struct {
	mu   sync.Mutex
	list []sent
}

func (l *lab) record() *recorder {
	l.t.Helper()
	target, err := url.Parse(l.cfg.URL)
	if err != nil {
		l.t.Fatal(err)
	}
	rec := &recorder{}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = l.client.Transport
	front := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := sent{method: r.Method, path: strings.TrimPrefix(r.URL.EscapedPath(), "/api2/json"), params: map[string]any{}}
		for k, v := range r.URL.Query() {
			s.params[k] = v[0]
		}
		if r.Header.Get("Content-Type") == "application/json" {
			body, _ := io.ReadAll(r.Body)
			_ = json.Unmarshal(body, &s.params)
			r.Body = io.NopCloser(bytes.NewReader(body))
		} else if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
			for _, k := range []string{"content", "checksum", "checksum-algorithm", "filename"} {
				s.params[k] = "import"
			}
			delete(s.params, "checksum-algorithm")
		}
		rec.mu.Lock()
		rec.list = append(rec.list, s)
		rec.mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	l.t.Cleanup(front.Close)
	pool := x509.NewCertPool()
	pool.AddCert(front.Certificate())
	l.cfg.URL, l.cfg.CAFile, l.cfg.CAs = front.URL, "", pool
	return rec
}

// schemaNode is one path of the official API schema.
type schemaNode struct {
	Path     string                  `json:"path"`
	Children []schemaNode            `json:"children"`
	Info     map[string]schemaMethod `json:"info"`
}

type schemaMethod struct {
	Parameters struct {
		Properties map[string]struct {
			Optional any      `json:"optional"`
			Enum     []string `json:"enum"`
		} `json:"properties"`
	} `json:"parameters"`
	Permissions struct {
		Check any `json:"check"`
	} `json:"permissions"`
}

func readSchema(t *testing.T, file string) map[string]schemaNode {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// As JSON, or as the script that a node has.
	if at := bytes.Index(text, []byte("apiSchema = [")); at >= 0 {
		text = text[at+len("apiSchema = "):]
	}
	var roots []schemaNode
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&roots); err != nil {
		t.Fatal(err)
	}
	out := map[string]schemaNode{}
	var walk func([]schemaNode)
	walk = func(list []schemaNode) {
		for _, n := range list {
			out[n.Path] = n
			walk(n.Children)
		}
	}
	walk(roots)
	return out
}

var numbered = regexp.MustCompile(`\d+$`)

// privileges collects what a permission check names.
func privileges(check any, out map[string]bool) {
	list, ok := check.([]any)
	if !ok {
		return
	}
	if len(list) >= 3 && list[0] == "perm" {
		if names, ok := list[2].([]any); ok {
			for _, n := range names {
				out[fmt.Sprint(n)] = true
			}
		}
		return
	}
	for _, x := range list {
		privileges(x, out)
	}
}

// F60 F118: every request that the adapter makes is one that the official
// schema of both releases takes, and the doctor asks for every privilege that
// the schema names for one of them. The schema is read from outside the
// repository: SAVEPOINT_PVE_APIDATA names its files, joined by ':'. A file
// without calls that only 9 has is that of 8.4.
func TestAgainstTheSchema(t *testing.T) {
	files := filepath.SplitList(os.Getenv("SAVEPOINT_PVE_APIDATA"))
	if len(files) == 0 {
		t.Skip("SAVEPOINT_PVE_APIDATA is not set: the official schema is not part of the repository")
	}
	for _, file := range files {
		schema := readSchema(t, file)
		release := "8.4"
		if _, ok := schema["/cluster/ha/rules"]; ok {
			release = "9.2"
		}
		t.Run(release, func(t *testing.T) {
			l := startLab(t, version(release)).withTemplate()
			rec := l.record()
			exercise(t, l)
			asked := map[string]bool{}
			c := l.open()
			use := labUse()
			use.ImportStorages = []string{"local"}
			for _, p := range c.Privileges(proxmox.Version{Major: int(release[0] - '0')}, use) {
				for _, n := range p.AnyOf {
					asked[n] = true
				}
			}
			calls := map[string]bool{}
			for _, s := range rec.list {
				name := checkRequest(t, schema, s, asked)
				calls[name] = true
			}
			if len(calls) < 20 {
				t.Errorf("only %d different calls were made: %v", len(calls), calls)
			}
		})
	}
}

func checkRequest(t *testing.T, schema map[string]schemaNode, s sent, asked map[string]bool) string {
	t.Helper()
	tmpl, vars := matchPath(schema, s.path)
	m, ok := schema[tmpl].Info[s.method]
	name := s.method + " " + tmpl
	if !ok {
		t.Errorf("%s %s is not in the schema", s.method, s.path)
		return name
	}
	props := m.Parameters.Properties
	for k, v := range s.params {
		p, ok := props[k]
		if !ok {
			p, ok = props[numbered.ReplaceAllString(k, "[n]")]
		}
		if !ok {
			t.Errorf("%s has no parameter %q", name, k)
		}
		if len(p.Enum) > 0 && !slices.Contains(p.Enum, fmt.Sprint(v)) {
			t.Errorf("%s: %s = %v is none of %q", name, k, v, p.Enum)
		}
	}
	for k, p := range props {
		if _, given := s.params[k]; !given && !vars[k] && fmt.Sprint(p.Optional) != "1" {
			t.Errorf("%s needs the parameter %q", name, k)
		}
	}
	need := map[string]bool{}
	privileges(m.Permissions.Check, need)
	if len(need) > 0 && !slices.ContainsFunc(keys(need), func(n string) bool { return asked[n] }) {
		t.Errorf("%s needs one of %q, which the doctor does not ask for", name, keys(need))
	}
	return name
}

func keys(m map[string]bool) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// matchPath finds the schema's path of a request and the names in it.
func matchPath(schema map[string]schemaNode, path string) (string, map[string]bool) {
	parts := strings.Split(path, "/")
	best, bestVars := "", map[string]bool(nil)
	for tmpl := range schema {
		want := strings.Split(tmpl, "/")
		if len(want) != len(parts) {
			continue
		}
		vars, ok := map[string]bool{}, true
		for i, w := range want {
			if strings.HasPrefix(w, "{") {
				vars[strings.Trim(w, "{}")] = true
			} else if w != parts[i] {
				ok = false
				break
			}
		}
		if ok && (best == "" || len(vars) < len(bestVars)) {
			best, bestVars = tmpl, vars
		}
	}
	return best, bestVars
}

// exercise makes every kind of call.
func exercise(t *testing.T, l *lab) {
	t.Helper()
	c := l.open(func(c *proxmox.Config) { c.TokenID, c.TokenSecret = "root@pam!admin", "admin-secret" })
	ctx := t.Context()
	spec := templateSpec(t, 9100, "one")
	tpl, err := c.BuildTemplate(ctx, spec)
	must(t, err)
	full := l.cloneRequest()
	full.Full, full.CloneStorage = true, "local"
	must(t, c.VMs().Clone(ctx, full))
	clone := l.cloneRequest()
	clone.Template = tpl.VM
	must(t, c.VMs().Clone(ctx, clone))
	r := clone.VMRequest
	must(t, c.VMs().Start(ctx, r))
	serveKey(l, r.VM.ID, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n")
	_, err = c.HostKey(ctx, r.VM)
	must(t, err)
	snap := orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-one", Memory: true, Description: "words"}
	must(t, c.Snapshots().Create(ctx, snap))
	must(t, c.Snapshots().Rollback(ctx, snap))
	must(t, l.server.SetSnapState(int(r.VM.ID), "sp-one", "delete")) // so that it takes force
	must(t, c.Snapshots().Delete(ctx, snap))
	_, err = c.Tasks().Find(ctx, r.VM, "qmsnapshot", l.started)
	must(t, err)
	l.leaveMemory(r, "sp-lost")
	saved, _, err := c.SavedMemories(ctx)
	must(t, err)
	must(t, c.DeleteSavedMemory(ctx, r.VM, r.Sandbox, saved[0].ID, nil))
	_, _, err = c.Inventory(ctx, 100, 199)
	must(t, err)
	_, err = c.Working(ctx, r.VM, "snapshot")
	must(t, err)
	_, err = c.Guards(ctx)
	must(t, err)
	_, err = c.SeesAllTasks(ctx, labNode)
	must(t, err)
	must(t, c.VMs().Stop(ctx, r))
	must(t, c.VMs().Destroy(ctx, r))
	v, err := c.Version(ctx)
	must(t, err)
	_, err = c.MissingPrivileges(ctx, v, labUse())
	must(t, err)
	_, err = c.Bridges(ctx, labNode)
	must(t, err)
	_, err = c.Storages(ctx, labNode)
	must(t, err)
}
