package guest

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"savepoint/orchestrator/sshexec"
)

//go:embed files
var embedded embed.FS

// recipeVersion is raised when the code changes what an image contains in a
// way that no embedded file or option shows.
const recipeVersion = 1

// epoch is the time that files of the image carry (SOURCE_DATE_EPOCH).
var epoch = time.Unix(1735689600, 0).UTC()

// Options say what image to build. Only CacheDir is required.
type Options struct {
	// CacheDir is where images are kept. It is made when missing; everything
	// in it may be deleted while no build runs.
	CacheDir string
	// Release is the Debian codename; "" means that of the host's sources.
	Release string
	// Sources are apt source lines to use instead of the host's.
	Sources []string
	// Packages are installed besides the ones the lab needs.
	Packages []string
	// DiskMiB is the size of the disk, at least 1024; 0 means 4096.
	DiskMiB int
	// Progress is told about every step as it starts; nil is allowed.
	Progress func(step string)
}

// basePackages is what every image has.
func basePackages() []string {
	return []string{
		"bash", "btrfs-progs", "busybox-static", "ca-certificates", "coreutils", "curl", "e2fsprogs", "git",
		"iproute2", "iputils-ping", "kmod", "less", "linux-image-cloud-amd64", "mount", "openssh-server",
		"openssh-sftp-server", "procps", "python3", "python3-pip", "qemu-guest-agent", "util-linux", "util-linux-extra",
	}
}

// recipe is everything that decides what is in an image.
type recipe struct {
	Release  string
	Sources  []string // only when given by the caller: mirrors of one release are alike
	Packages []string
	DiskMiB  int
}

func (o Options) recipe(release string) (recipe, error) {
	r := recipe{Release: release, Sources: o.Sources, DiskMiB: o.DiskMiB}
	if r.DiskMiB == 0 {
		r.DiskMiB = 4096
	}
	if r.DiskMiB < 1024 {
		return recipe{}, fmt.Errorf("guest image: a disk of %d MiB is too small; at least 1024", r.DiskMiB)
	}
	r.Packages = append(basePackages(), o.Packages...)
	for _, p := range r.Packages {
		if !packageName(p) {
			return recipe{}, fmt.Errorf("guest image: %q is not the name of a Debian package", p)
		}
	}
	if !packageName(release) {
		return recipe{}, fmt.Errorf("guest image: %q is not a Debian release; give its codename", release)
	}
	slices.Sort(r.Packages)
	r.Packages = slices.Compact(r.Packages)
	return r, nil
}

// packageName accepts Debian's package names: they end up in an argument that
// apt parses, so nothing else may.
func packageName(s string) bool {
	if len(s) < 2 || len(s) > 80 || strings.ContainsAny(s[:1], "+-.") {
		return false
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '+' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}

// rootfsHash names the archive of installed packages, which does not depend on
// our own files: changing those needs no new download.
func (r recipe) rootfsHash() string {
	h := sha256.New()
	fmt.Fprintf(h, "rootfs %d\n%s\n%q\n%q\n%d\n", recipeVersion, r.Release, r.Sources, r.Packages, epoch.Unix())
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// hash names the image.
func (r recipe) hash() (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "image %d\n%s\n%d\n%q\n%s\n", recipeVersion, r.rootfsHash(), r.DiskMiB, kernelArgs, sshexec.WorkspaceScript)
	err := fs.WalkDir(embedded, "files", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := embedded.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %d\n", path, len(data))
		h.Write(data)
		return nil
	})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// uuid is the root file system's UUID: the same for equal recipes.
func (r recipe) uuid(hash string) string {
	sum := sha256.Sum256([]byte("root " + hash))
	b := sum[:16]
	b[6] = b[6]&0x0f | 0x50
	b[8] = b[8]&0x3f | 0x80
	x := hex.EncodeToString(b)
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}

func (r recipe) epochEnv() string { return "SOURCE_DATE_EPOCH=" + itoa(int(epoch.Unix())) }
