package trials

import (
	"strings"

	"savepoint/policy"
)

// damage is one way in which a command can ruin a guest. Its text looks whether it
// took and ends with exit code take when it did, and noTake when it did not.
type damage struct {
	name string
	what string      // for the report
	as   policy.User // the least account that can do it
	sh   string
	// cuts says that it takes the connection away, so that no exit code comes: it
	// prints cutting first, and when nothing was cut noTake would come.
	cuts bool
	// stops says that it ends services, which have to be there again.
	stops bool
	// times says that it can make files that are not the same look as if they were.
	times bool
	quick bool // part of a quick run
}

func (d damage) file() string    { return "damage/" + d.name + ".sh" }
func (d damage) command() string { return "sh " + stage + "/" + d.file() }

// text is the script. The guest's tree is made by seed.
func (d damage) text() string { return damageHead + strings.TrimSpace(d.sh) + "\ntook\n" }

const (
	// take is the exit code of a damage that took, noTake of one that did not. Neither
	// is one that a shell, or what starts it, ends with by itself.
	take, noTake = 76, 77
	// cutting is what one that takes the connection away prints before.
	cutting = "cutting"
	// damageVar is in the environment of a damage, by which what it leaves is found.
	damageVar = "SAVEPOINT_DAMAGE"
)

// fill takes all room in a directory. It reserves all but the last mebibyte, which
// writes nothing: storage of which the guest's disk has only what is written does not
// run full. What it writes at the end is 64 MiB at most.
const damageHead = `took() { exit 76; }
failed() { exit 77; }
fill() {
	mkdir -p "$1" && n=0 || failed
	for size in 1024 128 16 1; do
		while fallocate -l ${size}MiB "$1/$n" 2>/dev/null; do n=$((n + 1)); [ $n -lt 5000 ] || failed; done
		rm -f "$1/$n"
	done
	[ $n -gt 0 ] || failed
	dd if=/dev/zero of="$1/rest" bs=4096 count=16384 2>/dev/null && failed
}
`

// tree is what the agent's damages ruin, and seed makes it: a repository with
// history and work that is not committed, links, modes, an attribute, files of
// several sizes, a database; notes and dotfiles in the home; temporary files.
const tree = "/workspace/tree"

const seed = `set -e
umask 022
rm -rf /workspace/tree /home/agent/notes /var/tmp/bench
mkdir -p /workspace/tree/src/deep/er /workspace/tree/data /home/agent/notes /home/agent/.ssh /var/tmp/bench
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
echo "# not committed" >> src/m5.py
echo "not even added" > scratch
python3 -c 'import sqlite3
db = sqlite3.connect("data/base.sqlite")
db.execute("create table t (a integer primary key, b text)")
db.executemany("insert into t (b) values (?)", [("row %d" % i * 9,) for i in range(500)])
db.commit()'
echo "bench ssh-ed25519 AAAA" > /home/agent/.ssh/known_hosts
chmod 700 /home/agent/.ssh; chmod 600 /home/agent/.ssh/known_hosts
[ -e /home/agent/.profile ] || echo "umask 022" > /home/agent/.profile
echo old > /var/tmp/bench/old
chown -R agent:agent /workspace/tree /home/agent /var/tmp/bench
sync
`

// damages are what is undone. The agent's can be covered by the workspace
// boundary, root's by the others only.
func damages() []damage { return append(agentDamages(), rootDamages()...) }
