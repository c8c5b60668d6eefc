package guest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const deps = `kernel/drivers/virtio/virtio.ko:
kernel/drivers/virtio/virtio_ring.ko: kernel/drivers/virtio/virtio.ko
kernel/drivers/virtio/virtio_pci.ko: kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko
kernel/drivers/char/hw_random/virtio-rng.ko.xz: kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko
`

func TestLoadOrder(t *testing.T) {
	got, err := loadOrder(parseDeps(deps), []string{"virtio_rng", "virtio_pci"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"kernel/drivers/virtio/virtio.ko", "kernel/drivers/virtio/virtio_ring.ko", "kernel/drivers/char/hw_random/virtio-rng.ko.xz", "kernel/drivers/virtio/virtio_pci.ko"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := loadOrder(parseDeps(deps), []string{"nothing"}); err == nil {
		t.Error("unknown module: no error")
	}
	if _, err := loadOrder(parseDeps("a.ko: b.ko\nb.ko: a.ko\n"), []string{"a"}); err == nil {
		t.Error("circle: no error")
	}
}

// readCPIO unpacks the newc format.
func readCPIO(t *testing.T, data []byte) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for {
		if string(data[:6]) != "070701" {
			t.Fatalf("bad magic %q", data[:6])
		}
		field := func(i int) int {
			n, err := strconv.ParseInt(string(data[6+8*i:14+8*i]), 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		size, nameSize := field(6), field(11)
		name := string(data[110 : 110+nameSize-1])
		if name == "TRAILER!!!" {
			return out
		}
		at := (110 + nameSize + 3) &^ 3
		out[name] = fmt.Sprintf("%o:", field(1)) + string(data[at:at+size])
		data = data[(at+size+3)&^3:]
	}
}

func TestInitramfs(t *testing.T) {
	order := []string{"kernel/a/one.ko", "kernel/b/two.ko"}
	packed, err := initramfs([]byte("busybox!"), order, map[string][]byte{"kernel/a/one.ko": []byte("1"), "kernel/b/two.ko": []byte("22222")})
	if err != nil {
		t.Fatal(err)
	}
	zr, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(zr)
	if err != nil {
		t.Fatal(err)
	}
	files := readCPIO(t, data)
	for name, want := range map[string]string{"bin/busybox": "100755:busybox!", "modules/one.ko": "100755:1", "modules/list": "100755:one.ko\ntwo.ko\n", "root": "40755:", "dev/console": "20600:"} {
		if files[name] != want {
			t.Errorf("%s: got %q, want %q", name, files[name], want)
		}
	}
	if !strings.HasPrefix(files["init"], "100755:#!/bin/busybox sh\n") {
		t.Errorf("init: %.40q", files["init"])
	}
}

func TestPartitionTable(t *testing.T) {
	const size = 4096 * mib
	b := partitionTable([]byte{0xfa, 0xfc}, 7, size)
	if len(b) != 512 || b[0] != 0xfa || b[510] != 0x55 || b[511] != 0xaa {
		t.Fatal("not a boot sector")
	}
	if b[446] != 0x80 || b[446+4] != 0x0e || b[462] != 0 || b[462+4] != 0x83 {
		t.Errorf("partition kinds: % x", b[446:478])
	}
	le := binary.LittleEndian
	end := le.Uint32(b[454:]) + le.Uint32(b[458:])
	if le.Uint32(b[470:]) != end || le.Uint32(b[470:])+le.Uint32(b[474:]) != size/512 {
		t.Errorf("partitions leave gaps or overlap: % x", b[446:478])
	}
}

func archive(t *testing.T, entries ...tar.Header) *bytes.Buffer {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, h := range entries {
		body := h.Linkname
		if h.Typeflag == tar.TypeReg {
			h.Linkname, h.Size = "", int64(len(body))
		}
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(tw, body); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

// file makes a header whose Linkname is the content.
func file(name, body string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: "./" + name, Linkname: body, Mode: 0o644}
}

// F88: no identity and no secret of the build is in an image.
func TestComposeLeavesSecretsOut(t *testing.T) {
	ping := file("usr/bin/ping", "ping")
	ping.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "cap"}
	in := archive(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "./dev/", Mode: 0o755},
		tar.Header{Typeflag: tar.TypeChar, Name: "./dev/console", Mode: 0o600, Devmajor: 5, Devminor: 1},
		tar.Header{Typeflag: tar.TypeDir, Name: "./boot/", Mode: 0o755},
		file("boot/vmlinuz-6.1-test", "kernel"),
		file("etc/passwd", "root:x:0:0::/root:/bin/bash\n"), file("etc/shadow", "root:*:1::::::\n"),
		file("etc/group", "root:x:0:\n"), file("etc/gshadow", "root:*::\n"),
		file("etc/ssh/ssh_host_ed25519_key", "SECRET"), file("etc/machine-id", "SECRET"),
		file("etc/apt/sources.list", "SECRET"), file("etc/apt/apt.conf.d/99mmdebstrap", "proxy SECRET"),
		file("etc/ssh/sshd_config", "PasswordAuthentication yes"),
		file("var/log/dpkg.log", "SECRET"), file("usr/lib/modules/6.1-test/kernel/one.ko", "module"), ping)
	var out bytes.Buffer
	modules, err := compose(in, &out, "6.1-test", "uuid-1", []string{"kernel/one.ko"})
	if err != nil {
		t.Fatal(err)
	}
	if string(modules["kernel/one.ko"]) != "module" {
		t.Errorf("modules: %v", modules)
	}
	if strings.Contains(out.String(), "SECRET") {
		t.Error("a secret is in the image")
	}
	files := make(map[string]string)
	tr := tar.NewReader(&out)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(h.Name, "./")
		if _, twice := files[name]; twice && h.Typeflag != tar.TypeDir {
			t.Errorf("%s is in the image twice", name)
		}
		body, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(body)
		switch name {
		case "usr/bin/ping":
			if h.PAXRecords["SCHILY.xattr.security.capability"] != "cap" {
				t.Error("ping has lost its capability")
			}
		case "workspace/", "home/agent/":
			if h.Uid != 1000 || h.Gid != 1000 {
				t.Errorf("%s belongs to %d:%d", name, h.Uid, h.Gid)
			}
		case "usr/sbin/init":
			if h.Linkname != "/usr/bin/busybox" {
				t.Errorf("init is %s", h.Linkname)
			}
		}
	}
	if got := files["etc/passwd"]; got != "root:x:0:0::/root:/bin/bash\nagent:x:1000:1000::/home/agent:/bin/bash\n" {
		t.Errorf("passwd: %q", got)
	}
	if got := files["etc/ssh/sshd_config"]; !strings.Contains(got, "PasswordAuthentication no") {
		t.Errorf("sshd_config: %q", got)
	}
	if _, ok := files["dev/"]; !ok {
		t.Error("the mount point /dev is missing")
	}
	if _, err := compose(archive(t, file("etc/passwd", "")), io.Discard, "6.1-test", "u", nil); err == nil {
		t.Error("an archive without a shadow file: no error")
	}
}

func TestScan(t *testing.T) {
	s, err := scan(archive(t, file("boot/vmlinuz-6.1-test", "kernel"), file("usr/bin/busybox", "bb"),
		file("usr/lib/modules/6.1-test/modules.dep", deps),
		file("var/lib/dpkg/status", "Package: git\nStatus: install ok installed\nVersion: 1:2.39\n\nPackage: bash\nVersion: 5.2\n")))
	if err != nil {
		t.Fatal(err)
	}
	if s.release != "6.1-test" || string(s.kernel) != "kernel" || s.manifest != "git 1:2.39\nbash 5.2\n" {
		t.Errorf("got %+v", s)
	}
	if _, err := scan(archive(t, file("usr/bin/busybox", "bb"))); err == nil {
		t.Error("no kernel: no error")
	}
}
