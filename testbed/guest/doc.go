// Package guest builds the disk image that the lab's virtual machines run.
//
// # Overview
//
// Build makes one bootable disk from Debian packages: mmdebstrap installs them
// into a tar archive, that archive is filtered and completed with a few small
// files of our own, and the result becomes an ext4 root beside a FAT partition
// with syslinux, a kernel and a small initramfs. The disk boots under SeaBIOS
// like any other, so it is started from virtio-scsi with no help from the host
// and would start on a real Proxmox node too.
//
// Inside, busybox init runs a boot script, sshd, the guest agent and a listener
// for the power button. The boot script reads the NoCloud drive (ISO 9660,
// label cidata) and makes each clone itself: host name, machine id, host key,
// login keys, addresses. Before that it mounts the workspace volume of a machine
// that has a second disk with one, with the program that sshexec keeps for every
// kind of guest.
//
// # Invariants
//
//   - An image is named by the hash of its recipe: every embedded file, the
//     program for the workspace volume, the package list, the Debian release and
//     the options. What is in the cache under that hash was finished; a build
//     works in a directory of its own and renames at the end, under a lock.
//   - No secret is in the image: no host key, no machine id, no password, no
//     login key, no package source.
//   - Two users: root (keys only) and agent (uid 1000, no privileges).
//   - A machine that sees a new instance id gets new host keys and a new
//     machine id; the id is noted last, so an interrupted first boot is redone.
//
// # Limits
//
//   - amd64 and Debian only. The packages come from the Debian sources that the
//     host's apt knows, or from Options.Sources.
//   - Equal recipes give equivalent images, not equal bytes: package versions
//     are those of the day (see the manifest beside the image).
//   - The init is not systemd: units, timers and logind are absent. Nothing
//     outside this package may rely on that; real clusters run stock images.
//   - The file system does not grow with the disk by itself.
//   - Without root it needs unprivileged user namespaces, newuidmap and a
//     range in /etc/subuid; Missing says what is absent.
package guest
