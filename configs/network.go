package configs

import (
	"net/netip"
	"time"
)

// Network is what savepoint makes of the cluster's software-defined network.
// Without tenants it makes nothing, and sandboxes are on Sandbox.Bridge.
type Network struct {
	// UnderlayMTU is that of the network between the nodes. Default 1500.
	UnderlayMTU int `mapstructure:"underlay_mtu"`
	// Peers are the nodes' addresses there. Empty: those that the cluster says.
	Peers []string `mapstructure:"peers"`
	// VNIFirst and VNILast bound the VXLAN identifiers, both included. The range
	// must belong to this savepoint alone. Default 900000 to 900999.
	VNIFirst int `mapstructure:"vni_first"`
	VNILast  int `mapstructure:"vni_last"`
	// Controller is the id of an EVPN controller that is there and is not ours.
	// Empty: one is made, with ASN and Peers.
	Controller string `mapstructure:"controller"`
	// ASN of the EVPN controller. Default 65000.
	ASN int `mapstructure:"asn"`
	// Tenants are kept apart from each other, each in a zone of its own.
	Tenants []Tenant `mapstructure:"tenants"`
	// Places are further ones that no sandbox may reach; every proof tries them.
	Places []Place `mapstructure:"places"`
}

// Tenant is a party with a zone of its own.
type Tenant struct {
	Name string `mapstructure:"name"`
	// Zone is its type: "evpn" (default), "vxlan" or "simple".
	Zone string `mapstructure:"zone"`
	// VRF is the VNI of an evpn zone's routing table. Not set: one is chosen.
	VRF int `mapstructure:"vrf"`
	// MTU of the guests. Not set: the largest that the underlay carries.
	MTU int `mapstructure:"mtu"`
	// Nodes that have the zone. Empty: all.
	Nodes []string `mapstructure:"nodes"`
	VNets []VNet   `mapstructure:"vnets"`
}

// VNet is one network of a tenant.
type VNet struct {
	Name string `mapstructure:"name"`
	// VNI of the network. Not set: one is chosen.
	VNI int `mapstructure:"vni"`
	// Guests is how many sandboxes it must have addresses for. Not set: any number.
	Guests  int      `mapstructure:"guests"`
	Subnets []Subnet `mapstructure:"subnets"`
}

// Subnet is a network of addresses, all of it ours.
type Subnet struct {
	Prefix netip.Prefix `mapstructure:"prefix"`
	// Gateway is where an evpn zone routes between its networks. Not set: it
	// does not.
	Gateway netip.Addr `mapstructure:"gateway"`
}

// Place is something that no sandbox may reach.
type Place struct {
	// Role is "orchestrator", "api", "node", "metadata" or "outside"; or "jump": a
	// host through which guests are reached, whose SSH port they may reach at its
	// addresses in the subnets of their tenant.
	Role string `mapstructure:"role"`
	Name string `mapstructure:"name"`
	// Addresses and ports are what is tried.
	Addresses []string `mapstructure:"addresses"`
	TCP       []int    `mapstructure:"tcp"`
	UDP       []int    `mapstructure:"udp"`
}

// Workspace is the volume that holds everything the agent can write, and how
// its snapshots are taken. Without Storage sandboxes have none, and every
// boundary covers the whole VM.
type Workspace struct {
	// Storage is that of the template's second disk.
	Storage string `mapstructure:"storage"`
	// Driver takes the snapshots: "zfs" on the node, which takes a zfspool storage
	// and Nodes, or "btrfs" in the guest, on any storage. Default "auto": zfs where
	// the storage is a zfspool, else btrfs.
	Driver string `mapstructure:"driver"`
	// Size of the volume in a new template. Default 4GiB.
	Size Size `mapstructure:"size"`
	// Reserve is how much of the pool must be free for a new snapshot. Default
	// 256MiB. This and what follows is for the driver zfs.
	Reserve Size `mapstructure:"reserve"`
	// Freeze is the longest that a guest's writes are held. Default 10s.
	Freeze time.Duration `mapstructure:"freeze"`
	// User is the account on the nodes that may do it. Default "savepoint-zfs".
	User string `mapstructure:"user"`
	// IdentityFile is the private key of that account. Default SSH.IdentityFile.
	IdentityFile string `mapstructure:"identity_file" kind:"path"`
	// Nodes are the SSH servers of the nodes.
	Nodes []NodeSSH `mapstructure:"nodes"`
}

// NodeSSH is the SSH server of a node.
type NodeSSH struct {
	Name    string `mapstructure:"name"`    // the node's, in the cluster
	Address string `mapstructure:"address"` // HOST:PORT
	// HostKey is the only key accepted: "ssh-ed25519 AAAA…".
	HostKey string `mapstructure:"host_key"`
}

// Template is how "savepoint template build" makes the template.
type Template struct {
	// Image is a stock cloud image: an https URL, or a volume that is on a
	// storage already ("local:import/debian-12.qcow2"). Empty: savepoint's own
	// guest image, built on this machine from Debian packages and uploaded.
	Image string `mapstructure:"image"`
	// Checksum is the SHA-256 or SHA-512 of the URL's file in hexadecimal digits,
	// lower case. In the file "sha256:" or "sha512:" may stand before it.
	Checksum string `mapstructure:"checksum"`
	// CPU is the type of the guests' processor, as Proxmox VE calls it. All nodes
	// must have what it needs: a snapshot's memory goes back on the same type.
	// Default "x86-64-v2-AES".
	CPU string `mapstructure:"cpu"`
	// Cores of the guests. Default 1.
	Cores int `mapstructure:"cores"`
	// Memory of the guests; a snapshot with memory writes up to twice of it.
	// Default 512MiB.
	Memory Size `mapstructure:"memory"`
	// Bridge is the network on which it is prepared. Default: Sandbox.Bridge.
	Bridge string `mapstructure:"bridge"`
	// Address with its prefix there, and Gateway. Default: the last host of
	// Sandbox.Subnet, and no gateway.
	Address netip.Prefix `mapstructure:"address"`
	Gateway netip.Addr   `mapstructure:"gateway"`
}
