package trials

import "savepoint/policy"

// rootDamages are what it takes root for.
func rootDamages() []damage {
	all := []damage{
		{name: "etc", what: "/etc is deleted", quick: true, sh: `
rm -rf /etc/*; [ ! -e /etc/passwd ] || failed`},
		{name: "binaries", what: "programs are cut in the middle", sh: `
for f in ls cat grep sed tar git; do truncate -s 4096 "$(readlink -f /usr/bin/$f)"; done; ! ls / >/dev/null 2>&1 || failed`},
		{name: "permissions", what: "programs lose their modes and owners", sh: `
chmod -R a-x /usr/sbin; chown -R agent /etc/ssh /usr/bin
[ "$(stat -c %U /usr/bin /etc/ssh | sort -u)" = agent ] || failed`},
		{name: "libc", what: "the C library is gone", sh: `
f=$(find /usr/lib /lib -name libc.so.6 | head -n 1); [ -n "$f" ] || failed; mv "$f" "$f.gone"; ! ls / >/dev/null 2>&1 || failed`},
		{name: "ssh-keys", what: "host keys and root's keys are removed", sh: `
rm -rf /etc/ssh/ssh_host_* /root/.ssh; set -- /etc/ssh/ssh_host_*; [ ! -e "$1" ] && [ ! -e /root/.ssh ] || failed`},
		{name: "services", what: "services are masked and killed: guest agent, SSH, cron, journal", stops: true, sh: `
systemctl mask --now cron.service systemd-journald.service >/dev/null 2>&1
rm -f /lib/systemd/system/ssh.service
pids="$(pidof qemu-ga) $(cat /run/sshd.pid 2>/dev/null)"; kill -KILL $pids || failed
for p in $pids; do
	i=0; while [ -e /proc/$p ] && [ $i -lt 50 ]; do sleep 0.1; i=$((i + 1)); done
	[ ! -e /proc/$p ] || failed
done`},
		{name: "network", what: "the network is taken down", cuts: true, sh: `
ip=$(command -v ip); dev=$("$ip" -o route show | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1); [ -n "$dev" ] || failed
echo ` + cutting + `; sleep 0.5 # until that has gone over it
"$ip" link set "$dev" down; "$ip" address flush dev "$dev"
[ -z "$("$ip" -o address show dev "$dev" up)" ] || failed`},
		{name: "clock", what: "the clock is set back by years, and files are written then", times: true, sh: `
date -s 2001-01-01 >/dev/null; [ "$(date +%Y)" = 2001 ] || failed
f=$(readlink -f /usr/bin/less) && [ -s "$f" ] && printf x | dd of="$f" bs=1 seek=1000 conv=notrunc 2>/dev/null
[ "$(stat -c %y "$f" | head -c 4)" = 2001 ] || failed`},
		{name: "disk-full", what: "the root file system is filled up; all but its last MiB is reserved and not written", sh: `
fill /var/fill`},
		{name: "half-installed", what: "a package is left half installed", sh: `
d=$(mktemp -d) && mkdir -p "$d/DEBIAN" "$d/opt/broken" && echo x > "$d/opt/broken/file"
printf 'Package: broken\nVersion: 1\nArchitecture: all\nMaintainer: b <b@localhost>\nDescription: b\n' > "$d/DEBIAN/control"
printf '#!/bin/sh\nexit 1\n' > "$d/DEBIAN/postinst" && chmod 755 "$d/DEBIAN/postinst"
dpkg-deb -Znone --build "$d" "$d.deb" >/dev/null && dpkg -i "$d.deb" >/dev/null 2>&1
[ -e /opt/broken/file ] && dpkg -s broken 2>/dev/null | grep -q half-configured || failed`},
		{name: "boot", what: "kernel, modules, boot loader and init are deleted", sh: `
[ -L /sbin/init ] || [ -e /sbin/init ] || failed
rm -rf /boot/* /vmlinuz /initrd.img /lib/modules/* /sbin/init
[ -z "$(ls -A /boot /lib/modules | grep -v :)" ] && [ ! -L /sbin/init ] && [ ! -e /sbin/init ] || failed`},
		{name: "detached-root", what: "writers in the background as root", sh: `
for i in 1 2; do setsid sh -c 'while :; do echo x >> /etc/motd; done' </dev/null >/dev/null 2>&1 & done
sleep 0.3; grep -qx x /etc/motd || failed`},
		{name: "immutable", what: "files may not be changed by anybody", sh: `
chattr +i /etc/group && chattr +a /etc/passwd || failed; ! rm -f /etc/group 2>/dev/null && ! (: > /etc/passwd) 2>/dev/null || failed`},
	}
	for i := range all {
		all[i].as = policy.Root
	}
	return all
}
