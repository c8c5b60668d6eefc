package configs

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

var (
	cpuType    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(,[a-z-]+=[^\s,]+)*$`)
	tenantName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,30}$`)
	imageForm  = regexp.MustCompile(`^(https://[^\s@?#]+|[A-Za-z][A-Za-z0-9._-]*:[A-Za-z0-9][A-Za-z0-9._/-]*)$`)
)

// network checks the form of what is written. Whether it fits together is for
// package network to say, which knows what the cluster has.
func (k checker) network() {
	n := &k.c.Network
	for _, p := range n.Peers {
		if _, err := netip.ParseAddr(p); err != nil {
			k.bad("network.peers", fmt.Sprintf("has %q, which is no IP address", p), "write the nodes' addresses in the underlay")
		}
	}
	if n.VNIFirst > n.VNILast {
		k.bad("network.vni_last", fmt.Sprintf("is less than network.vni_first %d", n.VNIFirst), "choose a range that nothing else uses")
	}
	seen := map[string]bool{}
	for i := range n.Tenants {
		t := &n.Tenants[i]
		at := fmt.Sprintf("has at [%d] ", i)
		switch {
		case !tenantName.MatchString(t.Name):
			k.bad("network.tenants", at+fmt.Sprintf("the name %q", t.Name), "use at most 31 lower-case letters, digits and '-', a letter first")
		case seen[t.Name]:
			k.bad("network.tenants", at+fmt.Sprintf("the name %q again", t.Name), "give every tenant a name of its own")
		case t.Zone != "" && !slices.Contains([]string{"evpn", "vxlan", "simple"}, t.Zone):
			k.bad("network.tenants", at+fmt.Sprintf("the zone %q", t.Zone), "choose one of: evpn, vxlan, simple")
		case len(t.VNets) == 0:
			k.bad("network.tenants", at+"no vnets", "write at least one below vnets, with its subnets")
		}
		seen[t.Name] = true
		if t.Zone == "" {
			t.Zone = "evpn"
		}
		for j, v := range t.VNets {
			if !tenantName.MatchString(v.Name) || len(v.Subnets) == 0 {
				k.bad("network.tenants", fmt.Sprintf("has at [%d].vnets[%d] no name, or no subnets", i, j), "give it a name and at least one prefix below subnets")
			}
		}
	}
	for i, p := range n.Places {
		if !slices.Contains([]string{"orchestrator", "api", "node", "metadata", "outside", "jump"}, p.Role) {
			k.bad("network.places", fmt.Sprintf("has at [%d] the role %q", i, p.Role), "choose one of: orchestrator, api, node, metadata, outside, jump")
		}
		if p.Name == "" || len(p.Addresses) == 0 || len(p.TCP) == 0 || len(p.UDP) == 0 {
			k.bad("network.places", fmt.Sprintf("has at [%d] no name, no addresses, or no tcp or udp ports", i), "give it all four: what is not tried is not sealed")
		}
		for _, a := range p.Addresses {
			if _, err := netip.ParseAddr(a); err != nil {
				k.bad("network.places", fmt.Sprintf("has at [%d] %q, which is no IP address", i, a), "write addresses, not names")
			}
		}
		for _, port := range append(slices.Clone(p.TCP), p.UDP...) {
			if port < 1 || port > 65535 {
				k.bad("network.places", fmt.Sprintf("has at [%d] the port %d", i, port), "choose ports from 1 to 65535")
			}
		}
	}
	if s := k.c.Sandbox.Tenant; s != "" && !seen[s] {
		k.bad("sandbox.tenant", "is not one of network.tenants", "name a tenant that is there")
	}
}

