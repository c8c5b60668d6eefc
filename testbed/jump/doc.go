// Package jump is the SSH jump host of a lab node: the only way from the
// orchestrator to the guests' sshd.
//
// # Overview
//
// Listen starts an SSH server on loopback that does one thing: it forwards a
// byte stream to (guest address, port) for a client with an authorised key.
// Config.Resolve says which loopback endpoint stands for that guest; what it
// does not know is refused. A user-mode guest has such an endpoint directly,
// one in a namespace has a carrier that listens there.
//
// # Invariants
//
// The server listens on 127.0.0.1 and dials loopback addresses only, whatever
// Resolve says. Sessions, agents, remote forwards and everything else are
// refused. Close ends every connection and goroutine. The host key is made
// once and stays: clients pin it.
//
// # Limits
//
// There are no accounts: every user name is accepted with an authorised key,
// and each key may reach each guest.
package jump
