package pve

import (
	"sync"
	"time"
)

// figures are the numbers of one VM that its lists and status share.
type figures struct {
	conf    *vmConf
	state   MachineStatus
	uptime  int64
	maxDisk int64
}

func (s *Server) figures(vmid int) (figures, bool) {
	conf, err := s.peek(vmid)
	if err != nil {
		return figures{}, false
	}
	f := figures{conf: conf, state: s.cfg.Machines.Status(vmid)}
	if f.state.Running {
		s.mu.Lock()
		if at := s.vms[vmid].started; !at.IsZero() {
			f.uptime = int64(s.cfg.Now().Sub(at) / time.Second)
		}
		s.mu.Unlock()
	}
	boot := bootSlot(conf.main, s.slots(conf.main))
	if d, err := s.vmOpts.parseDrive(boot, conf.main[boot]); boot != "" && err == nil {
		f.maxDisk, _ = parseSize(d.props["size"])
	}
	return f, true
}

// slots are the disks of a configuration by name alone.
func (s *Server) slots(o options) []Disk {
	var out []Disk
	for _, d := range s.vmOpts.images(o) {
		out = append(out, Disk{Slot: d.slot})
	}
	return out
}

func (f figures) status() string {
	if f.state.Running {
		return "running"
	}
	return "stopped"
}

func (f figures) name(vmid int) string {
	if n := f.conf.main["name"]; n != "" {
		return n
	}
	return "VM " + itoa(vmid)
}

// vmStatus is what the VM list and status/current have in common.
func (s *Server) vmStatus(vmid int, f figures, full bool) map[string]any {
	o := f.conf.main
	out := map[string]any{
		"vmid": vmid, "name": f.name(vmid), "status": f.status(), "cpus": cpus(o),
		"maxmem": int64(memoryMiB(o)) << 20, "maxdisk": f.maxDisk, "disk": 0, "mem": 0, "cpu": 0,
		"uptime": f.uptime, "netin": 0, "netout": 0,
	}
	if s.cfg.major() >= "9" {
		out["memhost"] = 0
	}
	for _, k := range []string{"tags", "lock"} {
		if o[k] != "" {
			out[k] = o[k]
		}
	}
	if f.conf.template() {
		out["template"] = 1
	}
	if full {
		out["qmpstatus"] = "stopped"
	}
	if !f.state.Running {
		return out
	}
	out["pid"] = f.state.PID
	out["diskread"], out["diskwrite"] = 0, 0
	if s.cfg.major() >= "9" {
		for _, k := range []string{"cpu", "io", "memory"} {
			out["pressure"+k+"some"], out["pressure"+k+"full"] = 0, 0
		}
	}
	if full {
		out["qmpstatus"] = "running"
		if f.state.Paused {
			out["qmpstatus"] = "paused"
		}
		out["running-machine"], out["running-qemu"] = s.machineType(), s.qemuVersion()
		out["proxmox-support"] = map[string]any{}
		out["blockstat"], out["nics"] = map[string]any{}, map[string]any{}
	}
	return out
}

func (s *Server) machineType() string {
	if s.cfg.major() == "8" {
		return "pc-i440fx-9.2+pve1"
	}
	return "pc-i440fx-10.1+pve0"
}

// readStatus is GET …/status/current.
func readStatus(c *call) (any, error) {
	f, ok := c.s.figures(c.vmid())
	if !ok {
		return nil, c.s.noConf(c.vmid())
	}
	out := c.s.vmStatus(c.vmid(), f, true)
	out["ha"] = map[string]any{"managed": 0}
	if state := c.s.haState(c.vmid()); state != "" {
		out["ha"] = map[string]any{"managed": 1, "state": state}
	}
	if c.s.vmOpts.agent(f.conf.main)["enabled"] == "1" {
		out["agent"] = 1
	}
	return out, nil
}

// listVMs is GET /nodes/{node}/qemu.
func listVMs(c *call) (any, error) {
	out := []map[string]any{}
	for _, id := range c.s.vmids() {
		if !c.may("/vms/"+itoa(id), "VM.Audit") {
			continue
		}
		if f, ok := c.s.figures(id); ok {
			out = append(out, c.s.vmStatus(id, f, c.p.Bool("full")))
		}
	}
	return out, nil
}

// resourceStats are the figures that /cluster/resources shows; on a real node
// they are collected every 10 s.
type resourceStats struct {
	mu  sync.Mutex
	at  time.Time
	vms map[int]map[string]any
}

// vmResource is a VM's item in /cluster/resources, which may lag behind.
func (s *Server) vmResource(vmid int) map[string]any {
	f, ok := s.figures(vmid)
	if !ok {
		return nil
	}
	out := map[string]any{"id": "qemu/" + itoa(vmid), "type": "qemu", "vmid": vmid, "node": s.cfg.Node}
	for _, k := range []string{"tags", "lock"} {
		if v := f.conf.main[k]; v != "" {
			out[k] = v
		}
	}
	if p := s.poolOf(vmid); p != "" {
		out["pool"] = p
	}
	if state := s.haState(vmid); state != "" {
		out["hastate"] = state
	}
	if !s.up() {
		out["status"] = "unknown"
		return out
	}
	if s.cfg.ResourceLag <= 0 {
		s.addFigures(out, vmid, f)
		return out
	}
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	if now := s.cfg.Now(); now.Sub(s.stats.at) >= s.cfg.ResourceLag {
		s.stats.at, s.stats.vms = now, map[int]map[string]any{}
		for _, id := range s.vmids() {
			if f, ok := s.figures(id); ok {
				m := map[string]any{}
				s.addFigures(m, id, f)
				s.stats.vms[id] = m
			}
		}
	}
	seen, ok := s.stats.vms[vmid]
	if !ok {
		out["status"] = "unknown"
	}
	for k, v := range seen {
		out[k] = v
	}
	return out
}

func (s *Server) addFigures(out map[string]any, vmid int, f figures) {
	template := 0
	if f.conf.template() {
		template = 1
	}
	for k, v := range map[string]any{
		"name": f.name(vmid), "status": f.status(), "template": template, "uptime": f.uptime,
		"maxcpu": cpus(f.conf.main), "maxmem": int64(memoryMiB(f.conf.main)) << 20, "maxdisk": f.maxDisk,
		"cpu": 0, "mem": 0, "disk": 0, "diskread": 0, "diskwrite": 0, "netin": 0, "netout": 0,
	} {
		out[k] = v
	}
	if s.cfg.major() >= "9" && f.state.Running {
		out["memhost"] = 0
	}
}
