// Package chaos kills real things while real transactions run.
//
// # Overview
//
// The package has tests only. They build the savepoint program, start a lab of
// their own with one real guest, and play rounds. A round reads the guest's
// files, starts a transaction, injects one fault at a random moment of it, lets
// savepoint recover settle what is left, as an operator's script would, and
// reads the guest again.
//
//	savepoint   SIGKILL of the savepoint process
//	twice       the same, and once more during savepoint recover
//	guest       SIGKILL of the guest's QEMU
//	api         SIGKILL of the lab, which is API server and jump host; then a new one
//	node        both at once, as a node that loses power
//	ssh         the paths through the jump host and to the node are cut, or carry nothing for a while
//	foreign     on ZFS: somebody else takes a snapshot, of the VM or of its workspace volume
//	full        on ZFS: the pool has less room than a snapshot needs, for a while
//
// A transaction is one command of the agent or of root, in a workspace, disk or
// machine boundary, that succeeds, fails, or is refused by a validation; or
// several commands with a savepoint in between.
//
// What has to hold after each round:
//
//   - the exit code and the printed result agree with the journal;
//   - the transaction is committed or rolled back, and the guest's files
//     (contents, owners, modes, links, extended attributes) are exactly what the
//     journal says;
//   - no process of the command lives, the VM runs, is unlocked, answers with
//     its pinned key, and has no snapshot but the pristine one;
//   - after every recovery the journal is proved, from where it was proved last;
//   - a VM of somebody else, which stands beside the sandbox and which savepoint
//     would be able to change, has the same configuration, snapshots, power state,
//     process and files;
//   - the next transaction works.
//
// A transaction that was stuck is listed with its reason. Where the fault killed
// a task of the cluster in the middle, which leaves a lock that no API token can
// take away, or where a foreign snapshot is newer than the one to go back to,
// the test plays the operator and does what the reason says; one that is stuck
// after that, or for anything else, is a violation. So is a foreign snapshot that
// savepoint deleted.
//
// Of 30 rounds or more, each kind of fault has to hit a transaction at least
// once: a kind that came too late each time has shown nothing. The test fails
// then, and the table names it.
//
// # Running it
//
//	make chaos                                 60 rounds
//	make chaos CHAOS_STORAGE=zfs               on a lab whose disks are on ZFS
//	make chaos SAVEPOINT_CHAOS_ROUNDS=500
//	go test ./testbed/chaos -run TestChaos -args -chaos.seed=7 -chaos.round=12
//
// The seed is printed; a seed and a round number give the same fault, command
// and fraction of the transaction's duration. How long that is, is measured
// at the beginning, so that a replay on another machine meets the same moment
// as well as a clock can.
//
// # Invariants
//
//   - What savepoint says is never taken for granted: files, processes and the
//     host key are read over an SSH connection of the test's own, the VM's state
//     from the lab's API with the lab's own rights.
//   - The expected files are computed from what they were before.
//   - Every process is ended by its id, also after a failure or an interrupt.
//
// # Limits
//
//   - One node, one sandbox, one transaction at a time.
//   - The files before the transaction are put on the guest's disk (sync) when
//     they are read. Not looked at: /proc and other kernel file systems, /tmp,
//     /run, /var/log and savepoint's own /var/lib/savepoint; times of files; and
//     of /usr beside /usr/local only owners, modes, sizes and links.
package chaos
