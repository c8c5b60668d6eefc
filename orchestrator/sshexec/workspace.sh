#!/bin/sh
# savepoint-workspace mount [SECONDS] | unmount | status | holders
#
# The workspace volume of a sandbox: a file system with the label sp-workspace
# that holds everything the user agent may write. It is mounted at /srv/savepoint,
# out of agent's reach, and its parts lie over the directories that agent knows.
# An ext4 is there for them alone; of a btrfs they have the subvolume "live", and
# the helper makes snapshots of it: see workspace_btrfs.pl. Every command may be
# repeated.
#
#   mount    finds and mounts it; waits SECONDS for its disk. Without SECONDS it
#            waits only on a machine that had the disk before
#   unmount  unmounts it everywhere. Before that the helper thaws it, and ends
#            every process of agent: see workspace.pl
#   status   says whether it is mounted
#   holders  fails, and says what holds it
#
# Exit status: 0 done, 1 failed, 2 usage, 3 there is no such volume, 4 something
# that is not agent's holds it, and it stays mounted.
#
# Starting a program is what takes time here, in an emulated machine more than
# anywhere, and the shell reads a file byte by byte: hence the few programs, and
# the text that is taken apart in variables.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
umask 022
set -f
label=sp-workspace
at=/srv/savepoint
run=/run/savepoint
known=/var/lib/savepoint/workspace # this machine has such a disk
line='
'

fail() {
	code=$1
	shift
	echo "savepoint-workspace: $*" >&2
	exit "$code"
}

# account finds out who agent is.
account() {
	IFS=:
	set -- $(grep '^agent:' /etc/passwd)
	unset IFS
	uid=${3:-0} gid=${4:-} home=${6:-}
	[ "$uid" != 0 ] && [ -n "$home" ]
}

# look reads a list of mounts: dev becomes the MAJOR:MINOR of what is mounted at
# the volume's place, disk its device, type its file system's, and base where the
# parts are on it.
look() {
	IFS=$line
	dev= table=$(cat "$1" 2>/dev/null)
	for entry in $table; do
		unset IFS
		set -- $entry
		[ "$5" = "$at" ] || continue
		dev=$3
		set -- ${entry##* - }
		disk=$2
		kind $1
	done
	unset IFS
	points
	[ -n "$dev" ]
}

# points sets places to where that list has dev, newest first.
points() {
	places=
	IFS=$line
	for entry in $table; do
		unset IFS
		set -- $entry
		[ "$3" = "$dev" ] && places="$5 $places"
	done
	unset IFS
}

kind() {
	type=$1 base=$at
	[ "$type" != btrfs ] || base=$at/live
}

find_disk() {
	tries=$(($1 * 10))
	until disk=$(findfs "LABEL=$label" 2>/dev/null); do
		[ "$tries" -gt 0 ] || return 1
		tries=$((tries - 1))
		sleep 0.1
	done
}

# part NAME MODE OWNER PLACE makes a part on first use, whole or not at all, and
# notes it to be bound. What is at PLACE then is taken over if it is agent's.
part() {
	if [ ! -d "$base/$1" ]; then
		rm -rf "$base/$1.new"
		mkdir -m 700 "$base/$1.new" || fail 1 "make $base/$1"
		if [ "$3" != 0:0 ] && [ -d "$4" ]; then
			cp -a "$4/." "$base/$1.new" || fail 1 "copy $4"
		fi
		chown "$3" "$base/$1.new" && chmod "$2" "$base/$1.new" && mv "$base/$1.new" "$base/$1" || fail 1 "make $base/$1"
	fi
	case " $places" in
	*" $4 "*) return 0 ;;
	esac
	[ -d "$4" ] || mkdir -p "$4" || fail 1 "make $4"
	binds="$binds$base/$1 $4 none bind 0 0$line"
}

# seal takes from agent what it could write elsewhere, or use to become somebody
# who is not confined to the volume: a login of its own, also through the
# guest's own sshd, and queues that are kept in memory.
seal() {
	for dir in /run/lock /dev/mqueue; do
		[ -d "$dir" ] && chmod 755 "$dir"
	done
	[ -w /proc/sys/fs/mqueue/queues_max ] && echo 0 > /proc/sys/fs/mqueue/queues_max
	# Core dumps that a program of root would write for it, and keys in the kernel.
	[ -w /proc/sys/kernel/core_pattern ] && echo core > /proc/sys/kernel/core_pattern
	[ -w /proc/sys/kernel/keys/maxkeys ] && echo 0 > /proc/sys/kernel/keys/maxkeys
	grep -q '^agent:.*:1:$' /etc/shadow || usermod --expiredate 1 agent || fail 1 "close the account agent for logins"
}

# top lays out a new btrfs. Only root sees it.
top() {
	chmod 700 "$at"
	[ -d "$base" ] || btrfs subvolume create "$base" > /dev/null || fail 1 "make $base"
	mkdir -p "$at/snap" && mkdir "$at/note" && sync -f "$at" || fail 1 "lay out $at"
}

