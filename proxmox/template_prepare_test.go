package proxmox_test

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"

	"savepoint/orchestrator"
	"savepoint/proxmox"
	"savepoint/testbed/pve"
	"savepoint/testbed/pve/task"
)

const buildKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f build"

// prepared is a spec whose guest is started and changed before the template is
// made of it.
func prepared(t *testing.T, salt string, run func(context.Context, orchestrator.VMRef) error) proxmox.TemplateSpec {
	spec := templateSpec(t, 9100, salt)
	spec.Workspace = &proxmox.TemplateVolume{Storage: "local", Size: 96 << 20}
	spec.Prepare = &proxmox.Preparation{
		Recipe: "one", Address: netip.MustParsePrefix("10.9.0.254/16"), Gateway: netip.MustParseAddr("10.9.0.1"),
		SSHKeys: []string{buildKey}, Run: run,
	}
	return spec
}

// config reads a VM's configuration as admin.
func (l *lab) config(vm orchestrator.VMRef) map[string]any {
	l.t.Helper()
	var out map[string]any
	if err := json.Unmarshal(l.call("GET", "/nodes/"+vm.Node+"/qemu/"+itoa(vm.ID)+"/config", nil), &out); err != nil {
		l.t.Fatal(err)
	}
	return out
}

// obeys makes the guests power down when they are asked to.
func (l *lab) obeys(vms ...int) {
	for _, id := range vms {
		l.backend.SetPowerdown(id, true)
	}
}

// The guest is started with an address and our key, prepared, shut down, and
// neither of the two is in the template, which has the second disk.
func TestPrepareTemplate(t *testing.T) {
	for _, v := range []string{"8.4", "9.2"} {
		t.Run(v, func(t *testing.T) {
			l := startLab(t, version(v))
			var during map[string]any
			ran := 0 // and so many templates there are then
			l.obeys(9100, 9101)
			spec := prepared(t, "one", func(_ context.Context, vm orchestrator.VMRef) error {
				ran++
				during = l.config(vm)
				if m, ok := l.backend.Machine(int(vm.ID)); !ok || m.Address.String() != "10.9.0.254/16" {
					t.Errorf("the guest runs as %+v, %v", m, ok)
				}
				if list, err := l.admin.Templates(t.Context()); err != nil || len(list) != ran || list[ran-1].Ready {
					t.Errorf("meanwhile: %+v, %v", list, err)
				}
				return nil
			})
			got, err := l.builder.BuildTemplate(t.Context(), spec)
			must(t, err)
			if ran != 1 || !strings.Contains(during["description"].(string), "state=building") || during["sshkeys"] == nil ||
				during["ciupgrade"] != float64(0) || during["scsi1"] != "local:9100/vm-9100-disk-1.qcow2,size=96M" {
				t.Errorf("ran %d times; meanwhile %v", ran, during)
			}
			after := l.config(got.VM)
			if after["sshkeys"] != nil || after["ipconfig0"] != nil || after["template"] != float64(1) || !got.Ready || got.Created.IsZero() {
				t.Errorf("%+v, configuration %v", got, after)
			}
			if !strings.Contains(after["scsi1"].(string), "base-9100-disk-1") {
				t.Errorf("the second disk is %v", after["scsi1"])
			}
			if again, err := l.builder.BuildTemplate(t.Context(), spec); err != nil || again != got || ran != 1 {
				t.Errorf("again: %+v, %v, ran %d times", again, err, ran)
			}
			spec.Prepare.Recipe, spec.VMID = "two", 9101
			if other, err := l.builder.BuildTemplate(t.Context(), spec); err != nil || other.VM.ID != 9101 || ran != 2 {
				t.Errorf("another preparation: %+v, %v, ran %d times", other, err, ran)
			}
		})
	}
}

// buildFaults break a build at each of its steps.
var buildFaults = []struct {
	name string
	arm  func(f *pve.Faults, spec *proxmox.TemplateSpec)
}{
	{"create", func(f *pve.Faults, _ *proxmox.TemplateSpec) {
		f.AddTask(pve.TaskFault{Type: "qmcreate", Nth: 1, Step: "created", Action: task.Action{Fail: "no space"}})
	}},
	{"start", func(f *pve.Faults, _ *proxmox.TemplateSpec) {
		f.AddTask(pve.TaskFault{Type: "qmstart", Nth: 1, Action: task.Action{Fail: "start failed: no memory"}})
	}},
	{"prepare", func(_ *pve.Faults, spec *proxmox.TemplateSpec) {
		spec.Prepare.Run = func(context.Context, orchestrator.VMRef) error { return errors.New("perl is missing") }
	}},
	{"shut down", func(f *pve.Faults, _ *proxmox.TemplateSpec) {
		f.AddTask(pve.TaskFault{Type: "qmshutdown", Nth: 1, Action: task.Action{Fail: "VM quit/powerdown failed - got timeout"}})
	}},
	{"convert", func(f *pve.Faults, _ *proxmox.TemplateSpec) {
		f.AddTask(pve.TaskFault{Type: "qmtemplate", Nth: 1, Step: "template", Action: task.Action{Fail: "no"}})
	}},
	{"last mark", func(f *pve.Faults, _ *proxmox.TemplateSpec) {
		f.Add(pve.Fault{Method: "PUT", Path: "/nodes/*/qemu/*/config", Nth: 1, Status: 403, Message: "Permission check failed (/vms/9100, VM.Config.Options)"})
	}},
}

