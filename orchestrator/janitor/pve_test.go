package janitor_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/janitor"
	"savepoint/orchestrator/journal"
	"savepoint/proxmox"
	"savepoint/testbed/pve"
	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/memory"
	"savepoint/testbed/pve/task"
)

// place is the janitor with the real adapter and journal on a cluster whose
// guests live in memory.
type place struct {
	t       *testing.T
	server  *pve.Server
	cluster *proxmox.Cluster
	journal *journal.Journal
	janitor *janitor.Janitor
	client  *http.Client
	url     string
}

const (
	ownVM, strayVM, theirVM, plainVM = 9000, 9050, 9060, 9061
	halfVM, templateVM               = 9070, 9071
	sandboxID                        = orchestrator.SandboxID("01jsandbox")
	unknownTx                        = "01jx0000000000000000000001"
	lostTx                           = "01jx0000000000000000000002"
)

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t}
	backend := memory.New()
	var err error
	p.server, err = pve.New(pve.Config{
		Dir: t.TempDir(), Machines: backend.Machines(), Disks: backend.Disks(), Pools: []string{"savepoint"},
		UnauthorizedDelay: -1, LockTimeout: 50 * time.Millisecond, AgentTimeout: 20 * time.Millisecond,
		Users: []access.User{{ID: "root@pam", Tokens: []access.Token{{ID: "sp", Secret: "secret", Shared: true}}}},
	})
	p.must(err)
	listener, err := pve.Listen("127.0.0.1:0")
	p.must(err)
	done := make(chan struct{})
	go func() { defer close(done); _ = p.server.Serve(listener) }()
	t.Cleanup(func() { p.server.Close(); <-done })
	p.url = "https://" + listener.Addr().String()

	p.journal, err = journal.Open(filepath.Join(t.TempDir(), "journal.db"), journal.Options{})
	p.must(err)
	t.Cleanup(func() { p.journal.Close() })
	p.cluster, err = proxmox.Open(proxmox.Config{
		URL: p.url, CAFile: p.server.CAFile(), TokenID: "root@pam!sp", TokenSecret: "secret", Pool: "savepoint", Instance: "lab",
		PollInterval: 5 * time.Millisecond, TaskTimeout: 5 * time.Second, RequestTimeout: 5 * time.Second, VerifyTimeout: time.Second,
		ReconcileTimeout: 200 * time.Millisecond, LockWait: -1,
	})
	p.must(err)
	t.Cleanup(p.cluster.Close)
	pem, err := os.ReadFile(p.server.CAFile())
	p.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(tr.CloseIdleConnections)
	p.client = &http.Client{Transport: tr}

	notes, err := janitor.OpenFile(filepath.Join(t.TempDir(), "janitor.log"))
	p.must(err)
	t.Cleanup(func() { notes.Close() })
	p.janitor, err = janitor.New(janitor.Config{
		Cluster: survey{p.cluster}, Snapshots: p.cluster.Snapshots(), Hypervisor: p.cluster.VMs(), Registry: p.journal,
		Ledger: janitor.Journal(p.journal), Notes: notes, Remove: p.remove,
		Collect:  func(context.Context) (int, error) { return 0, nil },
		Instance: "lab", First: 9000, Last: 9099, LockAge: -1, Now: time.Now,
	})
	p.must(err)
	p.must(p.journal.PutSandbox(t.Context(), orchestrator.Sandbox{
		ID: sandboxID, Name: "box", State: orchestrator.SandboxReady, VM: orchestrator.VMRef{Node: "pve1", ID: ownVM},
	}))
	p.vm(ownVM, "lab", string(sandboxID))
	p.vm(theirVM, "other", "01jtheirs")
	p.vm(plainVM, "", "")
	p.template(templateVM, "ready")
	p.call("POST", fmt.Sprintf("/nodes/pve1/qemu/%d/template", templateVM), nil)
	p.snapshot(ownVM, "before-upgrade", "mine", false)
	p.snapshot(theirVM, "sp-"+unknownTx, "savepoint transaction "+unknownTx+" of sandbox 01jtheirs", false)
	return p
}

