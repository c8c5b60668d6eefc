#!/bin/sh
# provision [BYTES] | provision-btrfs [BYTES] | check [BYTES] | clean
#
# Makes a stock cloud image with systemd and cloud-init into what sandboxes are
# cloned from. savepoint sends it over SSH, as root; nothing of it stays. BYTES is
# the size of the disk that becomes the workspace volume; without it there is none.
#
#   provision  waits for the end of the first boot, installs what is missing from
#              the image's own package sources, and sets the guest up
#   provision-btrfs  makes the volume a btrfs, whose snapshots the guest takes
#   check      says of each thing that sandboxes need whether it is there, one a
#              line: "ok NAME" or "missing NAME: WHY"
#   clean      removes everything that tells this machine from its copies. The
#              machine is to be shut down right after
#
# SAVEPOINT_ROOT moves all paths of clean and blank, for tests; "blank BYTES"
# prints which disks could become the workspace volume.
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
DEBIAN_FRONTEND=noninteractive
export PATH LC_ALL DEBIAN_FRONTEND
umask 022
R=${SAVEPOINT_ROOT:-}
label=sp-workspace
kind=ext4

fail() {
	echo "$*" >&2
	exit 1
}

has() { command -v "$1" > /dev/null 2>&1; }

# settled waits until the first boot is over: cloud-init may hold the lock of the
# packages. What it thinks of its own work is not decisive; the checks are.
settled() {
	has cloud-init || return 0
	echo "waiting for the end of the first boot"
	timeout 900 cloud-init status --wait > /dev/null 2>&1 || :
}

# want PROGRAM PACKAGE notes the package of a program that is missing.
want() {
	has "$1" && return 0
	case " $missing " in
	*" $2 "*) ;;
	*) missing="$missing $2" ;;
	esac
}

apt() {
	apt-get -q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=1 -o Acquire::http::Timeout=30 \
		-o Acquire::https::Timeout=30 -o Dpkg::Options::=--force-confold "$@" > "$log" 2>&1
}

packages() {
	missing=
	want qemu-ga qemu-guest-agent
	want perl perl-base
	want bash bash
	want useradd passwd
	want mkfs.ext4 e2fsprogs
	[ "$kind" != btrfs ] || want mkfs.btrfs btrfs-progs
	want fsfreeze util-linux
	want setpriv util-linux
	want find findutils
	want awk mawk
	want sha256sum coreutils
	[ -n "$missing" ] || return 0
	has apt-get || fail "the image has no$missing, and no apt-get to install it with: use an image that has them"
	echo "installing$missing"
	log=$(mktemp)
	apt update || : # a source that does not answer is not always needed
	apt install --no-install-recommends $missing ||
		fail "the image has no$missing, and its package sources did not give it: $(tail -n 3 "$log" | tr '\n' ' '); prepare the template on a network that reaches them (template.bridge, template.address, template.gateway), or use an image that has them"
	rm -f "$log"
}

# put FILE MODE replaces a file by what is on stdin.
put() {
	mkdir -p "${1%/*}"
	cat > "$1.savepoint" && chmod "$2" "$1.savepoint" && mv "$1.savepoint" "$1"
}

# unpack FILE MODE BASE64 writes a file that came with this text.
unpack() { printf %s "$3" | base64 -d | put "$1" "$2"; }

# steady makes the host's own clock the guest's wherever there is one: others
# drift by a minute over a saved state.
steady() {
	echo 'w- /sys/devices/system/clocksource/clocksource0/current_clocksource - - - - kvm-clock' |
		put /etc/tmpfiles.d/savepoint-clock.conf 644
	systemd-tmpfiles --create /etc/tmpfiles.d/savepoint-clock.conf > /dev/null 2>&1 || :
}

# quiet keeps cloud-init to the drive that the cluster gives it, and the guest
# from changing itself: what changes behind a transaction is in no snapshot of it.
quiet() {
	put /etc/cloud/cloud.cfg.d/90_savepoint.cfg 644 <<- 'END'
		# Written by savepoint template build.
		datasource_list: [ NoCloud, ConfigDrive ]
		ssh_genkeytypes: [ ed25519 ]
		ssh_deletekeys: true
		package_update: false
		package_upgrade: false
	END
	systemctl mask --now apt-daily.timer apt-daily-upgrade.timer unattended-upgrades.service man-db.timer \
		dpkg-db-backup.timer e2scrub_all.timer > /dev/null 2>&1 || : # those that are not there either
}

