// Package provision makes, resets and removes sandboxes.
//
// # Overview
//
// A sandbox is a VM cloned from a template, with an address from our plan, an
// SSH host key that was read through the guest agent and pinned, the users
// root and agent, and a pristine snapshot to reset to. The Registry holds what
// is known of it durably; Hypervisor, Identity and Guest act on the cluster.
//
// # Invariants
//
//   - The registry says "creating" before anything exists on the cluster and
//     "destroying" before anything is removed, so that a crash never leaves a
//     VM that nobody knows.
//   - A VM id is reserved before it is used. An id that turns out to be taken
//     by somebody else is left alone and the next one is tried.
//   - A creation that fails removes its parts. If that fails too the sandbox is
//     quarantined with the reason: visible, never handed out.
//   - A place is chosen, and recorded, by one creation at a time, so that those
//     under way count in each other's choice.
//   - A sandbox whose node is out of reach is neither removed nor quarantined:
//     what was begun with it goes on when the node is back.
//   - Nothing is removed unless the VM itself says that it belongs to the
//     sandbox; the Hypervisor checks that before every destructive call.
//
// # Limits
//
// One process at a time works on a registry; the journal's lock sees to that.
// Zones are not made here: a sandbox joins the bridge or vnet it is told.
// An order to restore the pristine snapshot whose answer was lost, and that
// arrives when the reset was repeated and the sandbox is in use, undoes what was
// done since: the snapshot is needed, so it cannot be taken away as those of
// transactions are.
package provision
