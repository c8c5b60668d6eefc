package guest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// madeVolume makes a volume in dir, and returns its file and what is in it. Without
// the program of that package the test is skipped.
func madeVolume(t *testing.T, dir, program, pkg string, make func(context.Context, string, int64) (string, error), size int64) (path string, text []byte) {
	t.Helper()
	for _, tool := range []string{program, "qemu-img"} {
		if _, err := lookPath(tool); err != nil {
			t.Skipf("%v: install %s and qemu-utils", err, pkg)
		}
	}
	path, err := make(t.Context(), dir, size)
	if err != nil {
		t.Fatal(err)
	}
	raw := filepath.Join(dir, "raw")
	if out, err := exec.Command("qemu-img", "convert", "-O", "raw", path, raw).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if text, err = os.ReadFile(raw); err != nil {
		t.Fatal(err)
	}
	return path, text
}

// The volume is an ext4 with the label that guests look for, and takes no more
// of the disk than what is in it.
func TestVolume(t *testing.T) {
	dir := t.TempDir()
	path, text := madeVolume(t, dir, "mkfs.ext4", "e2fsprogs", Volume, 64<<20)
	if len(text) != 64<<20 || string(text[1024+56:1024+58]) != "\x53\xef" || strings.TrimRight(string(text[1024+120:1024+136]), "\x00") != "sp-workspace" {
		t.Errorf("%d bytes, magic %x, label %q", len(text), text[1024+56:1024+58], text[1024+120:1024+136])
	}
	before, err := os.Stat(path)
	if err != nil || before.Size() > 8<<20 {
		t.Errorf("%v, %v", before, err)
	}
	again, err := Volume(t.Context(), dir, 64<<20)
	after, serr := os.Stat(again)
	if err != nil || serr != nil || again != path || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("made again: %s, %v, %v", again, err, serr)
	}
	other := t.TempDir()
	twin, err := Volume(t.Context(), other, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	if !sameFile(t, path, twin) {
		t.Error("two volumes of one size are not equal")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "work-*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if _, err := Volume(t.Context(), dir, 1000); err == nil {
		t.Error("a volume of 1000 bytes was made")
	}
}

// The other kind is a btrfs with the same label, whose data and metadata share
// their space.
func TestBtrfsVolume(t *testing.T) {
	dir := t.TempDir()
	path, text := madeVolume(t, dir, "mkfs.btrfs", "btrfs-progs", BtrfsVolume, 256<<20)
	super := text[64<<10:]
	if len(text) != 256<<20 || string(super[64:72]) != "_BHRfS_M" || super[188]&4 == 0 || strings.TrimRight(string(super[0x12b:0x12b+256]), "\x00") != "sp-workspace" {
		t.Errorf("%d bytes, magic %q, features %x, label %q", len(text), super[64:72], super[188], super[0x12b:0x12b+16])
	}
	if other, err := Volume(t.Context(), dir, 256<<20); err != nil || other == path {
		t.Errorf("both kinds are %s, %v", other, err)
	}
}

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	x, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(x, y)
}