# blank prints the disks of that size that nothing is on.
blank() {
	for sys in "$R"/sys/block/*; do
		name=${sys##*/}
		case $name in
		loop* | ram* | zram* | sr* | fd* | dm-* | md*) continue ;;
		esac
		read -r sectors < "$sys/size"
		[ "$((sectors * 512))" = "$1" ] || continue
		# With the slash: it is a link, and what counts are the partitions below.
		[ -z "$(find "$sys/" -mindepth 1 -maxdepth 1 -name "$name*")" ] || continue
		[ -z "$(blkid -p -o value -s TYPE -s PTTYPE "$R/dev/$name" || :)" ] || continue
		echo "/dev/$name"
	done
}

workspace() {
	echo "making the workspace volume"
	# It is the machine's own: without these none of its clones would wait for it.
	mkdir -p /var/lib/savepoint
	: > /var/lib/savepoint/workspace
	workspace_files
	systemctl daemon-reload
	systemctl enable savepoint-workspace.service > /dev/null 2>&1
	findfs "LABEL=$label" > /dev/null 2>&1 && return 0
	disks=$(blank "$1")
	case $disks in
	'' | *[!a-z0-9/]*) fail "which disk the workspace volume is cannot be told: of $1 bytes and empty are: ${disks:-none}" ;;
	esac
	case $kind in
	# Data and metadata share their space: room that is kept back serves for both.
	btrfs) modprobe btrfs && mkfs.btrfs -q --mixed --metadata single -L "$label" "$disks" > /dev/null || fail "mkfs.btrfs $disks failed, or the image's kernel has no btrfs" ;;
	# At once and not bit by bit later, which every clone would do for itself.
	*) mkfs.ext4 -q -F -L "$label" -m 0 -E lazy_itable_init=0,lazy_journal_init=0 "$disks" || fail "mkfs.ext4 $disks failed" ;;
	esac
	udevadm settle --timeout=30 > /dev/null 2>&1 || :
}

provision() {
	[ -d /run/systemd/system ] || fail "the image's init is not systemd: use a stock cloud image"
	settled
	packages
	echo "setting up the guest"
	steady
	quiet
	[ -z "${1:-}" ] || workspace "$1"
	# Its port was found before there was a rule for it.
	udevadm trigger --subsystem-match=virtio-ports > /dev/null 2>&1 && udevadm settle --timeout=30 || :
	systemctl start qemu-guest-agent || fail "the guest agent does not start: $(systemctl status qemu-guest-agent 2>&1 | tail -n 3 | tr '\n' ' ')"
	sync
}

# mark NAME WHY COMMAND... says whether the command succeeds.
mark() {
	name=$1 why=$2
	shift 2
	if "$@" > /dev/null 2>&1; then echo "ok $name"; else echo "missing $name: $why"; fi
}

clock() {
	read -r source < /sys/devices/system/clocksource/clocksource0/current_clocksource || return 1
	case $source in '' | *jiffies*) return 1 ;; esac
}

machine() { case $(uname -m) in x86_64 | aarch64 | riscv64 | loongarch64) ;; *) return 1 ;; esac; }

agents_account() { grep -q '^agent:' /etc/passwd; }

check() {
	mark systemd "the init is another" test -d /run/systemd/system
	mark cloud-init "clones would get no address and no keys" has cloud-init
	mark architecture "$(uname -m) is not one that commands are run on" machine
	mark bash "commands are run with it" test -x /bin/bash
	mark perl "the helper is written in it (package perl-base)" perl -e 1
	mark sha256sum "protected paths are digested with it (package coreutils)" has sha256sum
	mark useradd "accounts are made with it (package passwd)" has useradd
	mark account "user agent does not exist" agents_account
	mark cgroup "control groups of version 2 are not mounted" test -e /sys/fs/cgroup/cgroup.controllers
	mark guest-agent "qemu-ga does not run (package qemu-guest-agent)" pidof qemu-ga
	mark host-key "sshd has no ed25519 key" test -s /etc/ssh/ssh_host_ed25519_key.pub
	mark clock "the kernel counts ticks for want of a clock source" clock
	mark freeze "package util-linux" has fsfreeze
	[ -z "${1:-}" ] && return 0
	mark workspace-volume "no disk has the label $label" findfs "LABEL=$label"
	mark workspace-mount "its unit is not enabled" systemctl is-enabled savepoint-workspace.service
}