mount_all() {
	account || fail 1 "there is no account agent"
	if ! look /proc/self/mountinfo; then
		wait=${1:-}
		[ -z "$wait" ] && [ -e "$known" ] && wait=20
		find_disk "${wait:-0}" || fail 3 "there is no disk with the label $label"
		[ -d "$at" ] || mkdir -p "$at" || fail 1 "make $at"
		# Nothing may be left of what was read before a rollback.
		blockdev --flushbufs "$disk"
		kind "$(blkid -p -o value -s TYPE "$disk")"
		top=
		[ "$type" != btrfs ] || top=,subvolid=5
		mount -w -t "${type:-ext4}" -o "noatime,nosuid,nodev$top" "$disk" "$at" || fail 1 "mount $disk"
		look /proc/self/mountinfo || fail 1 "$disk is not mounted"
	fi
	[ -w "$at" ] || fail 1 "$at cannot be written"
	[ "$type" != btrfs ] || [ -d "$at/note" ] || top
	binds=
	part home 700 "$uid:$gid" "$home"
	part workspace 755 "$uid:$gid" /workspace
	part tmp 1777 0:0 /tmp
	part var-tmp 1777 0:0 /var/tmp
	part shm 1777 0:0 /dev/shm
	if [ ! -e "$run/mounted" ]; then # the first time since boot
		mkdir -p "$run" "${known%/*}"
		find "$base/shm" -mindepth 1 -delete # shared memory does not outlive it
		seal
		: > "$known"
	fi
	if [ -n "$binds" ]; then
		printf %s "$binds" > "$run/fstab"
		mount --all --fstab "$run/fstab" || fail 1 "mount the parts of $at"
	fi
	: > "$run/mounted"
}

# forget removes what outlives agent's processes: shared memory, semaphores, queues.
forget() {
	left=$(awk -v u="$uid" '/key/ { kind = $2; next }
		kind == "shmid" && ($8 == u || $10 == u) { print "-m", $2 }
		kind == "semid" && ($5 == u || $7 == u) { print "-s", $2 }
		kind == "msqid" && ($8 == u || $10 == u) { print "-q", $2 }' /proc/sysvipc/shm /proc/sysvipc/sem /proc/sysvipc/msg 2>/dev/null)
	[ -z "$left" ] || ipcrm $left
}

# elsewhere unmounts the volume in the mount namespaces of other processes.
elsewhere() {
	set +f
	infos=$(grep -ls " $dev " /proc/[0-9]*/mountinfo)
	set -f
	for info in $infos; do
		table=$(cat "$info" 2>/dev/null)
		points
		pid=${info#/proc/}
		[ -z "$places" ] || nsenter -t "${pid%/mountinfo}" -m umount $places 2>/dev/null
	done
}

# loosen unmounts, and reports whether the kernel has let go of the volume.
loosen() {
	table=$(cat /proc/self/mountinfo)
	points
	[ -z "$places" ] || umount $places 2>/dev/null || return 1
	used || return 0
	elsewhere
	! used
}

# used reports whether the kernel has it mounted, wherever that is.
used() {
	set +f
	set -- /sys/fs/ext4/"${disk##*/}" /sys/fs/btrfs/*/devices/"${disk##*/}"
	set -f
	[ -e "$1" ] || [ -e "$2" ]
}

# holders names the processes that have something of the volume open, mapped, or
# as a directory.
holders() {
	hex=$(printf '%02x:%02x' "${dev%:*}" "${dev#*:}")
	set +f
	{
		grep -ls " $hex " /proc/[0-9]*/maps
		find /proc/[0-9]*/cwd /proc/[0-9]*/root /proc/[0-9]*/fd -maxdepth 1 -type l -printf '%p %l\n' 2>/dev/null |
			while read -r link target; do
				for point in "$at" "$home" /workspace /tmp /var/tmp /dev/shm; do
					case $target/ in
					"$point"/*) echo "$link" ;;
					esac
				done
			done
	} | cut -d / -f 3 | sort -un | while read -r pid; do
		read -r comm < "/proc/$pid/comm" && printf '%s' " $pid ($comm)"
	done 2>/dev/null
	set -f
}

unmount_all() {
	account && forget
	look /proc/self/mountinfo || return 0
	tries=0
	until loosen; do # what was killed may still be letting go
		tries=$((tries + 1))
		[ "$tries" -ge 12 ] || { sleep 0.05; continue; }
		by=$(holders)
		(mount_all 5) || fail 1 "it is held by${by:- something that is not found}, and is not mounted again"
		fail 4 "it is held by${by:- something in another mount namespace, or by the kernel}"
	done
}

# alone waits for an earlier order whose answer was lost, and which may still work.
# What it starts holds the lock as well.
alone() {
	mkdir -p "$run"
	exec 9> "$run/lock"
	flock -w 50 9 || fail 1 "an earlier order is still at work"
}

case ${1:-} in
mount) alone && mount_all "${2:-}" ;;
unmount) alone && unmount_all ;;
status)
	look /proc/self/mountinfo || { echo unmounted; exit 3; }
	echo mounted
	;;
holders)
	account && look /proc/self/mountinfo
	fail 4 "it is held by$(holders)"
	;;
*) fail 2 "usage: savepoint-workspace mount [SECONDS] | unmount | status | holders" ;;
esac