// F37: whatever breaks a build, nothing of it stays, and nothing half-made
// is a template that anybody would clone.
func TestBrokenBuildLeavesNothing(t *testing.T) {
	for _, tt := range buildFaults {
		t.Run(tt.name, func(t *testing.T) {
			l := startLab(t)
			l.obeys(9100, 9200)
			spec := prepared(t, "one", func(context.Context, orchestrator.VMRef) error { return nil })
			good := spec.Prepare.Run
			tt.arm(l.server.Faults, &spec)
			if _, err := l.builder.BuildTemplate(t.Context(), spec); err == nil {
				t.Fatal("the build is said to have worked")
			}
			if n := l.vmCount(); n != 0 {
				t.Fatalf("%d vms are left", n)
			}
			spec.Prepare.Run = good
			if got, err := l.builder.BuildTemplate(t.Context(), spec); err != nil || !got.Ready {
				t.Errorf("the next build: %+v, %v", got, err)
			}
		})
	}
}

// F37 F121: the same when the process dies there: the VM stays, is ours and is no template
// for anybody; the next build of whatever recipe removes it, and so does
// RemoveBuilding, once it is not running any more or still is.
func TestInterruptedBuildIsRemoved(t *testing.T) {
	for _, tt := range buildFaults[1:] { // a create that fails leaves nothing by itself
		t.Run(tt.name, func(t *testing.T) {
			l := startLab(t)
			l.obeys(9100, 9200)
			spec := prepared(t, "one", func(context.Context, orchestrator.VMRef) error { return nil })
			good := spec.Prepare.Run
			tt.arm(l.server.Faults, &spec)
			killed := l.server.Faults.Add(pve.Fault{Method: "DELETE", Path: "/nodes/*/qemu/*", Status: 403, Message: "Permission check failed (/vms/9100, VM.Allocate)"})
			if _, err := l.builder.BuildTemplate(t.Context(), spec); err == nil {
				t.Fatal("the build is said to have worked")
			}
			killed()
			vm := orchestrator.VMRef{Node: labNode, ID: 9100}
			if sites, err := l.builder.Sites(t.Context(), spec.Name); err != nil || len(sites[0].Templates) != 0 {
				t.Errorf("a half-made template is offered: %+v, %v", sites, err)
			}
			found, _, err := l.admin.Inventory(t.Context(), 9000, 9999)
			if err != nil || len(found) != 1 || !found[0].Building || !found[0].Ours {
				t.Errorf("found %+v, %v", found, err)
			}
			wantClass(t, l.admin.RemoveTemplate(t.Context(), proxmox.Template{VM: vm, Recipe: "0"}, nil), orchestrator.ErrDenied)
			if tt.name == "start" { // by hand or by gc, and twice
				must(t, l.builder.RemoveBuilding(t.Context(), vm, nil))
				must(t, l.builder.RemoveBuilding(t.Context(), vm, nil))
			}
			spec.VMID, spec.Prepare.Run, spec.MemoryMiB = 9200, good, 512
			got, err := l.builder.BuildTemplate(t.Context(), spec)
			must(t, err)
			if n := l.vmCount(); n != 1 || !got.Ready {
				t.Errorf("%d vms, %+v", n, got)
			}
			wantClass(t, l.builder.RemoveBuilding(t.Context(), got.VM, nil), orchestrator.ErrDenied)
		})
	}
}

// F87 F121: a template that something is linked to is not removed; one of another
// recipe, or somebody else's, is not touched.
func TestRemoveTemplate(t *testing.T) {
	l := startLab(t).withTemplate()
	got, err := l.builder.BuildTemplate(t.Context(), templateSpec(t, 9100, "one"))
	must(t, err)
	r := l.cloneRequest()
	r.Template = got.VM
	must(t, l.admin.VMs().Clone(t.Context(), r))
	wantClass(t, l.builder.RemoveTemplate(t.Context(), got, nil), orchestrator.ErrBusy)
	other := got
	other.Recipe = strings.Repeat("0", 32)
	wantClass(t, l.builder.RemoveTemplate(t.Context(), other, nil), orchestrator.ErrDenied)
	wantClass(t, l.admin.RemoveTemplate(t.Context(), proxmox.Template{VM: templateVM}, nil), orchestrator.ErrDenied)
	must(t, l.admin.VMs().Destroy(t.Context(), r.VMRequest))
	must(t, l.builder.RemoveTemplate(t.Context(), got, nil))
	must(t, l.builder.RemoveTemplate(t.Context(), got, nil))
	if list, err := l.admin.Templates(t.Context()); err != nil || len(list) != 1 || list[0].VM != templateVM {
		t.Errorf("left: %+v, %v", list, err)
	}
}

