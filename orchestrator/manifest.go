package orchestrator

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// EntryType is what a path of a manifest is.
type EntryType string

// The types. Absent is for a root that does not exist; Unknown for a path that
// could not be looked at, see ManifestEntry.Problem.
const (
	EntryFile    EntryType = "file"
	EntryDir     EntryType = "directory"
	EntryLink    EntryType = "link"
	EntryChar    EntryType = "character device"
	EntryBlock   EntryType = "block device"
	EntryFIFO    EntryType = "fifo"
	EntrySocket  EntryType = "socket"
	EntryAbsent  EntryType = "absent"
	EntryUnknown EntryType = "unknown"
)

// ManifestEntry is one path as it was found. Path and Target may hold any byte
// but zero.
type ManifestEntry struct {
	Path   string
	Type   EntryType
	Mode   uint32 // permissions, setuid, setgid, sticky
	UID    uint32
	GID    uint32
	Size   int64
	MTime  time.Time
	CTime  time.Time // with Inode: what a file cannot change without leaving a trace
	Inode  uint64
	Flags  uint64 // 0x10 immutable, 0x20 append only
	Device string // "MAJOR:MINOR" of a device
	Mount  bool   // another file system is mounted here and is not listed
	Target string // of a link
	XAttrs string // sha256 of names and values of extended attributes, so ACLs and capabilities; "" for none
	SHA256 string // of the content, with Hash
	// Problem says why the entry is not complete: it vanished or changed its
	// kind while it was read, or could not be read. "" otherwise.
	Problem string
}

// Manifest is a list of files, sorted by path.
type Manifest struct {
	Hash    bool            `json:"hash,omitempty"`
	Entries []ManifestEntry `json:"entries"`
}

// ChangeKind is how a path differs.
type ChangeKind string

// The kinds.
const (
	ChangeAdded   ChangeKind = "added"
	ChangeRemoved ChangeKind = "removed"
	ChangeChanged ChangeKind = "changed"
)

// Change is one path that is not as it was.
type Change struct {
	Path string     `json:"path"`
	Kind ChangeKind `json:"kind"`
	What string     `json:"what,omitempty"` // e.g. "mode 0644 to 0666, content"
}

// Diff returns what is other in after, sorted by path. Two manifests with
// digests are compared by content, mode, owner, extended attributes, flags,
// link target and device; without digests a file's size, times and inode stand
// for its content. The times and size of a directory are no change: what is in
// it is listed. An entry with a Problem on either side is a change, because
// nobody can say that it is none.
func (m Manifest) Diff(after Manifest) []Change {
	hash := m.Hash && after.Hash
	var out []Change
	a, b := m.Entries, after.Entries
	for len(a) > 0 || len(b) > 0 {
		var old, now ManifestEntry
		order := 0
		switch {
		case len(a) == 0:
			order = 1
		case len(b) == 0:
			order = -1
		default:
			order = strings.Compare(a[0].Path, b[0].Path)
		}
		if order <= 0 {
			old, a = a[0], a[1:]
		}
		if order >= 0 {
			now, b = b[0], b[1:]
		}
		if c, changed := differ(old, now, hash); changed {
			out = append(out, c)
		}
	}
	return out
}

// differ compares one path; the zero entry stands for none.
func differ(old, now ManifestEntry, hash bool) (Change, bool) {
	c := Change{Path: cmp.Or(old.Path, now.Path), Kind: ChangeChanged}
	was := old.Type != "" && old.Type != EntryAbsent
	is := now.Type != "" && now.Type != EntryAbsent
	problem := cmp.Or(now.Problem, old.Problem)
	switch {
	case !was && !is:
		return c, problem != ""
	case problem != "":
		c.What = problem
		return c, true
	case !was:
		c.Kind, c.What = ChangeAdded, string(now.Type)
		return c, true
	case !is:
		c.Kind, c.What = ChangeRemoved, string(old.Type)
		return c, true
	case old.Type != now.Type:
		c.What = fmt.Sprintf("type %s to %s", old.Type, now.Type)
		return c, true
	}
	var what []string
	before, after := old.facts(hash), now.facts(hash)
	for i, f := range before {
		switch {
		case f.value == after[i].value:
		case f.shown:
			what = append(what, fmt.Sprintf("%s %s to %s", f.name, f.value, after[i].value))
		case !slices.Contains(what, f.name):
			what = append(what, f.name)
		}
	}
	c.What = strings.Join(what, ", ")
	return c, len(what) > 0
}

type fact struct {
	name, value string
	shown       bool
}

