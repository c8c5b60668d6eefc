package chaos

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// roots is what the guest's files are read from.
var roots = []string{
	"/etc", "/home", "/root", "/workspace", "/usr/local", "/opt", "/srv", "/boot", "/var/spool", "/var/tmp",
}

// unseen leaves out where the workspace volume is mounted: what it holds is seen
// where the agent finds it, and the rest is savepoint's own.
const unseen = "-path /srv/savepoint -prune -o"

// file is all of a file that a transaction may not leave half-changed.
type file struct {
	kind  string // find's letter: f, d, l, …
	mode  string // octal
	owner string // uid:gid
	link  string
	sum   string // SHA-256 of the content
	xattr string // name=value, hexadecimal
}

// tree is the guest's files by path.
type tree map[string]file

// leftover is what commands start to outlive them, and what is looked for.
const leftover = "86413"

// scan prints the files, and the processes of commands that are still there.
// It is sent on standard input, so that no command line has its words.
var scan = `set -e
sync
find ` + strings.Join(roots, " ") + ` ` + unseen + ` -printf 'M %p\t%y %m %U:%G %l\n'
find ` + strings.Join(roots, " ") + ` ` + unseen + ` -type f -exec sha256sum {} + | sed 's/^/S /'
python3 - ` + strings.Join(roots, " ") + ` <<'EOF'
import os, sys
for root in sys.argv[1:]:
    for d, dirs, files in os.walk(root):
        if d == "/srv":
            dirs[:] = [s for s in dirs if s != "savepoint"]
        for p in [d] + [os.path.join(d, f) for f in files]:
            for n in os.listxattr(p, follow_symlinks=False):
                print("X %s\t%s=%s" % (p, n, os.getxattr(p, n, follow_symlinks=False).hex()))
EOF
pgrep -a -f 'chaos|` + leftover + `' | sed 's/^/P /' || true
echo end
`

// parseScan reads what scan printed.
func parseScan(text string) (t tree, processes []string, err error) {
	body, ok := strings.CutSuffix(text, "end\n")
	if !ok {
		return nil, nil, fmt.Errorf("the list of files has no end: …%q", text[max(0, len(text)-200):])
	}
	t = tree{}
	for line := range strings.Lines(body) {
		kind, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch kind {
		case "M":
			path, facts, _ := strings.Cut(rest, "\t")
			f := strings.SplitN(facts, " ", 4)
			if len(f) != 4 {
				return nil, nil, fmt.Errorf("the list of files has the line %q", line)
			}
			t[path] = file{kind: f[0], mode: f[1], owner: f[2], link: f[3]}
		case "S":
			sum, path, _ := strings.Cut(rest, "  ")
			f, ok := t[path]
			if !ok || len(sum) != 64 {
				return nil, nil, fmt.Errorf("the list of sums has the line %q", line)
			}
			f.sum = sum
			t[path] = f
		case "X":
			path, attr, _ := strings.Cut(rest, "\t")
			f := t[path]
			f.xattr += attr + ";"
			t[path] = f
		case "P":
			processes = append(processes, rest)
		default:
			return nil, nil, fmt.Errorf("the list of files has the line %q", line)
		}
	}
	return t, processes, nil
}

// diff says in few words how two trees differ; "" when they do not.
func diff(want, got tree) string {
	paths := slices.Sorted(maps.Keys(want))
	for p := range got {
		if _, ok := want[p]; !ok {
			paths = append(paths, p)
		}
	}
	var out []string
	for _, p := range paths {
		w, inWant := want[p]
		g, inGot := got[p]
		switch {
		case !inGot:
			out = append(out, p+" is missing")
		case !inWant:
			out = append(out, p+" should not be there")
		case w != g:
			out = append(out, fmt.Sprintf("%s is %+v, want %+v", p, g, w))
		}
	}
	if len(out) > 8 {
		out = append(out[:8], fmt.Sprintf("and %d more", len(out)-8))
	}
	return strings.Join(out, "; ")
}

func sum(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}

// user is who changes files.
type user struct{ name, owner string }

// change is one thing that a command does, as shell text and as its effect.
type change struct {
	shell string
	apply func(t tree, u user)
}

func write(path, text string) change {
	return change{
		shell: fmt.Sprintf("printf '%%s\\n' '%s' > %s", text, path),
		apply: func(t tree, u user) { t.content(path, u, text+"\n") },
	}
}

// writeMany writes a file that is larger than a page.
func writeMany(path, line string, n int) change {
	return change{
		shell: fmt.Sprintf("yes '%s' | head -n %d > %s", line, n, path),
		apply: func(t tree, u user) { t.content(path, u, strings.Repeat(line+"\n", n)) },
	}
}

