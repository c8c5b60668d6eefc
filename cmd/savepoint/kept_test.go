package main

import (
	"bytes"
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// kept fails unless a text is in one of the files of the state directory; with
// "!", when it is in any.
func kept(ts *testscript.TestScript, neg bool, args []string) {
	files, where := 0, []string{}
	ts.Check(filepath.WalkDir(of(ts).config.StateDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if files++; err == nil && holds(data, args[0]) {
			where = append(where, filepath.Base(path))
		}
		return err
	}))
	switch {
	case files == 0:
		ts.Fatalf("the state directory is empty")
	case neg && len(where) > 0:
		ts.Fatalf("%q is in %q", args[0], where)
	case !neg && len(where) == 0:
		ts.Fatalf("%q is in none of %d files", args[0], files)
	}
}

// holds reports whether data has the text, in clear or as a part of what is
// written in base64.
func holds(data []byte, text string) bool {
	if bytes.Contains(data, []byte(text)) {
		return true
	}
	for before := range 3 { // bytes of a group of three that are another text's
		b := append(make([]byte, before), text...)
		whole := base64.RawStdEncoding.EncodeToString(b[:len(b)/3*3])
		if part := whole[(before*8+5)/6:]; len(part) > 3 && bytes.Contains(data, []byte(part)) {
			return true
		}
	}
	return false
}

// A text is found wherever it stands among others.
func TestHolds(t *testing.T) {
	const text = "hunter2-hunter2"
	for before := range 7 {
		for after := range 4 {
			b := append(append(bytes.Repeat([]byte("x"), before), text...), bytes.Repeat([]byte("y"), after)...)
			for _, data := range [][]byte{b, []byte(base64.StdEncoding.EncodeToString(b)), []byte(base64.RawStdEncoding.EncodeToString(b))} {
				if !holds(data, text) {
					t.Errorf("%d before, %d after: not found in %s", before, after, data)
				}
				if holds(data, "hunter3-hunter3") {
					t.Errorf("another text is found in %s", data)
				}
			}
		}
	}
}
