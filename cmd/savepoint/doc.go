// Command savepoint gives an AI coding agent a virtual machine on a Proxmox VE
// cluster in which every command is a transaction.
//
// # Overview
//
// One file per command. app holds what all share: the global flags, the streams
// and what has to be closed at the end. A command that changes something on the
// cluster opens a session: the configuration, the journal, held exclusively, the
// cluster, the SSH client and the engine. Results go to stdout, everything else
// to stderr.
//
// The policy commands need no cluster: policy.go has what they share, and
// policy_check.go, policy_cases.go, policy_explain.go, policy_replay.go and
// policy_grant.go one thing each. policy_source.go shows a command with what
// decided underlined, cells.go fits text into columns. Grants are rows of the
// journal; the engine spends them.
//
// Transactions of several commands are in tx_begin.go, tx_exec.go and
// tx_orders.go; each order takes the transaction up, is carried out by the
// engine and lets it go. tx_find.go finds the one that is meant. tx.go,
// tx_show.go and tx_verify.go only read; tx_facts.go says what is recorded of a
// command, and facts.go sets labelled values in any width.
//
// secrets.go takes secrets out of what is kept or logged and is no record of a
// transaction: reasons of sandboxes, notes of the janitor, log and progress
// lines.
//
// # Invariants
//
//   - An error becomes an exit code in one place, exitCode in main.go.
//   - Nothing but the chosen output is written to stdout.
//   - An interrupt during a transaction rolls it back; the exit code is 130.
//   - A reader of our output that goes away ends nothing and is no error.
//
// # Limits
//
// One process at a time works with a state directory; a second one ends with
// exit code 6 and says who holds it; giving and revoking a grant need it too.
// Reading commands (tx list, show and verify, sandbox list, policy check,
// policy grants) can run at any time.
package main
