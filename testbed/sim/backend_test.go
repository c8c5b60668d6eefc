package sim_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"savepoint/testbed/pve"
	"savepoint/testbed/sim"
)

// TestDisks: copies, links and snapshots share nothing that can change.
func TestDisks(t *testing.T) {
	b := sim.New(sim.Behaviour{})
	defer b.Close()
	d, ctx := b.Disks(), t.Context()
	disk := func(name string) pve.Disk { return pve.Disk{Slot: "scsi0", Path: name} }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: was accepted", what)
		}
	}
	want := func(path, content string) {
		t.Helper()
		if got, err := b.ReadFile(path, "/f"); got != content {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, content)
		}
	}
	must(d.Standard(ctx, "base", 1<<30))
	must(b.WriteFile("base", "/f", "one"))
	must(d.Snapshot(ctx, disk("base"), "s1"))
	must(b.WriteFile("base", "/f", "two"))
	must(d.Link(ctx, disk("base"), disk("link")))
	must(d.Copy(ctx, disk("base"), "", disk("copy")))
	must(d.Copy(ctx, disk("base"), "s1", disk("old")))
	must(b.WriteFile("link", "/f", "three"))
	want("base", "two")
	want("link", "three")
	want("copy", "two")
	want("old", "one")
	for range 2 { // a revert does not use its snapshot up
		must(b.WriteFile("base", "/f", "four"))
		must(d.Revert(ctx, disk("base"), "s1"))
		want("base", "one")
	}
	refused("a snapshot's name twice", d.Snapshot(ctx, disk("base"), "s1"))
	refused("revert to nothing", d.Revert(ctx, disk("base"), "s2"))
	must(d.DeleteSnapshot(ctx, disk("base"), "s1"))
	refused("delete twice", d.DeleteSnapshot(ctx, disk("base"), "s1"))
	refused("copy of a deleted snapshot", d.Copy(ctx, disk("base"), "s1", disk("x")))
	refused("link over a disk", d.Link(ctx, disk("base"), disk("copy")))
	must(d.Remove(ctx, disk("copy")))
	must(d.Remove(ctx, disk("copy")))
	refused("use of a removed disk", d.Snapshot(ctx, disk("copy"), "s"))
	must(d.Create(ctx, disk("empty"), 5<<20))
	must(d.Resize(ctx, disk("empty"), 6<<20))
	if virtual, used, err := d.Size(ctx, disk("empty")); virtual != 6<<20 || used != 0 || err != nil {
		t.Errorf("size: %d, %d, %v", virtual, used, err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	refused("a call after the context ended", d.Create(ended, disk("late"), 1))

	// An image file of the host imports as a guest that has never booted.
	image := filepath.Join(t.TempDir(), "debian.qcow2")
	must(os.WriteFile(image, []byte("not looked at"), 0o600))
	must(d.Copy(ctx, disk(image), "", disk("template")))
	if text, err := b.ReadFile("template", "/etc/passwd"); err != nil || !strings.Contains(text, "agent:") {
		t.Errorf("imported disk: %q, %v", text, err)
	}
	refused("import of nothing", d.Copy(ctx, disk("/no/such/image"), "", disk("y")))
}

func ask[T any](t *testing.T, b *sim.Backend, vmid int, command string, args any) T {
	t.Helper()
	raw, err := b.Machines().Agent(t.Context(), vmid, command, args)
	var v T
	if err == nil {
		err = json.Unmarshal(raw, &v)
	}
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return v
}

func TestAgent(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	m, sb := w.sandbox(t, 101)
	ask[struct{}](t, w.Backend, 101, "guest-ping", nil)

	// The host key, the way the product reads it.
	handle := ask[int](t, w.Backend, 101, "guest-file-open", map[string]any{"path": "/etc/ssh/ssh_host_ed25519_key.pub", "mode": "r"})
	var key []byte
	for {
		part := ask[struct {
			Count int    `json:"count"`
			Buf   string `json:"buf-b64"`
			EOF   bool   `json:"eof"`
		}](t, w.Backend, 101, "guest-file-read", map[string]any{"handle": handle, "count": 20})
		raw, err := base64.StdEncoding.DecodeString(part.Buf)
		if err != nil || len(raw) != part.Count || part.Count > 20 {
			t.Fatalf("read: %+v, %v", part, err)
		}
		key = append(key, raw...)
		if part.EOF {
			break
		}
	}
	ask[struct{}](t, w.Backend, 101, "guest-file-close", map[string]any{"handle": handle})
	if string(key) != sb.HostKey {
		t.Errorf("host key: got %q, want %q", key, sb.HostKey)
	}

	type nic struct {
		Name string `json:"name"`
		MAC  string `json:"hardware-address"`
		IPs  []struct {
			IP string `json:"ip-address"`
		} `json:"ip-addresses"`
	}
	nics := ask[[]nic](t, w.Backend, 101, "guest-network-get-interfaces", nil)
	if len(nics) != 2 || nics[1].MAC != strings.ToLower(m.NICs[0].MAC) || nics[1].IPs[0].IP != "10.9.0.101" {
		t.Errorf("interfaces: %+v", nics)
	}

	job := ask[map[string]int](t, w.Backend, 101, "guest-exec", map[string]any{"path": "/bin/sh", "arg": []string{"-c", "cat; exit 3"}, "input-data": base64.StdEncoding.EncodeToString([]byte("hi")), "capture-output": true})
	type status struct {
		Exited bool   `json:"exited"`
		Code   int    `json:"exitcode"`
		Out    string `json:"out-data"`
	}
	var s status
	for deadline := time.Now().Add(20 * time.Second); !s.Exited && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		s = ask[status](t, w.Backend, 101, "guest-exec-status", map[string]any{"pid": job["pid"]})
	}
	if out, _ := base64.StdEncoding.DecodeString(s.Out); s.Code != 3 || string(out) != "hi" {
		t.Errorf("exec: %+v", s)
	}
	for command, args := range map[string]any{
		"guest-file-open": map[string]any{"path": "/no/such/file"}, "guest-file-read": map[string]any{"handle": 1},
		"guest-exec": map[string]any{"path": "/no/such/program"}, "guest-exec-status": map[string]any{"pid": 1}, "guest-nonsense": nil,
	} {
		_, err := w.Machines().Agent(t.Context(), 101, command, args)
		var refusal *pve.AgentError
		if !errors.As(err, &refusal) {
			t.Errorf("%s: got %v, want *AgentError", command, err)
		}
	}

	// Silent, and nobody waits longer than asked. F89
	w.Behave(101, sim.Behaviour{AgentSilent: true})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := w.Machines().Agent(ctx, 101, "guest-ping", nil)
	var refusal *pve.AgentError
	if err == nil || errors.As(err, &refusal) {
		t.Errorf("a silent agent: %v", err)
	}
}

