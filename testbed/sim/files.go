package sim

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"syscall"
)

// maxFile is the longest file: a loop that writes must not fill the host's
// memory.
const maxFile = 64 << 20

// device names the files that are not on the disk.
func device(name string) (string, bool) {
	switch name = path.Clean(name); name {
	case "/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/full":
		return name, true
	}
	return "", false
}

// open opens a file or device for the process.
func (p *proc) open(name string, flag int, perm fs.FileMode) (io.ReadWriteCloser, error) {
	if d, ok := device(name); ok {
		return &special{p, d}, nil
	}
	f := &file{p: p, name: name, appended: flag&os.O_APPEND != 0}
	err := p.grp.effect(func() error {
		t := p.g.tree
		n, err := t.stat(p.who, name, true)
		exists := err == nil
		switch {
		case exists && flag&(os.O_WRONLY|os.O_RDWR) != 0 && n.mode.IsDir():
			return fault("open", name, syscall.EISDIR)
		case exists && flag&os.O_EXCL != 0 && flag&os.O_CREATE != 0:
			return fault("open", name, syscall.EEXIST)
		case !exists && flag&os.O_CREATE == 0:
			return err
		}
		if flag&(os.O_WRONLY|os.O_RDWR) == 0 {
			f.text, err = t.read(p.who, name)
			return err
		}
		f.writes = true
		// One step: between a look and the act another process may be first.
		return t.put(p.who, name, true, func(old node, ok bool) (node, error) {
			switch {
			case !ok:
				old = node{mode: perm &^ 0o022, uid: p.who.uid, mtime: p.g.now()}
			case !p.who.may(old, mayWrite):
				return old, syscall.EACCES
			case flag&os.O_TRUNC != 0:
				old.data, old.mtime = "", p.g.now()
			}
			f.text = old.data
			return old, nil
		})
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// file is an open file. A reader sees the content of the moment it opened it.
type file struct {
	p        *proc
	name     string
	text     string
	off      int
	writes   bool
	appended bool
}

func (f *file) Read(b []byte) (int, error) {
	if f.off >= len(f.text) {
		return 0, io.EOF
	}
	n := copy(b, f.text[f.off:])
	f.off += n
	return n, nil
}

func (f *file) Write(b []byte) (int, error) {
	if !f.writes {
		return 0, syscall.EBADF
	}
	err := f.p.grp.effect(func() error {
		t := f.p.g.tree
		return t.put(rootUser, f.name, true, func(old node, ok bool) (node, error) {
			if !ok { // unlinked while open: the bytes go nowhere
				return node{}, syscall.ENOENT
			}
			at := f.off
			if f.appended {
				at = len(old.data)
			}
			if at+len(b) > maxFile {
				return old, syscall.ENOSPC
			}
			for len(old.data) < at {
				old.data += "\x00"
			}
			tail := ""
			if at+len(b) < len(old.data) {
				tail = old.data[at+len(b):]
			}
			old.data, old.mtime = old.data[:at]+string(b)+tail, f.p.g.now()
			f.off = at + len(b)
			return old, nil
		})
	})
	if err != nil && errors.Is(err, syscall.ENOENT) {
		return len(b), nil
	}
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

func (f *file) Close() error { return nil }

type special struct {
	p    *proc
	name string
}

func (s *special) Read(b []byte) (int, error) {
	if s.p.grp.ctx.Err() != nil {
		return 0, errKilled
	}
	switch s.name {
	case "/dev/null":
		return 0, io.EOF
	case "/dev/zero", "/dev/full":
		clear(b)
	default:
		for i := range b {
			b[i] = byte(rand.Uint32())
		}
	}
	return len(b), nil
}

func (s *special) Write(b []byte) (int, error) {
	if s.name == "/dev/full" {
		return 0, syscall.ENOSPC
	}
	return len(b), nil
}

func (s *special) Close() error { return nil }
