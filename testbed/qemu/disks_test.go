package qemu

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"

	"savepoint/orchestrator"
	"savepoint/testbed/pve"
)

// fakeImg makes Images with a program that is the shell script.
func fakeImg(t *testing.T, script string) *Images {
	t.Helper()
	path := filepath.Join(t.TempDir(), "img")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	im, err := NewImages(path)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

func TestISOIsReadByAnotherImplementation(t *testing.T) {
	files := map[string][]byte{
		"user-data":      []byte("#cloud-config\nhostname: x\n"),
		"meta-data":      []byte("instance-id: 1\n"),
		"network-config": bytes.Repeat([]byte("# long\n"), 1000),
		"empty":          nil,
	}
	im := fakeImg(t, "exit 1")
	d := pve.Disk{Slot: "scsi1", Path: filepath.Join(t.TempDir(), "a", "seed.iso"), Format: "raw", CDROM: true}
	if err := im.ISO(context.Background(), d, "cidata", files); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(d.Path); err != nil || st.Mode().Perm() != 0o600 || st.Size()%isoSector != 0 {
		t.Errorf("file: %v, %v", st, err)
	}
	f, err := os.Open(d.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	fsys, err := iso9660.Read(file.New(f, true), st.Size(), 0, isoSector)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimRight(fsys.Label(), " \x00"); got != "cidata" {
		t.Errorf("label: %q", got)
	}
	entries, err := fsys.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, e := range entries {
		want, ok := files[e.Name()]
		if !ok {
			continue
		}
		seen++
		info, err := e.Info()
		if err != nil || info.Size() != int64(len(want)) {
			t.Errorf("%s: %v, %v", e.Name(), info, err)
		}
	}
	if seen != len(files) {
		t.Errorf("%d of %d files found: %v", seen, len(files), entries)
	}
	// Content, by the records themselves.
	img, err := os.ReadFile(d.Path)
	if err != nil {
		t.Fatal(err)
	}
	for at := isoRoot * isoSector; img[at] != 0; at += int(img[at]) {
		rec := img[at : at+int(img[at])]
		i := bytes.Index(rec, []byte("NM"))
		if i < 0 {
			continue
		}
		name := string(rec[i+5 : i+int(rec[i+2])])
		start, size := binary.LittleEndian.Uint32(rec[2:])*isoSector, binary.LittleEndian.Uint32(rec[10:])
		if !bytes.Equal(img[start:start+size], files[name]) {
			t.Errorf("%s has other content", name)
		}
	}
	again, err := isoImage("cidata", files)
	if err != nil || !bytes.Equal(again, img) {
		t.Errorf("equal content gives another image: %v", err)
	}
}

func TestISORefuses(t *testing.T) {
	for name, files := range map[string]map[string][]byte{"slash": {"a/b": nil}, "dots": {"..": nil}, "empty": {"": nil}, "long": {strings.Repeat("x", 61): nil}} {
		if _, err := isoImage("cidata", files); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := isoImage("", nil); err == nil {
		t.Error("no label: no error")
	}
}

// A file under its final name is complete: qemu-img writes to another one.
func TestCreateIsAtomic(t *testing.T) {
	ctx := context.Background()
	d := pve.Disk{Slot: "scsi0", Path: filepath.Join(t.TempDir(), "d.qcow2"), Format: "qcow2"}
	failing := fakeImg(t, `echo half > "$5"; echo "qemu-img: no space" >&2; exit 1`)
	if err := failing.Create(ctx, d, 1<<20); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("got %v, want qemu-img's text", err)
	}
	if files, _ := os.ReadDir(filepath.Dir(d.Path)); len(files) != 0 {
		t.Errorf("left: %v", files)
	}
	good := fakeImg(t, `echo whole > "$5"`)
	if err := good.Create(ctx, d, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := good.Create(ctx, d, 1<<20); !errors.Is(err, orchestrator.ErrExists) {
		t.Errorf("over an existing file: %v", err)
	}
	if err := good.Remove(ctx, d); err != nil {
		t.Error(err)
	}
	if err := good.Remove(ctx, d); err != nil {
		t.Errorf("removing twice: %v", err)
	}
}

func TestImgErrorsHaveAClass(t *testing.T) {
	for text, want := range map[string]error{
		"qemu-img: Could not open '/x': No such file or directory":                         orchestrator.ErrNotFound,
		"qemu-img: Could not delete snapshot 'x': snapshot not found":                      orchestrator.ErrNotFound,
		`qemu-img: Could not open '/x': Failed to get "write" lock`:                        orchestrator.ErrBusy,
		"qemu-img: Could not create snapshot 'x': Input/output error, and nothing is left": orchestrator.ErrUnavailable,
	} {
		if err := classify("snapshot", text, errors.New("exit status 1")); !errors.Is(err, want) || strings.Contains(err.Error(), "qemu-img: Could") {
			t.Errorf("%s: got %v, want class %v", text, err, want)
		}
	}
}

// The real program, where it is installed: no guest is needed.
func TestImagesWithQemuImg(t *testing.T) {
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("needs qemu-img")
	}
	ctx := context.Background()
	im, err := NewImages("")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	disk := func(name, format string) pve.Disk {
		return pve.Disk{Slot: "scsi0", Path: filepath.Join(dir, name), Format: format}
	}
	base, child, full, raw := disk("base,x.qcow2", "qcow2"), disk("child.qcow2", "qcow2"), disk("full.raw", "raw"), disk("r.raw", "raw")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(im.Create(ctx, base, 8<<20))
	must(im.Link(ctx, base, child))
	must(im.Snapshot(ctx, child, "one"))
	must(im.Resize(ctx, child, 16<<20))
	if v, used, err := im.Size(ctx, child); err != nil || v != 16<<20 || used == 0 {
		t.Errorf("size: %d, %d, %v", v, used, err)
	}
	must(im.Copy(ctx, child, "one", full))
	must(im.Copy(ctx, base, "", raw))
	if v, _, err := im.Size(ctx, raw); err != nil || v != 8<<20 {
		t.Errorf("size of the copy: %d, %v", v, err)
	}
	must(im.Revert(ctx, child, "one"))
	must(im.DeleteSnapshot(ctx, child, "one"))
	for name, err := range map[string]error{"revert": im.Revert(ctx, child, "one"), "delete": im.DeleteSnapshot(ctx, child, "one")} {
		if !errors.Is(err, orchestrator.ErrNotFound) {
			t.Errorf("%s of a snapshot that is gone: %v", name, err)
		}
	}
	var unsupported *orchestrator.UnsupportedError
	if err := im.Snapshot(ctx, raw, "one"); !errors.As(err, &unsupported) {
		t.Errorf("snapshot of a raw disk: %v", err)
	}
	if err := im.Resize(ctx, child, 1<<20); err == nil {
		t.Error("shrinking: no error")
	}
}
