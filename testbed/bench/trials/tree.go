package trials

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"savepoint/orchestrator"
)

//go:embed tree.pl
var treeScript string

const treeFile = "tree.pl"

// A guest is compared as a whole, without what it writes while it runs.
var (
	treeRoots = []string{"/", "/var/lib/dpkg", "/dev/shm"}
	treeSkips = []string{"/proc", "/sys", "/dev", "/run", "/var/log", "/var/cache", "/var/spool", "/var/backups", "/var/lib", "/srv/savepoint"}
	// treeBig are looked at and not read but every few times, see fullEvery.
	treeBig = []string{"/usr", "/boot"}
	// treeBoot is what each boot writes, with what was there or anew: when and in
	// which inode tells nothing. treeEmpty is what it empties.
	treeBoot  = []string{"/etc", "/root"}
	treeEmpty = []string{"/tmp", "/dev/shm"}
)

// file is one path of a guest as it was found.
type file struct {
	mode string // a letter for its kind, and permissions in octal

	uid, gid, size, links, inode, mtime, ctime, target string

	flags, device, xattrs string // unread when nobody looked
	sum                   string // sha256 of the content; "" when it was not read
}

const unread = "?"

// files is all that is compared of a guest, by path, and what runs in it that a
// damage started.
type files struct {
	all  map[string]file
	left []string
}

// files lists the guest, with all of the big trees when it is to be full.
func (g *Rig) files(ctx context.Context, sb orchestrator.Sandbox, full bool) (files, error) {
	args := []string{"perl", stage + "/" + treeFile}
	for _, path := range treeSkips {
		args = append(args, "-"+path)
	}
	for _, path := range treeBig {
		if !full {
			args = append(args, "'~"+path+"'") // no home
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	// A megabyte takes an emulated guest seconds to encrypt, and a pipe's exit code is
	// the last one's: that the list is whole is seen at its end.
	args = append(append(args, treeRoots...), "| gzip -1")
	res, err := g.bare(ctx, sb, strings.Join(args, " "), nil)
	if err != nil {
		return files{}, err
	}
	text, err := unpacked(res.Stdout)
	if err == nil {
		var all files
		if all, err = parseFiles(text); err == nil {
			return all, nil
		}
	}
	return files{}, fmt.Errorf("%w: %s", err, firstLine(res.Stderr))
}

func unpacked(packed []byte) (string, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", fmt.Errorf("unpack the list of files: %w", err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return "", fmt.Errorf("unpack the list of files: %w", err)
	}
	return string(text), nil
}

func parseFiles(text string) (files, error) {
	out := files{all: map[string]file{}}
	text, whole := strings.CutSuffix(text, "\x00end\x00")
	if !whole {
		return out, fmt.Errorf("the list of files ends early, after %d bytes", len(text))
	}
	fields := strings.Split(text, "\x00")
	for len(fields) >= 4 && fields[0] != "" {
		meta := strings.Fields(fields[0])
		if len(meta) != 10 {
			return out, fmt.Errorf("the list of files has %q for %q", fields[0], fields[1])
		}
		out.all[fields[1]] = file{
			mode: meta[0], uid: meta[1], gid: meta[2], size: meta[3], links: meta[4], inode: meta[5],
			flags: meta[6], device: meta[7], mtime: meta[8], ctime: meta[9], target: fields[2], xattrs: fields[3],
		}
		fields = fields[4:]
	}
	at := -1
	if len(fields) > 0 && fields[0] == "" {
		fields = fields[1:]
		at = slices.Index(fields, "")
	}
	if at < 0 {
		return out, fmt.Errorf("the list of files has no end after %d paths", len(out.all))
	}
	out.left = fields[:at]
	for _, line := range fields[at+1:] {
		sum, path, ok := strings.Cut(line, "  ")
		f, known := out.all[path]
		if !ok || !known {
			return out, fmt.Errorf("the list of files has a digest %q of no file", line)
		}
		f.sum = sum
		out.all[path] = f
	}
	return out, nil
}

// dir reports whether it is a directory.
func (f file) dir() bool { return strings.HasPrefix(f.mode, "d") }

// below reports whether a path is one of some trees.
func below(path string, trees []string) bool {
	return slices.ContainsFunc(trees, func(t string) bool { return path == t || strings.HasPrefix(path, t+"/") })
}

// diff says what is other in after, sorted by path. What was not looked at or read in
// both does not count. booted says that the guest was started in between.
func (a files) diff(after files, booted bool) []string {
	var out []string
	add := func(path, format string, args ...any) {
		out = append(out, fmt.Sprintf("%q ", path)+fmt.Sprintf(format, args...))
	}
	paths := maps.Clone(a.all)
	maps.Copy(paths, after.all)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		was, had := a.all[path]
		is, has := after.all[path]
		switch {
		case booted && below(path, treeEmpty):
		case !had:
			add(path, "is new")
		case !has:
			add(path, "is gone")
		default:
			if what := was.differs(is, booted && below(path, treeBoot)); len(what) > 0 {
				add(path, "has another %s", strings.Join(what, ", "))
			}
		}
	}
	for _, p := range after.left {
		add("/proc", "has process %s left", p)
	}
	return out
}

// differs names what is other of a path; rewritten says that the system may have
// written the same anew.
func (f file) differs(is file, rewritten bool) []string {
	type fact struct{ name, was, is string }
	facts := []fact{
		{"mode", f.mode, is.mode}, {"owner", f.uid, is.uid}, {"group", f.gid, is.gid},
		{"flags", f.flags, is.flags}, {"device", f.device, is.device}, {"target", f.target, is.target},
		{"extended attributes", f.xattrs, is.xattrs},
	}
	if !rewritten {
		facts = append(facts, fact{"mtime", f.mtime, is.mtime}, fact{"ctime", f.ctime, is.ctime}, fact{"inode", f.inode, is.inode})
	}
	if !rewritten || !f.dir() {
		facts = append(facts, fact{"size", f.size, is.size}, fact{"number of links", f.links, is.links})
	}
	if f.sum != "" && is.sum != "" {
		facts = append(facts, fact{"content", f.sum, is.sum})
	}
	facts = slices.DeleteFunc(facts, func(c fact) bool { return c.was == unread || c.is == unread })
	var out []string
	for _, c := range facts {
		if c.was != c.is {
			out = append(out, c.name)
		}
	}
	return out
}

// follow is what the next list is held against: after, which does not differ, with
// what was not looked at or read again.
func (a files) follow(after files) files {
	for path, f := range after.all {
		was := a.all[path]
		if f.sum == "" {
			f.sum = was.sum
		}
		if f.xattrs == unread {
			f.flags, f.device, f.xattrs = was.flags, was.device, was.xattrs
		}
		after.all[path] = f
	}
	return after
}

// read counts the files whose content was read.
func (a files) read() (n int) {
	for _, f := range a.all {
		if f.sum != "" {
			n++
		}
	}
	return n
}
