// Package journal keeps the durable record of what the orchestrator intends
// and does, and the registry of sandboxes with their ids and addresses, in one
// SQLite file.
//
// # Overview
//
// Open takes the journal for writing: one process at a time, held by a lock
// on a file beside it that the kernel frees when the process dies. A second
// one gets *HeldError. OpenReadOnly reads beside a writer.
//
// The file is in write-ahead mode with synchronous=FULL: a record is on disk
// when Append returns. Appends that arrive together share one sync.
//
//	meta       key, value                      instance id, fence, cursors
//	records    seq, tx, sandbox, at, state, event, settled, owner, fence, data
//	open_tx    tx                              transactions whose last record is not settled
//	sandboxes  id, name, state, vmid, changed, data
//	vmids      vmid, owner, at, taken
//	addresses  address, subnet, owner, at, released
//
// Times are nanoseconds since 1970. PRAGMA user_version is the schema's number;
// Open brings an older file up, one migration a transaction.
//
// # Invariants
//
//   - Records are never changed or removed.
//   - A record is whole or absent: each append is one SQLite transaction.
//   - After an append whose outcome is unknown (an I/O error at the commit)
//     everything is refused until the file is opened again.
//   - A file that is damaged, or of a newer schema, is refused and not touched.
//   - A VM id is handed out at most once within its rest, crashes included.
//
// # Limits
//
// One writer; several orchestrators on one cluster need another implementation
// of the port, for which records carry owner and fence. The lock is flock(2):
// keep the file on a local disk. The whole file is checked on open, which takes
// time in proportion to its size.
package journal
