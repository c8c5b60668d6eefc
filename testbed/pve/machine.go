package pve

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"savepoint/testbed/pve/task"
)

// boot starts the VM from its configuration, with resume from a saved state.
func (s *Server) boot(w *task.Worker, vmid int, timeout time.Duration, resume, tag string) error {
	conf, err := s.conf(vmid)
	if err != nil {
		return err
	}
	if err := w.Step("start"); err != nil {
		return err
	}
	for _, nic := range s.vmOpts.nics(conf.main) {
		if nic.Bridge == "" || s.bridgeExists(s.cfg.Node, nic.Bridge) {
			continue
		}
		if s.cfg.major() == "8" {
			w.Log("bridge '%s' does not exist", nic.Bridge)
			return fail("start failed: QEMU exited with code 1")
		}
		return fail("bridge '%s' does not exist", nic.Bridge)
	}
	if err := s.makeCloudInit(w.Context(), w, vmid, conf.main); err != nil {
		return err
	}
	m, err := s.machine(vmid, conf.main)
	if err != nil {
		return err
	}
	m.Resume, m.ResumeTag = resume, tag
	if timeout == 0 {
		timeout = max(30*time.Second, time.Duration(m.MemoryMiB/1024)*time.Second) + time.Duration(len(m.NICs))*5*time.Second
		if resume != "" {
			timeout = 300 * time.Second
		}
	}
	ctx, cancel := context.WithTimeout(w.Context(), timeout)
	defer cancel()
	e := s.entry(vmid)
	e.backend.Lock()
	err = s.cfg.Machines.Start(ctx, m)
	e.backend.Unlock()
	if err != nil {
		if ctx.Err() != nil && w.Context().Err() == nil {
			return fail("start failed: command 'qemu-system' failed: got timeout")
		}
		return fail("start failed: %w", err)
	}
	s.mu.Lock()
	e.started = s.cfg.Now()
	s.mu.Unlock()
	return nil
}

// machine is what the backend needs to know of a configuration.
func (s *Server) machine(vmid int, o options) (Machine, error) {
	m := Machine{VMID: vmid, Name: o["name"], MemoryMiB: memoryMiB(o), Cores: cpus(o), NICs: s.vmOpts.nics(o), Agent: s.vmOpts.agent(o)["enabled"] == "1"}
	for _, d := range s.vmOpts.drives(o) {
		switch {
		case d.image():
			v, err := s.volume(d.file())
			if err != nil {
				return m, err
			}
			m.Disks = append(m.Disks, v.disk(d.slot))
		case d.cloudinit():
			v, err := s.volume(d.file())
			if err != nil {
				return m, err
			}
			m.Disks = append(m.Disks, Disk{Slot: d.slot, Path: v.Path, Format: "raw", CDROM: true})
		case strings.Contains(d.file(), ":iso/"):
			st, err := s.storage(storageID(d.file()))
			if err != nil {
				return m, err
			}
			_, name, _ := strings.Cut(d.file(), ":")
			path, err := s.contentFile(st, name)
			if err != nil {
				return m, fail("volume '%s' does not exist", d.file())
			}
			m.Disks = append(m.Disks, Disk{Slot: d.slot, Path: path, Format: "raw", CDROM: true})
		}
	}
	m.BootSlot = bootSlot(o, m.Disks)
	if ip, err := s.vmOpts.byName["ipconfig0"].Props.Parse("ipconfig0", o["ipconfig0"]); err == nil {
		if p, err := netip.ParsePrefix(ip["ip"]); err == nil {
			m.Address = p
		}
	}
	return m, nil
}

// bootSlot is the first disk of the boot order, else the first disk.
func bootSlot(o options, disks []Disk) string {
	order := strings.Split(strings.TrimPrefix(o["boot"], "order="), ";")
	order = append(order, o["bootdisk"])
	for _, slot := range order {
		for _, d := range disks {
			if d.Slot == slot && !d.CDROM {
				return slot
			}
		}
	}
	for _, d := range disks {
		if !d.CDROM {
			return d.Slot
		}
	}
	return ""
}

func (v *vmOptions) nics(o options) []NIC {
	var out []NIC
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if bus, n := splitName(name); bus != "net" || n < 0 {
			continue
		}
		if p, err := v.net.Parse(name, o[name]); err == nil {
			out = append(out, NIC{Slot: name, MAC: p["macaddr"], Bridge: p["bridge"], Addresses: v.addresses(o["ipconfig"+name[len("net"):]])})
		}
	}
	return out
}

// addresses are the static ones of an ipconfig option.
func (v *vmOptions) addresses(config string) []netip.Prefix {
	p, err := v.byName["ipconfig0"].Props.Parse("ipconfig", config)
	if err != nil {
		return nil
	}
	var out []netip.Prefix
	for _, key := range []string{"ip", "ip6"} {
		if a, err := netip.ParsePrefix(p[key]); err == nil {
			out = append(out, a)
		}
	}
	return out
}

func (v *vmOptions) agent(o options) map[string]string {
	p, err := v.byName["agent"].Props.Parse("agent", o["agent"])
	if err != nil {
		return nil
	}
	return p
}

func memoryMiB(o options) int {
	if n, err := strconv.Atoi(strings.TrimPrefix(o["memory"], "current=")); err == nil {
		return n
	}
	return 512
}

func cpus(o options) int {
	n := 1
	for _, name := range []string{"cores", "sockets"} {
		if v, err := strconv.Atoi(o[name]); err == nil && v > 0 {
			n *= v
		}
	}
	return n
}