// An image can be fetched by the node, or be there already; both take no more
// rights than are said. What the file says of itself is checked.
func TestTemplateImageSources(t *testing.T) {
	image, err := os.ReadFile(fakeImage(t, "stock"))
	must(t, err)
	sum := sha256.Sum256(image)
	digest := hex.EncodeToString(sum[:])
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(image) }))
	defer web.Close()
	for _, v := range []string{"8.4", "9.2"} {
		t.Run(v, func(t *testing.T) {
			l := startLab(t, version(v), func(c *pve.Config) {
				c.DownloadCAs = x509.NewCertPool()
				c.DownloadCAs.AddCert(web.Certificate())
			})
			spec := templateSpec(t, 9100, "")
			spec.ImagePath, spec.ImageURL, spec.ImageSum = "", web.URL+"/debian-12-genericcloud-amd64.qcow2", digest
			got, err := l.builder.BuildTemplate(t.Context(), spec)
			must(t, err)
			volid := "local:import/savepoint-" + digest[:32] + ".qcow2"
			list := string(l.call("GET", "/nodes/pve1/storage/local/content", nil))
			if !strings.Contains(list, volid) {
				t.Errorf("%s is not among %s", volid, list)
			}
			// The image itself is what counts, not how it came.
			spec.ImageURL = web.URL + "/again.img"
			if again, err := l.builder.BuildTemplate(t.Context(), spec); err != nil || again != got {
				t.Errorf("again: %+v, %v", again, err)
			}
			spec.VMID, spec.ImageSum = 9101, strings.Repeat("0", 64)
			if _, err := l.builder.BuildTemplate(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "checksum mismatch") {
				t.Errorf("a wrong checksum: %v", err)
			}
			spec.ImageURL, spec.ImageSum, spec.ImageVolume = "", "", volid
			stored, err := l.builder.BuildTemplate(t.Context(), spec)
			if err != nil || stored.VM.ID != 9101 || stored.Recipe == got.Recipe {
				t.Errorf("stored: %+v, %v", stored, err)
			}
			spec.ImageVolume = "local:import/none.qcow2"
			_, err = l.builder.BuildTemplate(t.Context(), spec)
			wantClass(t, err, orchestrator.ErrNotFound)
			// Debian publishes SHA-512 alone.
			long := sha512.Sum512(image)
			spec.VMID, spec.ImageVolume, spec.ImageURL, spec.ImageSum = 9103, "", web.URL+"/x.qcow2", hex.EncodeToString(long[:])
			if _, err := l.builder.BuildTemplate(t.Context(), spec); err != nil {
				t.Errorf("with a SHA-512: %v", err)
			}
			spec.VMID, spec.ImageSum = 9104, strings.Repeat("0", 128)
			if _, err := l.builder.BuildTemplate(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "checksum mismatch") {
				t.Errorf("a wrong SHA-512: %v", err)
			}
			spec.ImageSum = strings.Repeat("0", 96)
			_, err = l.builder.BuildTemplate(t.Context(), spec)
			wantClass(t, err, orchestrator.ErrDenied)
			// Without the right to let the node look around, the right is named.
			spec.ImageVolume, spec.ImageURL, spec.ImageSum = "", web.URL+"/x.qcow2", digest
			l.server.Faults.Add(pve.Fault{Method: "POST", Path: "/nodes/*/storage/*/download-url", Nth: 1, Status: 403, Message: "Permission check failed"})
			spec.VMID, spec.MemoryMiB = 9102, 300
			_, err = l.builder.BuildTemplate(t.Context(), spec)
			wantClass(t, err, orchestrator.ErrDenied)
			if err == nil || !strings.Contains(err.Error(), "Sys.AccessNetwork") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Ids are taken only when something is built, and those of others are passed over.
func TestTemplateTakesIDs(t *testing.T) {
	l := startLab(t).withTemplate()
	spec := templateSpec(t, 0, "one")
	asked := 0
	spec.NewVMID = func(context.Context) (orchestrator.VMID, error) {
		asked++
		return []orchestrator.VMID{foreignID, templateID, 9100}[asked-1], nil
	}
	got, err := l.builder.BuildTemplate(t.Context(), spec)
	if err != nil || got.VM.ID != 9100 || asked != 3 {
		t.Fatalf("%+v, %v, asked %d times", got, err, asked)
	}
	if again, err := l.builder.BuildTemplate(t.Context(), spec); err != nil || again != got || asked != 3 {
		t.Errorf("%+v, %v, asked %d times", again, err, asked)
	}
}
