package qemu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A cloud-init drive is a tiny ISO 9660 image: one directory, a few small
// files. Names like "user-data" are not allowed in plain ISO 9660, so each
// record carries a Rock Ridge NM entry with the real name, as cloud-init and
// the Linux kernel expect it.
//
//	sector 0-15   system area, zero
//	16            primary volume descriptor
//	17            set terminator
//	18, 19        path tables, little- and big-endian
//	20            root directory
//	21            continuation area of the root's "." record (ER entry)
//	22…           files, each on a sector boundary
const (
	isoSector = 2048
	isoRoot   = 20
	isoCE     = 21
	isoData   = 22
)

// isoTime is in every record: drives with equal content are equal files.
var isoTime = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// isoImage returns the image. The label has 1 to 32 characters; names have 1
// to 60 characters without a slash, files are below 1 GiB in all.
func isoImage(label string, files map[string][]byte) ([]byte, error) {
	if label == "" || len(label) > 32 || strings.ContainsFunc(label, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("iso image: label %q is not 1 to 32 printable characters", label)
	}
	names := make([]string, 0, len(files))
	for n := range files {
		if n == "" || n == "." || n == ".." || len(n) > 60 || strings.ContainsFunc(n, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }) {
			return nil, fmt.Errorf("iso image: file name %q is not 1 to 60 printable characters without a slash", n)
		}
		names = append(names, n)
	}
	// The directory is sorted by the plain names, which number the files.
	slices.Sort(names)
	if len(names) > 12 {
		return nil, errors.New("iso image: more than 12 files do not fit its one directory sector")
	}

	var dir, data bytes.Buffer
	dir.Write(isoRecord("\x00", isoRoot, isoSector, true, isoRootUse()))
	dir.Write(isoRecord("\x01", isoRoot, isoSector, true, isoPX(true)))
	for i, n := range names {
		body := files[n]
		if data.Len()+len(body) > 1<<30 {
			return nil, errors.New("iso image: more than 1 GiB of files")
		}
		at := isoData + data.Len()/isoSector
		data.Write(body)
		data.Write(make([]byte, (isoSector-len(body)%isoSector)%isoSector))
		use := append(isoPX(false), isoNM(n)...)
		dir.Write(isoRecord(fmt.Sprintf("FILE%02d.;1", i), at, len(body), false, use))
	}
	if dir.Len() > isoSector {
		return nil, errors.New("iso image: the names do not fit its one directory sector")
	}

	sectors := isoData + data.Len()/isoSector
	img := make([]byte, sectors*isoSector)
	copy(img[16*isoSector:], isoVolume(label, sectors))
	copy(img[17*isoSector:], "\xffCD001\x01")
	copy(img[18*isoSector:], isoPathTable(binary.LittleEndian))
	copy(img[19*isoSector:], isoPathTable(binary.BigEndian))
	copy(img[isoRoot*isoSector:], dir.Bytes())
	copy(img[isoCE*isoSector:], isoER())
	copy(img[isoData*isoSector:], data.Bytes())
	return img, nil
}

// both writes a number the ISO 9660 way: little-endian, then big-endian.
func both32(b []byte, n int) {
	binary.LittleEndian.PutUint32(b, uint32(n))
	binary.BigEndian.PutUint32(b[4:], uint32(n))
}

func both16(b []byte, n int) {
	binary.LittleEndian.PutUint16(b, uint16(n))
	binary.BigEndian.PutUint16(b[2:], uint16(n))
}

// isoRecord is one directory record: length, position, size, time, flags,
// name padded to even length, system use.
func isoRecord(name string, at, size int, isDir bool, use []byte) []byte {
	base := 33 + len(name)
	base += base % 2
	n := base + len(use)
	n += n % 2
	b := make([]byte, n)
	b[0] = byte(n)
	both32(b[2:], at)
	both32(b[10:], size)
	copy(b[18:25], []byte{byte(isoTime.Year() - 1900), byte(isoTime.Month()), byte(isoTime.Day()), 0, 0, 0, 0})
	if isDir {
		b[25] = 2
	}
	both16(b[28:], 1)
	b[32] = byte(len(name))
	copy(b[33:], name)
	copy(b[base:], use)
	return b
}

// isoRootUse is the system use of the root's own record: SP announces the
// protocol, CE points to the ER entry that names the extension.
func isoRootUse() []byte {
	sp := []byte{'S', 'P', 7, 1, 0xbe, 0xef, 0}
	ce := make([]byte, 28)
	copy(ce, []byte{'C', 'E', 28, 1})
	both32(ce[4:], isoCE)
	both32(ce[12:], 0)
	both32(ce[20:], len(isoER()))
	return slices.Concat(sp, isoPX(true), ce)
}

func isoER() []byte {
	const (
		id   = "RRIP_1991A"
		desc = "THE ROCK RIDGE INTERCHANGE PROTOCOL PROVIDES SUPPORT FOR POSIX FILE SYSTEM SEMANTICS"
		src  = "PLEASE CONTACT DISC PUBLISHER FOR SPECIFICATION SOURCE"
	)
	b := []byte{'E', 'R', byte(8 + len(id) + len(desc) + len(src)), 1, byte(len(id)), byte(len(desc)), byte(len(src)), 1}
	return append(b, id+desc+src...)
}

// isoPX gives mode, link count, owner: 0400 for files, because user data may
// hold a password hash.
func isoPX(isDir bool) []byte {
	mode, links := 0o100400, 1
	if isDir {
		mode, links = 0o040500, 2
	}
	b := make([]byte, 36)
	copy(b, []byte{'P', 'X', 36, 1})
	both32(b[4:], mode)
	both32(b[12:], links)
	return b
}

func isoNM(name string) []byte {
	return append([]byte{'N', 'M', byte(5 + len(name)), 1, 0}, name...)
}

// isoPathTable has one entry: the root.
func isoPathTable(order binary.ByteOrder) []byte {
	b := make([]byte, 10)
	b[0] = 1
	order.PutUint32(b[2:], isoRoot)
	order.PutUint16(b[6:], 1)
	return b
}

// isoVolume is the primary volume descriptor.
func isoVolume(label string, sectors int) []byte {
	b := bytes.Repeat([]byte{' '}, isoSector)
	zero := func(from, to int) { clear(b[from:to]) }
	copy(b, "\x01CD001\x01")
	zero(7, 8)
	copy(b[40:72], label)
	zero(72, 190)
	both32(b[80:], sectors)
	both16(b[120:], 1)
	both16(b[124:], 1)
	both16(b[128:], isoSector)
	both32(b[132:], 10) // size of a path table
	binary.LittleEndian.PutUint32(b[140:], 18)
	binary.BigEndian.PutUint32(b[148:], 19)
	copy(b[156:190], isoRecord("\x00", isoRoot, isoSector, true, nil))
	stamp := isoTime.Format("20060102150405") + "00\x00"
	none := strings.Repeat("0", 16) + "\x00"
	copy(b[813:], stamp+stamp+none+none)
	b[881] = 1
	zero(882, isoSector)
	return b
}
