package pve

import (
	"context"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func itoa(n int) string { return strconv.Itoa(n) }

// readVersion is GET /version.
func readVersion(c *call) (any, error) {
	release, version := c.s.cfg.release()
	if odd := c.s.oddities().Version; odd != "" {
		version = odd
	}
	return map[string]any{"release": release, "version": version, "repoid": "0000000000000000"}, nil
}

// nextID is GET /cluster/nextid. It reserves nothing, and answers text.
func nextID(c *call) (any, error) {
	if c.p.Has("vmid") {
		if c.s.exists(c.vmid()) {
			return nil, badParam("vmid", "VM %d already exists", c.vmid())
		}
		return itoa(c.vmid()), nil
	}
	id := 100
	for c.s.exists(id) {
		id++
	}
	return itoa(id), nil
}

// clusterStatus is GET /cluster/status. A node alone is no cluster.
func clusterStatus(c *call) (any, error) {
	var out []map[string]any
	n := len(c.s.members)
	if n > 1 {
		out = append(out, map[string]any{
			"id": "cluster", "type": "cluster", "name": clusterName, "nodes": n, "quorate": flag(c.s.quorate()), "version": n,
		})
	}
	for i, m := range c.s.members {
		id := i
		if n > 1 {
			id++
		}
		out = append(out, map[string]any{
			"id": "node/" + m.cfg.Node, "type": "node", "name": m.cfg.Node, "ip": m.address(i),
			"level": "", "local": flag(m == c.s), "nodeid": id, "online": flag(m.up()),
		})
	}
	return out, nil
}

// address is where the other nodes of the cluster reach the i-th node.
func (s *Server) address(i int) string {
	if a, ok := s.cfg.Addresses[s.cfg.Node]; ok {
		return a.String()
	}
	return "127.0.0." + itoa(i+1)
}

// clusterName is the name of a cluster of several nodes.
const clusterName = "lab"

// machineFigures are the numbers of the machine the server runs on.
type machineFigures struct {
	uptime            int64
	memTotal, memFree int64
	load              [3]string
	cpus              int
}

func readMachine() machineFigures {
	f := machineFigures{cpus: runtime.NumCPU(), load: [3]string{"0.00", "0.00", "0.00"}}
	var si syscall.Sysinfo_t
	if syscall.Sysinfo(&si) == nil {
		unit := int64(si.Unit)
		f.uptime, f.memTotal, f.memFree = int64(si.Uptime), int64(si.Totalram)*unit, int64(si.Freeram)*unit
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		copy(f.load[:], strings.Fields(string(b)))
	}
	return f
}

// busy is the share of the processors in use, as far as the load tells.
func (f machineFigures) busy() float64 {
	load, err := strconv.ParseFloat(f.load[0], 64)
	if err != nil {
		return 0
	}
	return min(1, load/float64(f.cpus))
}

// nodeItem is a node in lists; who may not audit it sees less, and of one that
// is gone there is nothing to see.
func (c *call) nodeItem(s *Server) map[string]any {
	out := map[string]any{"id": "node/" + s.cfg.Node, "type": "node", "node": s.cfg.Node, "status": "online", "level": ""}
	if !s.up() {
		out["status"] = "offline"
		return out
	}
	if !c.may("/nodes/"+s.cfg.Node, "Sys.Audit") {
		return out
	}
	m := readMachine()
	total, used, _ := s.rootUsage()
	for k, v := range map[string]any{
		"uptime": m.uptime, "maxcpu": m.cpus, "cpu": m.busy(), "maxmem": m.memTotal, "mem": m.memTotal - m.memFree,
		"maxdisk": total, "disk": used,
	} {
		out[k] = v
	}
	return out
}

// listNodes is GET /nodes.
func listNodes(c *call) (any, error) {
	var out []map[string]any
	for _, m := range c.s.members {
		item := c.nodeItem(m)
		item["ssl_fingerprint"] = c.s.print
		out = append(out, item)
	}
	return out, nil
}

// nodeStatus is GET /nodes/{node}/status.
func nodeStatus(c *call) (any, error) {
	s, m := c.s, readMachine()
	total, used, avail := s.rootUsage()
	_, version := s.cfg.release()
	memory := map[string]any{"total": m.memTotal, "free": m.memFree, "used": m.memTotal - m.memFree}
	if s.cfg.major() >= "9" {
		memory["available"] = m.memFree
	}
	return map[string]any{
		"uptime": m.uptime, "loadavg": m.load, "cpu": m.busy(), "idle": 0, "wait": 0,
		"memory": memory, "swap": map[string]any{"total": 0, "free": 0, "used": 0}, "ksm": map[string]any{"shared": 0},
		"rootfs":         map[string]any{"total": total, "used": used, "avail": avail, "free": total - used},
		"cpuinfo":        map[string]any{"cpus": m.cpus, "cores": m.cpus, "sockets": 1, "model": runtime.GOARCH, "user_hz": 100},
		"kversion":       "Linux lab",
		"current-kernel": map[string]any{"sysname": "Linux", "release": "lab", "version": "lab", "machine": runtime.GOARCH},
		"boot-info":      map[string]any{"mode": "legacy-bios"},
		"pveversion":     "pve-manager/" + version + "/0000000000000000",
	}, nil
}

// nodeTime is GET /nodes/{node}/time.
func nodeTime(c *call) (any, error) {
	now := c.s.cfg.Now().Add(c.s.oddities().Skew)
	_, offset := now.In(time.Local).Zone()
	return map[string]any{"time": now.Unix(), "localtime": now.Unix() + int64(offset), "timezone": "Etc/UTC"}, nil
}

// listContainers is GET /nodes/{node}/lxc. There are none; who lists all guests
// of a node asks for them too.
func listContainers(*call) (any, error) { return []any{}, nil }

// listNetworks is GET /nodes/{node}/network. Vnets are listed only where a
// filter asks for them.
func listNetworks(c *call) (any, error) {
	out := []map[string]any{}
	kind := c.p.Str("type")
	switch kind {
	case "", "bridge", "any_bridge", "any_local_bridge", "include_sdn":
		out = append(out, c.bridgeInterfaces()...)
	}
	switch kind {
	case "vnet", "any_bridge", "include_sdn":
		vnets := map[string]bool{}
		for _, v := range c.vnetInterfaces(c.node()) {
			vnets[v["iface"].(string)] = true
			out = append(out, v)
		}
		// a vnet stands in the place of a bridge of the same name
		out = slices.DeleteFunc(out, func(i map[string]any) bool { return i["type"] == "bridge" && vnets[i["iface"].(string)] })
	}
	return out, nil
}

// bridgeInterfaces are the node's own bridges in its list of networks.
func (c *call) bridgeInterfaces() []map[string]any {
	var out []map[string]any
	for i, b := range c.s.cfg.Bridges {
		if !c.may("/sdn/zones/"+localZone+"/"+b, "SDN.Audit", "SDN.Use") {
			continue
		}
		out = append(out, map[string]any{
			"iface": b, "type": "bridge", "active": 1, "autostart": 1, "priority": 3 + i, "families": []string{"inet"},
			"method": "static", "method6": "manual", "bridge_ports": "", "bridge_stp": "off", "bridge_fd": "0",
			"address": "10.99.0.1", "netmask": "24", "cidr": "10.99.0.1/24",
		})
	}
	return out
}

// resources is GET /cluster/resources.
func resources(c *call) (any, error) {
	s, kind := c.s, c.p.Str("type")
	out := []map[string]any{}
	for _, m := range s.members {
		if kind == "" || kind == "vm" {
			for _, id := range m.vmids() {
				if !c.may("/vms/"+itoa(id), "VM.Audit") {
					continue
				}
				if item := m.vmResource(id); item != nil {
					out = append(out, item)
				}
			}
		}
		if kind == "" || kind == "node" {
			node := c.nodeItem(m)
			if m.up() && c.may("/nodes/"+m.cfg.Node, "Sys.Audit") {
				node["cgroup-mode"] = 2
			}
			out = append(out, node)
		}
		if kind == "" || kind == "storage" {
			for _, st := range m.storages {
				if c.may("/storage/"+st.ID, "Datastore.Audit") {
					out = append(out, m.storageResource(c.ctx, st))
				}
			}
		}
	}
	if kind == "" || kind == "sdn" && s.cfg.major() < "9" {
		out = append(out, c.zoneResources()...)
	}
	return out, nil
}

// zoneResource is one network zone on one node.
func (s *Server) zoneResource(node, zone, status string) map[string]any {
	if s.cfg.major() >= "9" {
		return map[string]any{
			"id": "network/" + node + "/zone/" + zone, "type": "network", "network-type": "zone",
			"network": zone, "node": node, "status": status,
		}
	}
	return map[string]any{"id": "sdn/" + node + "/" + zone, "type": "sdn", "sdn": zone, "node": node, "status": status}
}

func (s *Server) storageResource(ctx context.Context, st Storage) map[string]any {
	out := map[string]any{
		"id": "storage/" + s.cfg.Node + "/" + st.ID, "type": "storage", "storage": st.ID, "node": s.cfg.Node,
		"status": "unknown", "plugintype": st.Type, "shared": flag(st.Shared), "content": strings.Join(st.Content, ","),
	}
	if s.up() {
		out["status"] = "available"
		out["maxdisk"], out["disk"], _, _ = s.usageOf(ctx, st)
	}
	return out
}

// index makes the handler of a directory of the API.
func index(key string, names ...string) func(*call) (any, error) {
	return func(*call) (any, error) {
		out := make([]map[string]string, len(names))
		for i, n := range names {
			out[i] = map[string]string{key: n}
		}
		return out, nil
	}
}
