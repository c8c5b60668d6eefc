package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Image is a finished guest image. Its files belong to the cache: never write
// to them, make copy-on-write children.
type Image struct {
	// Path is the disk, qcow2.
	Path string
	// Kernel and Initrd are the files inside it, beside it: the accelerator
	// probe starts them directly.
	Kernel, Initrd string
	// Manifest lists the installed packages, "name version" a line.
	Manifest string
	// Hash names the recipe.
	Hash string
	// Release is the Debian codename.
	Release string
	// Size is the virtual size of the disk, in bytes.
	Size int64
	// Cached says that nothing had to be built.
	Cached bool
}

// build is one run of Build that really builds.
type build struct {
	recipe recipe
	opts   Options
	hash   string
	dir    string // working directory, removed at the end

	hook      string   // run in the installed system when it is complete; "" = none
	composing composer // nil = compose
}

// composer makes the root's archive from that of the packages and returns the
// kernel modules that were wanted.
type composer func(packages io.Reader, root io.Writer, release, uuid string, wanted []string) (map[string][]byte, error)

func (b *build) step(format string, args ...any) {
	if b.opts.Progress != nil {
		b.opts.Progress(fmt.Sprintf(format, args...))
	}
}

// Build returns the image for the options, building it when it is not in the
// cache. Two builders of one cache wait for each other; ctx ends the wait and
// the build. An interrupted build leaves files under work- that the next one
// removes, and nothing that anyone trusts.
func Build(ctx context.Context, o Options) (Image, error) {
	if o.CacheDir == "" {
		return Image{}, errors.New("build guest image: no cache directory given")
	}
	dir, err := filepath.Abs(o.CacheDir)
	if err != nil {
		return Image{}, fmt.Errorf("build guest image: %w", err)
	}
	o.CacheDir = dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Image{}, fmt.Errorf("build guest image: %w", err)
	}
	release, err := o.release(ctx)
	if err != nil {
		return Image{}, fmt.Errorf("build guest image: %w", err)
	}
	r, err := o.recipe(release)
	if err != nil {
		return Image{}, err
	}
	hash, err := r.hash()
	if err != nil {
		return Image{}, fmt.Errorf("build guest image: %w", err)
	}
	if img, ok := cached(dir, hash); ok {
		return img, nil
	}
	missing, err := Missing()
	if err != nil {
		return Image{}, fmt.Errorf("build guest image: %w", err)
	}
	if len(missing) > 0 {
		return Image{}, missingError(missing)
	}
	b := &build{recipe: r, opts: o, hash: hash}
	unlock, err := b.lock(ctx)
	if err != nil {
		return Image{}, fmt.Errorf("build guest image: %w", err)
	}
	defer unlock()
	if img, ok := cached(dir, hash); ok {
		return img, nil // somebody else built it while we waited
	}
	if err := b.build(ctx); err != nil {
		return Image{}, fmt.Errorf("build guest image: %w", err)
	}
	img, ok := cached(dir, hash)
	if !ok {
		return Image{}, errors.New("build guest image: it vanished from the cache while it was finished")
	}
	img.Cached = false
	return img, nil
}

func missingError(missing []Requirement) error {
	var lines []string
	for _, m := range missing {
		lines = append(lines, m.Need+" "+m.Why)
	}
	mend := ""
	if pkgs := Packages(missing); len(pkgs) > 0 {
		mend = "; install " + strings.Join(pkgs, " ")
	}
	return fmt.Errorf("build guest image: missing: %s%s", strings.Join(lines, "; "), mend)
}

// cached looks an image up. A directory of that name exists only when it was
// finished and renamed; the description inside is checked all the same.
func cached(cacheDir, hash string) (Image, bool) {
	dir := filepath.Join(cacheDir, "image-"+hash)
	data, err := os.ReadFile(filepath.Join(dir, "image.json"))
	if err != nil {
		return Image{}, false
	}
	var img Image
	if json.Unmarshal(data, &img) != nil || img.Hash != hash {
		return Image{}, false
	}
	img.Path = filepath.Join(dir, "disk.qcow2")
	img.Kernel = filepath.Join(dir, "vmlinuz")
	img.Initrd = filepath.Join(dir, "initrd")
	img.Manifest = filepath.Join(dir, "manifest")
	img.Cached = true
	for _, p := range []string{img.Path, img.Kernel, img.Initrd} {
		if st, err := os.Stat(p); err != nil || st.Size() == 0 {
			return Image{}, false
		}
	}
	return img, true
}

