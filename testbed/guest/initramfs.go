package guest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"path"
	"slices"
	"strings"
)

// bootModules are the drivers that the initramfs loads, in this order, with
// what they need. The CD-ROM and file system drivers come before the
// controllers, so that a drive is usable as soon as it is found.
func bootModules() []string {
	return []string{"sd_mod", "sr_mod", "isofs", "virtio_pci", "virtio-rng", "virtio_scsi", "virtio_blk", "ata_piix", "virtio_net", "virtio_console"}
}

// parseDeps reads modules.dep: "path: needed needed…".
func parseDeps(text string) map[string][]string {
	deps := make(map[string][]string)
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, ":")
		if ok {
			deps[name] = strings.Fields(rest)
		}
	}
	return deps
}

// loadOrder resolves module names to paths, each after everything it needs.
func loadOrder(deps map[string][]string, names []string) ([]string, error) {
	byName := make(map[string]string, len(deps))
	for p := range deps {
		byName[moduleName(p)] = p
	}
	var order []string
	state := make(map[string]int) // 1: being visited, 2: done
	var visit func(p string) error
	visit = func(p string) error {
		switch state[p] {
		case 1:
			return fmt.Errorf("kernel module %s needs itself", p)
		case 2:
			return nil
		}
		state[p] = 1
		needed, ok := deps[p]
		if !ok {
			return fmt.Errorf("kernel module %s is not in modules.dep", p)
		}
		for _, d := range needed {
			if err := visit(d); err != nil {
				return err
			}
		}
		state[p] = 2
		order = append(order, p)
		return nil
	}
	for _, n := range names {
		p, ok := byName[moduleName(n)]
		if !ok {
			return nil, fmt.Errorf("the guest's kernel has no module %s", n)
		}
		if err := visit(p); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// moduleName is the name as the kernel says it: no path, no suffix, "_" for "-".
func moduleName(p string) string {
	base := path.Base(p)
	if i := strings.Index(base, ".ko"); i >= 0 {
		base = base[:i]
	}
	return strings.ReplaceAll(base, "-", "_")
}

// cpio writes the "newc" format that the kernel unpacks:
//
//	"070701" + 13 fields of 8 hex digits (ino, mode, uid, gid, nlink, mtime,
//	filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check),
//	name and NUL padded to 4 bytes, data padded to 4 bytes
type cpio struct {
	buf bytes.Buffer
	ino int
}

func (c *cpio) add(name string, mode uint32, data []byte, major, minor int) {
	c.ino++
	nlink := 1
	if mode&0o170000 == 0o040000 {
		nlink = 2
	}
	fmt.Fprintf(&c.buf, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		c.ino, mode, 0, 0, nlink, epoch.Unix(), len(data), 0, 0, major, minor, len(name)+1, 0)
	c.buf.WriteString(name)
	c.buf.WriteByte(0)
	c.pad()
	c.buf.Write(data)
	c.pad()
}

func (c *cpio) pad() {
	for c.buf.Len()%4 != 0 {
		c.buf.WriteByte(0)
	}
}

func (c *cpio) dir(name string)               { c.add(name, 0o040755, nil, 0, 0) }
func (c *cpio) file(name string, data []byte) { c.add(name, 0o100755, data, 0, 0) }

// initramfs packs busybox, the modules in order, and the script.
func initramfs(busybox []byte, order []string, modules map[string][]byte) ([]byte, error) {
	script, err := embedded.ReadFile("files/initramfs-init")
	if err != nil {
		return nil, err
	}
	var c cpio
	for _, d := range []string{"bin", "dev", "modules", "proc", "root", "sys"} {
		c.dir(d)
	}
	// The kernel opens /dev/console before devtmpfs is mounted.
	c.add("dev/console", 0o020600, nil, 5, 1)
	c.file("bin/busybox", busybox)
	c.file("init", script)
	var list strings.Builder
	for _, m := range order {
		base := path.Base(m)
		list.WriteString(base + "\n")
		c.file("modules/"+base, modules[m])
	}
	c.file("modules/list", []byte(list.String()))
	c.add("TRAILER!!!", 0, nil, 0, 0)

	var out bytes.Buffer
	zw, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := zw.Write(c.buf.Bytes()); err != nil {
		return nil, err
	}
	if err := zw.Close(); err != nil {
		return nil, err
	}
	return slices.Clip(out.Bytes()), nil
}