func (t tree) content(path string, u user, text string) {
	f, ok := t[path]
	if !ok {
		f = file{kind: "f", mode: "644", owner: u.owner}
	}
	f.sum = sum(text)
	t[path] = f
}

func mkdir(path string) change {
	return change{
		shell: "mkdir -p " + path,
		apply: func(t tree, u user) {
			for p := path; p != "" && t[p].kind == ""; p = p[:strings.LastIndexByte(p, '/')] {
				t[p] = file{kind: "d", mode: "755", owner: u.owner}
			}
		},
	}
}

func chmod(path, mode string) change {
	return change{
		shell: "chmod 0" + mode + " " + path,
		apply: func(t tree, _ user) { f := t[path]; f.mode = mode; t[path] = f },
	}
}

func chown(path, owner string) change {
	return change{
		shell: "chown " + owner + " " + path,
		apply: func(t tree, _ user) { f := t[path]; f.owner = owner; t[path] = f },
	}
}

func symlink(path, to string) change {
	return change{
		shell: "ln -sfn " + to + " " + path,
		apply: func(t tree, u user) { t[path] = file{kind: "l", mode: "777", owner: u.owner, link: to} },
	}
}

func remove(path string) change {
	return change{
		shell: "rm -f " + path,
		apply: func(t tree, _ user) { delete(t, path) },
	}
}

func rename(from, to string) change {
	return change{
		shell: "mv -f " + from + " " + to,
		apply: func(t tree, _ user) { t[to] = t[from]; delete(t, from) },
	}
}

func xattr(path, value string) change {
	return change{
		shell: fmt.Sprintf(`python3 -c 'import os; os.setxattr("%s", "user.chaos", b"%s")'`, path, value),
		apply: func(t tree, _ user) {
			f := t[path]
			f.xattr = "user.chaos=" + hex.EncodeToString([]byte(value)) + ";"
			t[path] = f
		},
	}
}

// linger keeps the command at work for a moment in the middle of its changes,
// and leaves a process behind that wants to stay.
func linger() change {
	return change{
		shell: "nohup setsid sleep " + leftover + " > /dev/null 2>&1 &\nsleep 0.2",
		apply: func(tree, user) {},
	}
}

// after is the tree with the changes made.
func (t tree) after(u user, changes []change) tree {
	out := maps.Clone(t)
	for _, c := range changes {
		c.apply(out, u)
	}
	return out
}

func shellOf(changes []change) string {
	lines := []string{"set -e"}
	for _, c := range changes {
		lines = append(lines, c.shell)
	}
	return strings.Join(lines, "\n")
}

func TestParseScan(t *testing.T) {
	text := "M /etc\td 755 0:0 \nM /etc/a\tf 644 0:0 \nM /etc/l\tl 777 0:0 a b\n" +
		"S " + strings.Repeat("0", 64) + "  /etc/a\nX /etc/a\tuser.x=61\nP 12 sleep 86413\nend\n"
	got, processes, err := parseScan(text)
	if err != nil {
		t.Fatal(err)
	}
	want := tree{
		"/etc":   {kind: "d", mode: "755", owner: "0:0"},
		"/etc/a": {kind: "f", mode: "644", owner: "0:0", sum: strings.Repeat("0", 64), xattr: "user.x=61;"},
		"/etc/l": {kind: "l", mode: "777", owner: "0:0", link: "a b"},
	}
	if d := diff(want, got); d != "" {
		t.Error(d)
	}
	if len(processes) != 1 || processes[0] != "12 sleep 86413" {
		t.Errorf("processes %q", processes)
	}
	for _, bad := range []string{"", strings.TrimSuffix(text, "end\n"), "M /etc\tend\n", "S 00  /etc/a\nend\n", "? x\nend\n"} {
		if _, _, err := parseScan(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	for name, change := range map[string]func(tree){
		"content": func(t tree) { t.content("/etc/a", user{}, "x") },
		"mode":    chmodOf("/etc/a"), "owner": chownOf("/etc/a"),
		"missing": func(t tree) { delete(t, "/etc/l") }, "more": func(t tree) { t["/etc/m"] = file{} },
	} {
		other := want.after(user{}, nil)
		change(other)
		if diff(want, other) == "" {
			t.Errorf("%s: no difference is seen", name)
		}
	}
}

func chmodOf(p string) func(tree) { return func(t tree) { chmod(p, "600").apply(t, user{}) } }
func chownOf(p string) func(tree) { return func(t tree) { chown(p, "1:1").apply(t, user{}) } }
