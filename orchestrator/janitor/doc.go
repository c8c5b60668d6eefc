// Package janitor finds and removes what crashed or interrupted work left on
// the cluster and that nobody owns any more.
//
// # Overview
//
// Look compares the cluster with the registry of sandboxes and with the
// journal's transactions and returns findings. Clean does what the findings
// say. Both use the same code to find, so a dry run says what would be done.
//
//	unfinished-sandbox   its creation or removal was interrupted: removed
//	half-made-clone      our mark, clone call not finished, not in the registry: removed
//	orphan-vm            our tags and mark, not in the registry: removed
//	half-made-template   our tags and mark, its build did not come to its end: removed
//	half-made-snapshot   left in state prepare or delete: deleted by force
//	orphan-snapshot      its transaction is settled or unknown: deleted
//	spent-snapshot       its transaction is finished: the engine's collector deletes it
//	orphan-memory        a volume of saved memory without its snapshot: deleted
//	stale-lock           no task holds it: the sandbox is quarantined, an operator unlocks
//	everything else      said, and left alone
//
// # Invariants
//
//   - Nothing is changed on the strength of a name. What is removed carries our
//     tags and our description of this instance, and the registry and the
//     journal say that nobody needs it; all of it is read again immediately
//     before the call, and once more by the adapter that makes the call.
//   - What another instance of savepoint made is never touched.
//   - Before each destructive call there is a durable note of the intent, and
//     after it one of the outcome. The notes are for people and for the next
//     run; what is left to do always follows from the cluster, the registry and
//     the journal, so an interrupted run is repeated by running again.
//   - A lock is called stale only after two looks, far enough apart and close
//     enough together, with no task seen at either. It is never removed here:
//     an API token cannot. The sandbox is withheld until somebody did.
//   - The cluster is read before the registry and the journal: whoever makes
//     something writes its intent first, so what is seen on the cluster is
//     known to them by then.
//
// # Limits
//
// One process at a time: the journal's lock sees to that. What is on nodes or
// storages that do not answer is not judged. Snapshots that a storage has and
// the cluster does not list cannot be seen through the API.
package janitor