// workspace checks how the nodes are reached.
func (k checker) workspace() {
	w := &k.c.Workspace
	k.match("workspace.storage", w.Storage, storageName, "is not a storage's name", "use the id that `pvesm status` prints")
	k.word("workspace.driver", w.Driver, "auto", "zfs", "btrfs")
	k.match("workspace.user", w.User, userName, "is not an account's name", "name the account on the nodes")
	if w.IdentityFile == "" && w.Storage != "" {
		w.IdentityFile = k.c.SSH.IdentityFile
	}
	const name = "workspace.nodes"
	seen := map[string]bool{}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		at := fmt.Sprintf("has at [%d] ", i)
		host, port, err := net.SplitHostPort(n.Address)
		key, ok := hostKey(n.HostKey)
		switch {
		case !dnsName.MatchString(n.Name) || seen[n.Name]:
			k.bad(name, at+fmt.Sprintf("the name %q, which is no node's or is there twice", n.Name), "use the names that `pvecm nodes` prints")
		case err != nil || host == "" || !validPort(port):
			k.bad(name, at+fmt.Sprintf("the address %q, which is not HOST:PORT", n.Address), `write it like "pve1.example:22"`)
		case !ok:
			k.bad(name, at+"a host key that is no public SSH key", "copy the line of /etc/ssh/ssh_host_ed25519_key.pub from the node")
		}
		n.HostKey, seen[n.Name] = key, true
	}
	if w.Storage != "" && w.Driver == "zfs" && len(w.Nodes) == 0 {
		k.bad(name, "is missing although workspace.driver is zfs", "write how each node's SSH server is reached (see savepoint doctor --setup), or set workspace.driver to btrfs")
	}
	if w.Storage != "" && w.Driver == "btrfs" && w.Size < 256<<20 {
		k.bad("workspace.size", "is too small for workspace.driver btrfs", "choose 256MiB or more")
	}
}

// template checks what the template is made of.
func (k checker) template() {
	t := &k.c.Template
	k.checksum()
	k.match("template.cpu", t.CPU, cpuType, "is not a type of CPU", `use a name that Proxmox VE has, like "x86-64-v2-AES" or "host"`)
	if t.CPU == "" {
		k.bad("template.cpu", "is empty", "remove the key for its default, or give it a value")
	}
	if t.Memory%(1<<20) != 0 {
		k.bad("template.memory", "is no whole number of MiB", "write it like 512MiB or 2GiB")
	}
	k.match("template.image", t.Image, imageForm, "is neither an https URL nor a volume", `write "https://…" or "STORAGE:import/FILE"`)
	k.match("template.bridge", t.Bridge, bridgeName, "is not the name of a bridge or vnet", "use at most 15 letters, digits, '.', '_' and '-'")
	if strings.HasPrefix(t.Image, "https://") && t.Checksum == "" {
		k.bad("template.checksum", "is missing although template.image is an URL", "copy the SHA-512 or SHA-256 from where the image is published")
	}
	if t.Gateway.IsValid() && !t.Address.Contains(t.Gateway) {
		k.bad("template.gateway", "is not in the network of template.address", "choose an address in it, or remove it")
	}
}

// checksum brings the image's checksum into plain digits. What it was made with is
// told by its length, and by the word before it, if there is one.
func (k checker) checksum() {
	const name, mend = "template.checksum", "copy it from SHA512SUMS or SHA256SUMS where the image is published"
	t := &k.c.Template
	kind, digits, named := strings.Cut(strings.ToLower(strings.TrimSpace(t.Checksum)), ":")
	if !named {
		kind, digits = "", kind
	}
	want := map[string]int{"": len(digits), "sha256": 64, "sha512": 128}[kind]
	switch {
	case digits == "" && !named:
	case want == 0:
		k.bad(name, fmt.Sprintf("is of the kind %q; it can be sha256 or sha512", kind), mend)
		return
	case strings.Trim(digits, "0123456789abcdef") != "":
		k.bad(name, "is not written in hexadecimal digits", mend)
		return
	case len(digits) != want:
		k.bad(name, fmt.Sprintf("has %d digits, and a %s checksum has %d", len(digits), kind, want), mend)
		return
	case want != 64 && want != 128:
		k.bad(name, fmt.Sprintf("has %d digits: SHA-256 has 64 and SHA-512 has 128", want), mend)
		return
	}
	t.Checksum = digits
}
