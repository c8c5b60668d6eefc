package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/pve"
)

// fakeQEMU answers QMP on one end of a pipe and keeps the state that the tests
// look at: block nodes with their snapshots, and jobs.
type fakeQEMU struct {
	mu        sync.Mutex
	conn      net.Conn
	nodes     map[string][]string // node → snapshots
	files     map[string]string   // node → file
	failJob   string              // the error text that the next job ends with
	slow      chan struct{}       // "slow" commands are answered when it is closed
	execution []string
	jobs      map[string]string // id → error
	halted    bool
}

func newFakeQEMU(t *testing.T) (*fakeQEMU, *qmp) {
	t.Helper()
	ours, theirs := net.Pipe()
	f := &fakeQEMU{conn: theirs, nodes: map[string][]string{"disk-scsi0": nil}, files: make(map[string]string), jobs: make(map[string]string), slow: make(chan struct{})}
	done := make(chan struct{})
	go func() { defer close(done); f.serve() }()
	c, err := openQMP(context.Background(), ours)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.close()
		_ = theirs.Close()
		<-done
	})
	return f, c
}

func (f *fakeQEMU) send(format string, args ...any) { fmt.Fprintf(f.conn, format+"\n", args...) }

func (f *fakeQEMU) serve() {
	f.send(`{"QMP": {"version": {}, "capabilities": []}}`)
	in := bufio.NewScanner(f.conn)
	for in.Scan() {
		var m struct {
			Execute   string
			Arguments map[string]json.RawMessage
			ID        int
		}
		if json.Unmarshal(in.Bytes(), &m) != nil {
			return
		}
		f.mu.Lock()
		f.execution = append(f.execution, m.Execute)
		f.mu.Unlock()
		if m.Execute == "slow" {
			go func() {
				<-f.slow
				f.send(`{"return": "slow", "id": %d}`, m.ID)
			}()
			continue
		}
		ret, refused, events := f.do(m.Execute, m.Arguments)
		if refused != "" {
			f.send(`{"error": {"class": "GenericError", "desc": %q}, "id": %d}`, refused, m.ID)
			continue
		}
		if ret == "" {
			ret = "{}"
		}
		f.send(`{"return": %s, "id": %d}`, ret, m.ID)
		for _, e := range events {
			f.send("%s", e)
		}
		if m.Execute == "quit" {
			_ = f.conn.Close()
			return
		}
	}
}

func text(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}