func (p *place) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// remove is what provisioning does of it.
func (p *place) remove(ctx context.Context, sb orchestrator.Sandbox) error {
	r := orchestrator.VMRequest{Sandbox: sb.ID, VM: sb.VM}
	if err := p.cluster.VMs().Destroy(ctx, r); err != nil {
		return err
	}
	sb.State = orchestrator.SandboxDestroyed
	return p.journal.PutSandbox(ctx, sb)
}

// call makes one request and waits for its task, however that ends.
func (p *place) call(method, path string, form url.Values) []byte {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+"/api2/json"+path, strings.NewReader(form.Encode()))
	p.must(err)
	req.Header.Set("Authorization", "PVEAPIToken=root@pam!sp=secret")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := p.client.Do(req)
	p.must(err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	p.must(err)
	if res.StatusCode != 200 {
		p.t.Fatalf("%s %s: %s %s", method, path, res.Status, body)
	}
	var out struct{ Data string }
	if json.Unmarshal(body, &out) == nil && strings.HasPrefix(out.Data, "UPID:") {
		_ = p.cluster.Tasks().Await(p.t.Context(), orchestrator.UPID(out.Data))
	}
	return body
}

func (p *place) vm(id int, instance, sandbox string) {
	p.t.Helper()
	form := url.Values{"vmid": {fmt.Sprint(id)}, "pool": {"savepoint"}, "scsi0": {"local:1"}, "memory": {"64"}}
	if instance != "" {
		form.Set("tags", "savepoint;savepoint-"+instance)
		form.Set("description", "savepoint/1 instance="+instance+" sandbox="+sandbox+" state=ready")
	}
	p.call("POST", "/nodes/pve1/qemu", form)
	p.call("POST", fmt.Sprintf("/nodes/pve1/qemu/%d/status/start", id), nil)
}

// template makes a VM with the mark of a template of ours in that state.
func (p *place) template(id int, state string) {
	p.t.Helper()
	p.call("POST", "/nodes/pve1/qemu", url.Values{
		"vmid": {fmt.Sprint(id)}, "pool": {"savepoint"}, "scsi0": {"local:1"}, "memory": {"64"},
		"tags":        {"savepoint;savepoint-lab;savepoint-template"},
		"description": {"savepoint/1 instance=lab template=" + strings.Repeat("0a", 16) + " state=" + state + "\nfor people"},
	})
}

func (p *place) snapshot(id int, name, description string, memory bool) {
	p.t.Helper()
	form := url.Values{"snapname": {name}, "description": {description}}
	if memory {
		form.Set("vmstate", "1")
	}
	p.call("POST", fmt.Sprintf("/nodes/pve1/qemu/%d/snapshot", id), form)
}

// spoil leaves what crashes leave: a stray VM, an orphan snapshot, a volume.
func (p *place) spoil() {
	p.t.Helper()
	p.vm(strayVM, "lab", "01jstray")
	p.template(halfVM, "building")
	p.call("POST", fmt.Sprintf("/nodes/pve1/qemu/%d/status/start", halfVM), nil)
	describe := func(tx string) string { return "savepoint transaction " + tx + " of sandbox " + string(sandboxID) }
	p.snapshot(ownVM, "sp-"+unknownTx, describe(unknownTx), true)
	remove := p.server.Faults.AddTask(pve.TaskFault{Type: "qmsnapshot", Step: "allocated", Nth: 1, Action: task.Action{Kill: true}})
	p.snapshot(ownVM, "sp-"+lostTx, describe(lostTx), true)
	remove()
}

