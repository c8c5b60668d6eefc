// Package journal keeps the durable record of what the orchestrator intends
// and does, and the registry of sandboxes with their ids and addresses, in one
// SQLite file.
//
// # Overview
//
// Open takes the journal for writing: one process at a time, held by a lock
// on a file beside it that the kernel frees when the process dies. A second
// one gets *HeldError. OpenReadOnly reads beside a writer, and reads a copy
// where nothing can be written.
//
// The file is in write-ahead mode with synchronous=FULL: a record is on disk
// when Append returns. Appends that arrive together share one sync.
//
//	meta       key, value                      instance id, fence, cursors, ends of the chain
//	records    seq, tx, sandbox, at, state, event, settled, owner, fence, data, key, session, hash
//	anchors    id, seq, hash, at, removed, txs, hidden      where retention cut the chain
//	sandboxes  id, name, state, vmid, changed, data
//	vmids      vmid, owner, at, taken
//	addresses  address, subnet, owner, at, released
//	grants     id, sandbox, made, expires, revoked, used, data
//	sessions   sandbox, seq, data              what the sandbox's next command starts from
//	networks   id, at, data                    which networks of the cluster are ours, and the lock on them
//	proofs     sandbox, at, data               the last proof of a sandbox's isolation
//
// and, derived from the records in the same SQL transaction,
//
//	open_tx    tx                              transactions whose last record is not settled
//	txs        tx, sandbox, name, began, began_at, last, last_at, state, settled
//	keys       sandbox, key, tx
//
// Times are nanoseconds since 1970. PRAGMA user_version is the schema's number;
// Open brings an older file up, one migration a transaction. Order is that of
// seq, never that of time.
//
// # The chain
//
//	meta.chain_genesis   records                          meta.chain_head
//	   0:random  <─ 1: row, hash <─ 2: row, hash <─ … <─  n:hash
//	                     └ SHA-256(hash before, every other column of the row)
//
// The head is written in the same SQL transaction as the record. Numbers of
// records have no gaps, from meta.chained_from on; what is older was written
// before there was a chain and got its hashes when the file was brought up.
// The encoding of a row is in Head.link and never changes.
//
// Verify walks the chain and compares the head and the derived tables with it.
// It proves that no record was changed, removed, added or moved by somebody
// who does not make the hashes anew: a failing disk, a stray program, an
// editor's hand. It does not prove anything against somebody who rewrites the
// file with new hashes, or puts an older copy in its place: for that, note
// Report.Head on another machine from time to time and give it to a later
// Verify. It does not cover the registry, nor networks, proofs and grants, nor
// sessions whose record was removed, and it cannot say what old records were
// before they were chained.
//
// # Retention
//
// Compact removes the beginning of the chain, as far as it consists of settled
// transactions that the policy does not keep, and leaves an anchor: the last
// hash, and how much was removed when. Verify starts from there and says so;
// a head noted before it can only be checked if it is an anchor.
//
//	a1 b1 a2 │ c1 b2 c2 d1 …      a and b are removed; c is not, so the cut is before c1:
//	  anchor ┘                     b2 stays in the chain, and no reader sees it.
//
// A transaction that is not settled stops the cut before its begin.
//
// # Invariants
//
//   - Records are never changed, and are removed only from the beginning, in an
//     SQL transaction that leaves an anchor. Triggers hold everybody to it.
//   - A record is whole or absent: each append is one SQLite transaction.
//   - After an append whose outcome is unknown (an I/O error at the commit)
//     everything is refused until the file is opened again.
//   - A file that is damaged, or of a newer schema, or whose last record is not
//     the head, is refused and not touched.
//   - Every change asks in its own SQL transaction whether this hold is still
//     the last one. A holder that was overtaken gets *FencedError for good.
//   - A key is taken once per sandbox, a session is kept, and a grant is used
//     up, by the same write that makes the record. A used grant is never
//     changed, nor removed.
//   - The write that makes a sandbox nobody's (pooled) takes its session, its
//     open grants and its keys from it: the next user meets none of them.
//   - A VM id is handed out at most once within its rest, crashes included.
//
// # What a crash leaves
//
// Every record whose append returned, and at most one write more: whole, with
// its link and the head, or not at all. A log that was cut, as by a disk that
// lied about a sync, loses its end; the rest is whole and verifies, and only a
// noted head shows that there was more. A compaction that was interrupted has
// moved the anchor as far as it came; the next one goes on.
//
// # Limits
//
// One writer; several orchestrators on one cluster need another implementation
// of the port, for which records carry owner and fence. The lock is flock(2):
// keep the file on a local disk. The structure of the file is checked on open,
// which takes time in proportion to its size (half a million records: about a
// second); the chain is not, which takes about five times as long. A Verify
// under way keeps the log beside the file from being taken over.
package journal
