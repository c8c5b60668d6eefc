// Package networks brings the cluster's networks to what is configured and
// keeps the durable record of which of them are ours.
//
// # Overview
//
// A [Manager] has two ports: the [Fabric], which is the cluster, and the
// [Store], which is the journal. What is to be done is computed by package
// network; this package observes, records, writes, applies and waits:
//
//	observe ── plan ── take the lock, where the cluster has one
//	                     │
//	                     ├─▶ observe ── plan ──┬─ writes left: record, write them ─┐
//	                     ├◀────────────────────┼─ an answer was lost ◀─────────────┤
//	                     └◀────────────────────┼───────────────────────────────────┘
//	                                           ├─ all is written: apply once, giving the lock back
//	                                           └─ nothing to do
//	wait until every node that is online has it ── record what runs
//
// [Manager.Plan] only looks. [Manager.Destroy] is [Manager.Apply] of nothing.
// [Pools] are the networks that sandboxes can be plugged into.
//
// # Invariants
//
//   - Which ids are ours is durable before the first of them is written.
//   - Every round decides on what was just observed: an answer that was lost is
//     looked for and never assumed, and edits of somebody else's are refused
//     right before the apply, also where the cluster has no lock.
//   - Every apply is recorded before and after, also one that only repairs: older
//     proofs of isolation do not count from then on.
//   - That the lock was asked for is durable before it is, and its token before
//     it is used. It is given back on every way out, and by the next call or by
//     [Manager.Release] after a crash. A lock without a token of ours is never
//     taken away.
//   - What runs is recorded after the nodes have it, and what goes is taken out
//     of that record before the first of it is removed: a sandbox is plugged
//     only into what is there.
//   - A crash at any step is followed by a call that does the rest.
//
// # Limits
//
// If the cluster gave us its lock and neither the answer nor its record came
// through, the lock looks like anybody's. Then the error says so, with the
// command that frees it.
package networks
