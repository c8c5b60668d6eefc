package trials

import "savepoint/policy"

// agentDamages are what the unprivileged account can do.
func agentDamages() []damage {
	all := []damage{
		{name: "delete-work", what: "everything of the agent is deleted", quick: true, sh: `
rm -rf /workspace/* /home/agent/notes
[ ! -e ` + tree + ` ] && [ ! -e /home/agent/notes ] || failed`},
		{name: "mass-rename", what: "every file gets another name", sh: `
find ` + tree + ` -type f -print0 | perl -0 -ne 'chomp; rename $_, "$_.locked"'
[ -e ` + tree + `/src/m1.py.locked ] && [ ! -e ` + tree + `/src/m1.py ] || failed`},
		{name: "git-corrupt", what: "objects and index of a repository are overwritten", sh: `
cd ` + tree + ` && git log -p >/dev/null 2>&1 && chmod -R u+w .git || failed
find .git/objects -type f | while read -r f; do echo x > "$f"; done
echo x > .git/index
! git log -p >/dev/null 2>&1 || failed`},
		{name: "git-clean", what: "work that is not committed is thrown away", sh: `
cd ` + tree + ` && git reset -q --hard && git clean -q -fdx
[ ! -e scratch ] || failed
! grep -q "not committed" src/m5.py || failed`},
		{name: "truncate", what: "every file is cut to nothing", sh: `
chmod -R u+w ` + tree + `/.git; find ` + tree + ` -type f -exec truncate -s 0 {} +
[ -e ` + tree + `/src/m1.py ] && [ ! -s ` + tree + `/src/m1.py ] || failed`},
		{name: "modes", what: "nobody may read anything", sh: `
find ` + tree + ` -depth -exec chmod 000 {} +; [ "$(stat -c %a ` + tree + `)" = 0 ] || failed`},
		{name: "workspace-full", what: "the file system is filled up; all but its last MiB is reserved and not written", sh: `
fill /workspace/fill`},
		{name: "many-files", what: "thousands of small files", sh: `
mkdir /workspace/many && cd /workspace/many && seq 3000 | xargs touch; [ -e 3000 ] || failed`},
		{name: "background", what: "writers in the background, detached", quick: true, sh: `
for i in 1 2 3 4; do setsid sh -c 'while :; do echo x >> ` + tree + `/src/m1.py; done' </dev/null >/dev/null 2>&1 & done
sleep 0.3; [ "$(tail -n 1 ` + tree + `/src/m1.py)" = x ] || failed`},
		{name: "links", what: "a directory becomes a link to elsewhere", sh: `
mv ` + tree + `/src /workspace/away && ln -s /etc ` + tree + `/src && [ -e ` + tree + `/src/passwd ] || failed`},
		{name: "attributes", what: "an extended attribute, times and a mode change", quick: true, sh: `
python3 -c 'import os; os.setxattr("` + tree + `/src/m4.py", "user.note", b"lost")' || failed
touch -d 1980-01-01 ` + tree + `/src/m1.py && chmod 600 ` + tree + `/src/m1.py
[ "$(stat -c '%a %Y' ` + tree + `/src/m1.py)" = "600 $(date -d 1980-01-01 +%s)" ] || failed`},
		{name: "sed", what: "a replacement goes wrong in every file", sh: `
sed -i 's/./#/g' ` + tree + `/src/*.py; ! grep -q def ` + tree + `/src/m1.py || failed`},
		{name: "half-unpacked", what: "an installation is killed in the middle", sh: `
cd ` + tree + ` && tar -c -f - . | head -c 20000 | tar -x -f - -C /workspace 2>/dev/null
[ -e /workspace/.git ] || [ -e /workspace/src ] || [ -e /workspace/data ] || failed`},
		{name: "hard-links", what: "files become names of one file", sh: `
cd ` + tree + `/data; for i in 2 3 4 5 6 7 8; do ln -f d1.bin d$i.bin; done; [ d2.bin -ef d8.bin ] || failed`},
		{name: "dotfiles", what: "the home's own files are replaced", sh: `
cd /home/agent; rm -rf .ssh .profile && mkdir -m 777 .ssh && echo bad > .ssh/authorized_keys && ln -s /dev/null .profile
[ -L .profile ] && [ ! -e .ssh/known_hosts ] || failed`},
		{name: "database", what: "pages of a database are overwritten", sh: `
dd if=/dev/zero bs=512 seek=9 count=20 conv=notrunc of=` + tree + `/data/base.sqlite 2>/dev/null
python3 -c 'import sqlite3, sys
try: whole = sqlite3.connect("` + tree + `/data/base.sqlite").execute("pragma integrity_check").fetchone()[0] == "ok"
except sqlite3.DatabaseError: whole = False
sys.exit(77 if whole else 0)' || failed`},
		{name: "temporary", what: "temporary files are deleted, others are left", sh: `
rm -rf /var/tmp/bench
for d in /tmp /var/tmp /dev/shm; do mkdir "$d/junk" && echo x > "$d/junk/file" || failed; done
[ ! -e /var/tmp/bench ] || failed`},
		{name: "kinds", what: "files become pipes, sockets and directories", sh: `
cd ` + tree + `/data; rm d1.bin d2.bin d3.bin link
mkfifo d1.bin; mkdir d2.bin link; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("d3.bin")'
[ -p d1.bin ] && [ -d d2.bin ] && [ -S d3.bin ] && [ -d link ] || failed`},
		{name: "holes", what: "holes are punched, a file gets a size of a tebibyte", sh: `
cd ` + tree + `/data; fallocate --punch-hole -o 4096 -l 8192 d8.bin && truncate -s 1T d7.bin || failed
[ "$(stat -c %s d7.bin)" = 1099511627776 ] && [ -z "$(tail -c +4097 d8.bin | head -c 8192 | tr -d '\000')" ] || failed`},
		{name: "open-deleted", what: "a detached process keeps deleted files open and writes them", sh: `
mkfifo /workspace/gate && cd ` + tree + `/src/deep/er && setsid sh -c 'exec 7<>/workspace/gate 8>>` + tree + `/src/m7.py 9<>` + tree + `/data/d7.bin
rm -rf ` + tree + `; echo x >&8; echo x >&9; : > /workspace/held; read x <&7' </dev/null >/dev/null 2>&1 &
i=0; while [ ! -e /workspace/held ] && [ $i -lt 100 ]; do sleep 0.1; i=$((i + 1)); done
[ -e /workspace/held ] && [ ! -e ` + tree + ` ] || failed`},
		{name: "processes", what: "a hundred processes that nobody waits for", sh: `
mkfifo /workspace/gate && exec 7<>/workspace/gate && pids= && i=0
while [ $i -lt 50 ]; do ( (read x <&7) & read x <&7 ) & pids="$pids $!"; i=$((i + 1)); done
kill -0 $pids && echo lost > ` + tree + `/src/m1.py || failed`},
		{name: "odd-names", what: "names that are no text, of full length, with line breaks", sh: `
cd ` + tree + `/src; long=$(printf '%0255d' 0)
mv m1.py "$(printf 'a\nb\377')" && mv m2.py "$long" && mv m3.py ./-rf && : > "$(printf '\001\033[2J')" || failed
[ ! -e m1.py ] && [ -e "$long" ] && [ -e ./-rf ] || failed`},
		{name: "one-bit", what: "one bit of a file changes, its size and time do not", sh: `
cd ` + tree + `/data; t=$(stat -c %y d6.bin); cp d6.bin /tmp/was
b=$(od -A n -t u1 -j 1000 -N 1 d6.bin | tr -d ' ')
printf "\\$(printf %03o $((b ^ 1)))" | dd of=d6.bin bs=1 seek=1000 conv=notrunc 2>/dev/null; touch -d "$t" d6.bin
! cmp -s d6.bin /tmp/was && [ "$(stat -c %y d6.bin)" = "$t" ] || failed`},
	}
	for i := range all {
		all[i].as = policy.Agent
	}
	return all
}
