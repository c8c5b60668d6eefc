package qemu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// probeWith probes with a program that is the shell script; --version works.
func probeWith(t *testing.T, script string) (Probe, string) {
	t.Helper()
	dir := t.TempDir()
	path, device := filepath.Join(dir, "qemu"), filepath.Join(dir, "kvm")
	body := "#!/bin/sh\nif [ \"$1\" = --version ]; then echo fake 1; exit 0; fi\necho x >> " + dir + "/runs\n" + script + "\n"
	if err := os.WriteFile(path, []byte(body), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(device, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return Probe{QEMU: path, Kernel: "k", Initrd: "i", CacheDir: dir, Device: device, Limit: 10 * time.Second}, filepath.Join(dir, "runs")
}

func TestAccel(t *testing.T) {
	for name, tc := range map[string]struct {
		script, want, reason string
		limit                time.Duration
	}{
		"works":                     {"echo " + probeWord, "kvm", "a guest started", 0},
		"word, then slow power-off": {"echo " + probeWord + "; exec sleep 60", "kvm", "a guest started", time.Minute},
		"hangs like a bad host":     {"echo SeaBIOS; echo 'Booting from ROM..'; exec sleep 60", "tcg", "it hung", 300 * time.Millisecond},
		"aborts":                    {"echo 'Assertion failed' >&2; kill -ABRT $$", "tcg", "Assertion failed", 0},
		"ends without a word":       {"exit 0", "tcg", "without a word", 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, runs := probeWith(t, tc.script)
			if tc.limit != 0 {
				p.Limit = tc.limit
			}
			a, err := Accel(context.Background(), p)
			if err != nil || a.Name != tc.want || !strings.Contains(a.Reason, tc.reason) || a.Cached {
				t.Fatalf("got %+v, %v", a, err)
			}
			again, err := Accel(context.Background(), p)
			if err != nil || again.Name != a.Name || !again.Cached {
				t.Errorf("second time: %+v, %v", again, err)
			}
			if data, err := os.ReadFile(runs); err != nil || string(data) != "x\n" {
				t.Errorf("guests started: %q, %v", data, err)
			}
		})
	}
}

func TestAccelWithoutKVM(t *testing.T) {
	p, runs := probeWith(t, "echo "+probeWord)
	p.Device = filepath.Join(t.TempDir(), "none")
	a, err := Accel(context.Background(), p)
	if err != nil || a.Name != "tcg" || !strings.Contains(a.Reason, "no such file") {
		t.Errorf("got %+v, %v", a, err)
	}
	if _, err := os.Stat(runs); err == nil {
		t.Error("a guest was started without the device")
	}
	p.QEMU = filepath.Join(t.TempDir(), "none")
	if _, err := Accel(context.Background(), p); !errors.Is(err, orchestrator.ErrUnavailable) {
		t.Errorf("no qemu: %v", err)
	}
}

func TestAccelCancelledIsNotKept(t *testing.T) {
	p, _ := probeWith(t, "exec sleep 60")
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if a, err := Accel(ctx, p); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %+v, %v", a, err)
	}
	if kept, _ := filepath.Glob(filepath.Join(p.CacheDir, "accelerator-*")); len(kept) != 0 {
		t.Errorf("kept: %v", kept)
	}
}