// TestClones: a clone makes its own identity on its first boot and keeps it. F88
func TestClones(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	m, _ := w.sandbox(t, 101)
	read := func(disk, name string) string {
		t.Helper()
		text, err := w.ReadFile(disk, name)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	clone := m
	clone.VMID, clone.Address = 102, netip.MustParsePrefix("10.9.0.102/24")
	clone.Disks = []pve.Disk{{Slot: "scsi0", Path: "/clone/disk"}, {Slot: "ide2", Path: "/clone/ci", CDROM: true}}
	if err := w.Disks().Link(t.Context(), m.Disks[0], clone.Disks[0]); err != nil {
		t.Fatal(err)
	}
	err := w.Disks().ISO(t.Context(), clone.Disks[1], "cidata", map[string][]byte{"meta-data": []byte("instance-id: other"), "user-data": []byte("hostname: other\nssh_authorized_keys: [\"" + w.id.AuthorizedKey() + "\"]\n")})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for range 2 { // the second boot is not a first one
		if err := w.Machines().Start(t.Context(), clone); err != nil {
			t.Fatal(err)
		}
		key, err := w.HostKey(t.Context(), 102)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
		if err := w.Machines().Stop(t.Context(), 102, true); err != nil {
			t.Fatal(err)
		}
	}
	if keys[0] != keys[1] || keys[0] == read(m.Disks[0].Path, "/etc/ssh/ssh_host_ed25519_key.pub") {
		t.Errorf("host keys: %q", keys)
	}
	if read(m.Disks[0].Path, "/etc/machine-id") == read("/clone/disk", "/etc/machine-id") || read("/clone/disk", "/etc/hostname") != "other\n" {
		t.Error("the clone has the identity of its origin")
	}
}

func TestMachines(t *testing.T) {
	b := sim.New(sim.Behaviour{BootDelay: time.Minute})
	m, err := b.Boot(t.Context(), 101, netip.MustParsePrefix("10.9.0.101/24"), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Machines().Start(t.Context(), m); err == nil {
		t.Error("it was started twice")
	}
	s := b.Machines().Status(101)
	if !s.Running || s.PID == 0 || !s.SSH.Addr().IsLoopback() || s.Paused {
		t.Errorf("status: %+v", s)
	}
	if at, ok := b.SSH(netip.MustParseAddr("10.9.0.101"), 22); !ok || at != s.SSH {
		t.Errorf("resolve: %s, %t", at, ok)
	}
	if _, ok := b.SSH(netip.MustParseAddr("10.9.0.101"), 23); ok {
		t.Error("another port was resolved")
	}
	// Paused and reset, as the API's suspend and reset do it.
	if err := b.Machines().Pause(t.Context(), 101); err != nil || !b.Machines().Status(101).Paused {
		t.Errorf("pause: %v, %+v", err, b.Machines().Status(101))
	}
	if err := b.Machines().Resume(t.Context(), 101); err != nil || b.Machines().Status(101).Paused {
		t.Errorf("resume: %v, %+v", err, b.Machines().Status(101))
	}
	if err := b.Machines().Reset(t.Context(), 101); err != nil || b.Machines().Status(101).PID == s.PID {
		t.Errorf("reset: %v, %+v", err, b.Machines().Status(101))
	}
	// A guest that has not booted does not hear the power button.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := b.Machines().Stop(ctx, 101, true); !errors.Is(err, context.DeadlineExceeded) || !b.Machines().Status(101).Running {
		t.Errorf("graceful stop of a booting guest: %v", err)
	}
	for range 2 {
		if err := b.Machines().Stop(t.Context(), 101, false); err != nil {
			t.Error(err)
		}
	}
	if s := b.Machines().Status(101); s.Running || s.SSH.IsValid() {
		t.Errorf("status after the stop: %+v", s)
	}
	if err := b.Machines().Snapshot(t.Context(), 101, "x", ""); err == nil {
		t.Error("a snapshot of a stopped VM")
	}
	m.Resume = "/state/never-saved"
	if err := b.Machines().Start(t.Context(), m); err == nil {
		t.Error("it resumed from nothing")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	m.Resume = ""
	if err := b.Machines().Start(t.Context(), m); err == nil {
		t.Error("it started after Close")
	}
}

// TestSnapshotUnderLoad: all of a disk is of one instant, though a command
// writes without pause. F24
func TestSnapshotUnderLoad(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	m, sb := w.sandbox(t, 101)
	done := make(chan struct{})
	go func() {
		defer close(done)
		// a is always written before b: no instant has b ahead of a.
		w.client.Run(t.Context(), sb, permit("i=0; while :; do i=$((i+1)); echo $i > /tmp/a; echo $i > /tmp/b; done", "agent"), execFor(300*time.Millisecond))
	}()
	taken := 0
	for running := true; running; taken++ {
		select {
		case <-done:
			running = false
		default:
		}
		tag := "s"
		if err := w.Machines().Snapshot(t.Context(), 101, tag, ""); err != nil {
			t.Fatal(err)
		}
		copied := pve.Disk{Path: "/copy"}
		if err := w.Disks().Copy(t.Context(), m.Disks[0], tag, copied); err != nil {
			t.Fatal(err)
		}
		a, errA := w.ReadFile("/copy", "/tmp/a")
		b, errB := w.ReadFile("/copy", "/tmp/b")
		if errA == nil && errB == nil && a != "" && b != "" && number(a) != number(b) && number(a) != number(b)+1 {
			t.Errorf("a is %q and b is %q", a, b)
		}
		if err := errors.Join(w.Disks().Remove(t.Context(), copied), w.Machines().DeleteSnapshot(t.Context(), 101, "scsi0", tag)); err != nil {
			t.Fatal(err)
		}
	}
	if taken < 5 {
		t.Errorf("only %d snapshots were taken", taken)
	}
}
