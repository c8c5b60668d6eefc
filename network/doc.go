// Package network plans the networks of sandboxes. It is pure: it computes
// what should be and never asks or changes a cluster.
//
// # Overview
//
// NextAddress chooses a sandbox's address from the configured subnet. Who has
// which address is recorded by the caller, durably.
//
// # Invariants
//
//   - The same input gives the same plan; there is no state and no clock.
//   - An address that is in use, the subnet's own address, its broadcast
//     address and the hosts left to gateways are never chosen.
//
// # Limits
//
// Addresses only: zones, vnets and subnets are those that the cluster has.
package network
