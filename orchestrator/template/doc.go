// Package template prepares a VM that was made from a stock cloud image to
// become the template of sandboxes.
//
// # Overview
//
// Preparer.Run is the middle of a build: somebody has made the VM and
// started it, and will shut it down and convert it. Run reaches the VM over
// SSH, has it provisioned, proves that it was that VM, checks that
// everything is there that sandboxes need, and removes its identity.
//
// # How the VM is known
//
// A stock image has no guest agent, so the first key that its SSH server shows
// cannot be compared with anything: with an API token alone there is no other
// channel into it. (Own user-data would be one, but takes a storage for snippets
// and root on a node; the serial console takes a right that is good for far
// more.) The first key is therefore believed for the time being, on a network on
// which only the build is, and what is sent there is what anybody may read: our
// public key and the text of the steps. Provisioning starts the guest agent, and
// then the key is read again through the hypervisor, where no other machine can
// answer. If it is another one, or the agent does not answer, the build fails.
// Whoever took the VM's place on the network can have gained a public text;
// he cannot have stood between, because SSH binds our signature to the key that
// he showed.
//
// # Invariants
//
//   - Nothing is taken for done before the host key was confirmed.
//   - Every step can be repeated; whatever fails, the caller throws the VM
//     away.
//   - Only savepoint's own text runs in the VM.
//
// # Limits
//
// The image has to have systemd, cloud-init, perl and an SSH server that lets
// root in by key; what else is missing is installed with apt, from the image's
// own package sources and over the build network, so a sealed one is enough only
// for an image that has all. The VM is not started once more before it is
// converted: that clones come up is seen with the first sandbox.
package template
