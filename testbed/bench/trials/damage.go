package trials

import (
	"strings"

	"savepoint/policy"
)

// damage is one way in which a command can ruin a guest. Its text ends with exit
// code 1 when it took, and 77 when it did not; where it takes the connection
// away no exit code comes at all.
type damage struct {
	name string
	what string      // for the report
	as   policy.User // the least account that can do it
	sh   string
}

func (d damage) file() string    { return "damage/" + d.name + ".sh" }
func (d damage) command() string { return "sh " + stage + "/" + d.file() }

// text is the script. The guest's tree is made by seed.
func (d damage) text() string {
	return "took() { exit 1; }\nfailed() { exit 77; }\n" + strings.TrimSpace(d.sh) + "\ntook\n"
}

// noTake is the exit code of a damage that did not take.
const noTake = 77

// tree is what the agent's damages ruin, and seed makes it: a repository with
// history, links, modes, an attribute, files of several sizes.
const tree = "/workspace/tree"

const seed = `set -e
umask 022
rm -rf /workspace/tree /home/agent/notes
mkdir -p /workspace/tree/src/deep/er /workspace/tree/data /home/agent/notes
cd /workspace/tree
for i in 1 2 3 4 5 6 7 8; do
	echo "def f$i(): return $i" > src/m$i.py
	head -c $((i * 3000)) /dev/urandom > data/d$i.bin
	echo "note $i" > /home/agent/notes/n$i
done
ln -s ../src/m1.py data/link
ln data/d1.bin data/hard
mkfifo data/pipe
chmod 640 src/m2.py; chmod 4755 src/m3.py; chmod 1777 src/deep
python3 -c 'import os; os.setxattr("src/m4.py", "user.note", b"kept")' || echo "no attributes here" >&2
git init -q . && git add -A . && git -c user.name=b -c user.email=b@localhost commit -q -m one
chown -R agent:agent /workspace/tree /home/agent/notes
sync
`

// damages are what is undone. The agent's can be covered by the workspace
// boundary, root's by the others only.
func damages() []damage {
	a, root := policy.Agent, policy.Root
	return []damage{
		{"delete-work", "everything of the agent is deleted", a, `rm -rf /workspace/* /home/agent/notes; [ ! -e ` + tree + ` ] || failed`},
		{"mass-rename", "every file gets another name", a, `find ` + tree + ` -depth -type f -exec mv {} {}.locked \; ; [ -e ` + tree + `/src/m1.py.locked ] || failed`},
		{"git-corrupt", "objects of a repository are overwritten", a, `cd ` + tree + `; chmod -R u+w .git; find .git/objects -type f | while read -r f; do echo x > "$f"; done; ! git log -p >/dev/null 2>&1 || failed`},
		{"truncate", "every file is cut to nothing", a, `find ` + tree + ` -type f -exec truncate -s 0 {} +; [ ! -s ` + tree + `/src/m1.py ] || failed`},
		{"modes", "nobody may read anything", a, `chmod -R 000 ` + tree + `; [ "$(stat -c %a ` + tree + `)" = 0 ] || failed`},
		{"workspace-full", "the file system is filled up", a, `dd if=/dev/zero of=/workspace/fill bs=1M count=100000 2>/dev/null && failed; [ -s /workspace/fill ] || failed`},
		{"many-files", "thousands of small files", a, `mkdir /workspace/many && cd /workspace/many && seq 3000 | xargs touch; [ -e 3000 ] || failed`},
		{"background", "writers in the background, detached", a, `for i in 1 2 3 4; do setsid sh -c 'while :; do echo x >> ` + tree + `/src/m1.py; done' </dev/null >/dev/null 2>&1 & done; python3 -c 'import time; time.sleep(0.3)'; [ "$(tail -n 1 ` + tree + `/src/m1.py)" = x ] || failed`},
		{"links", "directories become links to elsewhere", a, `mv ` + tree + `/src /workspace/away && ln -s /etc ` + tree + `/src || failed`},
		{"attributes", "an extended attribute and times change", a, `python3 -c 'import os; os.setxattr("` + tree + `/src/m4.py", "user.note", b"lost")' || failed; touch -d 1980-01-01 ` + tree + `/src/m1.py; chmod 600 ` + tree + `/src/m1.py`},
		{"sed", "a replacement goes wrong in every file", a, `sed -i 's/./#/g' ` + tree + `/src/*.py; grep -q def ` + tree + `/src/m1.py && failed`},
		{"half-unpacked", "an installation is killed in the middle", a, `cd ` + tree + ` && tar -c -f - . | head -c 20000 | tar -x -f - -C /workspace 2>/dev/null; [ -e /workspace/src ] || [ -e /workspace/data ] || failed`},

		{"etc", "/etc is deleted", root, `rm -rf /etc/*; [ ! -e /etc/passwd ] || failed`},
		{"binaries", "programs are cut in the middle", root, `for f in ls cat grep sed tar git; do truncate -s 4096 "$(readlink -f /usr/bin/$f)"; done; ! ls / >/dev/null 2>&1 || failed`},
		{"permissions", "programs lose their modes and owners", root, `chmod -R a-x /usr/sbin; chown -R agent /etc/ssh /usr/bin; [ "$(stat -c %U /usr/bin)" = agent ] || failed`},
		{"libc", "the C library is gone", root, `f=$(find /usr/lib /lib -name libc.so.6 | head -n 1); [ -n "$f" ] || failed; mv "$f" "$f.gone"; took`},
		{"ssh-keys", "host keys and root's keys are removed", root, `rm -rf /etc/ssh/ssh_host_* /root/.ssh; [ ! -e /root/.ssh ] || failed`},
		{"services", "services are masked and killed", root, `systemctl mask --now cron.service systemd-journald.service 2>/dev/null; rm -f /lib/systemd/system/ssh.service; pkill -KILL qemu-ga || kill -KILL $(pidof qemu-ga) || failed`},
		{"network", "the network is taken down", root, `ip=$(command -v ip); dev=$("$ip" -o route show | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1); [ -n "$dev" ] || failed; "$ip" link set "$dev" down; "$ip" address flush dev "$dev"`},
		{"clock", "the clock is set back by years", root, `date -s 2001-01-01 >/dev/null; [ "$(date +%Y)" = 2001 ] || failed`},
		{"disk-full", "the root file system is filled up", root, `dd if=/dev/zero of=/var/fill bs=1M count=100000 2>/dev/null && failed; [ -s /var/fill ] || failed`},
		{"half-installed", "a package is left half installed", root, `d=$(mktemp -d) && mkdir -p "$d/DEBIAN" "$d/opt/broken" && printf 'Package: broken\nVersion: 1\nArchitecture: all\nMaintainer: b <b@localhost>\nDescription: b\n' > "$d/DEBIAN/control" && printf '#!/bin/sh\nexit 1\n' > "$d/DEBIAN/postinst" && chmod 755 "$d/DEBIAN/postinst" && dpkg-deb --build "$d" "$d.deb" >/dev/null && dpkg -i "$d.deb" >/dev/null 2>&1; dpkg -s broken 2>/dev/null | grep -q half-configured || failed`},
		{"boot", "kernel and boot loader are deleted", root, `rm -rf /boot/* /vmlinuz /initrd.img; [ -z "$(ls -A /boot)" ] || failed`},
		{"detached-root", "writers in the background as root", root, `for i in 1 2; do setsid sh -c 'while :; do echo x >> /etc/motd; done' </dev/null >/dev/null 2>&1 & done; python3 -c 'import time; time.sleep(0.3)'; grep -qx x /etc/motd || failed`},
	}
}
