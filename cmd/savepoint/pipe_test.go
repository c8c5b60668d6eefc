package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

// A reader that went away is no error: nothing is said, and the exit code is
// the one that it would have been.
func TestUnreadOutput(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SAVEPOINT_STATE_DIR", dir)
	t.Setenv("HOME", dir)
	for _, c := range []struct {
		args string
		code int
	}{
		{"policy explain", exitDone},
		{"--help", exitDone},
		{"tx list", exitDone},
		{"tx list --output json", exitDone},
		{"recover --dry-run", exitDone},
		{"policy check -- ls", exitDone},
		{"policy check --output json -- rm -rf /", exitDenied},
		{"policy check -- rm -rf /", exitDenied},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		code := Run(context.Background(), strings.Fields(c.args), strings.NewReader(""), w, &stderr)
		w.Close()
		if code != c.code || stderr.Len() > 0 {
			t.Errorf("%s: exit code %d, want %d; stderr %q", c.args, code, c.code, stderr.String())
		}
	}
}

// Only that: where there is no room the user has to know.
func TestUnwritableOutput(t *testing.T) {
	full := writeFunc(func([]byte) (int, error) { return 0, syscall.ENOSPC })
	var stderr bytes.Buffer
	if code := Run(context.Background(), []string{"policy", "check", "--output", "json", "--", "ls"}, strings.NewReader(""), full, &stderr); code != exitInternal || !strings.Contains(stderr.String(), "no space left") {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
}

func TestPipe(t *testing.T) {
	writes := 0
	p := &pipe{to: writeFunc(func(b []byte) (int, error) {
		if writes++; writes == 2 {
			return 1, &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}
		}
		return len(b), nil
	})}
	for range 4 {
		if n, err := p.Write([]byte("abc")); n != 3 || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
	}
	if writes != 2 {
		t.Errorf("%d writes, want none after the reader went away", writes)
	}
	if _, err := (&pipe{to: writeFunc(func([]byte) (int, error) { return 0, io.ErrClosedPipe })}).Write([]byte("a")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("another error: got %v", err)
	}
}

type writeFunc func([]byte) (int, error)

func (f writeFunc) Write(b []byte) (int, error) { return f(b) }
