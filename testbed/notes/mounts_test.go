package notes_test

import (
	"slices"
	"testing"

	"savepoint/testbed/notes"
)

// The mount table is read as the kernel writes it, spaces and optional fields
// included.
func TestMounts(t *testing.T) {
	const table = `36 35 98:0 / /mnt/a\040b rw,noatime master:1 shared:2 - ext4 /dev/root rw
40 35 0:44 / /x rw - fuse.zfs lab/v rw,user_id=0
broken
41 35 0:45 / /y rw
`
	if got, want := notes.Mounts(table), []notes.Mount{{"/mnt/a b", "ext4"}, {"/x", "fuse.zfs"}}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func FuzzMounts(f *testing.F) {
	f.Add(`36 35 98:0 / /mnt/a\040b rw - ext4 /dev/root rw`)
	f.Fuzz(func(t *testing.T, table string) {
		for _, m := range notes.Mounts(table) {
			if m.At == "" || m.Kind == "" {
				t.Errorf("%q has %q", table, m)
			}
		}
	})
}
