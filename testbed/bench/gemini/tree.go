package gemini

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Tree is what a directory holds: for each path below it its kind, mode and
// content, shortened to a line.
type Tree map[string]string

// ReadTree reads the directory. One that is gone is an empty tree.
func ReadTree(dir string) (Tree, error) {
	t := Tree{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			raw, err := os.ReadFile(path) //nolint:gosec // of a directory of our own, when what changed it has ended
			if err != nil {
				return err
			}
			line += " " + digest(string(raw))
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " " + to
		}
		t[filepath.ToSlash(name)] = line
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return Tree{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the tree of %s: %w", dir, err)
	}
	return t, nil
}

// Hash is equal for equal trees only.
func (t Tree) Hash() string {
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(t)) {
		fmt.Fprintf(&b, "%q %q\n", path, t[path])
	}
	return digest(b.String())
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// fileLine is the line of a file with that mode and content.
func fileLine(mode, content string) string { return mode + " " + digest(content) }

// freshMode is the mode of files that programs make in a directory, which depends on
// the umask that they inherit from us.
func freshMode(dir string) (fs.FileMode, error) {
	f, err := os.CreateTemp(dir, "mode-")
	if err != nil {
		return 0, err
	}
	path := f.Name()
	if err := errors.Join(f.Close(), os.Remove(path)); err != nil {
		return 0, err
	}
	if f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o666); err != nil { //nolint:gosec // as programs do; it is removed again
		return 0, err
	}
	info, err := f.Stat()
	return info.Mode(), errors.Join(err, f.Close(), os.Remove(path))
}

// Difference counts paths.
type Difference struct {
	Lost, Changed, Added int
}

// To says how another tree differs from this one.
func (t Tree) To(after Tree) Difference {
	var d Difference
	for path, line := range t {
		switch now, there := after[path]; {
		case !there:
			d.Lost++
		case now != line:
			d.Changed++
		}
	}
	for path := range after {
		if _, there := t[path]; !there {
			d.Added++
		}
	}
	return d
}

// writeFiles puts files, given with their content, below a directory.
func writeFiles(dir string, files map[string]string) error {
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}
