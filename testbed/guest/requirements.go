package guest

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"

	"savepoint/testbed/setup"
)

// Requirement is something that the host lacks.
type Requirement struct {
	// Need is the program or file that was looked for.
	Need string
	// Package is the Debian package that has it; "" when no package helps.
	Package string
	// Why says what it is for, or what to do when no package helps.
	Why string
}

// Missing lists what this host lacks to build an image and run it; empty when
// everything is there. It changes nothing. What is needed stands in the list of
// package setup; of files it looks for the boot loader's only, as other systems
// than Debian keep them elsewhere.
func Missing() ([]Requirement, error) {
	list, err := setup.Packages()
	if err != nil {
		return nil, err
	}
	var out []Requirement
	for _, p := range list {
		if p.Tier == setup.Test || p.Tier == setup.User && os.Geteuid() == 0 {
			continue
		}
		var err error
		switch {
		case filepath.Base(p.Probe) == bootRecordName:
			_, err = bootRecord()
		case !filepath.IsAbs(p.Probe):
			_, err = lookPath(p.Probe)
		}
		if err != nil {
			out = append(out, Requirement{Need: filepath.Base(p.Probe), Package: p.Name, Why: p.Why})
		}
	}
	if os.Geteuid() != 0 {
		out = append(out, missingForUser()...)
	}
	return out, nil
}

// Packages returns the Debian packages that mend reqs, each once, in order.
func Packages(reqs []Requirement) []string {
	var out []string
	seen := make(map[string]bool)
	for _, r := range reqs {
		if r.Package != "" && !seen[r.Package] {
			seen[r.Package] = true
			out = append(out, r.Package)
		}
	}
	return out
}

// missingForUser checks what a build without root needs besides packages.
func missingForUser() []Requirement {
	var out []Requirement
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		data, err := os.ReadFile(file)
		if err != nil || !hasRange(string(data), name, os.Getuid()) {
			out = append(out, Requirement{Need: file, Why: "has no range for this user: an administrator adds one with usermod --add-subuids and --add-subgids, or run as root"})
		}
	}
	if data, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err == nil && strings.TrimSpace(string(data)) == "0" {
		out = append(out, Requirement{Need: "user namespaces", Why: "are switched off (user.max_user_namespaces is 0): allow them or run as root"})
	}
	return out
}

// hasRange reports whether a subuid file has a range for the user.
func hasRange(file, name string, uid int) bool {
	for line := range strings.Lines(file) {
		who, _, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok && (who == name || who == itoa(uid)) {
			return true
		}
	}
	return false
}

// lookPath also looks where Debian keeps administrators' programs, which are
// not on every user's PATH.
func lookPath(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return filepath.Abs(p)
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); err == nil && st.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}