# empty DIR... removes all that is in the directories.
empty() {
	for dir; do
		[ ! -d "$R$dir" ] || find "$R$dir" -mindepth 1 -delete
	done
}

clean() {
	if [ -z "$R" ]; then
		# What services would write once more when they are stopped.
		systemctl stop systemd-random-seed.service > /dev/null 2>&1 || :
		systemctl stop rsyslog.service > /dev/null 2>&1 || :
		journalctl --relinquish-var > /dev/null 2>&1 || :
		has apt-get && apt-get clean > /dev/null 2>&1
	fi
	rm -f "$R"/etc/ssh/ssh_host_* "$R"/root/.ssh/authorized_keys "$R"/home/*/.ssh/authorized_keys
	rm -f "$R"/root/.*_history "$R"/home/*/.*_history "$R"/root/.viminfo "$R"/root/.lesshst "$R"/root/.wget-hsts
	: > "$R/etc/machine-id"
	[ ! -f "$R/var/lib/dbus/machine-id" ] || [ -L "$R/var/lib/dbus/machine-id" ] || rm -f "$R/var/lib/dbus/machine-id"
	rm -f "$R"/var/lib/systemd/random-seed "$R"/var/lib/systemd/credential.secret "$R"/var/lib/urandom/random-seed
	rm -f "$R"/etc/iscsi/initiatorname.iscsi "$R"/etc/nvme/hostid "$R"/etc/nvme/hostnqn "$R"/var/lib/savepoint/generation
	# What identifies the machine to a DHCP server, and the leases it got.
	empty /var/lib/dhcp /var/lib/dhcpcd /var/lib/dhcpcd5 /var/lib/NetworkManager /var/lib/systemd/network
	rm -f "$R"/etc/udev/rules.d/70-persistent-net.rules
	# cloud-init takes a machine without these for a new one.
	rm -rf "$R/var/lib/cloud"
	rm -f "$R"/etc/netplan/50-cloud-init.yaml "$R"/etc/network/interfaces.d/50-cloud-init* "$R"/etc/systemd/network/*cloud-init*
	rm -f "$R"/etc/ssh/sshd_config.d/50-cloud-init.conf "$R"/etc/sudoers.d/90-cloud-init-users
	echo localhost > "$R/etc/hostname"
	empty /var/lib/apt/lists /var/log/journal /var/tmp /var/crash /var/backups
	[ -n "$R" ] || find /tmp -xdev -mindepth 1 -delete 2> /dev/null || :
	find "$R/var/log" -type f \( -name '*.[0-9]' -o -name '*.gz' -o -name '*.old' -o -name '*-????????' \) -delete
	find "$R/var/log" -type f -exec truncate --size 0 {} +
	left=$(find "$R/etc/ssh" "$R/root/.ssh" "$R"/home/*/.ssh \( -name 'ssh_host_*' -o -name authorized_keys \) 2> /dev/null || :)
	[ -z "$left" ] && [ ! -s "$R/etc/machine-id" ] && [ ! -e "$R/var/lib/cloud" ] || fail "the machine's identity is still there: $left"
	[ -n "$R" ] || { fstrim / > /dev/null 2>&1 || :; }
	sync
}

case ${1:-} in
provision) provision "${2:-}" ;;
provision-btrfs)
	kind=btrfs
	provision "${2:-}"
	;;
check) check "${2:-}" ;;
clean) clean ;;
blank) blank "$2" ;;
*) fail "usage: provision [BYTES] | provision-btrfs [BYTES] | check [BYTES] | clean" ;;
esac
