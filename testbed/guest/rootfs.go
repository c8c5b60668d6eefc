package guest

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"savepoint/orchestrator/sshexec"
)

// overlayFile is one of our files in the guest.
type overlayFile struct {
	name string // path in the guest, without the leading slash
	from string // embedded file; "" when data is used
	data string
	mode int64
}

// overlay lists our own files. Paths are below /usr because Debian's /sbin and
// /bin are links into it.
func overlay(uuid string) []overlayFile {
	return []overlayFile{
		{"etc/inittab", "inittab", "", 0o644},
		{"etc/ssh/sshd_config", "sshd_config", "", 0o644},
		{"etc/fstab", "", "UUID=" + uuid + " / ext4 rw,noatime 0 0\n", 0o644},
		{"etc/hostname", "", "savepoint\n", 0o644},
		{"usr/lib/savepoint/boot", "boot", "", 0o755},
		{"usr/lib/savepoint/identity", "identity", "", 0o755},
		{"usr/lib/savepoint/yaml.awk", "yaml.awk", "", 0o644},
		{"usr/lib/savepoint/network.awk", "network.awk", "", 0o644},
		{"usr/lib/savepoint/dhcp", "dhcp", "", 0o755},
		{"usr/lib/savepoint/guest-agent", "guest-agent", "", 0o755},
		{"usr/lib/savepoint/power-button", "power-button", "", 0o755},
		{"usr/lib/savepoint/halt", "halt", "", 0o755},
		{"usr/lib/savepoint/acpi/PWRF/00000080", "power-off", "", 0o755},
		{"usr/sbin/shutdown", "shutdown", "", 0o755},
		{strings.TrimPrefix(sshexec.WorkspacePath, "/"), "", sshexec.WorkspaceScript, 0o755},
	}
}

// overlayLinks are the symbolic links: init and its relatives are busybox.
func overlayLinks() map[string]string {
	return map[string]string{
		"usr/sbin/init":     "/usr/bin/busybox",
		"usr/sbin/poweroff": "/usr/bin/busybox",
		"usr/sbin/reboot":   "/usr/bin/busybox",
		"usr/sbin/halt":     "/usr/bin/busybox",
	}
}

// accounts are the lines added to the user database: one user, without a
// password and without privileges.
func accounts() map[string]string {
	return map[string]string{
		"etc/passwd":  "agent:x:1000:1000::/home/agent:/bin/bash\n",
		"etc/group":   "agent:x:1000:\n",
		"etc/shadow":  "agent:*:20089:0:99999:7:::\n",
		"etc/gshadow": "agent:*::\n",
	}
}

// dropped reports whether a path of the installed system stays out of the
// image: what is a secret, names the build host, or is of no use in a guest.
func dropped(name string) bool {
	for _, prefix := range []string{"dev/", "proc/", "sys/", "run/", "tmp/", "boot/", "etc/apt/sources.list", "etc/ssh/ssh_host_",
		"var/cache/", "var/log/", "var/lib/apt/lists/", "usr/share/doc/", "usr/share/man/", "usr/share/info/", "usr/share/locale/"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	switch name {
	case "etc/machine-id", "var/lib/dbus/machine-id", "etc/resolv.conf", "etc/apt/apt.conf.d/99mmdebstrap", "vmlinuz", "initrd.img", "vmlinuz.old", "initrd.img.old":
		return true
	}
	return false
}

// system is what the boot needs from the installed packages.
type system struct {
	kernel, busybox []byte
	release         string              // kernel release
	deps            map[string][]string // module path below the release's directory → what it needs
	manifest        string              // dpkg's status file, reduced to names and versions
}

// scan reads from the archive what the boot needs.
func scan(r io.Reader) (system, error) {
	s := system{}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return system{}, fmt.Errorf("read the guest's packages: %w", err)
		}
		name := strings.TrimPrefix(h.Name, "./")
		keep := func(dst *[]byte) error {
			var err error
			*dst, err = io.ReadAll(tr)
			return err
		}
		var text []byte
		switch {
		case strings.HasPrefix(name, "boot/vmlinuz-"):
			s.release = strings.TrimPrefix(name, "boot/vmlinuz-")
			err = keep(&s.kernel)
		case h.Typeflag == tar.TypeReg && (name == "usr/bin/busybox" || name == "bin/busybox"):
			err = keep(&s.busybox)
		case path.Base(name) == "modules.dep":
			if err = keep(&text); err == nil {
				s.deps = parseDeps(string(text))
			}
		case name == "var/lib/dpkg/status":
			if err = keep(&text); err == nil {
				s.manifest = parseStatus(string(text))
			}
		}
		if err != nil {
			return system{}, fmt.Errorf("read %s from the guest's packages: %w", name, err)
		}
	}
	if s.kernel == nil || s.busybox == nil || s.deps == nil {
		return system{}, errors.New("read the guest's packages: no kernel, busybox or module list in them")
	}
	return s, nil
}

