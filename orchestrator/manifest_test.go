package orchestrator_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
)

func fileEntry(path string, edit func(*orchestrator.ManifestEntry)) orchestrator.ManifestEntry {
	e := orchestrator.ManifestEntry{Path: path, Type: orchestrator.EntryFile, Mode: 0o644, Size: 3, Inode: 7,
		MTime: time.Unix(100, 5).UTC(), CTime: time.Unix(200, 6).UTC(), SHA256: "aa"}
	if edit != nil {
		edit(&e)
	}
	return e
}

func TestManifestDiff(t *testing.T) {
	type entry = orchestrator.ManifestEntry
	dir := func(e *entry) { e.Type, e.SHA256 = orchestrator.EntryDir, "" }
	none := func(e *entry) { *e = entry{Path: e.Path, Type: orchestrator.EntryAbsent} }
	for name, c := range map[string]struct {
		before, after func(*entry)
		hashed, plain string // what is said, "" for no change
	}{
		"same":                  {nil, nil, "", ""},
		"content":               {nil, func(e *entry) { e.SHA256 = "bb" }, "content", ""},
		"longer":                {nil, func(e *entry) { e.Size = 4 }, "size 3 to 4", "size 3 to 4"},
		"touched":               {nil, func(e *entry) { e.MTime = e.MTime.Add(1) }, "", "mtime"},
		"written, times back":   {nil, func(e *entry) { e.CTime = e.CTime.Add(1); e.SHA256 = "bb" }, "content", "ctime"},
		"replaced by its equal": {nil, func(e *entry) { e.Inode = 8 }, "", "inode"},
		"mode":                  {nil, func(e *entry) { e.Mode = 0o4755 }, "mode 0644 to 4755", "mode 0644 to 4755"},
		"owner":                 {nil, func(e *entry) { e.GID = 3 }, "owner 0:0 to 0:3", "owner 0:0 to 0:3"},
		"capability":            {nil, func(e *entry) { e.XAttrs = "x" }, "extended attributes", "extended attributes"},
		"immutable":             {func(e *entry) { e.Flags = 0x10 }, nil, "flags 0x10 to 0x0", "flags 0x10 to 0x0"},
		"type":                  {nil, dir, "type file to directory", "type file to directory"},
		"inside a directory":    {dir, func(e *entry) { dir(e); e.Size++; e.MTime = e.MTime.Add(1); e.CTime = e.MTime }, "", ""},
		"mounted over":          {dir, func(e *entry) { dir(e); e.Mount = true }, "mount", "mount"},
		"link": {func(e *entry) { e.Type, e.Target = orchestrator.EntryLink, "a" }, func(e *entry) { e.Type, e.Target = orchestrator.EntryLink, "b" },
			`link "a" to "b"`, `link "a" to "b"`},
		"made":             {none, nil, "file", "file"},
		"gone":             {nil, none, "file", "file"},
		"still absent":     {none, none, "", ""},
		"vanished twice":   {func(e *entry) { e.Problem = "vanished" }, func(e *entry) { e.Problem = "vanished" }, "vanished", "vanished"},
		"unreadable later": {nil, func(e *entry) { e.Problem = "unreadable" }, "unreadable", "unreadable"},
	} {
		for hash, want := range map[bool]string{true: c.hashed, false: c.plain} {
			before := orchestrator.Manifest{Hash: hash, Entries: []entry{fileEntry("/a", nil), fileEntry("/f", c.before)}}
			after := orchestrator.Manifest{Hash: hash, Entries: []entry{fileEntry("/a", nil), fileEntry("/f", c.after)}}
			got := before.Diff(after)
			if want == "" && len(got) == 0 {
				if before.Sum() != after.Sum() {
					t.Errorf("%s, hash %t: no change, but other sums", name, hash)
				}
				continue
			}
			if len(got) != 1 || got[0].Path != "/f" || got[0].What != want {
				t.Errorf("%s, hash %t: got %+v, want %q", name, hash, got, want)
			}
			if before.Sum() == after.Sum() && !strings.Contains(want, "vanished") {
				t.Errorf("%s, hash %t: a change, but the same sum", name, hash)
			}
		}
	}
}

func TestManifestDiffOrder(t *testing.T) {
	list := func(paths ...string) (m orchestrator.Manifest) {
		for _, p := range paths {
			m.Entries = append(m.Entries, fileEntry(p, nil))
		}
		m.Sort()
		return m
	}
	got := list("/b", "/a", "/a/x", "/a.b").Diff(list("/c", "/a", "/a.b", "/0"))
	want := []orchestrator.Change{{Path: "/0", Kind: "added", What: "file"}, {Path: "/a/x", Kind: "removed", What: "file"},
		{Path: "/b", Kind: "removed", What: "file"}, {Path: "/c", Kind: "added", What: "file"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestManifestJSON(t *testing.T) {
	m := orchestrator.Manifest{Hash: true, Entries: []orchestrator.ManifestEntry{
		fileEntry("/with\nnewline", nil),
		fileEntry("/no\xff\xfetext", func(e *orchestrator.ManifestEntry) { e.Flags, e.XAttrs, e.UID = 0x10, "cc", 1000 }),
		fileEntry("/l", func(e *orchestrator.ManifestEntry) { e.Type, e.Target, e.SHA256 = orchestrator.EntryLink, "\x80", "" }),
		fileEntry("/d", func(e *orchestrator.ManifestEntry) { e.Type, e.Device, e.Mount = orchestrator.EntryBlock, "8:1", true }),
		{Path: "/gone", Type: orchestrator.EntryAbsent},
		{Path: "/odd", Type: orchestrator.EntryUnknown, Problem: "vanished"},
	}}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var back orchestrator.Manifest
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back, m) {
		t.Errorf("got %+v, %v, want %+v", back, err, m)
	}
	if per := len(b) / len(m.Entries); per > 150 {
		t.Errorf("%d bytes an entry", per)
	}
}
