package proxmox_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/proxmox"
	"savepoint/testbed/pve"
)

func templateSpec(t *testing.T, id orchestrator.VMID, salt string) proxmox.TemplateSpec {
	return proxmox.TemplateSpec{
		Name: "guest", ImagePath: fakeImage(t, salt), Storage: "local", Node: labNode, VMID: id,
		MemoryMiB: 256, Cores: 1, Description: "for people\nsecond line",
	}
}

func TestBuildTemplate(t *testing.T) {
	for _, v := range []string{"8.4", "9.2"} {
		t.Run(v, func(t *testing.T) {
			t.Parallel()
			// Lists are behind; the template is found all the same.
			l := startLab(t, version(v), func(c *pve.Config) { c.ResourceLag = 10 * time.Second })
			spec := templateSpec(t, 9100, "one")
			stages := map[string]int64{}
			spec.Progress = func(stage string, done, _ int64) { stages[stage] = done }
			tasks := 0
			spec.Started = func(orchestrator.UPID) error { tasks++; return nil }
			got, err := l.builder.BuildTemplate(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			if got.VM.ID != 9100 || !got.Ready || got.Recipe == "" || got.Name != "guest" || got.Storage != "local" || got.Description != spec.Description {
				t.Errorf("got %+v", got)
			}
			if stages["hash"] != 1<<20 || stages["upload"] != 1<<20 || tasks != 3 {
				t.Errorf("stages %v, %d tasks", stages, tasks)
			}
			if _, ok := stages["convert"]; !ok {
				t.Errorf("stages %v", stages)
			}
			list, err := l.builder.Templates(t.Context())
			if err != nil || len(list) != 1 || list[0] != got {
				t.Errorf("listed %+v, %v", list, err)
			}
			// The same recipe again, under another id: nothing is made.
			spec.VMID, tasks = 9101, 0
			again, err := l.builder.BuildTemplate(t.Context(), spec)
			if err != nil || again != got || tasks != 0 || l.vmCount() != 1 {
				t.Errorf("got %+v, %v, %d tasks", again, err, tasks)
			}
			// Other settings, same image: another template, no second upload.
			spec.MemoryMiB, stages["upload"] = 512, 0
			third, err := l.builder.BuildTemplate(t.Context(), spec)
			if err != nil || third.Recipe == got.Recipe || third.VM.ID != 9101 || stages["upload"] != 0 {
				t.Errorf("got %+v, %v, upload %d", third, err, stages["upload"])
			}
			// So is another type of CPU; what is not named is the cluster's default.
			spec.VMID, spec.CPU = 9102, "x86-64-v2-AES"
			fourth, err := l.builder.BuildTemplate(t.Context(), spec)
			if err != nil || fourth.Recipe == third.Recipe {
				t.Errorf("got %+v, %v", fourth, err)
			}
			for id, want := range map[int]bool{9101: false, 9102: true} {
				conf := string(l.call("GET", fmt.Sprintf("/nodes/pve1/qemu/%d/config", id), nil))
				if strings.Contains(conf, `"cpu":"x86-64-v2-AES"`) != want {
					t.Errorf("vm %d has %s", id, conf)
				}
			}
			// A sandbox can be cloned from it and is not a template's twin.
			r := l.cloneRequest()
			r.Template = got.VM
			must(t, l.admin.VMs().Clone(t.Context(), r))
			if st := l.status(r.VM); st.Owner != r.Sandbox || st.Template {
				t.Errorf("status = %+v", st)
			}
			wantClass(t, l.admin.VMs().Destroy(t.Context(), orchestrator.VMRequest{Sandbox: r.Sandbox, VM: got.VM}), orchestrator.ErrDenied)
		})
	}
}

// A build that broke off is recognised and removed by the next one; an id that
// is somebody else's is not touched.
func TestBuildTemplateAfterCrash(t *testing.T) {
	l := startLab(t).withTemplate()
	spec := templateSpec(t, 9100, "one")
	l.server.Faults.Add(pve.Fault{Method: "POST", Path: "/nodes/*/qemu/*/template", Nth: 1, Status: 403, Message: "Permission check failed (/vms/9100, VM.Allocate)"})
	// A process that is killed does not get as far as removing anything.
	killed := l.server.Faults.Add(pve.Fault{Method: "DELETE", Path: "/nodes/*/qemu/*", Status: 403, Message: "Permission check failed (/vms/9100, VM.Allocate)"})
	_, err := l.builder.BuildTemplate(t.Context(), spec)
	wantClass(t, err, orchestrator.ErrDenied)
	if !strings.Contains(err.Error(), "half-built vm is still there") {
		t.Errorf("the error does not say what is left: %v", err)
	}
	killed()
	list, err := l.admin.Templates(t.Context())
	if err != nil || len(list) != 2 || list[1].VM.ID != 9100 || list[1].Ready {
		t.Fatalf("listed %+v, %v", list, err)
	}
	other := templateSpec(t, 9200, "two")
	got, err := l.builder.BuildTemplate(t.Context(), other)
	must(t, err)
	if list, err = l.builder.Templates(t.Context()); err != nil || len(list) != 2 || list[1] != got {
		t.Errorf("listed %+v, %v", list, err)
	}
	for _, taken := range []orchestrator.VMID{foreignID, templateID, 9200} {
		spec.VMID = taken
		before := l.status(orchestrator.VMRef{Node: labNode, ID: taken})
		_, err = l.builder.BuildTemplate(t.Context(), spec)
		wantClass(t, err, orchestrator.ErrExists)
		if after := l.status(orchestrator.VMRef{Node: labNode, ID: taken}); after != before {
			t.Errorf("vm %d: %+v became %+v", taken, before, after)
		}
	}
}

// Crash after the conversion and before the last mark.
func TestBuildTemplateUnmarked(t *testing.T) {
	l := startLab(t)
	spec := templateSpec(t, 9100, "one")
	remove := l.server.Faults.Add(pve.Fault{Method: "PUT", Path: "/nodes/*/qemu/*/config", Status: 403, Message: "Permission check failed (/vms/9100, VM.Config.Options)"})
	_, err := l.builder.BuildTemplate(t.Context(), spec)
	wantClass(t, err, orchestrator.ErrDenied)
	remove()
	got, err := l.builder.BuildTemplate(t.Context(), spec)
	must(t, err)
	if !got.Ready || l.vmCount() != 1 {
		t.Errorf("got %+v, %d vms", got, l.vmCount())
	}
}

func TestUploadIsCancelled(t *testing.T) {
	l := startLab(t)
	spec := templateSpec(t, 9100, "one")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	spec.Progress = func(stage string, done, _ int64) {
		if stage == "upload" && done > 0 {
			cancel()
		}
	}
	_, err := l.builder.BuildTemplate(ctx, spec)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if l.vmCount() != 0 {
		t.Error("a vm was made")
	}
}

func TestBuildTemplateRefuses(t *testing.T) {
	l := startLab(t)
	for name, change := range map[string]func(*proxmox.TemplateSpec){
		"no image":   func(s *proxmox.TemplateSpec) { s.ImagePath = "/nonexistent" },
		"directory":  func(s *proxmox.TemplateSpec) { s.ImagePath = t.TempDir() },
		"no CPU":     func(s *proxmox.TemplateSpec) { s.CPU = "host aes" },
		"no memory":  func(s *proxmox.TemplateSpec) { s.MemoryMiB = 0 },
		"bad id":     func(s *proxmox.TemplateSpec) { s.VMID = 1 },
		"bad node":   func(s *proxmox.TemplateSpec) { s.Node = "../x" },
		"bad name":   func(s *proxmox.TemplateSpec) { s.Name = "a b" },
		"bad store":  func(s *proxmox.TemplateSpec) { s.Storage = "local:1,size=1" },
		"bad import": func(s *proxmox.TemplateSpec) { s.ImportStorage = "a/b" },
		"two images": func(s *proxmox.TemplateSpec) { s.ImageVolume = "local:import/x.qcow2" },
		"unchecked": func(s *proxmox.TemplateSpec) {
			s.ImagePath, s.ImageURL = "", "https://127.0.0.1/x.qcow2"
		},
		"bad volume": func(s *proxmox.TemplateSpec) { s.ImagePath, s.ImageVolume = "", "local:0,size=4G" },
		"small workspace": func(s *proxmox.TemplateSpec) {
			s.Workspace = &proxmox.TemplateVolume{Storage: "local", Size: 1}
		},
		"no key":    func(s *proxmox.TemplateSpec) { s.Prepare = &proxmox.Preparation{} },
		"id or way": func(s *proxmox.TemplateSpec) { s.VMID = 0 },
	} {
		spec := templateSpec(t, 9100, "one")
		change(&spec)
		if _, err := l.builder.BuildTemplate(t.Context(), spec); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if l.vmCount() != 0 {
		t.Error("a vm was made")
	}
}

// What a clone is configured with: linked to the template's disk (F87), our tag
// and pool (F122), the cluster's own cloud-init (F92 F93) with the planned static
// address (F91) and the keys as they were.
func TestCloneConfiguration(t *testing.T) {
	l := startLab(t).withTemplate()
	r := l.cloneRequest()
	must(t, l.cluster.VMs().Clone(t.Context(), r))
	conf := string(l.call("GET", "/nodes/pve1/qemu/"+itoa(r.VM.ID)+"/config", nil))
	for _, want := range []string{
		`"ciuser":"root"`, `"name":"sb-one"`, `"tags":"savepoint;savepoint-lab"`, `"ipconfig0":"ip=` + r.Address.String() + ",gw=10.9.0.1" + `"`,
		"local:9000/base-9000-disk-0.qcow2/", "instance=lab sandbox=" + string(r.Sandbox) + " state=ready", "bridge=vmbr0", `"agent":"1"`,
	} {
		if !strings.Contains(strings.ReplaceAll(conf, `": "`, `":"`), want) {
			t.Errorf("the configuration does not hold %s:\n%s", want, conf)
		}
	}
	_, rest, _ := strings.Cut(conf, `"sshkeys":`)
	enc := strings.SplitN(strings.TrimLeft(rest, ` "`), `"`, 2)[0]
	if got, err := url.PathUnescape(enc); err != nil || got != r.SSHKeys[0] || strings.Contains(enc, "+") {
		t.Errorf("keys %q (%v) from %q", got, err, enc)
	}
	pool := string(l.call("GET", "/pools/"+labPool, nil))
	if !strings.Contains(pool, `"vmid":`+itoa(r.VM.ID)) {
		t.Errorf("the vm is not in its pool: %s", pool)
	}
}

// F40 F45: requests that cannot be right make nothing.
func TestCloneRefuses(t *testing.T) {
	l := startLab(t).withTemplate()
	before := l.vmCount()
	for name, change := range map[string]func(*orchestrator.CloneRequest){
		"template id":       func(r *orchestrator.CloneRequest) { r.VM = r.Template },
		"no sandbox":        func(r *orchestrator.CloneRequest) { r.Sandbox = "" },
		"sandbox with text": func(r *orchestrator.CloneRequest) { r.Sandbox = "x state=ready" },
		"bad name":          func(r *orchestrator.CloneRequest) { r.Name = "a.b c" },
		"no address":        func(r *orchestrator.CloneRequest) { r.Address = netip.Prefix{} },
		"key of two lines":  func(r *orchestrator.CloneRequest) { r.SSHKeys = []string{"a\nb"} },
		"linked elsewhere":  func(r *orchestrator.CloneRequest) { r.CloneStorage = "local" },
		"no template":       func(r *orchestrator.CloneRequest) { r.Template.ID = foreignID },
		"bad node":          func(r *orchestrator.CloneRequest) { r.VM.Node = "a/b" },
	} {
		r := l.cloneRequest()
		change(&r)
		if err := l.cluster.VMs().Clone(t.Context(), r); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if got := l.vmCount(); got != before {
		t.Errorf("%d vms were made", got-before)
	}
}

// The token that the doctor is content with is the one all of this runs with,
// F117 F118 F120.
func TestMinimalRoleIsComplete(t *testing.T) {
	for _, v := range []string{"8.4", "9.2"} {
		l := startLab(t, version(v)).withTemplate()
		ver, err := l.cluster.Version(t.Context())
		if err != nil || ver.Text[:1] != v[:1] {
			t.Fatalf("%+v, %v", ver, err)
		}
		missing, err := l.cluster.MissingPrivileges(t.Context(), ver, labUse())
		if err != nil || len(missing) != 0 {
			t.Errorf("%s: missing %v, %v", v, missing, err)
		}
		key := "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
		r := l.sandbox()
		serveKey(l, r.VM.ID, key+" root@guest\n")
		got, err := l.cluster.HostKey(t.Context(), r.VM)
		if err != nil || got != key {
			t.Errorf("%s: %q, %v", v, got, err)
		}
		bridges, err := l.cluster.Bridges(t.Context(), labNode)
		if err != nil || len(bridges) != 1 || bridges[0] != "vmbr0" {
			t.Errorf("%s: %q, %v", v, bridges, err)
		}
		nodes, err := l.cluster.Nodes(t.Context())
		if err != nil || len(nodes) != 1 || nodes[0].Name != labNode || !nodes[0].Online {
			t.Errorf("%s: %+v, %v", v, nodes, err)
		}
	}
}

// F62 F68: a clone's boot order is never written, let alone put together from
// parts, and memory is saved only when it was asked for.
func TestWhatIsNotSent(t *testing.T) {
	l := startLab(t).withTemplate()
	before := len(l.requests.sent(0))
	c := l.open()
	r := l.cloneRequest()
	must(t, c.VMs().Clone(t.Context(), r))
	must(t, c.VMs().Start(t.Context(), r.VMRequest))
	snap := orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-disk"}
	must(t, c.Snapshots().Create(t.Context(), snap))
	snap.Name, snap.Memory = "sp-memory", true
	must(t, c.Snapshots().Create(t.Context(), snap))
	saved := map[any]bool{}
	for _, s := range l.requests.sent(before) {
		if _, boot := s.Params["boot"]; boot {
			t.Errorf("%s %s sets the boot order", s.Method, s.Path)
		}
		if name, ok := s.Params["snapname"]; ok && s.Method == "POST" {
			_, saved[name] = s.Params["vmstate"]
		}
	}
	if len(saved) != 2 || saved["sp-disk"] || !saved["sp-memory"] {
		t.Errorf("memory was asked for: %v", saved)
	}
}