// parseStatus reduces dpkg's status to lines "name version".
func parseStatus(text string) string {
	var b strings.Builder
	var name string
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, "Package: "); ok {
			name = strings.TrimSpace(v)
		}
		if v, ok := strings.CutPrefix(line, "Version: "); ok {
			b.WriteString(name + " " + strings.TrimSpace(v) + "\n")
		}
	}
	return b.String()
}

// compose copies the archive without what is dropped and with our files, and
// returns the kernel modules named in wanted.
func compose(r io.Reader, w io.Writer, release, uuid string, wanted []string) (map[string][]byte, error) {
	want := make(map[string]bool)
	for _, m := range wanted {
		want["lib/modules/"+release+"/"+m] = true
	}
	modules := make(map[string][]byte)
	ours := make(map[string]bool)
	files := overlay(uuid)
	for _, f := range files {
		ours[f.name] = true
	}
	for name := range overlayLinks() {
		ours[name] = true
	}
	extra := accounts()
	tr, tw := tar.NewReader(r), tar.NewWriter(w)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the guest's packages: %w", err)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/")
		if h.Typeflag == tar.TypeDir && dropped(name+"/") {
			// The directories themselves stay, as mount points.
			if !dropped(name) && strings.Count(name, "/") <= 1 {
				if err := tw.WriteHeader(h); err != nil {
					return nil, err
				}
			}
			continue
		}
		if dropped(name) || ours[name] || h.Typeflag == tar.TypeChar || h.Typeflag == tar.TypeBlock {
			continue
		}
		var data []byte
		bare := strings.TrimPrefix(name, "usr/")
		switch add, isAccount := extra[name]; {
		case isAccount:
			if data, err = io.ReadAll(tr); err != nil {
				return nil, err
			}
			data = append(data, add...)
			h.Size = int64(len(data))
			delete(extra, name)
		case want[bare]:
			if data, err = io.ReadAll(tr); err != nil {
				return nil, err
			}
			modules[strings.TrimPrefix(bare, "lib/modules/"+release+"/")] = data
		}
		if err := tw.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
		if data != nil {
			_, err = tw.Write(data)
		} else {
			_, err = io.Copy(tw, tr)
		}
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
	}
	for name := range extra {
		return nil, fmt.Errorf("the guest's packages have no %s", name)
	}
	for _, m := range wanted {
		if modules[m] == nil {
			return nil, fmt.Errorf("the guest's packages have no kernel module %s", m)
		}
	}
	if err := addOverlay(tw, files); err != nil {
		return nil, err
	}
	return modules, tw.Close()
}

// addOverlay writes our own files, links and directories.
func addOverlay(tw *tar.Writer, files []overlayFile) error {
	dir := func(name string, mode int64, id int) error {
		return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "./" + name + "/", Mode: mode, Uid: id, Gid: id, ModTime: epoch})
	}
	for _, d := range []struct {
		name string
		mode int64
		id   int
	}{{"usr/lib/savepoint", 0o755, 0}, {"usr/lib/savepoint/acpi", 0o755, 0},
		{"usr/lib/savepoint/acpi/PWRF", 0o755, 0}, {"var/lib/savepoint", 0o755, 0},
		{"home/agent", 0o700, 1000}, {"workspace", 0o755, 1000}} {
		if err := dir(d.name, d.mode, d.id); err != nil {
			return err
		}
	}
	for _, f := range files {
		data := []byte(f.data)
		if f.from != "" {
			var err error
			if data, err = embedded.ReadFile("files/" + f.from); err != nil {
				return err
			}
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: "./" + f.name, Mode: f.mode, Size: int64(len(data)), ModTime: epoch}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := tw.Write(data); err != nil {
			return err
		}
	}
	links := overlayLinks()
	for _, name := range []string{"usr/sbin/init", "usr/sbin/poweroff", "usr/sbin/reboot", "usr/sbin/halt"} {
		h := &tar.Header{Typeflag: tar.TypeSymlink, Name: "./" + name, Linkname: links[name], Mode: 0o777, ModTime: epoch}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
	}
	return nil
}
