package sim

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// node is one file, directory or symbolic link. A node that is in a tree is
// never changed, only replaced; so a copy of the map is a snapshot.
type node struct {
	mode  fs.FileMode // type and permission bits, sticky
	uid   int
	mtime time.Time
	data  string // content of a file, target of a link

	// What a manifest without digests needs: numbers that no program can set.
	inode  int64 // of when the name was made; 0 on the standard disk
	change int64 // of the last change
}

// tree is a file system: clean absolute paths to nodes.
type tree struct {
	mu      sync.RWMutex
	nodes   map[string]node
	changes int64 // counts them
}

// snapshot returns an independent copy.
func (t *tree) snapshot() *tree {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return &tree{nodes: maps.Clone(t.nodes), changes: t.changes}
}

// written is another text after every change.
func (t *tree) written() string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return strconv.FormatInt(t.changes, 10)
}

func (t *tree) used() (n int64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, f := range t.nodes {
		n += int64(len(f.data))
	}
	return n
}

// who is an account with its rights.
type who struct {
	name string
	uid  int
	home string
}

var (
	rootUser  = who{"root", 0, "/root"}
	agentUser = who{"agent", 1000, "/home/agent"}
)

const (
	mayRead  = 4
	mayWrite = 2
	mayEnter = 1
)

func (w who) may(n node, want fs.FileMode) bool {
	if w.uid == 0 {
		return true
	}
	bits := n.mode.Perm()
	if n.uid == w.uid {
		bits >>= 6
	}
	return bits&want == want
}

