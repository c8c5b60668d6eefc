package pve

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"savepoint/testbed/pve/task"
)

// seed is the content of a cloud-init drive.
type seed struct{ user, network, meta string }

// seedOf renders a configuration's cloud-init options.
func (v *vmOptions) seedOf(vmid int, o options) seed {
	host := o["name"]
	if host == "" {
		host = fmt.Sprintf("VM%d", vmid)
	}
	out := seed{user: v.userData(host, o), network: v.networkConfig(o)}
	sum := sha1.Sum([]byte(out.user + out.network))
	out.meta = "instance-id: " + hex.EncodeToString(sum[:]) + "\n"
	return out
}

// quoteYAML writes a string that YAML takes as just that.
func quoteYAML(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func (v *vmOptions) userData(host string, o options) string {
	var b strings.Builder
	name, _, isFQDN := strings.Cut(host, ".")
	fmt.Fprintf(&b, "#cloud-config\nhostname: %s\nmanage_etc_hosts: true\n", name)
	switch {
	case isFQDN:
		fmt.Fprintf(&b, "fqdn: %s\n", host)
	case o["searchdomain"] != "":
		fmt.Fprintf(&b, "fqdn: %s.%s\n", host, strings.Fields(o["searchdomain"])[0])
	}
	if u := o["ciuser"]; u != "" {
		fmt.Fprintf(&b, "user: %s\n", quoteYAML(u))
	}
	if o["ciuser"] == "root" {
		b.WriteString("disable_root: false\n")
	}
	if p := o["cipassword"]; p != "" {
		fmt.Fprintf(&b, "password: %s\n", quoteYAML(p))
	}
	if keys := sshKeys(o["sshkeys"]); len(keys) > 0 {
		b.WriteString("ssh_authorized_keys:\n")
		for _, k := range keys {
			fmt.Fprintf(&b, "  - %s\n", quoteYAML(k))
		}
	}
	b.WriteString("chpasswd:\n  expire: false\n")
	if o["ciuser"] != "root" {
		b.WriteString("users:\n  - default\n")
	}
	if o["ciupgrade"] != "0" {
		b.WriteString("package_upgrade: true\n")
	}
	return b.String()
}

// sshKeys decodes the option's keys, one a line.
func sshKeys(encoded string) []string {
	text, err := url.PathUnescape(encoded)
	if err != nil {
		return nil
	}
	var keys []string
	for line := range strings.SplitSeq(text, "\n") {
		if k := strings.TrimSpace(line); k != "" {
			keys = append(keys, k)
		}
	}
	return keys
}

// networkConfig is the network part, in cloud-init's first version of it.
func (v *vmOptions) networkConfig(o options) string {
	var b strings.Builder
	b.WriteString("version: 1\nconfig:\n")
	for i, nic := range v.nics(o) {
		fmt.Fprintf(&b, "  - type: physical\n    name: eth%d\n    mac_address: %s\n    subnets:\n", i, quoteYAML(strings.ToLower(nic.MAC)))
		_, n := splitName(nic.Slot)
		ip, err := v.byName["ipconfig0"].Props.Parse("ipconfig", o[fmt.Sprintf("ipconfig%d", n)])
		if err != nil {
			ip = nil
		}
		writeSubnet(&b, ip["ip"], ip["gw"], "4")
		writeSubnet(&b, ip["ip6"], ip["gw6"], "6")
	}
	servers, domains := strings.Fields(o["nameserver"]), strings.Fields(o["searchdomain"])
	if len(servers)+len(domains) > 0 {
		b.WriteString("  - type: nameserver\n")
		for _, list := range []struct {
			key    string
			values []string
		}{{"address", servers}, {"search", domains}} {
			if len(list.values) == 0 {
				continue
			}
			fmt.Fprintf(&b, "    %s:\n", list.key)
			for _, value := range list.values {
				fmt.Fprintf(&b, "      - %s\n", quoteYAML(value))
			}
		}
	}
	return b.String()
}

func writeSubnet(b *strings.Builder, ip, gw, family string) {
	switch ip {
	case "":
		return
	case "dhcp", "auto":
		fmt.Fprintf(b, "      - type: %s%s\n", ip, family)
		return
	}
	kind, address, mask := "static", ip, ""
	if family == "6" {
		kind = "static6"
	} else if p, err := netip.ParsePrefix(ip); err == nil {
		address, mask = p.Addr().String(), netmask(p.Bits())
	}
	fmt.Fprintf(b, "      - type: %s\n        address: %s\n", kind, quoteYAML(address))
	if mask != "" {
		fmt.Fprintf(b, "        netmask: %s\n", quoteYAML(mask))
	}
	if gw != "" {
		fmt.Fprintf(b, "        gateway: %s\n", quoteYAML(gw))
	}
}

func netmask(bits int) string {
	m := ^uint32(0) << (32 - bits)
	if bits == 0 {
		m = 0
	}
	return netip.AddrFrom4([4]byte{byte(m >> 24), byte(m >> 16), byte(m >> 8), byte(m)}).String()
}

// makeCloudInit makes the cloud-init drive of a VM; w is nil outside tasks.
func (s *Server) makeCloudInit(ctx context.Context, w *task.Worker, vmid int, o options) error {
	for _, d := range s.vmOpts.drives(o) {
		if !d.cloudinit() {
			continue
		}
		v, err := s.volume(d.file())
		if err != nil {
			return err
		}
		if err := s.prepareDir(v); err != nil {
			return err
		}
		if w != nil {
			w.Log("generating cloud-init ISO")
		}
		c := s.vmOpts.seedOf(vmid, o)
		files := map[string][]byte{
			"user-data": []byte(c.user), "network-config": []byte(c.network), "meta-data": []byte(c.meta),
		}
		disk := Disk{Slot: d.slot, Path: v.Path, Format: "raw", CDROM: true}
		if err := s.cfg.Disks.ISO(ctx, disk, "cidata", files); err != nil {
			return fail("unable to create cloud-init drive: %w", err)
		}
	}
	return nil
}

// dumpCloudInit is GET …/cloudinit/dump.
func dumpCloudInit(c *call) (any, error) {
	conf, err := c.s.conf(c.vmid())
	if err != nil {
		return nil, err
	}
	sd := c.s.vmOpts.seedOf(c.vmid(), conf.main)
	switch c.p.Str("type") {
	case "network":
		return sd.network, nil
	case "meta":
		return sd.meta, nil
	}
	return sd.user, nil
}

// pendingCloudInit is GET …/cloudinit: the options with their pending values.
func pendingCloudInit(c *call) (any, error) {
	conf, err := c.s.conf(c.vmid())
	if err != nil {
		return nil, err
	}
	out := []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(c.s.vmOpts.byName)) {
		o := c.s.vmOpts.byName[name]
		if o.priv != privCI {
			continue
		}
		item := map[string]any{"key": name}
		if v, ok := conf.main[name]; ok {
			item["value"] = v
		}
		if v, ok := conf.pending[name]; ok {
			item["pending"] = v
		}
		if len(item) > 1 {
			out = append(out, item)
		}
	}
	return out, nil
}

// renewCloudInit is PUT …/cloudinit: a stopped VM's drive is made at its start
// anyway, a running one's is made anew.
func renewCloudInit(c *call) (any, error) {
	s, vmid := c.s, c.vmid()
	conf, err := s.conf(vmid)
	if err != nil {
		return nil, err
	}
	if err := conf.locked(); err != nil {
		return nil, err
	}
	return nil, s.makeCloudInit(c.ctx, nil, vmid, conf.main)
}
