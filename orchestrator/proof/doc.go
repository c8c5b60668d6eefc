// Package proof measures that the networks of sandboxes are sealed: from inside
// the guests, and from the nodes' routing tables.
//
// # Overview
//
// Package network says what has to be measured and judges the result. This
// package builds its scene from the sandboxes and the places around them, has
// the guests measure, and keeps the report with the sandbox. [Proof.Prove] is
// for one sandbox, before it is handed out and after a rollback; [Proof.Verify]
// for all.
//
// A round is one exchange with every guest that takes part: each is told what to
// try, all begin together, and each tells what came back and what arrived. The
// first rounds try only what must be reachable, until it is or the time for that
// is over: a fresh guest's routes take a moment. The last one tries everything at
// once, so that nothing passes for sealed while the network is dead.
//
// A guest also listens. What a guest of another tenant sent and what arrives
// here is not sealed off, whether or not an answer finds the way back.
//
// # Invariants
//
//   - What was reached once is reachable, whatever a later round shows.
//   - What could not be tried, or whose target did not listen, is not measured,
//     and a report with such a line is not sealed.
//   - The silence of a guest counts only in a round in which it heard something
//     that has to answer: a peer, or its gateway.
//   - Spoofing is tried only while those listen who would be deceived, with an
//     address and a MAC address that nobody has: see package network.
//   - That a guest has no route shows nothing by itself: it is its own line, and
//     counts only where the network has no gateway and packets were sent anyway.
//   - A guest knows the ids of its own probes only, so what it says bears on lines
//     that it is an end of. Any other line it can spoil only by what really arrived,
//     and then it is named.
//   - A proof in several parts has signs of life in each.
//   - Networks for which nobody took part are noted, and stored with the proof.
//   - Prove returns nil only for a report that is sealed and stored.
//
// # Limits
//
// Guests tell the truth as far as their root does: a guest that was given to an
// agent as root may say anything of lines that it is an end of, and can keep its
// peers from being handed out. The new sandbox and the nodes have not been. Guests
// of one vnet that are not filtered at their ports can pass for each other and for
// their gateway.
//
// Peers of a sandbox that is proved are one guest of each network and node that
// answers; those that do not answer do not keep it from being handed out, and
// are noted. Sandboxes without a tenant are in no zone and take no part.
//
// A silent UDP port, and a firewall that answers in the target's place, cannot
// be told from what they pretend to be: the first passes for unreachable unless
// the target is a guest, the second for reachable.
package proof