// lock takes the cache's lock, waiting for other builders until ctx ends.
func (b *build) lock(ctx context.Context) (func(), error) {
	f, err := os.OpenFile(filepath.Join(b.opts.CacheDir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for told := false; ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if !told {
			b.step("waiting for another builder")
			told = true
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("wait for another builder of %s: %w", b.opts.CacheDir, ctx.Err())
		case <-tick.C:
		}
	}
}

// build makes the image; the caller holds the lock.
func (b *build) build(ctx context.Context) (err error) {
	leftovers, err := filepath.Glob(filepath.Join(b.opts.CacheDir, "work-*"))
	if err != nil {
		return err
	}
	for _, l := range leftovers {
		if err := os.RemoveAll(l); err != nil {
			return fmt.Errorf("remove what an interrupted build left: %w", err)
		}
	}
	if b.dir, err = os.MkdirTemp(b.opts.CacheDir, "work-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()

	rootfs, err := b.rootfs(ctx)
	if err != nil {
		return err
	}
	out := filepath.Join(b.dir, "image")
	if err := os.Mkdir(out, 0o755); err != nil {
		return err
	}
	if err := b.assemble(ctx, rootfs, out); err != nil {
		return err
	}
	final := filepath.Join(b.opts.CacheDir, "image-"+b.hash)
	// What is there was not accepted by cached: broken, not somebody's image.
	if err := os.RemoveAll(final); err != nil {
		return err
	}
	if err := os.Rename(out, final); err != nil {
		return err
	}
	return syncDir(b.opts.CacheDir)
}

// rootfs returns the archive of installed packages, from the cache or anew.
func (b *build) rootfs(ctx context.Context) (string, error) {
	name := b.recipe.rootfsHash()
	if b.hook != "" { // which the recipe knows nothing of
		name = b.hash
	}
	final := filepath.Join(b.opts.CacheDir, "rootfs-"+name+".tar")
	if st, err := os.Stat(final); err == nil && st.Size() > 0 {
		return final, nil
	}
	lines := b.recipe.Sources
	if len(lines) == 0 {
		sources, err := hostSources(ctx)
		if err != nil {
			return "", err
		}
		for _, s := range forRelease(sources, b.recipe.Release) {
			lines = append(lines, s.line())
		}
	}
	if len(lines) == 0 {
		return "", fmt.Errorf("the host's apt has no Debian source for release %s; give Options.Sources", b.recipe.Release)
	}
	b.step("installing %d packages of Debian %s (needs the network, once)", len(b.recipe.Packages), b.recipe.Release)
	tmp := filepath.Join(b.dir, "rootfs.tar")
	args := []string{"mmdebstrap", "--quiet", "--variant=minbase", "--format=tar", "--architectures=amd64",
		"--include=" + strings.Join(b.recipe.Packages, ","),
		`--aptopt=APT::Install-Recommends "false"`,
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*"}
	if os.Geteuid() == 0 {
		args = append(args, "--mode=root")
	} else {
		args = append(args, "--mode=unshare")
	}
	apt, err := hostAptOptions(ctx)
	if err != nil {
		return "", err
	}
	for _, o := range apt {
		args = append(args, "--aptopt="+o)
	}
	if b.hook != "" {
		args = append(args, "--customize-hook="+b.hook, "--dpkgopt=force-unsafe-io")
	}
	args = append(args, b.recipe.Release, tmp)
	args = append(args, lines...)
	if err := b.run(ctx, nil, args...); err != nil {
		return "", err
	}
	if err := syncFile(tmp); err != nil {
		return "", err
	}
	if err := os.Rename(tmp, final); err != nil {
		return "", err
	}
	return final, nil
}

// assemble makes disk, kernel, initramfs, manifest and description in out.
func (b *build) assemble(ctx context.Context, rootfs, out string) error {
	src, err := os.Open(rootfs)
	if err != nil {
		return err
	}
	defer src.Close()
	sys, err := scan(src)
	if err != nil {
		return err
	}
	order, err := loadOrder(sys.deps, bootModules())
	if err != nil {
		return err
	}
	if _, err := src.Seek(0, io.SeekStart); err != nil {
		return err
	}
	uuid := b.recipe.uuid(b.hash)
	rootTar := filepath.Join(b.dir, "root.tar")
	dst, err := os.Create(rootTar)
	if err != nil {
		return err
	}
	composing := b.composing
	if composing == nil {
		composing = compose
	}
	modules, err := composing(src, dst, sys.release, uuid, order)
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	initrd, err := initramfs(sys.busybox, order, modules)
	if err != nil {
		return err
	}
	kernelPath, initrdPath := filepath.Join(out, "vmlinuz"), filepath.Join(out, "initrd")
	for path, data := range map[string][]byte{kernelPath: sys.kernel, initrdPath: initrd, filepath.Join(out, "manifest"): []byte(sys.manifest)} {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
		if err := os.Chtimes(path, epoch, epoch); err != nil {
			return err
		}
	}
	raw := filepath.Join(b.dir, "disk.raw")
	if err := b.makeDisk(ctx, raw, kernelPath, initrdPath, rootTar, uuid); err != nil {
		return err
	}
	b.step("writing the image")
	disk := filepath.Join(out, "disk.qcow2")
	if err := b.run(ctx, nil, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-o", "cluster_size=65536,lazy_refcounts=off", raw, disk); err != nil {
		return err
	}
	desc, err := json.MarshalIndent(Image{Hash: b.hash, Release: b.recipe.Release, Size: int64(b.recipe.DiskMiB) * mib}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "image.json"), append(desc, '\n'), 0o644); err != nil {
		return err
	}
	for _, name := range []string{"vmlinuz", "initrd", "manifest", "disk.qcow2", "image.json"} {
		if err := syncFile(filepath.Join(out, name)); err != nil {
			return err
		}
	}
	return syncDir(out)
}

// run runs one program in the working directory; its output is in the error.
func (b *build) run(ctx context.Context, env []string, args ...string) error {
	path, err := lookPath(args[0])
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args[1:]...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), b.recipe.epochEnv(), "LC_ALL=C.UTF-8", "MTOOLS_SKIP_CHECK=1",
		"PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	cmd.Env = append(cmd.Env, env...)
	// A group of its own: ending the build ends what its tools started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("%s: %w: %s", args[0], err, tail(text.String(), 2000))
	}
	return nil
}

// tail is the end of a program's output, on one line.
func tail(s string, n int) string {
	s = strings.TrimSpace(s)
	if len(s) > n {
		s = "…" + s[len(s)-n:]
	}
	return strings.ReplaceAll(s, "\n", " | ")
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
