package proxmox_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"savepoint/orchestrator"
	"savepoint/proxmox"
	"savepoint/testbed/pve"
)

// severalNodes is a cluster of three nodes with a storage that two of them share.
func severalNodes(t *testing.T) *lab {
	return startLab(t, func(c *pve.Config) {
		c.Nodes = []string{"pve1", "pve2", "pve3"}
		c.Storages = []pve.Storage{{ID: "local"}, {ID: "both", Shared: true, Nodes: []string{"pve1", "pve2"}}}
	})
}

// template makes one on a node's storage.
func (l *lab) template(node string, id int, storage string) {
	l.t.Helper()
	l.call("POST", "/nodes/"+node+"/qemu", map[string]any{
		"vmid": id, "name": "tpl", "pool": labPool, "memory": "256", "scsi0": storage + ":1", "scsi1": storage + ":cloudinit", "net0": "virtio,bridge=vmbr0",
	})
	l.call("POST", fmt.Sprintf("/nodes/%s/qemu/%d/template", node, id), nil)
}

// F84 F85 F86: templates are found on each node, with what a clone of them
// needs, and memory is seen by who may see it.
func TestSites(t *testing.T) {
	l := severalNodes(t)
	l.template("pve1", 9000, "both")
	l.template("pve3", 9001, "local")
	l.call("POST", "/nodes/pve2/qemu", map[string]any{"vmid": 9002, "name": "tpl", "pool": labPool}) // no template
	l.call("POST", "/nodes/pve2/qemu", map[string]any{"vmid": 9003, "name": "other", "pool": labPool})
	l.call("POST", "/nodes/pve2/qemu/9003/template", nil)
	sites, err := l.admin.Sites(t.Context(), "tpl")
	must(t, err)
	var got []string
	for _, s := range sites {
		text := fmt.Sprintf("%s online=%t memory=%t shares=%v", s.Name, s.Online, s.MemoryTotal > s.MemoryUsed && s.MemoryUsed > 0, s.Shared)
		for _, c := range s.Templates {
			text += fmt.Sprintf(" %s %d MiB on %v", c.VM, c.Memory>>20, c.Storages)
		}
		got = append(got, text)
	}
	want := []string{
		"pve1 online=true memory=true shares=[both] vm 9000 on pve1 256 MiB on [both]",
		"pve2 online=true memory=true shares=[both]",
		"pve3 online=true memory=true shares=[] vm 9001 on pve3 256 MiB on [local]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if sites, err = l.cluster.Sites(t.Context(), "tpl"); err != nil || sites[0].MemoryTotal != 0 || len(sites[0].Templates) != 1 {
		t.Errorf("with the minimal role: %+v, %v", sites, err)
	}
	// The clone that shared storage promises is made.
	r := l.cloneRequest()
	r.Template, r.VM.Node = orchestrator.VMRef{Node: "pve1", ID: 9000}, "pve2"
	must(t, l.admin.VMs().Clone(t.Context(), r))
	if st, err := l.admin.VMs().Status(t.Context(), r.VM); err != nil || st.Owner != r.Sandbox {
		t.Errorf("%+v, %v", st, err)
	}
}

// A node that is gone, or that does not answer, hides no other; its VMs are out
// of reach and not missing.
func TestSitesNodeAway(t *testing.T) {
	l := severalNodes(t)
	l.template("pve1", 9000, "both")
	r := l.cloneRequest()
	r.Template, r.VM.Node = orchestrator.VMRef{Node: "pve1", ID: 9000}, "pve2"
	must(t, l.admin.VMs().Clone(t.Context(), r))
	must(t, l.server.SetNode("pve2", false))
	l.server.Faults.Add(pve.Fault{Method: "GET", Path: "/nodes/pve3/qemu", Status: 596, Message: "Connection timed out"})
	sites, err := l.admin.Sites(t.Context(), "tpl")
	must(t, err)
	if len(sites) != 3 || len(sites[0].Templates) != 1 || sites[1].Online || sites[1].Unseen != nil || !sites[2].Online || sites[2].Unseen == nil {
		t.Errorf("%+v", sites)
	}
	away := func(what string, err error) {
		t.Helper()
		var node *orchestrator.NodeError
		if !errors.As(err, &node) || node.Node != "pve2" || !errors.Is(err, orchestrator.ErrUnavailable) || !strings.Contains(err.Error(), "node pve2") {
			t.Errorf("%s: %v; want that pve2 is out of reach", what, err)
		}
	}
	_, err = l.admin.VMs().Status(t.Context(), r.VM)
	away("status", err)
	_, err = l.admin.Snapshots().List(t.Context(), r.VM)
	away("list", err)
	away("start", l.admin.VMs().Start(t.Context(), r.VMRequest))
	away("destroy", l.admin.VMs().Destroy(t.Context(), r.VMRequest))
	_, err = l.admin.VMs().Status(t.Context(), orchestrator.VMRef{Node: "pve2", ID: 7777})
	away("one that never was", err)
	found, unseen, err := l.admin.Inventory(t.Context(), 100, 999)
	must(t, err)
	if !slices.Equal(unseen, []string{"pve2", "pve3"}) || slices.ContainsFunc(found, func(f proxmox.Found) bool { return f.VM.Node != "pve1" }) {
		t.Errorf("inventory %v, unseen %v", found, unseen)
	}
	must(t, l.server.SetNode("pve2", true))
	if st, err := l.admin.VMs().Status(t.Context(), r.VM); err != nil || st.Owner != r.Sandbox {
		t.Errorf("when it is back: %+v, %v", st, err)
	}
}
