// Package orchestrator is the transaction engine: every command that runs in a
// sandbox is judged, covered by a snapshot, run, validated, and then committed
// or rolled back, and a crash at any moment leaves one of the two.
//
// # Overview
//
// Engine.Run runs a transaction of one command; Begin, Resume and Do run one of
// several; Recover settles what an earlier process left; Collect deletes
// snapshots nobody needs; List, Show and Judged read records.
// The interfaces in ports.go are all that the engine knows of the cluster, the
// guest and the disk. The states and every allowed transition are one table in
// state.go:
//
//	(new) → begun → snapshotted → running ⇄ ran → committing → committed
//	(new) → denied
//	begun → restored → rolled-back                    nothing ran: drop the snapshot
//	snapshotted|running|ran → rolling-back → restored → rolled-back
//	begun|rolling-back|restored|committing → stuck → (an operator) → rolling-back|begun|restored
//
// and, with several commands:
//
//	snapshotted → open → running → ran → open          each command
//	open → saving → open                               a savepoint
//	open → returning → open                            back to a savepoint
//	open → (ran, when validations follow) → committing → committed
//	open|saving|returning → rolling-back → …, returning → stuck
//
// and, with a snapshot taken ahead of its command (see below):
//
//	begun → prepared → snapshotted → …       a command adopts it
//	prepared → restored → rolled-back        it is not used: nothing ran
//
// The order of writes and effects (| is one durable write):
//
//	| begin                intent: command, verdict, boundary, snapshot name, run state
//	  mark the guest with the snapshot's name
//	  order the snapshot
//	| task                 while the cluster works on it
//	| snapshot, run        nothing lies between them
//	  run the command, whose end says how the guest is
//	| ran                  only when validation commands follow; else with the next
//	  validate             asks how it is only when something was validated since
//	| commit, committed    the commit point; no call to the cluster
//
// or instead of the last:
//
//	| roll-back            intent, with everything it consists of: mark, close the
//	                       connections, restore, start, set the clock
//	  mark the guest as undone: only a restore takes that away
//	  close the connections, order the rollback
//	| task
//	  start (boundary disk), look, ask the guest, set its clock
//	| restored, rolled-back
//
// and between these two, when an order to restore may still be on its way:
//
//	delete the snapshot, which leaves it nothing to restore
//	start, look, ask the guest: it may have come before
//
// A command that the policy denies runs all the same, inside a boundary, when a
// grant lifts the rules that deny it: a Grant of the sandbox in the journal, or
// one that Spec asks for. The write of "begin" uses the grant up.
//
// Of several commands each needs two writes and no snapshot:
//
//	| run                  intent: the command, as judged on its own
//	  run the command
//	| ran, open
//
// and a savepoint, or the return to one:
//
//	| save                 intent: the name of its snapshot
//	  mark the guest, order the snapshot
//	| task, saved
//
//	| return               intent, with everything it consists of
//	  delete the snapshots of newer savepoints, newest first whatever their kind
//	| dropped              for each
//	  as for a rollback
//	| returned
//
// A process that stays (Config.Ahead) does what can be done before the next
// command while nobody waits: when a command of Run has ended, and when
// Engine.Ahead asked. It deletes spent snapshots, several at once, and takes the
// snapshot that the next command will most likely need:
//
//	| begin                intent, without a command
//	  mark the guest, order the snapshot
//	| task
//	  ask how the guest is, and what it has written (GuestFacts.Writes)
//	| ahead                it waits
//
// A command that needs that boundary asks the guest once more, and the cluster
// nothing. If the guest is of the same boot and marker, with the right time, and
// nothing was written since, the command goes on with it:
//
//	| adopt, run           adopt is the begin's record, with the command
//
// Otherwise the snapshot is given up, which is a write, and is one to delete; the
// command takes its own. Whoever wants the sandbox meanwhile waits for the work
// that is under way and no longer. Quiet ends it.
//
// A read-only command needs two writes: begin and run before it, the rest after.
// Records are merged only where no effect lies between them: a crash then leaves
// the state before the first or after the last, as it would anyway. They are
// merged with a Journal that is a Batcher; without it each is written alone.
//
// # Invariants
//
//   - No effect without its intent on disk. No success is reported before it is.
//   - The record "commit" is the commit point. Without it recovery rolls back.
//   - A rollback is rolled-back only when it is proved: the snapshot is the current
//     parent, no lock, the run state of begin, the guest answers with the pinned
//     key, carries the snapshot's generation, was or was not booted as the boundary
//     demands, and its clock is within a second.
//   - What runs is what was asked for or the hardened form that the policy made of
//     it; the record has both.
//   - Of several commands nothing stays or all of it, whatever happened between:
//     an open transaction is the only unfinished one that recovery leaves alone,
//     and only until it was idle for too long. It has exactly what its finished
//     steps did; whoever takes it up asks the guest whether that is still so.
//   - Savepoints are a stack. None covers more than an older one, and no command
//     may do more than the newest covers: so each comes back by its own snapshot
//     alone. The snapshots of newer ones are deleted before.
//   - An idempotency key is used up by one begin or step of its sandbox. The same
//     request gets that one's result, another one is refused.
//   - A snapshot taken ahead is used by the process that took it, by one command,
//     and only when nothing was written in the guest since. Nothing ran under one
//     that is not used, so nothing is ever rolled back to it.
//   - No snapshot is deleted between a command and its answer, unless the sandbox
//     has Config.Keep of them.
//   - A session is changed by the record "commit" and by nothing before it.
//   - A grant is used by one begun transaction at most, and by none that is denied.
//     It is for one exact command, account and sandbox. Validations have none.
//   - A command is sent at most once. An unknown outcome is looked up or rolled
//     back, never retried.
//   - A task that may still run is waited for before anything else is ordered. A
//     rollback is repeated only when it is not proved to be done; repeating one
//     with nothing run in between changes nothing.
//   - An order to restore that got no answer and has no task may arrive when the
//     sandbox has other work. Its snapshot is deleted before the sandbox is free;
//     a return to a savepoint, whose snapshot is still needed, becomes the
//     rollback of the whole.
//   - A transaction is settled only when no snapshot of it may appear any more:
//     one that was ordered and never seen is looked for until two hours later.
//   - A guest that answered before its snapshot and not with it is restored, or,
//     when nobody knows the snapshot to be good, restarted: nothing ran in it. One
//     whose transaction rested for a minute is looked at before the next command,
//     and its clock is set; one that does not answer then keeps what it has.
//   - A lock that an own task left when it died is an operator's case at once. Any
//     other is waited for.
//   - One transaction at a time for a sandbox; none while one is open or stuck.
//   - Every transaction that is stuck says why and what to do. One that is only out
//     of time because the cluster does not answer stays open instead.
//   - Only snapshots named in the journal are deleted, through drivers that check
//     the VM's owner.
//   - When the journal cannot be written, nothing is run, and what has run is rolled
//     back; when nobody knows whether the commit point was written, nothing is
//     touched until it was read again.
//
// # Limits
//
// A command that is denied uses no idempotency key, and the values of variables
// are not compared when a key comes again: they may be secrets. A key whose
// command never started stays used.
// That nothing was written means that no block of any of the guest's disks was
// between two answers to Inspect, each after a sync: what was only in the guest's
// memory is written by the first, or tells by the second. It says nothing of what
// is on no disk: memory, and file systems there, of which the agent has none of
// its own (its /tmp and /dev/shm are on the workspace volume). What processes in
// the background did in memory only since a snapshot of the boundary machine was
// taken ahead is undone with its command. Nor does it tell what else was written
// between the snapshot and the first answer, or between the second and the
// command: that is undone with the command, as what is written between any
// snapshot and its command. A guest that writes by itself (logs, timers, the late
// initialization of a new file system) costs the use, not the truth.
// The step policy of a command that adopts is told to observers under another id.
// A snapshot whose order comes more than two hours late, or after the clock was
// set forward by as much, is found by gc only.
// A guest that does not answer is not marked before its machine is rolled back:
// that such a rollback did nothing shows only when it does not answer after it.
// A return to a savepoint that somebody else's snapshot blocks is refused by the
// cluster only after the snapshots of newer savepoints were deleted; the
// transaction is stuck until the foreign one is gone, and is rolled back then.
// A rollback drops the state it undoes: storages that restore only their newest
// snapshot leave no way to keep it. A command that reboots the guest is never
// committed. What left the VM is not undone. The engine trusts the guest's kernel
// for the facts that Guest reports, and the cluster for what it lists.
package orchestrator
