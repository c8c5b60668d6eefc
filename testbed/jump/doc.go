// Package jump is the lab's SSH servers: the bastion, which is the only way from
// the orchestrator to the guests' sshd, and the sshd of a node.
//
// # Overview
//
// Listen starts an SSH server on loopback. A client with an authorised key may
// have it forward a byte stream to (guest address, port). Config.Resolve says
// which loopback endpoint stands for that guest, as a user-mode guest has one;
// Config.Dial reaches one that has none, in a network of its own. What neither
// knows is refused.
//
// A user in Config.Commands has a forced command instead, as an account on a
// node of a cluster has: Command.Run runs, whatever is asked for, and nothing
// else is possible.
//
// # Invariants
//
// The server listens on 127.0.0.1 and dials loopback addresses only, whatever
// Resolve says; what Dial dials is its own affair. Agents, remote forwards, sockets,
// terminals, subsystems and everything else are refused, and sessions of users
// without a command. A key of one account opens no other. Close ends every
// connection, command and goroutine. The host key is made once and stays:
// clients pin it.
//
// # Limits
//
// There are no accounts but those with a command: every other user name is
// accepted with an authorised key, and each key may reach each guest.
package jump