// strangers is everything that is not ours, as text.
func (p *place) strangers() string {
	p.t.Helper()
	var b strings.Builder
	for _, id := range []int{theirVM, plainVM} {
		for _, view := range []string{"config", "snapshot"} {
			var out struct{ Data any }
			p.must(json.Unmarshal(p.call("GET", fmt.Sprintf("/nodes/pve1/qemu/%d/%s", id, view), nil), &out))
			if list, ok := out.Data.([]any); ok { // in any order
				var lines []string
				for _, item := range list {
					lines = append(lines, fmt.Sprint(item))
				}
				slices.Sort(lines)
				out.Data = lines
			}
			fmt.Fprintln(&b, id, view, out.Data)
		}
	}
	return b.String()
}

// check is what has to be true in the end.
func (p *place) check(strangers string) {
	p.t.Helper()
	vms, _, err := p.cluster.Inventory(p.t.Context(), 9000, 9099)
	p.must(err)
	var ids []int
	for _, v := range vms {
		ids = append(ids, int(v.VM.ID))
		if !v.Running && !v.Template {
			p.t.Errorf("%s does not run", v.VM)
		}
	}
	if !slices.Equal(ids, []int{ownVM, theirVM, plainVM, templateVM}) {
		p.t.Errorf("vms left: %v", ids)
	}
	list, err := p.cluster.Snapshots().List(p.t.Context(), orchestrator.VMRef{Node: "pve1", ID: ownVM})
	p.must(err)
	if len(list) != 1 || list[0].Name != "before-upgrade" {
		p.t.Errorf("snapshots left: %+v", list)
	}
	volumes, _, err := p.cluster.SavedMemories(p.t.Context())
	p.must(err)
	if len(volumes) > 0 {
		p.t.Errorf("volumes left: %+v", volumes)
	}
	if got := p.strangers(); got != strangers {
		p.t.Errorf("what is not ours was touched:\n%s\nbefore:\n%s", got, strangers)
	}
}

// survey is what the command line makes of the adapter.
type survey struct{ *proxmox.Cluster }

func (s survey) Inventory(ctx context.Context) (inv janitor.Inventory, err error) {
	volumes, unseen, err := s.SavedMemories(ctx)
	if err != nil {
		return inv, err
	}
	for _, v := range volumes {
		inv.Volumes = append(inv.Volumes, janitor.Volume(v))
	}
	inv.Unseen = unseen
	vms, nodes, err := s.Cluster.Inventory(ctx, 9000, 9099)
	if err != nil {
		return inv, err
	}
	for _, v := range vms {
		inv.VMs = append(inv.VMs, janitor.VM(v))
	}
	inv.Nodes = nodes
	return inv, nil
}

func (s survey) DeleteVolume(ctx context.Context, vm orchestrator.VMRef, sandbox orchestrator.SandboxID, volume string, started orchestrator.Started) error {
	return s.DeleteSavedMemory(ctx, vm, sandbox, volume, started)
}

