// Package fabric makes the network of a small data centre out of Linux network
// namespaces: nodes, an underlay between them, FRR with BGP EVPN on each node,
// and the zones and vnets of PVE's software-defined network on top.
//
// # Overview
//
// New makes the namespaces and starts the routing daemons; Apply gives a node
// its zones; Tap puts a guest on a vnet; Routes and Status observe; Close ends
// it, and Sweep what a killed owner left.
//
//	underlay   a bridge; the outside and every node have a veth on it
//	out        "the outside": plays a web server and a metadata service
//	node-N     a node: eth0 on the underlay, zebra and bgpd
//	N-Z        zone Z on node N, in the place of PVE's VRF: for each vnet a
//	           bridge (named as the vnet, with the gateway's addresses), its
//	           tunnel vxlan_V and the guests' taps; for the zone's own VNI the
//	           bridge vrfbr_Z and tunnel vrfvx_Z
//
// A VXLAN device is made from inside the node's namespace, directly into the
// zone's. It sends and receives through the namespace that it was made from, so
// a zone has tunnels on the underlay but no interface, address or route there.
//
// zebra runs with --vrfwnetns: it takes each entry of /run/netns for a VRF. It
// has a mount namespace of its own, in which only its node's evpn zones are
// there, named vrf_Z as on PVE. So FRR does what it does on a real node: type
// 3 routes for each VNI, type 2 routes with MAC and IP addresses of guests
// (with the vnet's and the zone's VNI), and a host route in the zone for each
// guest elsewhere. Zones of the other kinds are not shown to it.
//
// Guests' frames are checked by nftables in the bridge family where they enter:
// the sender's MAC address, and if the port has addresses the sender's in IP,
// ARP and neighbour advertisements; router advertisements are dropped.
//
// The lab reaches a guest by DialZone from the guest's own node. It dials on a
// thread that enters the zone and goes back; nothing listens in there.
//
// It needs root and the Debian packages frr, iproute2 and nftables. The
// packages' own services must not run: savepoint starts its own daemons.
//
// # Invariants
//
//   - The host has no address, no route and no interface of the fabric: every
//     link is made inside a namespace of the fabric, both ends.
//   - Namespaces, processes and the run directory are recorded durably before
//     they are made. Sweep removes exactly those: processes by id, start time
//     and an argument with the random instance in it, namespaces by a name
//     with that instance in it. Links end with their namespaces.
//   - No route leads out of a zone, but for Leak, which a proof must detect.
//   - A port is filtered before it exists. Its rules are replaced at once.
//   - Nothing the fabric starts is in the host's network namespace.
//
// # Limits
//
// One fabric uses a directory at a time, and the caller sees to that. A fabric
// is not taken over by another process: New removes what is there and makes
// another. Only the taps that machines hold are kept, apart from everything, until
// Adopt puts them on a vnet again: such a machine is off the network for as long.
// Close and Sweep remove taps that are in use.
//
// As on PVE, a guest that has never sent anything is reached from its own vnet,
// but not from another vnet on another node: its node does not know its
// address yet. VXLAN zones have no router, so DialZone cannot reach into them.
// A simple zone's vnets are routed on their node, with no way out, where PVE
// puts them into the node's own routing. Exit nodes exist as Leak only, without
// IPv6. Subnets are not advertised (type 5). BGP timers are 3 and 10 seconds.
package fabric
