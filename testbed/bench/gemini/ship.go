package gemini

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// wrapper starts the CLI in a guest. The libraries are those that Node needs beside
// the C library, which the guest has.
const wrapper = `#!/bin/sh
LD_LIBRARY_PATH=` + insideDir + `/lib exec ` + insideDir + `/bin/node ` + insideDir + `/cli/`

// archive is the CLI with Node and its libraries, for a guest with a C library that
// is not older than this machine's; stamp tells one archive from another.
func (c *CLI) archive(ctx context.Context) (archive []byte, stamp string, err error) {
	c.shipping.Lock()
	defer c.shipping.Unlock()
	if c.shipped != nil {
		return c.shipped, c.stamp, nil
	}
	libs, err := libraries(ctx, c.Node)
	if err != nil {
		return nil, "", err
	}
	settings, err := insideSettings()
	if err != nil {
		return nil, "", err
	}
	home := filepath.Dir(filepath.Dir(c.Entry)) // the package: its entry is bundle/…
	entry, err := filepath.Rel(home, c.Entry)
	if err != nil {
		return nil, "", err
	}
	var buf bytes.Buffer
	z, err := gzip.NewWriterLevel(&buf, gzip.BestSpeed)
	if err != nil {
		return nil, "", err
	}
	w := &shipment{tar: tar.NewWriter(z)}
	w.content("gemini", 0o755, []byte(wrapper+filepath.ToSlash(entry)+" \"$@\"\n"))
	w.content("settings.json", 0o644, settings)
	w.file("bin/node", c.Node)
	for _, lib := range libs {
		w.file("lib/"+filepath.Base(lib), lib)
	}
	w.tree("cli", home)
	if w.err == nil {
		w.err = w.tar.Close()
	}
	if w.err == nil {
		w.err = z.Close()
	}
	if w.err != nil {
		return nil, "", fmt.Errorf("pack the Gemini CLI for a guest: %w", w.err)
	}
	sum := sha256.Sum256(buf.Bytes())
	c.shipped, c.stamp = buf.Bytes(), hex.EncodeToString(sum[:])
	return c.shipped, c.stamp, nil
}

// libraries are the shared libraries of a program, without the C library's own.
func libraries(ctx context.Context, program string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return nil, &MissingError{"ldd, to know what Node needs in a guest", err}
	}
	return sharedLibraries(string(out)), nil
}

// glibc are the libraries that belong to the C library: they fit to its loader only.
var glibc = []string{"linux-vdso", "ld-linux", "libc.", "libm.", "libdl.", "libpthread.", "librt.", "libresolv.", "libutil."}

func sharedLibraries(ldd string) []string {
	var out []string
next:
	for text := range strings.Lines(ldd) {
		name, rest, found := strings.Cut(strings.TrimSpace(text), " => ")
		if !found {
			continue
		}
		for _, g := range glibc {
			if strings.HasPrefix(path.Base(name), g) {
				continue next
			}
		}
		if file, _, _ := strings.Cut(rest, " "); filepath.IsAbs(file) {
			out = append(out, file)
		}
	}
	return out
}

// shipment writes an archive; the first error stays.
type shipment struct {
	tar *tar.Writer
	err error
}

func (s *shipment) content(name string, mode int64, data []byte) {
	if s.err == nil {
		s.err = s.tar.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(data))})
	}
	if s.err == nil {
		_, s.err = s.tar.Write(data)
	}
}

func (s *shipment) file(name, from string) {
	data, err := os.ReadFile(from)
	if s.err == nil {
		s.err = err
	}
	s.content(name, 0o755, data)
}

// tree adds the regular files below a directory.
func (s *shipment) tree(name, from string) {
	err := filepath.WalkDir(from, func(at string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(from, at)
		if err != nil {
			return err
		}
		s.file(path.Join(name, filepath.ToSlash(rel)), at)
		return s.err
	})
	if s.err == nil {
		s.err = err
	}
}
