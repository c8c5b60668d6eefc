package zfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Config says where a pool is.
type Config struct {
	Dir  string // absolute; made when it is missing
	Name string // of the pool, also in the names of datasets that nodes are told
	Size int64  // of a new pool's disk; at least MinSize
	// path has the programs zfs, zpool and zfs-fuse; "" = where Debian has them.
	path string
	// proc is where processes are seen; "" = /proc.
	proc string
}

// MinSize is the smallest disk that zfs makes a pool of.
const MinSize = 64 << 20

// Pool is an open pool. It is safe for use by several goroutines.
type Pool struct{ c Config }

var nameRE = regexp.MustCompile(`\A[a-zA-Z][a-zA-Z0-9_.-]{0,63}\z`)

const (
	programs       = "/usr/sbin:/usr/bin:/sbin:/bin"
	commandTime    = time.Minute
	startTime      = 20 * time.Second
	stopTime       = 12 * time.Second
	busyTime       = 10 * time.Second
	pollTime       = 50 * time.Millisecond
	runDir, libDir = "/var/run/zfs", "/var/lib/zfs"
)

// Require says whether this machine can run a pool.
func Require() error {
	if os.Geteuid() != 0 {
		return errors.New("run ZFS for the lab: it needs root; run the lab as root, or without ZFS")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		return fmt.Errorf("run ZFS for the lab: %w; load the kernel's module fuse, or run the lab without ZFS", err)
	}
	for _, p := range []string{"zfs-fuse", "zfs", "zpool"} {
		if _, err := os.Stat(filepath.Join("/usr/sbin", p)); err != nil {
			return fmt.Errorf("run ZFS for the lab: %w; install the package zfs-fuse", err)
		}
	}
	return nil
}

func (c Config) image() string    { return filepath.Join(c.Dir, "pool.img") }
func (c Config) noteFile() string { return filepath.Join(c.Dir, "pool.note") }
func (c Config) mounts() string   { return filepath.Join(c.Dir, "mnt") }
func (c Config) pidFile() string  { return filepath.Join(c.Dir, "zfs-fuse.pid") }
func (c Config) logFile() string  { return filepath.Join(c.Dir, "zfs-fuse.log") }

// Open returns the pool of the directory: the running one, the one that an
// earlier process left, or a new one.
func Open(ctx context.Context, c Config) (*Pool, error) {
	if !filepath.IsAbs(c.Dir) || !nameRE.MatchString(c.Name) || c.Size < MinSize {
		return nil, fmt.Errorf("open the lab's pool: directory %q, name %q, size %d: need an absolute path, a name and at least %d bytes", c.Dir, c.Name, c.Size, MinSize)
	}
	if err := Require(); err != nil {
		return nil, err
	}
	for _, dir := range []string{c.Dir, c.mounts(), runDir, libDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("open the lab's pool: %w", err)
		}
	}
	if err := c.startDaemon(ctx); err != nil {
		return nil, err
	}
	p := &Pool{c}
	if err := p.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open the lab's pool: %w", err), c.stopDaemon(context.WithoutCancel(ctx)))
	}
	return p, nil
}

// mount mounts every volume below the directory. zfs-fuse ends an unmount a little
// after it says so.
func (p *Pool) mount(ctx context.Context) error {
	at, err := p.run(ctx, "zfs", "get", "-H", "-o", "value", "mountpoint", p.c.Name)
	if err != nil {
		return err
	}
	// Setting it unmounts what is mounted: only where it is another.
	if strings.TrimSpace(at) != p.c.mounts() {
		if _, err := p.run(ctx, "zfs", "set", "mountpoint="+p.c.mounts(), p.c.Name); err != nil {
			return err
		}
	}
	_, err = p.run(ctx, "zfs", "mount", "-a")
	return err
}

// Close stops the daemon and keeps the pool. ErrBusy: something has a volume open,
// and everything runs on.
func (p *Pool) Close(ctx context.Context) error {
	if _, err := p.run(ctx, "zfs", "umount", "-a"); err != nil {
		return fmt.Errorf("stop the lab's pool: %w; end what uses its volumes", err)
	}
	if _, err := p.run(ctx, "zpool", "export", p.c.Name); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("stop the lab's pool: %w", err)
	}
	return p.c.stopDaemon(ctx)
}

// Sweep ends and removes everything that a directory has of a pool, also when the
// daemon or its owner was killed. Nothing there is no error.
func Sweep(ctx context.Context, dir string) error {
	c := Config{Dir: dir}
	if pid, _, err := c.daemon(); err != nil {
		return err
	} else if pid != 0 { // as cleanly as it can be had; what does not work is forced below
		p := &Pool{c}
		_, _ = p.run(ctx, "zfs", "umount", "-a", "-f")
		if names, err := p.run(ctx, "zpool", "list", "-H", "-o", "name"); err == nil {
			for name := range strings.FieldsSeq(names) {
				_, _ = p.run(ctx, "zpool", "export", "-f", name)
			}
		}
	}
	if err := c.stopDaemon(ctx); err != nil {
		return err
	}
	copies, err := filepath.Glob(filepath.Join(dir, programPrefix+"*"))
	if err != nil {
		return fmt.Errorf("remove the lab's pool: %w", err)
	}
	for _, path := range append(copies, c.image(), c.noteFile(), c.noteFile()+".part", c.pidFile(), c.logFile(), c.mounts()) {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove the lab's pool: %w", err)
		}
	}
	return nil
}

// run is one command, tried again for a while when what it needs is busy: an
// unmount takes long to end on a machine that has much to do.
func (p *Pool) run(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	poll := time.NewTicker(pollTime)
	defer poll.Stop()
	patience := time.NewTimer(busyTime)
	defer patience.Stop()
	for {
		out, err := p.once(ctx, program, args)
		if !errors.Is(err, ErrBusy) {
			return out, err
		}
		select {
		case <-poll.C:
		case <-patience.C:
			return out, err
		case <-ctx.Done():
			return out, err
		}
	}
}

func (p *Pool) once(ctx context.Context, program string, args []string) (string, error) {
	path := program
	for dir := range strings.SplitSeq(p.c.programs(), ":") {
		if _, err := os.Stat(filepath.Join(dir, program)); err == nil {
			path = filepath.Join(dir, program)
			break
		}
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=" + p.c.programs(), "LC_ALL=C", "TZ=UTC"}
	cmd.WaitDelay = time.Second
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	said := strings.TrimSpace(text.String())
	e := &commandError{command: program + " " + strings.Join(args, " "), text: said, class: classOf(said)}
	if said == "" || ctx.Err() != nil {
		e.text = strings.TrimSpace(said + " " + err.Error())
	}
	return "", e
}

func (c Config) programs() string {
	if c.path != "" {
		return c.path
	}
	return programs
}
