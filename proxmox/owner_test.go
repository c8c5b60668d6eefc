package proxmox

import (
	"strings"
	"testing"

	"savepoint/orchestrator"
)

const testSandbox orchestrator.SandboxID = "01jxyz0000000000000000abcd"

// F121 F123: what is ours is told by an anchored, full match.
func TestParseMark(t *testing.T) {
	for _, m := range []mark{
		{instance: "lab", sandbox: testSandbox, state: stateReady},
		{instance: "a-1", sandbox: "x", state: stateCloning},
		{instance: strings.Repeat("i", 32), recipe: strings.Repeat("0a", 16), state: stateBuilding},
	} {
		got, ok := parseMark(m.String())
		if !ok || got != m {
			t.Errorf("%q: got %+v, %v", m, got, ok)
		}
	}
	good := mark{instance: "lab", sandbox: testSandbox, state: stateReady}.String()
	for _, bad := range []string{
		"", " " + good, good + " ", good + "\n\n", good + "\nnotes", "notes\n" + good, strings.ToUpper(good),
		strings.Replace(good, "state=ready", "state=done", 1), strings.Replace(good, "savepoint/1", "savepoint/2", 1),
		strings.Replace(good, "instance=lab", "instance=", 1), strings.Replace(good, "lab", "l b", 1),
		strings.Replace(good, string(testSandbox), "", 1), strings.Replace(good, " sandbox", "  sandbox", 1),
		"savepoint/1 instance=lab template=xyz state=ready",
	} {
		if m, ok := parseMark(bad); ok {
			t.Errorf("%q was taken as %+v", bad, m)
		}
	}
	if _, ok := parseMark(mark{instance: "lab", recipe: strings.Repeat("0a", 16), state: stateReady}.String() + "\n\nfor people"); !ok {
		t.Error("a template's text for people is refused")
	}
}

func TestCheckOwner(t *testing.T) {
	c := &Cluster{cfg: Config{Instance: "lab"}}
	desc := func(instance string, sb orchestrator.SandboxID, state string) string {
		return mark{instance: instance, sandbox: sb, state: state}.String()
	}
	const tags = "savepoint;savepoint-lab"
	for _, tc := range []struct {
		name       string
		conf       vmConfig
		want       orchestrator.SandboxID
		half       bool
		ok         bool
		statusOwns bool
	}{
		{"ours", vmConfig{"tags": tags, "description": desc("lab", testSandbox, stateReady)}, testSandbox, false, true, true},
		{"more tags", vmConfig{"tags": "a;" + tags, "description": desc("lab", testSandbox, stateReady) + "\n"}, testSandbox, false, true, true},
		{"no tags", vmConfig{"description": desc("lab", testSandbox, stateReady)}, testSandbox, false, false, false},
		{"one shared tag only", vmConfig{"tags": "savepoint", "description": desc("lab", testSandbox, stateReady)}, testSandbox, false, false, false},
		{"tags without description", vmConfig{"tags": tags}, testSandbox, false, false, false},
		{"another instance", vmConfig{"tags": "savepoint;savepoint-lab2", "description": desc("lab2", testSandbox, stateReady)}, testSandbox, false, false, false},
		{"tags and description disagree", vmConfig{"tags": tags, "description": desc("lab2", testSandbox, stateReady)}, testSandbox, false, false, false},
		{"another sandbox", vmConfig{"tags": tags, "description": desc("lab", "other", stateReady)}, testSandbox, false, false, false},
		{"nobody asked", vmConfig{"tags": tags, "description": desc("lab", testSandbox, stateReady)}, "", false, false, true},
		{"half-made", vmConfig{"description": desc("lab", testSandbox, stateCloning)}, testSandbox, false, false, true},
		{"half-made, to be destroyed", vmConfig{"description": desc("lab", testSandbox, stateCloning)}, testSandbox, true, true, true},
		{"half-made of another", vmConfig{"description": desc("lab", "other", stateCloning)}, testSandbox, true, false, false},
		{"a template", vmConfig{"tags": tags, "description": mark{instance: "lab", recipe: strings.Repeat("ab", 16), state: stateReady}.String()}, testSandbox, true, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := c.checkOwner("destroy", testVM, tc.conf, tc.want, tc.half)
			if tc.ok != (err == nil) {
				t.Fatalf("got %v", err)
			}
			if err != nil {
				wantClass(t, err, orchestrator.ErrDenied)
				wantText(t, err, "destroy vm 100 on pve1", "nothing was changed")
			}
			m, _ := c.ownerOf(tc.conf)
			if (m.sandbox == testSandbox) != tc.statusOwns {
				t.Errorf("owner = %q", m.sandbox)
			}
		})
	}
}

func TestDisks(t *testing.T) {
	conf := vmConfig{
		"scsi0": "local-zfs:vm-100-disk-0,size=8G", "scsi1": "local:100/vm-100-cloudinit.qcow2,media=cdrom", "ide2": "none,media=cdrom",
		"efidisk0": "local:100/vm-100-disk-1.qcow2,size=4M", "scsihw": "virtio-scsi-pci", "unused0": "local:x", "net0": "virtio=00:11,bridge=b",
	}
	got := conf.disks()
	if len(got) != 2 || got[0] != (disk{"efidisk0", "local", "100/vm-100-disk-1.qcow2"}) || got[1] != (disk{"scsi0", "local-zfs", "vm-100-disk-0"}) {
		t.Errorf("got %+v", got)
	}
}

func TestRebridge(t *testing.T) {
	for nic, want := range map[string]string{
		"": "virtio,bridge=vn1",
		"virtio=BC:24:11:61:6D:2E,bridge=vmbr0,firewall=1,tag=5,mtu=1450": "virtio=BC:24:11:61:6D:2E,firewall=1,mtu=1450,bridge=vn1",
		"e1000,bridge=vmbr0,link_down=1":                                  "e1000,bridge=vn1",
		"nonsense":                                                        "virtio,bridge=vn1",
	} {
		if got := rebridge(nic, "vn1"); got != want {
			t.Errorf("%q: got %q, want %q", nic, got, want)
		}
	}
}
