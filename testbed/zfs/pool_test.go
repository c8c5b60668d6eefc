package zfs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeZpool is a machine with one pool on one disk. What is in $state: imported,
// refuse (why an import fails), broken (why the making fails). A disk with a pool
// on it begins with POOL.
const fakeZpool = `#!/bin/sh
state=${0%/*}/state
last() { for last; do :; done; }
case $1 in
list) [ -e "$state/imported" ] || { echo "cannot open 'lab': no such pool" >&2; exit 1; } ;;
import)
	last "$4/pool.img"
	[ ! -e "$state/refuse" ] || { cat "$state/refuse" >&2; exit 1; }
	[ "$(head -c 4 "$last")" = POOL ] || { echo "cannot import 'lab': no such pool available" >&2; exit 1; }
	: > "$state/imported"
	;;
create)
	last "$@"
	[ ! -e "$state/broken" ] || { cat "$state/broken" >&2; exit 1; }
	[ "$(head -c 4 "$last" | tr -d '\0')" = "" ] || { echo "it is not empty" >&2; exit 1; }
	printf 'POOL is new' | dd of="$last" conv=notrunc status=none
	: > "$state/imported"
	;;
*) echo "unexpected $*" >&2; exit 1 ;;
esac
`

// poolMachine is a fake zpool and the directory of a pool.
type poolMachine struct {
	*Pool
	t *testing.T
}

func newPoolMachine(t *testing.T) poolMachine {
	t.Helper()
	p := scripted(t, "exit 0\n")
	m := poolMachine{p, t}
	m.put("state/x", "")
	m.put("zpool", fakeZpool)
	return m
}

func (m poolMachine) bin() string { return strings.Split(m.c.path, ":")[0] }

func (m poolMachine) put(file, text string) {
	m.t.Helper()
	path := filepath.Join(m.bin(), file)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		m.t.Fatal(err)
	}
}

// forget takes something of the machine's state away.
func (m poolMachine) forget(file string) {
	m.t.Helper()
	if err := os.Remove(filepath.Join(m.bin(), "state", file)); err != nil {
		m.t.Fatal(err)
	}
}

// disk writes to the disk when text is given, and returns how it begins.
func (m poolMachine) disk(text string) string {
	m.t.Helper()
	f, err := os.OpenFile(m.c.image(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		m.t.Fatal(err)
	}
	begin := make([]byte, 11)
	if _, err := f.ReadAt(begin, 0); err != nil {
		m.t.Fatal(err)
	}
	return string(bytes.TrimRight(begin, "\x00"))
}

// TestPoolComesBack: a pool is made once, and taken over from a daemon that runs
// and one that does not.
func TestPoolComesBack(t *testing.T) {
	m := newPoolMachine(t)
	ok(t, m.open(t.Context()))
	if st, err := os.Stat(m.c.image()); err != nil || st.Size() != MinSize || m.disk("") != "POOL is new" {
		t.Errorf("a new pool: %v, %v, %q", st, err, m.disk(""))
	}
	m.disk("POOL in use")
	ok(t, m.open(t.Context()))
	m.forget("imported")
	ok(t, m.open(t.Context()))
	if got := m.disk(""); got != "POOL in use" {
		t.Errorf("it became %q", got)
	}
}

// TestPoolIsKept: whatever an import says, a disk that may hold something stays as
// it is, and the error says which and why.
func TestPoolIsKept(t *testing.T) {
	for name, prepare := range map[string]func(m poolMachine){
		"made": func(m poolMachine) { ok(t, m.open(t.Context())); m.forget("imported") },
		"made, and its daemon's first owner was killed": func(m poolMachine) {
			ok(t, m.open(t.Context()))
			ok(t, m.c.note(making))
			ok(t, m.open(t.Context()))
			m.forget("imported")
		},
		"made, killed, and imported": func(m poolMachine) {
			ok(t, m.open(t.Context()))
			ok(t, m.c.note(making))
			m.forget("imported")
			ok(t, m.open(t.Context()))
			m.forget("imported")
		},
		"without a note": func(poolMachine) {},
	} {
		for _, why := range []string{
			"cannot import 'lab': no such pool available", "no pools available to import", "cannot import 'lab': I/O error",
			"cannot import 'lab': one or more devices is currently unavailable", "cannot import 'lab': pool is formatted using a newer ZFS version",
		} {
			m := newPoolMachine(t)
			prepare(m)
			m.disk("POOL in use")
			m.put("state/refuse", why)
			err := m.open(t.Context())
			if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), m.c.image()) {
				t.Errorf("%s, %q: %v", name, why, err)
			}
			if got := m.disk(""); got != "POOL in use" {
				t.Errorf("%s, %q: the disk became %q", name, why, got)
			}
			m.forget("refuse")
			ok(t, m.open(t.Context()))
		}
	}
}

// TestPoolCutShort: a pool whose making did not come to its end is made anew. F98
func TestPoolCutShort(t *testing.T) {
	m := newPoolMachine(t)
	m.put("state/broken", "killed")
	for range 2 {
		if err := m.open(t.Context()); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("%v", err)
		}
	}
	m.disk("half a pool")
	m.forget("broken")
	ok(t, m.open(t.Context()))
	if got := m.disk(""); got != "POOL is new" {
		t.Errorf("the disk is %q", got)
	}
}