// TestCluster: every order and every question of the janitor goes wrong in
// every way: refused, lost before or after its effect, its task failing or its
// worker killed at each step. Another run, after an operator removed what locks
// there are, ends clean, and nothing that is not ours was touched (F39, F47,
// F48, F50, F52, F53, F63, F66, F69, F121, F123).
func TestCluster(t *testing.T) {
	p := newPlace(t)
	strangers := p.strangers()
	run := func(name string, arm func()) {
		t.Run(name, func(t *testing.T) {
			p.t = t
			p.spoil()
			arm()
			_, _ = p.janitor.Clean(t.Context())
			p.server.Faults.Clear()
			for _, id := range []int{ownVM, strayVM, halfVM} {
				_ = p.server.SetLock(id, "") // the operator, as told; the stray may be gone
			}
			for range 2 { // a worker that was killed can leave something half-made for the next
				r, err := p.janitor.Clean(t.Context())
				if err != nil || r.Err() != nil {
					t.Fatal(err, r.Err())
				}
			}
			r, err := p.janitor.Clean(t.Context())
			if err != nil || r.Count(janitor.LevelCollect)+r.Count(janitor.LevelOperator) > 0 {
				t.Errorf("still found: %+v, %v", r.Findings, err)
			}
			p.check(strangers)
		})
	}
	run("nothing", func() {})
	for call, path := range map[string]string{
		"DELETE snapshot": "/nodes/*/qemu/*/snapshot/*", "DELETE volume": "/nodes/*/storage/*/content/*/*",
		"POST stop": "/nodes/*/qemu/*/status/stop", "DELETE vm": "/nodes/*/qemu/*",
	} {
		method, _, _ := strings.Cut(call, " ")
		for name, f := range map[string]pve.Fault{
			"refused":           {Status: 500, Message: "nobody knows this text"},
			"no worker":         {Status: 500, Message: "got no worker upid - start worker failed"},
			"596 before effect": {Status: 596, Message: "Connection timed out"},
			"596 after effect":  {Status: 596, Message: "Connection timed out", AfterEffect: true},
			"answer lost":       {Drop: true, AfterEffect: true},
			"connection lost":   {Drop: true},
		} {
			f.Method, f.Path, f.Nth = method, path, 1
			run(call+"/"+name, func() { p.server.Faults.Add(f) })
		}
	}
	for kind, steps := range map[string][]string{
		"qmdelsnapshot": {"begin", "marked", "disk"}, "imgdel": {"begin", "remove"}, "qmstop": {"begin", "stop"}, "qmdestroy": {"begin", "destroy"},
	} {
		for _, step := range steps {
			for name, act := range map[string]task.Action{"killed": {Kill: true}, "fails": {Fail: "nobody knows this text"}} {
				run(kind+"/"+step+"/"+name, func() {
					p.server.Faults.AddTask(pve.TaskFault{Type: kind, Step: step, Nth: 1, Action: act})
				})
			}
		}
	}
	for _, path := range []string{
		"/nodes", "/nodes/*/qemu", "/nodes/*/qemu/*/config", "/nodes/*/qemu/*/snapshot", "/nodes/*/tasks", "/nodes/*/storage", "/nodes/*/storage/*/content",
	} {
		run("GET"+path, func() {
			p.server.Faults.Add(pve.Fault{Method: "GET", Path: path, Status: 500, Message: "nobody knows this text"})
		})
	}
}

// F124 F37: the volume that a killed worker left is told from those in use, by
// the adapter itself, too.
func TestVolumeInUse(t *testing.T) {
	p := newPlace(t)
	p.snapshot(ownVM, "sp-"+unknownTx, "x", true)
	volumes, _, err := p.cluster.SavedMemories(t.Context())
	p.must(err)
	if len(volumes) != 1 || volumes[0].VM != ownVM || volumes[0].Snapshot != "sp-"+unknownTx || volumes[0].Size == 0 {
		t.Fatalf("volumes %+v", volumes)
	}
	vm := orchestrator.VMRef{Node: "pve1", ID: ownVM}
	for what, try := range map[string]func() error{
		"in use": func() error {
			return p.cluster.DeleteSavedMemory(t.Context(), vm, sandboxID, volumes[0].ID, nil)
		},
		"another owner": func() error {
			return p.cluster.DeleteSavedMemory(t.Context(), vm, "01jother", "local:9000/vm-9000-state-sp-x.raw", nil)
		},
		"a disk": func() error {
			return p.cluster.DeleteSavedMemory(t.Context(), vm, sandboxID, "local:9000/vm-9000-disk-0.qcow2", nil)
		},
		"another vm's": func() error {
			return p.cluster.DeleteSavedMemory(t.Context(), vm, sandboxID, "local:9060/vm-9060-state-sp-x.raw", nil)
		},
	} {
		if err := try(); err == nil {
			t.Errorf("%s: it was deleted", what)
		}
	}
	// One that is gone already is no error (F45).
	p.must(p.cluster.DeleteSavedMemory(t.Context(), vm, sandboxID, "local:9000/vm-9000-state-sp-gone.raw", nil))
	if volumes, _, err = p.cluster.SavedMemories(t.Context()); err != nil || len(volumes) != 1 {
		t.Errorf("volumes %+v, %v", volumes, err)
	}
}
