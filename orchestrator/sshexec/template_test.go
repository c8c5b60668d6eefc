package sshexec_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"savepoint/orchestrator/sshexec"
)

// runStep runs a step's text in a shell of this machine, with all paths below
// root: the clean-up is the one step that can be shown without a guest.
func runStep(t *testing.T, root string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-s"}, args...)...)
	cmd.Stdin = strings.NewReader(sshexec.TemplateText())
	cmd.Env = []string{"SAVEPOINT_ROOT=" + root}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// plant makes a tree of files, each holding its own name.
func plant(t *testing.T, root string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

var ownFiles = []string{
	"etc/ssh/ssh_host_ed25519_key", "etc/ssh/ssh_host_ed25519_key.pub", "etc/ssh/ssh_host_rsa_key",
	"root/.ssh/authorized_keys", "root/.bash_history", "home/debian/.ssh/authorized_keys", "home/debian/.bash_history",
	"var/lib/dbus/machine-id", "var/lib/systemd/random-seed", "var/lib/dhcp/dhclient.eth0.leases", "var/lib/NetworkManager/secret_key",
	"etc/netplan/50-cloud-init.yaml", "etc/network/interfaces.d/50-cloud-init", "var/lib/cloud/instance/obj.pkl", "var/lib/cloud/data/instance-id",
	"var/log/journal/0123/system.journal", "var/log/syslog.1", "var/log/dpkg.log.2.gz", "var/lib/apt/lists/deb.debian.org_main",
	"etc/ssh/sshd_config.d/50-cloud-init.conf", "var/tmp/x", "var/lib/savepoint/generation",
}

var keptFiles = []string{
	"etc/ssh/sshd_config", "etc/fstab", "home/debian/.profile", "usr/bin/tool", "var/lib/savepoint/workspace", "root/.bashrc",
	"etc/ssh/ssh_config", "var/lib/dpkg/status", "etc/cloud/cloud.cfg",
}

// F88: nothing that tells one machine from another is in a template, and
// nothing else is missing. The step can be repeated.
func TestTemplateClean(t *testing.T) {
	root := t.TempDir()
	plant(t, root, append(append([]string{"etc/machine-id", "etc/hostname", "var/log/syslog", "var/log/auth.log"}, ownFiles...), keptFiles...)...)
	for range 2 {
		if out, err := runStep(t, root, "clean"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, name := range ownFiles {
			if _, err := os.Lstat(filepath.Join(root, name)); err == nil {
				t.Errorf("%s is still there", name)
			}
		}
		for _, name := range keptFiles {
			if text, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(text) != name {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		}
		for name, want := range map[string]string{"etc/machine-id": "", "etc/hostname": "localhost\n", "var/log/syslog": "", "var/log/auth.log": ""} {
			if text, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(text) != want {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		}
	}
	// A link to the machine id is not a second one.
	link := filepath.Join(root, "var/lib/dbus/machine-id")
	if err := os.Symlink("/etc/machine-id", link); err != nil {
		t.Fatal(err)
	}
	if out, err := runStep(t, root, "clean"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if to, err := os.Readlink(link); err != nil || to != "/etc/machine-id" {
		t.Errorf("the link is %q, %v", to, err)
	}
}

// An identity that cannot be removed is an error, not a template.
func TestTemplateCleanFails(t *testing.T) {
	if os.Geteuid() == 0 {
		// Nothing withstands root but what is no file.
		root := t.TempDir()
		plant(t, root, append([]string{"etc/machine-id", "var/log/syslog"}, keptFiles...)...)
		plant(t, root, "etc/ssh/ssh_host_ed25519_key/inside")
		if out, err := runStep(t, root, "clean"); err == nil {
			t.Errorf("a host key was left: %s", out)
		}
		return
	}
	root := t.TempDir()
	plant(t, root, append([]string{"etc/machine-id", "etc/ssh/ssh_host_ed25519_key"}, keptFiles...)...)
	if err := os.Chmod(filepath.Join(root, "etc/ssh"), 0o500); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(filepath.Join(root, "etc/ssh"), 0o700) // for the removal of the directory
	if out, err := runStep(t, root, "clean"); err == nil {
		t.Errorf("a host key was left: %s", out)
	}
}

// The text carries the workspace's files to the byte, and its name changes with
// them. A word that is no step does nothing.
func TestTemplateText(t *testing.T) {
	text := sshexec.TemplateText()
	if len(text) != sshexec.TemplateLength() || len(sshexec.TemplateRecipe()) != 16 {
		t.Errorf("%d bytes, recipe %q", len(text), sshexec.TemplateRecipe())
	}
	root := t.TempDir()
	script := strings.ReplaceAll(text[:strings.Index(text, "\n}\n")+3], "unpack /", "unpack "+root+"/") +
		"unpack() { mkdir -p \"${1%/*}\"; printf %s \"$3\" | base64 -d > \"$1\"; chmod \"$2\" \"$1\"; }\nworkspace_files\n"
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-eu")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for path, want := range map[string]string{
		sshexec.WorkspacePath: sshexec.WorkspaceScript, sshexec.WorkspaceUnitPath: sshexec.WorkspaceUnit, sshexec.WorkspaceDropInPath: sshexec.WorkspaceDropIn,
	} {
		got, err := os.ReadFile(filepath.Join(root, path))
		if err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v", path, len(got), err)
		}
	}
	if st, err := os.Stat(filepath.Join(root, sshexec.WorkspacePath)); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", st, err)
	}
	if out, err := runStep(t, root, "remove-everything"); err == nil || !strings.Contains(out, "usage") {
		t.Errorf("%v: %s", err, out)
	}
	if got := sshexec.TemplateCommand(sshexec.TemplateProvision, 4096); got != "exec sh -s provision 4096" {
		t.Errorf("command %q", got)
	}
}

// The disk for the workspace volume is the one of its size with nothing on it:
// no partition, no file system, and not a disk of another kind.
func TestTemplateBlankDisk(t *testing.T) {
	root := t.TempDir()
	const size = 16 << 20
	disk := func(name string, bytes int64, content string, partitions ...string) {
		t.Helper()
		// As in a real one, what is below block is a link.
		dir := filepath.Join(root, "sys/devices/pci", name)
		for _, d := range append([]string{"queue"}, partitions...) {
			if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		plant(t, root, "dev/"+name)
		raw := make([]byte, 1<<20)
		copy(raw[1024:], content)
		for _, err := range []error{
			os.MkdirAll(filepath.Join(root, "sys/block"), 0o700), os.Symlink(dir, filepath.Join(root, "sys/block", name)),
			os.WriteFile(filepath.Join(dir, "size"), fmt.Appendf(nil, "%d\n", bytes/512), 0o600),
			os.WriteFile(filepath.Join(root, "dev", name), raw, 0o600),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	ext4 := strings.Repeat("\x00", 56) + "\x53\xef\x01\x00" + strings.Repeat("\x00", 16) + "\x01" // the magic, revision 1
	disk("sda", size, "", "sda1")
	disk("sdb", 2*size, "")
	disk("sdd", size, ext4)
	disk("loop0", size, "")
	disk("sr0", size, "")
	if out, err := runStep(t, root, "blank", fmt.Sprint(size)); err != nil || out != "" {
		t.Errorf("%q, %v", out, err)
	}
	disk("sdc", size, "")
	if out, err := runStep(t, root, "blank", fmt.Sprint(size)); err != nil || out != "/dev/sdc\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// check says something of each thing, and never both that it is there and not.
func TestTemplateCheck(t *testing.T) {
	out, err := runStep(t, "", "check", fmt.Sprint(1<<30))
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var names []string
	for line := range strings.Lines(out) {
		kind, rest, ok := strings.Cut(strings.TrimSpace(line), " ")
		name, why, _ := strings.Cut(rest, ": ")
		if !ok || kind != "ok" && (kind != "missing" || why == "") {
			t.Errorf("line %q", line)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	if n := len(names); n != 15 || len(slices.Compact(names)) != n || !slices.Contains(names, "workspace-volume") {
		t.Errorf("checked: %q", names)
	}
}
