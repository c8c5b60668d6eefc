// Package gemini is the baseline: it runs the pinned Gemini CLI without
// credentials, on a terminal and against a stand-in model server, and says what
// it came to and what became of the files.
//
// # Overview
//
// Install puts the CLI into a cache by npm. CLI.Run runs an Arm once and returns
// the Outcome; Arms lists them. New makes an experiment of package bench of them.
//
//	no credentials   headless, in several forms; an expired OAuth cache
//	terminal         no credentials on a pseudo-terminal, with and without -p
//	key              a key and the stand-in: answers, limits, a hang, a cut stream
//	task, damage     the stand-in has a file made, or the workspace damaged, with
//	                 checkpointing off and on
//	policy           a rule denies one spelling; the stand-in tries many
//
// Protect makes the tasks of these arms in a Sandbox, which is savepoint's side
// of the comparison and is given by the caller: each command is a transaction.
// CLI.Within runs the CLI itself inside a Host, a whole turn as one transaction:
// Node and the CLI are sent to the guest, and the stand-in, on this machine's
// loopback, is reached at a port of the guest's, over the sandbox's connection.
//
// A run starts the CLI in a session of its own, with an environment that holds
// what it needs and nothing of the caller's. With root it has a network namespace
// with loopback alone, where the stand-in listens, and a mount namespace in
// which nothing but the run's own directory can be written: neither has a name,
// so a run that is killed leaves none. Without root its proxies lead to a port
// where nobody listens, and arms with a model are refused.
//
// # Invariants
//
//   - What a scripted model says is run only where nothing but the run's own
//     directory can be written.
//   - Success is told by the tree of the workspace, never by an exit code.
//   - Damage counts as preserved or intercepted only with proof that it was tried:
//     the answer to the very call, which shows the effect or says that it was
//     refused. Everything else is NotTried, and has no such metric.
//   - A guest gets a placeholder for a key.
//   - Every run ends: at its limit the group gets TERM, then KILL, and afterwards
//     every process that has the run's home for its HOME.
//   - An outcome names the stand-in by model.Name.
//   - What the machine lacks is a *MissingError, and the experiment is skipped
//     with it.
//
// # Limits
//
// The classes are told by texts of the pinned version. A process that changes
// its HOME and its session outlives a run. The machine's files can be read by
// the CLI. /restore of the CLI works on a terminal only; what it could restore is
// read from the shadow repository instead. Memory is that of the largest process.
// Isolation.Text says what a run is held by: the namespaces are no boundary against
// a program that sets out to leave them. In a guest the C library must not be older
// than this machine's. An answer that is made up would pass for a proof: it is the
// CLI's own word of what it did, beside what the files say.
package gemini