// facts are what makes an entry the same as before. Their number and order
// depend on the type and on hash only.
func (e ManifestEntry) facts(hash bool) []fact {
	f := []fact{
		{"type", string(e.Type), false},
		{"mode", fmt.Sprintf("%04o", e.Mode), true},
		{"owner", fmt.Sprintf("%d:%d", e.UID, e.GID), true},
		{"extended attributes", e.XAttrs, false},
		{"flags", fmt.Sprintf("%#x", e.Flags), true},
		{"device", e.Device, true},
		{"link", fmt.Sprintf("%q", e.Target), true},
		{"mount", fmt.Sprint(e.Mount), false},
	}
	if e.Type == EntryFile {
		f = append(f, fact{"size", fmt.Sprint(e.Size), true})
		if hash {
			return append(f, fact{"content", e.SHA256, false})
		}
		f = append(f, fact{"mtime", fmt.Sprint(e.MTime.UnixNano()), false})
	}
	if !hash {
		f = append(f, fact{"inode", fmt.Sprint(e.Inode), false})
		if e.Type != EntryDir {
			f = append(f, fact{"ctime", fmt.Sprint(e.CTime.UnixNano()), false})
		}
	}
	return f
}

// Sum is a digest of all that Diff compares: two manifests of the same kind
// with the same sum and without a Problem do not differ.
func (m Manifest) Sum() string {
	h := sha256.New()
	for _, e := range m.Entries {
		fmt.Fprintf(h, "%q %q", e.Path, e.Problem)
		for _, f := range e.facts(m.Hash) {
			fmt.Fprintf(h, " %q", f.value)
		}
		io.WriteString(h, "\n") //nolint:errcheck // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Sort brings the entries into the order that Diff needs.
func (m *Manifest) Sort() {
	slices.SortFunc(m.Entries, func(a, b ManifestEntry) int { return strings.Compare(a.Path, b.Path) })
}

// entryJSON is an entry on disk: short names, nothing that is empty, and bytes
// that are no text in base64.
type entryJSON struct {
	Path     string    `json:"p,omitempty"`
	PathB    []byte    `json:"pb,omitempty"`
	Type     EntryType `json:"t"`
	Mode     uint32    `json:"m,omitempty"`
	UID      uint32    `json:"u,omitempty"`
	GID      uint32    `json:"g,omitempty"`
	Size     int64     `json:"s,omitempty"`
	MTime    int64     `json:"mt,omitempty"` // ns
	CTime    int64     `json:"ct,omitempty"`
	Inode    uint64    `json:"i,omitempty"`
	Flags    uint64    `json:"f,omitempty"`
	Device   string    `json:"d,omitempty"`
	Mount    bool      `json:"mnt,omitempty"`
	Target   string    `json:"l,omitempty"`
	TargetB  []byte    `json:"lb,omitempty"`
	XAttrs   string    `json:"x,omitempty"`
	SHA256   string    `json:"h,omitempty"`
	Problem  string    `json:"!,omitempty"`
	ProblemB []byte    `json:"!b,omitempty"`
}

// MarshalJSON implements json.Marshaler; every byte of a path survives.
func (e ManifestEntry) MarshalJSON() ([]byte, error) {
	j := entryJSON{Type: e.Type, Mode: e.Mode, UID: e.UID, GID: e.GID, Size: e.Size, MTime: nanos(e.MTime), CTime: nanos(e.CTime),
		Inode: e.Inode, Flags: e.Flags, Device: e.Device, Mount: e.Mount, XAttrs: e.XAttrs, SHA256: e.SHA256}
	j.Path, j.PathB = textOrBytes(e.Path)
	j.Target, j.TargetB = textOrBytes(e.Target)
	j.Problem, j.ProblemB = textOrBytes(e.Problem)
	return json.Marshal(j)
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *ManifestEntry) UnmarshalJSON(b []byte) error {
	var j entryJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*e = ManifestEntry{Type: j.Type, Mode: j.Mode, UID: j.UID, GID: j.GID, Size: j.Size, MTime: ofNanos(j.MTime), CTime: ofNanos(j.CTime),
		Inode: j.Inode, Flags: j.Flags, Device: j.Device, Mount: j.Mount, XAttrs: j.XAttrs, SHA256: j.SHA256,
		Path: j.Path + string(j.PathB), Target: j.Target + string(j.TargetB), Problem: j.Problem + string(j.ProblemB)}
	return nil
}

func textOrBytes(s string) (string, []byte) {
	if utf8.ValidString(s) {
		return s, nil
	}
	return "", []byte(s)
}

// nanos keeps the zero time apart from the epoch's, which no file needs.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func ofNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
