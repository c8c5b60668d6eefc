package pve_test

import (
	"fmt"
	"testing"
)

// How long the lists take on a node with many VMs.
func BenchmarkManyVMs(b *testing.B) {
	n := newNode(b, nil)
	n.makeVM("100", "&name=tpl&agent=1&ipconfig0=ip%3D10.0.0.2/24")
	n.run("POST", "/nodes/pve1/qemu/100/template", "")
	for id := 1000; id < 1500; id++ {
		n.must(n.post("/nodes/pve1/qemu/100/clone", map[string]any{"newid": id, "full": 0}))
	}
	for _, path := range []string{"/cluster/resources?type=vm", "/nodes/pve1/qemu", "/nodes/pve1/tasks?vmid=1200", "/nodes/pve1/qemu/1200/config"} {
		b.Run(fmt.Sprintf("GET %s", path), func(b *testing.B) {
			for b.Loop() {
				var out any
				n.must(n.client.Get(b.Context(), path, &out))
			}
		})
	}
	b.Run("clone and destroy", func(b *testing.B) {
		for b.Loop() {
			n.must(n.post("/nodes/pve1/qemu/100/clone", map[string]any{"newid": 2000, "full": 0}))
			if st := n.run("DELETE", "/nodes/pve1/qemu/2000", ""); st != "OK" {
				b.Fatal(st)
			}
		}
	})
}
