package qemu

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/notes"
)

// Accelerator is what QEMU runs guests with on this host. The zero value is
// software emulation.
type Accelerator struct {
	// Name is "kvm" or "tcg".
	Name string `json:"name"`
	// Reason says why, for people.
	Reason string `json:"reason"`
	// Until is when the answer should be asked for again; zero means never. A
	// guest that was too slow may have been so because the host was busy.
	Until time.Time `json:"until,omitzero"`
	// Cached says that the answer is from an earlier probe.
	Cached bool `json:"-"`
}

// args are QEMU's arguments. Under emulation every guest CPU gets a thread of
// its own; "max" is everything that QEMU can emulate, less the fifth level of
// page tables, which costs emulation a seventh of its speed and serves nobody.
func (a Accelerator) args() []string {
	if a.Name == "kvm" {
		return []string{"-accel", "kvm", "-cpu", "host"}
	}
	return []string{"-accel", "tcg,thread=multi", "-cpu", "max,la57=off"}
}

// Probe says how to find out which accelerator works.
type Probe struct {
	// QEMU is the program; "" means qemu-system-x86_64 in PATH.
	QEMU string
	// Kernel and Initrd are what is started: guest.Image has them. With
	// savepoint.probe on its command line the guest prints probeWord and
	// powers off.
	Kernel, Initrd string
	// CacheDir keeps the answer; "" means that it is not kept.
	CacheDir string
	// Limit is how long the guest may take; 0 means 10 seconds.
	Limit time.Duration
	// Device is KVM's device; "" means /dev/kvm.
	Device string
}

const probeWord = "savepoint-probe-ok"

var errHung = errors.New("it hung")

// Accel returns the accelerator that works here. That /dev/kvm is there proves
// little: nested hosts exist whose KVM starts firmware and hangs in the kernel,
// so a real kernel is started. The answer is cached for this CPU, host kernel
// and QEMU. Without a usable KVM the answer is emulation, which always works;
// an error means that there is no QEMU, or that ctx ended.
func Accel(ctx context.Context, p Probe) (Accelerator, error) {
	if p.QEMU == "" {
		p.QEMU = "qemu-system-x86_64"
	}
	if p.Limit == 0 {
		p.Limit = 10 * time.Second
	}
	if p.Device == "" {
		p.Device = "/dev/kvm"
	}
	version, err := exec.CommandContext(ctx, p.QEMU, "--version").Output()
	if ctx.Err() != nil {
		return Accelerator{}, fmt.Errorf("probe kvm: %w", ctx.Err())
	}
	if err != nil {
		return Accelerator{}, fmt.Errorf("find qemu: %w (%v); install qemu-system-x86", orchestrator.ErrUnavailable, err)
	}
	// Permission is this user's, so it is asked every time and not cached.
	f, err := os.OpenFile(p.Device, os.O_RDWR, 0)
	if err != nil {
		return Accelerator{Name: "tcg", Reason: "kvm cannot be used: " + err.Error()}, nil
	}
	_ = f.Close()

	cache := ""
	if p.CacheDir != "" {
		cache = filepath.Join(p.CacheDir, "accelerator-"+p.key(version)+".json")
		if data, err := os.ReadFile(cache); err == nil {
			var a Accelerator
			if json.Unmarshal(data, &a) == nil && (a.Name == "kvm" || a.Name == "tcg") && (a.Until.IsZero() || time.Now().Before(a.Until)) {
				a.Cached = true
				return a, nil
			}
		}
	}
	a := Accelerator{Name: "kvm", Reason: "a guest started under kvm"}
	if err := p.try(ctx, a); err != nil {
		if ctx.Err() != nil {
			return Accelerator{}, fmt.Errorf("probe kvm: %w", ctx.Err())
		}
		a = Accelerator{Name: "tcg", Reason: "kvm is there but does not run a guest: " + err.Error()}
		if errors.Is(err, errHung) {
			a.Until = time.Now().Add(24 * time.Hour)
		}
	}
	if cache != "" {
		if err := notes.WriteJSON(cache, a); err != nil {
			return a, fmt.Errorf("keep the accelerator probe's answer: %w", err)
		}
	}
	return a, nil
}

// key names what the answer depends on.
func (p Probe) key(version []byte) string {
	h := sha256.New()
	h.Write(version)
	if data, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		h.Write(data)
	}
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if strings.HasPrefix(line, "model name") || strings.HasPrefix(line, "flags") || strings.HasPrefix(line, "microcode") {
				h.Write([]byte(line))
			}
			if strings.TrimSpace(line) == "" {
				break // the other CPUs are the same
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// try starts the kernel under the accelerator and waits for its word; powering
// off may take long, and is not waited for.
func (p Probe) try(ctx context.Context, a Accelerator) error {
	ctx, cancel := context.WithTimeout(ctx, p.Limit)
	defer cancel()
	args := append([]string{"-name", "savepoint-probe", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "pc", "-m", "256"}, a.args()...)
	args = append(args, "-kernel", p.Kernel, "-initrd", p.Initrd, "-append", "savepoint.probe console=ttyS0 quiet panic=-1", "-serial", "stdio")
	cmd := exec.CommandContext(ctx, p.QEMU, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout = &limited{buf: &out, max: 64 << 10, seen: func() {
		if strings.Contains(out.String(), probeWord) {
			cancel()
		}
	}}
	cmd.Stderr = &limited{buf: &errs, max: 64 << 10}
	err := cmd.Run()
	switch {
	case strings.Contains(out.String(), probeWord):
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%w for %v", errHung, p.Limit)
	case err != nil:
		return fmt.Errorf("%v: %s", err, lastLine(errs.String()))
	default:
		return errors.New("it ended without a word")
	}
}

// limited keeps the first max bytes; seen, when given, is told of each part.
type limited struct {
	buf  *bytes.Buffer
	max  int
	seen func()
}

func (l *limited) Write(b []byte) (int, error) {
	if room := l.max - l.buf.Len(); room > 0 {
		l.buf.Write(b[:min(room, len(b))])
		if l.seen != nil {
			l.seen()
		}
	}
	return len(b), nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