func (f *fakeQEMU) do(command string, args map[string]json.RawMessage) (ret, refused string, events []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch command {
	case "qmp_capabilities", "quit":
	case "stop", "cont":
		f.halted = command == "stop"
	case "query-status":
		return fmt.Sprintf(`{"running": %t}`, !f.halted), "", nil
	case "job-dismiss":
		delete(f.jobs, text(args["id"]))
	case "blockdev-add":
		name := text(args["node-name"])
		if _, taken := f.nodes[name]; taken {
			return "", "Duplicate nodes with node-name='" + name + "'", nil
		}
		f.nodes[name] = nil
		var file struct{ Filename string }
		_ = json.Unmarshal(args["file"], &file)
		f.files[name] = file.Filename
	case "blockdev-del":
		delete(f.nodes, text(args["node-name"]))
	case "query-named-block-nodes":
		var parts []string
		for n, snaps := range f.nodes {
			var s []string
			for _, name := range snaps {
				s = append(s, fmt.Sprintf(`{"name": %q}`, name))
			}
			parts = append(parts, fmt.Sprintf(`{"node-name": %q, "file": %q, "image": {"snapshots": [%s]}}`, n, f.files[n], strings.Join(s, ",")))
		}
		return "[" + strings.Join(parts, ",") + "]", "", nil
	case "transaction":
		var actions []struct{ Data struct{ Device, Name string } }
		_ = json.Unmarshal(args["actions"], &actions)
		for _, a := range actions {
			f.nodes[a.Data.Device] = append(f.nodes[a.Data.Device], a.Data.Name)
		}
	case "snapshot-save":
		id, tag := text(args["job-id"]), text(args["tag"])
		if _, taken := f.jobs[id]; taken {
			return "", "Job ID '" + id + "' already in use", nil
		}
		var devices []string
		_ = json.Unmarshal(args["devices"], &devices)
		for _, d := range devices {
			f.nodes[d] = append(f.nodes[d], tag)
		}
		f.jobs[id], f.failJob = f.failJob, ""
		return "", "", []string{`{"event": "JOB_STATUS_CHANGE", "data": {"id": "other", "status": "concluded"}}`,
			fmt.Sprintf(`{"event": "JOB_STATUS_CHANGE", "data": {"id": %q, "status": "running"}}`, id),
			fmt.Sprintf(`{"event": "JOB_STATUS_CHANGE", "data": {"id": %q, "status": "concluded"}}`, id)}
	case "query-jobs":
		var parts []string
		for id, e := range f.jobs {
			if e == "" {
				parts = append(parts, fmt.Sprintf(`{"id": %q, "status": "concluded"}`, id))
			} else {
				parts = append(parts, fmt.Sprintf(`{"id": %q, "status": "concluded", "error": %q}`, id, e))
			}
		}
		return "[" + strings.Join(parts, ",") + "]", "", nil
	case "blockdev-snapshot-delete-internal-sync":
		d, name := text(args["device"]), text(args["name"])
		if i := slices.Index(f.nodes[d], name); i >= 0 {
			f.nodes[d] = slices.Delete(f.nodes[d], i, i+1)
			return "", "", nil
		}
		return "", "Snapshot with id 'null' and name '" + name + "' does not exist", nil
	case "human-monitor-command":
		return `"hello"`, "", nil
	default:
		return "", "The command " + command + " has not been found", nil
	}
	return "", "", nil
}

func TestQMPAnswersFindTheirCalls(t *testing.T) {
	f, c := newFakeQEMU(t)
	ctx := context.Background()
	got := make(chan error, 1)
	var slow string
	go func() { got <- c.execute(ctx, "slow", nil, &slow) }()
	// A later call is answered while the earlier one waits.
	for {
		if s, err := c.human(ctx, "info"); err != nil || s != "hello" {
			t.Fatalf("human: %q, %v", s, err)
		}
		f.mu.Lock()
		n := slices.Contains(f.execution, "slow")
		f.mu.Unlock()
		if n {
			break
		}
	}
	close(f.slow)
	if err := <-got; err != nil || slow != "slow" {
		t.Errorf("slow call: %q, %v", slow, err)
	}
	var refused *qmpError
	if err := c.execute(ctx, "nonsense", nil, nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), "has not been found") {
		t.Errorf("refusal: %v", err)
	}
	if err := c.execute(ctx, "quit", nil, nil); err != nil {
		t.Errorf("quit: %v", err)
	}
	if err := c.execute(ctx, "cont", nil, nil); !errors.Is(err, errGone) {
		t.Errorf("after the end: %v", err)
	}
}

