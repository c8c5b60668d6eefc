// Package provision makes, resets and removes sandboxes, and keeps some warm.
//
// # Overview
//
// A sandbox is a VM cloned from a template, with an address from our plan, an
// SSH host key that was read through the guest agent and pinned, the users
// root and agent, and a pristine snapshot to reset to. The Registry holds what
// is known of it durably; Hypervisor, Identity and Guest act on the cluster.
//
// A Pool has sandboxes that are all this already and have no user: they are
// pooled, under a neutral name. [Provisioner.Create] hands one out if a new one
// would be no other; [Provisioner.Return] resets one and takes it back.
//
//	Fill:   creating ─ made, proved, pristine ─→ pooled
//	Create: pooled ─ looked at ─→ ready              one write: state and name
//	Return: ready ─→ quarantined ─ reset, proved ─→ pooled
//
// The name of a VM and its guest's host name are those it was made with, also
// when it is handed out: its owner is proved by the sandbox's id, a rollback would
// bring the old name back, and a hand-out changes nothing on the cluster.
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
//   - A pooled sandbox is handed out once, to one name, and only after its guest
//     answered with the pinned key as the pristine one, and with a proof that is
//     not older than Warm.ProofAge nor than the last change of the networks.
//   - One that is not all right, or is not what a new one would be, is removed and
//     never handed out; few at a time, because when many do not answer it is
//     hardly their fault.
//   - Nobody uses a pooled sandbox, and a crash in its making or its reset leaves
//     none that is pooled.
//   - A sandbox whose node is out of reach is neither removed nor quarantined:
//     what was begun with it goes on when the node is back.
//   - Nothing is removed unless the VM itself says that it belongs to the
//     sandbox; the Hypervisor checks that before every destructive call.
//
// # Limits
//
// One process at a time works on a registry; the journal's lock sees to that.
// Pooled sandboxes take memory and count in Limits.PerNode; they do not make room
// for others. A process has one pool: no second Provisioner, of With say, may work
// on it at the same time.
// Zones are not made here: a sandbox joins the bridge or vnet it is told.
// An order to restore the pristine snapshot whose answer was lost, and that
// arrives when the reset was repeated and the sandbox is in use, undoes what was
// done since: the snapshot is needed, so it cannot be taken away as those of
// transactions are.
package provision
