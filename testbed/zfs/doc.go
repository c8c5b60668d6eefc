// Package zfs gives the lab real ZFS: one pool on a file, served by zfs-fuse,
// with a dataset for each volume.
//
// # Overview
//
// Open starts the daemon and makes the pool, or takes over what an earlier
// process left of them; Close stops them and keeps the pool; Sweep ends and
// removes all of it, whatever state it is in. Everything is in one directory:
//
//	pool.img              the pool's only disk, sparse
//	pool.note             whether its making was begun or done
//	mnt/NAME/raw          one volume: a dataset with a raw file in it
//	mnt/GROUP/NAME/raw    one in a group: the volumes of one node
//	savepoint-zfs-GROUP   what a node's forced command runs (Forced)
//	zfs-fuse.pid          the daemon's id
//	zfs-fuse.log          what it has to say
//
// A volume is a raw file because zfs-fuse dies on zvols. The Pool's methods return
// the classes below, read from zfs's own texts.
//
// Disks makes the pool a storage of testbed/pve (type zfspool) and gives it to
// testbed/qemu: disks, clones of a template's __base__ snapshot, cloud-init drives
// and saved memory are volumes, and errors are told in the cluster's words.
//
// # Invariants
//
//   - The daemon is known by the directory in its arguments, never by its name
//     alone. It outlives the process that started it: guests use its files.
//   - There is one zfs-fuse on a machine, because its socket has a fixed place. One
//     that is not this directory's is named (ForeignError) and left alone.
//   - Mounts that a killed zfs-fuse left, in any directory, are taken away before ours
//     starts: zfs knows mounts by the dataset's name alone.
//   - A disk that is there is never overwritten, whatever zfs says of it, but for
//     one whose making was noted and cut short.
//   - The pool is in no cache file: no other daemon opens it by itself.
//   - zfs rollback and zfs destroy of a snapshot take exactly one and no option.
//   - A stop goes in the order that works: unmount, export, end the daemon.
//
// # Limits
//
// Root and /dev/fuse are needed (Require). After Rollback a program that has the
// volume open may keep what it read before, unless it reads past the page cache
// (O_DIRECT), as the lab's QEMU does: a rollback below a running guest, which has
// unmounted the volume, was right every time, as it is with a zvol. Others have to
// open the file again.
// What a guest trims is not given back to the pool: zfs-fuse punches no holes.
// A pool of zfs-fuse that is full to the last block cannot even roll back.
// zfs-fuse 0.7 was seen to hang when a large write filled a pool of 4 KiB blocks;
// this package makes pools of 512 bytes, where it ends with an error. With records
// of 16 KiB instead of 128 it was seen to die in the same place.
package zfs
