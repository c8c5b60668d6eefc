package guest

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
)

// kernelArgs is the kernel command line besides root=. The serial console is
// the only one, and quiet, because every line costs milliseconds on it. The
// self-tests of the kernel's ciphers take a third of a boot under emulation.
const kernelArgs = "rw quiet loglevel=3 console=ttyS0 panic=10 no_timer_check random.trust_cpu=on cryptomgr.notests audit=0 apparmor=0 nowatchdog"

// The disk: a boot record, a FAT partition that syslinux starts from, the root.
//
//	sector 0       boot code and partition table
//	1 MiB          FAT16, bootable: ldlinux.sys, syslinux.cfg, vmlinuz, initrd
//	1 MiB + boot   ext4 root, to the end
const (
	sector   = 512
	mib      = 1 << 20
	bootAt   = 1 * mib
	bootSize = 48 * mib
	rootAt   = bootAt + bootSize
)

const bootRecordName = "mbr.bin"

// bootRecord is syslinux's first-stage code, at most 440 bytes.
func bootRecord() ([]byte, error) {
	var last error
	for _, dir := range []string{"/usr/lib/syslinux/mbr", "/usr/lib/SYSLINUX", "/usr/share/syslinux"} {
		data, err := os.ReadFile(filepath.Join(dir, bootRecordName))
		if err == nil && len(data) <= 440 {
			return data, nil
		}
		last = err
	}
	return nil, fmt.Errorf("find syslinux's mbr.bin: %w", last)
}

// partitionTable returns sector 0: the code, the disk's id and two partitions.
func partitionTable(code []byte, id uint32, size int64) []byte {
	b := make([]byte, sector)
	copy(b, code)
	binary.LittleEndian.PutUint32(b[440:], id)
	entry := func(i int, active, kind byte, at, length int64) {
		e := b[446+16*i:]
		e[0], e[4] = active, kind
		// Cylinders do not describe today's disks: the largest value says
		// "use the sector numbers".
		copy(e[1:4], []byte{0xfe, 0xff, 0xff})
		copy(e[5:8], []byte{0xfe, 0xff, 0xff})
		binary.LittleEndian.PutUint32(e[8:], uint32(at/sector))
		binary.LittleEndian.PutUint32(e[12:], uint32(length/sector))
	}
	entry(0, 0x80, 0x0e, bootAt, bootSize)
	entry(1, 0, 0x83, rootAt, size-rootAt)
	b[510], b[511] = 0x55, 0xaa
	return b
}

// bootMenu is syslinux's configuration: one entry, started at once.
func bootMenu(uuid string) string {
	return "DEFAULT guest\nPROMPT 0\nTIMEOUT 0\nLABEL guest\n  LINUX /vmlinuz\n  INITRD /initrd\n  APPEND root=UUID=" + uuid + " " + kernelArgs + "\n"
}

// makeDisk writes the finished raw disk from the root's directory tree.
func (b *build) makeDisk(ctx context.Context, raw, kernel, initrd, rootTar, uuid string) error {
	code, err := bootRecord()
	if err != nil {
		return err
	}
	size := int64(b.recipe.DiskMiB) * mib
	f, err := os.Create(raw)
	if err != nil {
		return err
	}
	id := binary.LittleEndian.Uint32([]byte(b.hash)[:4])
	_, err = f.Write(partitionTable(code, id, size))
	if terr := f.Truncate(size); err == nil {
		err = terr
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", raw, err)
	}

	b.step("making the root file system")
	if err := b.makeRoot(ctx, raw, rootTar, uuid, size-rootAt); err != nil {
		return err
	}

	b.step("making it bootable")
	menu := filepath.Join(b.dir, "syslinux.cfg")
	if err := os.WriteFile(menu, []byte(bootMenu(uuid)), 0o644); err != nil {
		return err
	}
	part := fmt.Sprintf("%s@@%d", raw, bootAt)
	for _, args := range [][]string{
		{"mformat", "-i", part, "-T", itoa(bootSize / sector), "-h", "255", "-s", "63", "-H", itoa(bootAt / sector), "-N", "53415645", "::"},
		{"mcopy", "-m", "-i", part, kernel, "::vmlinuz"},
		{"mcopy", "-m", "-i", part, initrd, "::initrd"},
		{"mcopy", "-m", "-i", part, menu, "::syslinux.cfg"},
		{"syslinux", "--install", "--offset", itoa(bootAt), raw},
	} {
		if err := b.run(ctx, nil, args...); err != nil {
			return err
		}
	}
	return nil
}

// rootScript unpacks the archive and makes the file system from it in one
// process, because without root both must happen under the same user ids.
// Arguments: archive, directory, mkfs.ext4 and its arguments.
const rootScript = `set -e
archive=$1 dir=$2
shift 2
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir"
tar --extract --numeric-owner --same-owner --preserve-permissions --xattrs --xattrs-include='*' --directory "$dir" --file "$archive"
"$@"
`

// makeRoot makes the ext4 file system inside the raw disk.
func (b *build) makeRoot(ctx context.Context, raw, archive, uuid string, size int64) error {
	mkfs, err := lookPath("mkfs.ext4")
	if err != nil {
		return err
	}
	tree := filepath.Join(b.dir, "tree")
	args := []string{"sh", "-c", rootScript, "sh", archive, tree,
		mkfs, "-q", "-F", "-L", "savepoint-root", "-U", uuid, "-m", "1", "-N", "131072",
		"-E", fmt.Sprintf("offset=%d,hash_seed=%s,lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0", int64(rootAt), uuid),
		"-d", tree, raw, fmt.Sprintf("%dk", size/1024)}
	if os.Geteuid() != 0 {
		args = append([]string{"unshare", "--user", "--map-root-user", "--map-auto", "--setuid", "0", "--setgid", "0", "--"}, args...)
	}
	env := []string{"E2FSPROGS_FAKE_TIME=" + itoa(int(epoch.Unix()))}
	return b.run(ctx, env, args...)
}