func TestQMPContextEndsACall(t *testing.T) {
	f, c := newFakeQEMU(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := c.execute(ctx, "slow", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	close(f.slow) // the late answer belongs to nobody and harms nobody
	if err := c.execute(context.Background(), "cont", nil, nil); err != nil {
		t.Errorf("after a late answer: %v", err)
	}
}

func TestQMPGreeting(t *testing.T) {
	ours, theirs := net.Pipe()
	_ = theirs.Close()
	if _, err := openQMP(context.Background(), ours); !errors.Is(err, errGone) {
		t.Errorf("no greeting: %v", err)
	}
	ours, theirs = net.Pipe()
	defer theirs.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := openQMP(ctx, ours); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silent peer: %v", err)
	}
}

func fakeVM(c *qmp) *vm {
	return &vm{qmp: c, record: record{Machine: pve.Machine{VMID: 7, Disks: []pve.Disk{
		{Slot: "scsi0", Path: "/d.qcow2", Format: "qcow2"}, {Slot: "scsi1", Path: "/c.iso", Format: "raw", CDROM: true}}}}}
}

// A memory snapshot that fails leaves nothing: no snapshot on a disk, no file,
// and what was there before stays.
func TestFailedSnapshotLeavesNothing(t *testing.T) {
	f, c := newFakeQEMU(t)
	f.nodes["disk-scsi0"] = []string{"old"}
	dir := t.TempDir()
	im := fakeImg(t, `touch "$7"`)
	v := fakeVM(c)
	v.images = im
	nodes, err := v.snapshotNodes()
	if err != nil || len(nodes) != 1 {
		t.Fatalf("nodes: %v, %v", nodes, err)
	}
	f.failJob = "Error -28 while writing VM state"
	state := filepath.Join(dir, "state")
	if err := v.saveState(context.Background(), nodes, "new", state); err == nil || !strings.Contains(err.Error(), "Error -28") {
		t.Errorf("got %v, want QEMU's text", err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("files left: %v", files)
	}
	if got := f.nodes["disk-scsi0"]; !slices.Equal(got, []string{"old"}) || len(f.nodes) != 1 {
		t.Errorf("nodes after the failure: %v", f.nodes)
	}
	if err := v.saveState(context.Background(), nodes, "new", state); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(state); err != nil {
		t.Error(err)
	}
	if got := f.nodes["disk-scsi0"]; !slices.Equal(got, []string{"old", "new"}) || len(f.nodes) != 1 {
		t.Errorf("nodes after success: %v", f.nodes)
	}
	if err := v.checkTag(context.Background(), "old"); !errors.Is(err, orchestrator.ErrExists) {
		t.Errorf("a name that is taken: %v", err)
	}
}

// An owner that is killed while QEMU saves the memory leaves the job, the node
// and an unfinished file. They do not keep the next owner from saving.
func TestInterruptedSaveIsEnded(t *testing.T) {
	f, c := newFakeQEMU(t)
	f.nodes["disk-scsi0"] = nil
	dir := t.TempDir()
	v := fakeVM(c)
	v.images = fakeImg(t, `touch "$7"`)
	part := filepath.Join(dir, "first"+partSuffix)
	if err := os.WriteFile(part, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := v.addState(ctx, part, false); err != nil {
		t.Fatal(err)
	}
	f.jobs["save-again"], f.jobs["somebody-else"] = "", ""
	state := filepath.Join(dir, "second")
	if err := v.saveState(ctx, []string{"disk-scsi0"}, "again", state); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(part); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unfinished file: %v", err)
	}
	if _, err := os.Stat(state); err != nil {
		t.Error(err)
	}
	if _, left := f.jobs["somebody-else"]; !left || len(f.jobs) != 1 || len(f.nodes) != 1 {
		t.Errorf("jobs %v, nodes %v", f.jobs, f.nodes)
	}
}

func TestRawDiskIsRefused(t *testing.T) {
	v := fakeVM(nil)
	v.record.Machine.Disks[0].Format = "raw"
	var unsupported *orchestrator.UnsupportedError
	if _, err := v.snapshotNodes(); !errors.As(err, &unsupported) {
		t.Errorf("got %v", err)
	}
}

func TestForwardedPort(t *testing.T) {
	text := "Hub -1 (net-net0):\n  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\n  TCP[ESTABLISHED]   16       127.0.0.1 40000        10.9.0.2    22     0     0\n  TCP[HOST_FORWARD]  15       127.0.0.1 42175        10.9.0.2    22     0     0\r\n"
	got, ok := forwardedPort(text)
	if want := netip.MustParseAddrPort("127.0.0.1:42175"); !ok || got != want {
		t.Errorf("got %v, %v; want %v", got, ok, want)
	}
	if _, ok := forwardedPort("Hub 0\n"); ok {
		t.Error("found a port where there is none")
	}
}
