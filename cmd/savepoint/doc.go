// Command savepoint gives an AI coding agent a virtual machine on a Proxmox VE
// cluster in which every command is a transaction.
//
// # Overview
//
// One file per command. app holds what they share: the global flags, the
// configuration and, opened when first needed, the journal, the cluster, the
// SSH client and the engine. Results go to stdout, everything else to stderr.
//
// # Invariants
//
//   - An error becomes an exit code in one place, exitCode in main.go.
//   - Nothing but the chosen output is written to stdout.
//   - An interrupt during a transaction rolls it back; the exit code is 130.
//
// # Limits
//
// One process at a time works with a state directory; a second one ends with
// exit code 6 and says who holds it. Reading commands (tx, sandbox list) can
// run at any time.
package main
