// Package wire is the language between savepoint and its helper in a guest.
//
// # Overview
//
// Both sides send frames over one SSH session; sshexec speaks for savepoint,
// helper.pl for a real guest, testbed/sim for a simulated one. A frame is
//
//	kind byte | length uint32, big endian | payload
//
// A payload of fields is a run of (length uint32 | bytes). The helper begins
// with Greeting and a Hello frame; whatever came before is noise of a start-up
// file.
//
// # Invariants
//
// One order at a time: a Run is over with Exit or Refusal, a List with Done or
// Refusal, another question with Answer or Refusal, and nothing of it is sent
// afterwards by the helper. Of the client only a Kill may come later.
//
// Fields are bytes: paths and variables need not be UTF-8.
//
// # Limits
//
// A payload to the client has at most MaxPayload bytes. Unacknowledged stdin
// is at most StdinAway bytes, so that Kill is never stuck behind it.
package wire
