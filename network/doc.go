// Package network plans the networks of sandboxes and what proves that they
// are sealed. It is pure: it computes what should be and never asks or changes
// a cluster.
//
// # Overview
//
// [Wanted] is the configuration: tenants with a zone each, their vnets and
// subnets. [Observed] is what the cluster has, each object in its pending and
// its running state. [Allocation] is the durable record of which ids and VNIs
// are ours. [Diff] turns the three into a [Plan]: an ordered list of changes,
// to be followed by one apply, and the record to keep before and after it: a
// [Record] holds both, and the lock.
// [Destroy] plans the removal of what is ours. [Lagging] says which nodes do
// not have it yet.
//
// [Pools] are the vnets and subnets that sandboxes are plugged into, and
// [NextAddress] chooses a sandbox's address. Who has which address is recorded
// by the caller, durably.
//
// [Checks] computes from the placement of guests what must and what must not
// be reachable, and [Judge] compares that with what was measured.
//
// # Invariants
//
//   - The same input gives the same plan. A plan that was applied, or applied
//     in part, is followed by one that does only the rest.
//   - An object is ours if it is recorded and looks as it was made, in the
//     pending and in the running state. Nothing else is ever changed.
//   - There is no plan while somebody else has pending edits: the apply would
//     commit them. Nor while foreign objects are inside our zones or ids.
//   - What is recorded stays: a network keeps its id and VNI for life. What was
//     given back is chosen last.
//   - Nothing that guests use is removed, and what they rest on stays too.
//   - A zone of ours has no exit node, no imported routes and no DHCP server;
//     where one was added, the next plan takes it away.
//   - Addresses of sandboxes are unique over all tenants.
//   - A proof fails closed: what was not measured is not sealed.
//   - A proof claims no address and no MAC address of a guest. A node that believes
//     a claim (arp_accept) tells it to all nodes by EVPN, and for minutes: the
//     guest's traffic would go astray, the next proof would find a route of its
//     address in another zone, and FRR takes an address that moves to and fro for a
//     duplicate. Layer 2 does not care whose address it is, so nobody's does: the
//     subnet's own.
//   - That a guest has no route is no property of its network. It counts only where
//     no gateway is configured, and only if it was tried all the same.
//   - What a jump host is exempt from is in the table: [Exempt].
//   - Nothing is removed while guests that may use it cannot be seen.
//
// # Limits
//
//   - Only vnets have a field for a mark. Zones, subnets and the controller are
//     recognised by an id of ours with the routing table or vnet recorded for it.
//   - The type of a zone and the VNI of a network do not change in place.
//   - Zones over a fabric, VLAN and QinQ zones, exit nodes and DHCP are not
//     planned. MTUs are those of Ethernet without VLAN tags below.
//   - Guests of one vnet trust each other on layer 2: that they cannot take
//     each other's addresses is not checked, only that no other tenant can.
//   - Each guest is tried against one guest of each other vnet and node, not
//     against all.
package network
