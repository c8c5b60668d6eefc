package sshexec_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"savepoint/orchestrator/sshexec"
	"savepoint/orchestrator/sshexec/wire"
)

// helperProcess is the real helper on this machine, over pipes. It holds commands
// together as it does where there are no control groups, so it leaves nothing.
type helperProcess struct {
	in  io.Writer
	out *bufio.Reader
	pid int
}

func startHelper(t *testing.T, changes ...string) helperProcess {
	t.Helper()
	perl, err := exec.LookPath("perl")
	if err != nil {
		t.Skip("no perl")
	}
	text := sshexec.HelperText()
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(text, changes[i]) {
			t.Fatalf("the helper does not hold %q", changes[i])
		}
		text = strings.ReplaceAll(text, changes[i], changes[i+1])
	}
	path := filepath.Join(t.TempDir(), "helper.pl")
	ok(t, "write the helper", os.WriteFile(path, []byte(strings.Replace(text, "\nfind_base();\n", "\ncall('prctl', 36, 1, 0, 0, 0);\n", 1)), 0o600))
	// Whoever waits for a frame waits no longer than this.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel) // after the helper ended by itself
	cmd := exec.CommandContext(ctx, perl, path)
	cmd.WaitDelay = time.Second
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	var said bytes.Buffer
	cmd.Stderr = &said
	ok(t, "pipes", err1)
	ok(t, "pipes", err2)
	ok(t, "start perl", cmd.Start())
	h := helperProcess{in, bufio.NewReader(out), cmd.Process.Pid}
	t.Cleanup(func() {
		in.Close()
		io.Copy(io.Discard, out) //nolint:errcheck // its end is what is waited for
		if err := cmd.Wait(); err != nil || said.Len() > 0 {
			t.Errorf("the helper: %v: %s", err, said.String())
		}
	})
	ok(t, "greeting", wire.ReadGreeting(h.out))
	if f := h.next(t); f.Kind != wire.Hello {
		t.Fatalf("it begins with %q", f.Kind)
	}
	return h
}

func (h helperProcess) send(t *testing.T, kind byte, fields ...string) {
	t.Helper()
	_, err := h.in.Write(wire.Encode(kind, wire.EncodeFields(fields...)))
	ok(t, "send", err)
}

func (h helperProcess) next(t *testing.T) wire.Frame {
	t.Helper()
	f, err := wire.Read(h.out)
	ok(t, "read a frame", err)
	return f
}

// What a command wrote is told whole, however long whoever reads it takes. The
// helper here waits no time at all for what somebody else may still hold open.
func TestHelperKeepsOutput(t *testing.T) {
	h := startHelper(t, "$run->{over} + 1", "$run->{over}")
	fifo := filepath.Join(t.TempDir(), "end")
	ok(t, "make a fifo", syscall.Mkfifo(fifo, 0o600))
	// Much more than the helper and the pipe behind it keep, and less than the
	// command's own pipe holds: so it ends although nobody reads.
	const size = 800_000
	h.send(t, wire.Run, "root", "/", "0", "", "", fmt.Sprintf("exec 9>%s; perl -e 'fcntl(STDOUT, 1031, 1 << 20) or die; syswrite STDOUT, \"x\" x %d'", fifo, size))
	f := h.next(t)
	if f.Kind != wire.Started {
		t.Fatalf("got %q %q", f.Kind, f.Payload)
	}
	pid, err := wire.DecodeFields(f.Payload)
	ok(t, "read the process id", err)
	end, err := os.Open(fifo)
	ok(t, "open the fifo", err)
	defer end.Close()
	_, err = io.ReadAll(end)
	ok(t, "wait for the end", err)
	for deadline := time.Now().Add(20 * time.Second); ; { // the helper has noticed it
		if _, err := os.Stat("/proc/" + pid[0]); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the helper does not notice the command's end")
		}
	}
	got := 0
	for {
		switch f := h.next(t); f.Kind {
		case wire.Stdout:
			got += len(f.Payload)
		case wire.Exit:
			if got != size {
				t.Errorf("%d bytes arrived of %d", got, size)
			}
			return
		default:
			t.Fatalf("got %q %q", f.Kind, f.Payload)
		}
	}
}

// A listing that was ended leaves nothing, also where what it started comes to the
// helper: not even a process that nobody has waited for. Where the kernel takes the
// digests there is nothing but the listing itself: see TestHelperEndsKernelListing.
func TestHelperEndsListing(t *testing.T) {
	endsListing(t, "sha256sum", "socket my $alg, 38,", "socket my $alg, 9999,")
}

func TestHelperEndsKernelListing(t *testing.T) {
	alg, err := syscall.Socket(syscall.AF_ALG, syscall.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Skipf("this kernel takes no digests: %v", err)
	}
	ok(t, "close", syscall.Close(alg))
	endsListing(t, "perl")
}

func endsListing(t *testing.T, reader string, changes ...string) {
	t.Helper()
	big := filepath.Join(t.TempDir(), "endless")
	ok(t, "make a file", os.WriteFile(big, nil, 0o600))
	ok(t, "make it long", os.Truncate(big, 30<<30))
	h := startHelper(t, changes...)
	for range 20 {
		h.send(t, wire.List, "10", "1", big)
		for deadline := time.Now().Add(20 * time.Second); !slices.Contains(h.below(t), reader); {
			if time.Now().After(deadline) {
				t.Fatal("nothing is being read")
			}
		}
		h.send(t, wire.Kill)
		if f := h.next(t); f.Kind != wire.Refusal {
			t.Fatalf("got %q %q", f.Kind, f.Payload)
		}
		if left := h.below(t); len(left) > 0 {
			t.Fatalf("left: %v", left)
		}
	}
}

// below names the processes that descend from the helper.
func (h helperProcess) below(t *testing.T) (names []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	ok(t, "list processes", err)
	type process struct {
		name   string
		parent int
	}
	all := map[int]process{}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it is gone
		}
		open, shut := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
		var pid, parent int
		var state string
		_, err = fmt.Sscan(string(text[:open]), &pid)
		ok(t, "read "+path, err)
		_, err = fmt.Sscan(string(text[shut+1:]), &state, &parent)
		ok(t, "read "+path, err)
		all[pid] = process{string(text[open+1 : shut]), parent}
	}
	for pid, p := range all {
		for at := pid; at != 0; at = all[at].parent {
			if all[at].parent == h.pid {
				names = append(names, p.name)
				break
			}
		}
	}
	return names
}
