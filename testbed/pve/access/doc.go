// Package access knows who may call the lab's API and what they may do.
//
// # Overview
//
// A Directory holds users, groups, API tokens, roles and access control entries.
// It authenticates passwords, tokens and tickets, and tells the privileges that
// a principal has on an object's path. What it holds is a State, which begins
// with the configured ones and is replaced whole by Change.
//
// # Invariants
//
//   - Deny by default: what no entry grants is not granted.
//   - The superuser root@pam has every privilege of the version; its tokens
//     have them too unless they are separated, but never count as root itself.
//   - A separated token has the intersection of its user's and its own privileges.
//   - An entry on a longer path replaces those inherited from shorter ones; a
//     pool's entries are added for the VMs and storages in it. A user's own
//     entries on a path replace those of his groups there.
//   - What Change made is in the file, of mode 0600, before it is seen.
//
// # Limits
//
// No second factor and one realm of passwords: a user's realm is a part of his
// name. What is configured is there again after a restart, even if it was
// removed through the API.
package access