func fault(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// resolve follows links and checks that every directory on the way may be
// entered. The last part need not exist; it is followed only with follow.
// The caller holds the lock.
func (t *tree) resolve(w who, name string, follow bool) (string, error) {
	name = path.Clean("/" + name)
	for range 40 {
		at, rest := "/", strings.Split(strings.Trim(name, "/"), "/")
		again := false
		for i, part := range rest {
			if part == "" {
				return "/", nil
			}
			dir := t.nodes[at]
			if !dir.mode.IsDir() {
				return "", syscall.ENOTDIR
			}
			if !w.may(dir, mayEnter) {
				return "", syscall.EACCES
			}
			at = path.Join(at, part)
			n, ok := t.nodes[at]
			last := i == len(rest)-1
			if !ok && !last {
				return "", syscall.ENOENT
			}
			if ok && n.mode&fs.ModeSymlink != 0 && (!last || follow) {
				to := n.data
				if !path.IsAbs(to) {
					to = path.Join(path.Dir(at), to)
				}
				name, again = path.Join(append([]string{to}, rest[i+1:]...)...), true
				break
			}
		}
		if !again {
			return at, nil
		}
	}
	return "", syscall.ELOOP
}

func (t *tree) stat(w who, name string, follow bool) (node, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	p, err := t.resolve(w, name, follow)
	if err != nil {
		return node{}, fault("stat", name, err)
	}
	n, ok := t.nodes[p]
	if !ok {
		return node{}, fault("stat", name, syscall.ENOENT)
	}
	return n, nil
}

func (t *tree) read(w who, name string) (string, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	p, err := t.resolve(w, name, true)
	if err != nil {
		return "", fault("open", name, err)
	}
	n, ok := t.nodes[p]
	switch {
	case !ok:
		return "", fault("open", name, syscall.ENOENT)
	case n.mode.IsDir():
		return "", fault("read", name, syscall.EISDIR)
	case !w.may(n, mayRead):
		return "", fault("open", name, syscall.EACCES)
	}
	return n.data, nil
}

// list returns the names in a directory, sorted.
func (t *tree) list(w who, name string) ([]string, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	p, err := t.resolve(w, name, true)
	if err != nil {
		return nil, fault("open", name, err)
	}
	n, ok := t.nodes[p]
	switch {
	case !ok:
		return nil, fault("open", name, syscall.ENOENT)
	case !n.mode.IsDir():
		return nil, fault("readdir", name, syscall.ENOTDIR)
	case !w.may(n, mayRead):
		return nil, fault("open", name, syscall.EACCES)
	}
	return t.children(p), nil
}

func (t *tree) children(p string) []string {
	prefix := strings.TrimSuffix(p, "/") + "/"
	var names []string
	for q := range t.nodes {
		if rest, ok := strings.CutPrefix(q, prefix); ok && rest != "" && !strings.Contains(rest, "/") {
			names = append(names, rest)
		}
	}
	slices.Sort(names)
	return names
}

// put creates or replaces what edit returns for the present node. edit gets
// ok false for a name that does not exist yet.
func (t *tree) put(w who, name string, follow bool, edit func(old node, ok bool) (node, error)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, err := t.resolve(w, name, follow)
	if err != nil {
		return fault("open", name, err)
	}
	old, ok := t.nodes[p]
	if !ok {
		dir, exists := t.nodes[path.Dir(p)]
		if !exists {
			return fault("open", name, syscall.ENOENT)
		}
		if !dir.mode.IsDir() {
			return fault("open", name, syscall.ENOTDIR)
		}
		if !w.may(dir, mayWrite) {
			return fault("open", name, syscall.EACCES)
		}
	}
	n, err := edit(old, ok)
	if err != nil {
		return fault("open", name, err)
	}
	t.changes++
	n.change = t.changes
	if !ok {
		n.inode = t.changes
	}
	t.nodes[p] = n
	return nil
}

// write replaces or extends a file's content.
func (t *tree) write(w who, name, data string, appended bool, perm fs.FileMode, now time.Time) error {
	return t.put(w, name, true, func(old node, ok bool) (node, error) {
		if ok && old.mode.IsDir() {
			return node{}, syscall.EISDIR
		}
		if ok && !w.may(old, mayWrite) {
			return node{}, syscall.EACCES
		}
		if !ok {
			old = node{mode: perm, uid: w.uid}
		}
		if appended {
			data = old.data + data
		}
		old.data, old.mtime = data, now
		return old, nil
	})
}

func (t *tree) mkdir(w who, name string, perm fs.FileMode, now time.Time) error {
	return t.put(w, name, false, func(_ node, ok bool) (node, error) {
		if ok {
			return node{}, syscall.EEXIST
		}
		return node{mode: fs.ModeDir | perm, uid: w.uid, mtime: now}, nil
	})
}

func (t *tree) symlink(w who, target, name string, now time.Time) error {
	return t.put(w, name, false, func(_ node, ok bool) (node, error) {
		if ok {
			return node{}, syscall.EEXIST
		}
		return node{mode: fs.ModeSymlink | 0o777, uid: w.uid, mtime: now, data: target}, nil
	})
}

// removable says whether the account may take p out of its directory. The
// caller holds the lock.
func (t *tree) removable(w who, p string) error {
	dir := t.nodes[path.Dir(p)]
	if p == "/" {
		return syscall.EBUSY
	}
	if !w.may(dir, mayWrite|mayEnter) {
		return syscall.EACCES
	}
	if dir.mode&fs.ModeSticky != 0 && w.uid != 0 && w.uid != dir.uid && w.uid != t.nodes[p].uid {
		return syscall.EPERM
	}
	return nil
}

// remove removes one name; a directory only when it is empty.
func (t *tree) remove(w who, name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, err := t.resolve(w, name, false)
	if err != nil {
		return fault("remove", name, err)
	}
	if _, ok := t.nodes[p]; !ok {
		return fault("remove", name, syscall.ENOENT)
	}
	if err := t.removable(w, p); err != nil {
		return fault("remove", name, err)
	}
	if len(t.children(p)) > 0 {
		return fault("remove", name, syscall.ENOTEMPTY)
	}
	delete(t.nodes, p)
	t.changes++
	return nil
}

// rename moves a name with everything below it.
func (t *tree) rename(w who, from, to string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, err := t.resolve(w, from, false)
	if err != nil {
		return fault("rename", from, err)
	}
	q, err := t.resolve(w, to, false)
	if err != nil {
		return fault("rename", to, err)
	}
	n, ok := t.nodes[p]
	if !ok {
		return fault("rename", from, syscall.ENOENT)
	}
	if p == q {
		return nil
	}
	if strings.HasPrefix(q+"/", p+"/") {
		return fault("rename", to, syscall.EINVAL)
	}
	if err := t.removable(w, p); err != nil {
		return fault("rename", from, err)
	}
	old, exists := t.nodes[q]
	if exists {
		err = t.removable(w, q)
		if err == nil && old.mode.IsDir() && !n.mode.IsDir() {
			err = syscall.EISDIR
		} else if err == nil && len(t.children(q)) > 0 {
			err = syscall.ENOTEMPTY
		}
	} else if dir := t.nodes[path.Dir(q)]; !dir.mode.IsDir() {
		err = syscall.ENOENT
	} else if !w.may(dir, mayWrite) {
		err = syscall.EACCES
	}
	if err != nil {
		return fault("rename", to, err)
	}
	moved := map[string]node{}
	for name, n := range t.nodes {
		if name == p || strings.HasPrefix(name, p+"/") {
			moved[q+name[len(p):]] = n
			delete(t.nodes, name)
		}
	}
	maps.Copy(t.nodes, moved)
	t.changes++
	return nil
}

// change edits the attributes of an existing node. Only its owner may.
func (t *tree) change(w who, name string, edit func(*node)) error {
	return t.put(w, name, true, func(old node, ok bool) (node, error) {
		if !ok {
			return old, syscall.ENOENT
		}
		if w.uid != 0 && w.uid != old.uid {
			return old, syscall.EPERM
		}
		edit(&old)
		return old, nil
	})
}

// standardTree is a guest's root file system before its first boot.
func standardTree(now time.Time) *tree {
	t := &tree{nodes: map[string]node{}}
	for _, d := range []struct {
		name string
		mode fs.FileMode
		uid  int
	}{
		{"/", 0o755, 0}, {"/bin", 0o755, 0}, {"/boot", 0o755, 0}, {"/dev", 0o755, 0}, {"/etc", 0o755, 0}, {"/etc/ssh", 0o755, 0},
		{"/etc/apt", 0o755, 0}, {"/home", 0o755, 0}, {"/home/agent", 0o755, 1000}, {"/opt", 0o755, 0}, {"/proc", 0o555, 0}, {"/root", 0o700, 0},
		{"/run", 0o755, 0}, {"/srv", 0o755, 0}, {"/sys", 0o555, 0}, {"/tmp", 0o777 | fs.ModeSticky, 0}, {"/usr", 0o755, 0}, {"/usr/bin", 0o755, 0},
		{"/usr/lib", 0o755, 0}, {"/usr/local", 0o755, 0}, {"/usr/local/bin", 0o755, 0}, {"/var", 0o755, 0}, {"/var/lib", 0o755, 0},
		{"/var/lib/savepoint", 0o755, 0}, {"/var/log", 0o755, 0}, {"/var/tmp", 0o777 | fs.ModeSticky, 0}, {"/workspace", 0o755, 1000},
	} {
		t.nodes[d.name] = node{mode: fs.ModeDir | d.mode, uid: d.uid, mtime: now}
	}
	for name, text := range map[string]string{
		"/etc/passwd":           "root:x:0:0:root:/root:/bin/bash\nagent:x:1000:1000::/home/agent:/bin/bash\n",
		"/etc/group":            "root:x:0:\nagent:x:1000:\n",
		"/etc/hostname":         "localhost\n",
		"/etc/debian_version":   "12.0\n",
		"/etc/os-release":       "PRETTY_NAME=\"simulated guest\"\nID=debian\nVERSION_ID=\"12\"\n",
		"/etc/apt/sources.list": "",
		"/etc/fstab":            "/dev/sda1 / ext4 defaults 0 1\n",
		"/var/log/syslog":       "",
	} {
		t.nodes[name] = node{mode: 0o644, mtime: now, data: text}
	}
	t.nodes["/etc/shadow"] = node{mode: 0o600, mtime: now, data: "root:*:::::::\nagent:*:::::::\n"}
	for name := range programs() {
		t.nodes["/usr/bin/"+name] = node{mode: 0o755, mtime: now, data: "program " + name + "\n"}
	}
	for _, name := range []string{"bash", "sh"} {
		t.nodes["/bin/"+name] = node{mode: fs.ModeSymlink | 0o777, mtime: now, data: "/usr/bin/" + name}
	}
	return t
}

// errno returns the bare cause of a tree's error, for a program's message.
func errno(err error) string {
	var e syscall.Errno
	if !errors.As(err, &e) {
		return err.Error()
	}
	text := e.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}
