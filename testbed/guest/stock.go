package guest

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// stockVersion is raised when the code changes what a stock image contains.
const stockVersion = 1

// stockPackages are those of a cloud image as distributions make them: systemd,
// cloud-init, netplan, and no guest agent. busybox is for the initramfs.
func stockPackages() []string {
	return []string{
		"apt", "busybox-static", "ca-certificates", "cloud-init", "dbus", "e2fsprogs", "iproute2", "kmod", "less", "libpam-systemd",
		"linux-image-cloud-amd64", "netplan.io", "openssh-server", "procps", "sudo", "systemd-resolved", "systemd-sysv", "systemd-timesyncd",
		"udev", "util-linux",
	}
}

// stockHook puts the guest agent's packages, which the image has not installed,
// into a package source inside the image: $1 is the root. A guest that reaches no
// network can be provisioned from it as from any other source.
const stockHook = `set -e
APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get clean
APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get --yes --download-only install qemu-guest-agent
mkdir -p "$1/srv/packages"
mv "$1"/var/cache/apt/archives/*.deb "$1/srv/packages"
cd "$1/srv/packages"
for deb in *.deb; do
	dpkg-deb --field "$deb"
	echo "Filename: ./$deb"
	echo "Size: $(stat -c %s "$deb")"
	echo "SHA256: $(sha256sum "$deb" | cut -d ' ' -f 1)"
	echo
done > Packages
`

// stockFiles are those that the image has besides its packages.
func stockFiles(uuid string) []overlayFile {
	return []overlayFile{
		{"etc/fstab", "", "UUID=" + uuid + " / ext4 rw,noatime 0 1\n", 0o644},
		{"etc/machine-id", "", "", 0o444},
		{"etc/hostname", "", "localhost\n", 0o644},
		{"etc/apt/sources.list.d/image.list", "", "deb [trusted=yes] file:/srv/packages ./\n", 0o644},
	}
}

// stockDropped is what of the installed system names the host that built it, or
// belongs to a machine and not to an image.
func stockDropped(name string) bool {
	for _, prefix := range []string{"dev/", "proc/", "sys/", "run/", "tmp/", "boot/", "etc/apt/sources.list", "etc/ssh/ssh_host_",
		"var/cache/", "var/lib/apt/lists/"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	switch name {
	case "var/lib/dbus/machine-id", "etc/apt/apt.conf.d/99mmdebstrap", "vmlinuz", "initrd.img", "vmlinuz.old", "initrd.img.old":
		return true
	}
	return false
}

// BuildStock returns an image like the stock cloud images of distributions: one
// that knows nothing of savepoint, for showing that templates can be made from
// such images. It is kept in the cache like those of Build.
func BuildStock(ctx context.Context, o Options) (Image, error) {
	img, err := buildStock(ctx, o)
	if err != nil {
		return Image{}, fmt.Errorf("build stock image: %w", err)
	}
	return img, nil
}

func buildStock(ctx context.Context, o Options) (Image, error) {
	dir, err := filepath.Abs(o.CacheDir)
	if err != nil || o.CacheDir == "" {
		return Image{}, errors.New("no cache directory given")
	}
	o.CacheDir = dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Image{}, err
	}
	release, err := o.release(ctx)
	if err != nil {
		return Image{}, err
	}
	r, err := o.recipe(release)
	if err != nil {
		return Image{}, err
	}
	r.Packages = stockPackages()
	sum := sha256.Sum256(fmt.Appendf(nil, "stock %d\n%s\n%d\n%q\n%s", stockVersion, r.rootfsHash(), r.DiskMiB, kernelArgs, stockHook))
	hash := hex.EncodeToString(sum[:])[:16]
	if img, ok := cached(dir, hash); ok {
		return img, nil
	}
	missing, err := Missing()
	if err != nil {
		return Image{}, err
	}
	if len(missing) > 0 {
		return Image{}, missingError(missing)
	}
	b := &build{recipe: r, opts: o, hash: hash, hook: stockHook}
	unlock, err := b.lock(ctx)
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	if img, ok := cached(dir, hash); ok {
		return img, nil
	}
	b.composing = composeStock
	if err := b.build(ctx); err != nil {
		return Image{}, err
	}
	img, ok := cached(dir, hash)
	if !ok {
		return Image{}, errors.New("it vanished from the cache while it was finished")
	}
	img.Cached = false
	return img, nil
}

// composeStock is compose for a stock image: almost everything stays.
func composeStock(r io.Reader, w io.Writer, release, uuid string, wanted []string) (map[string][]byte, error) {
	modules, want, ours := map[string][]byte{}, map[string]string{}, map[string]bool{}
	for _, m := range wanted {
		want["lib/modules/"+release+"/"+m] = m
	}
	files := stockFiles(uuid)
	for _, f := range files {
		ours[f.name] = true
	}
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
		if stockDropped(name) || ours[name] || h.Typeflag == tar.TypeChar || h.Typeflag == tar.TypeBlock {
			continue
		}
		if err := tw.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
		var to io.Writer = tw
		module := want[strings.TrimPrefix(name, "usr/")]
		var copied strings.Builder
		if module != "" {
			to = io.MultiWriter(tw, &copied)
		}
		if _, err := io.Copy(to, tr); err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
		if module != "" {
			modules[module] = []byte(copied.String())
		}
	}
	for _, m := range wanted {
		if modules[m] == nil {
			return nil, fmt.Errorf("the guest's packages have no kernel module %s", m)
		}
	}
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: "./" + f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: epoch}
		if err := tw.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(tw, f.data); err != nil {
			return nil, err
		}
	}
	return modules, tw.Close()
}
