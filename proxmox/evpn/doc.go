// Package evpn reads the routing tables of EVPN zones from the nodes of a
// cluster whose API does not show them (Proxmox VE 8.4), through a forced
// command on each node.
//
// # Overview
//
// Program is the forced command of an account that may ask FRR and nothing
// else. Client sends it the name of a zone and reads the table of the zone's VRF
// as FRR prints it. Setup is what an administrator runs once on each node.
//
// # Invariants
//
//   - The program only reads. The zone's name is checked before it becomes part
//     of a command for FRR.
//   - A table is whole or an error: an answer without its end is cut off.
//
// # Limits
//
// Link-local routes, which every bridge has, are left out, and so is what is not
// installed in the kernel.
package evpn
