package pve_test

import (
	"fmt"
	"testing"
	"time"

	proxmox "github.com/luthermonson/go-proxmox"
	"golang.org/x/sync/errgroup"
)

// Many sandboxes live side by side; each rolls back to its own content.
func TestManyAtOnce(t *testing.T) {
	n := newNode(t, nil)
	n.makeVM("100", "")
	n.run("POST", "/nodes/pve1/qemu/100/template", "")
	var g errgroup.Group
	g.SetLimit(8)
	for id := 200; id < 216; id++ {
		g.Go(func() error { return n.sandbox(id, 3) })
	}
	n.must(g.Wait())
	if left := n.mem.Paths(); len(left) != 1 {
		t.Errorf("left %v", left)
	}
	if running := n.mem.Running(); len(running) != 0 {
		t.Errorf("run on: %v", running)
	}
}

// sandbox lives a sandbox's life: F28 F33: rounds of snapshot, damage, rollback.
func (n *node) sandbox(id, rounds int) error {
	at := fmt.Sprintf("/nodes/pve1/qemu/%d", id)
	if err := n.post("/nodes/pve1/qemu/100/clone", map[string]any{"newid": id, "full": 0}); err != nil {
		return err
	}
	if err := n.post(at+"/status/start", nil); err != nil {
		return err
	}
	m, ok := n.mem.Machine(id)
	if !ok {
		return fmt.Errorf("vm %d does not run", id)
	}
	disk := m.Disks[0].Path
	for i := range rounds {
		good, name := fmt.Sprintf("%d good %d", id, i), fmt.Sprintf("sp-%d", i)
		if err := n.mem.Write(disk, good); err != nil {
			return err
		}
		if err := n.post(at+"/snapshot", map[string]any{"snapname": name, "vmstate": 1}); err != nil {
			return err
		}
		if err := n.mem.Write(disk, "damage"); err != nil {
			return err
		}
		if err := n.post(at+"/snapshot/"+name+"/rollback", nil); err != nil {
			return err
		}
		if got, err := n.mem.Read(disk); err != nil || got != good {
			return fmt.Errorf("vm %d after rollback %d: %q %v", id, i, got, err)
		}
		var upid proxmox.UPID
		if err := n.client.Delete(n.t.Context(), at+"/snapshot/"+name, &upid); err != nil {
			return err
		}
		if err := n.wait(upid); err != nil {
			return err
		}
	}
	if err := n.post(at+"/status/stop", nil); err != nil {
		return err
	}
	var upid proxmox.UPID
	if err := n.client.Delete(n.t.Context(), at, &upid); err != nil {
		return err
	}
	return n.wait(upid)
}

// How long the server itself takes: one read, and one snapshot taken and deleted.
func BenchmarkServer(b *testing.B) {
	n := newNode(b, nil)
	n.makeVM("100", "")
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			var out map[string]any
			if err := n.client.Get(b.Context(), "/nodes/pve1/qemu/100/status/current", &out); err != nil {
				b.Fatal(err)
			}
		}
	})
	i := 0
	b.Run("snapshot", func(b *testing.B) {
		for b.Loop() {
			i++
			var upid proxmox.UPID
			if err := n.client.Post(b.Context(), "/nodes/pve1/qemu/100/snapshot", map[string]any{"snapname": fmt.Sprintf("s%d", i)}, &upid); err != nil {
				b.Fatal(err)
			}
			n.must(proxmox.NewTask(upid, n.client).Wait(b.Context(), time.Millisecond, 10*time.Second))
			n.must(n.client.Delete(b.Context(), fmt.Sprintf("/nodes/pve1/qemu/100/snapshot/s%d", i), &upid))
			n.must(proxmox.NewTask(upid, n.client).Wait(b.Context(), time.Millisecond, 10*time.Second))
		}
	})
}
