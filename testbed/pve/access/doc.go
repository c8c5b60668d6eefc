// Package access knows who may call the lab's API and what they may do.
//
// # Overview
//
// A Directory holds users, their API tokens, roles and access control entries.
// It authenticates passwords, tokens and tickets, and tells the privileges that
// a principal has on an object's path.
//
// # Invariants
//
//   - Deny by default: what no entry grants is not granted.
//   - The superuser root@pam has every privilege of the version; its tokens
//     have them too unless they are separated, but never count as root itself.
//   - A separated token has the intersection of its user's and its own privileges.
//   - An entry on a longer path replaces those inherited from shorter ones; a
//     pool's entries are added for the VMs and storages in it.
//
// # Limits
//
// No groups, no second factor, no expiry of users or tokens. Users and entries
// are given when the directory is made; the API does not change them.
package access
