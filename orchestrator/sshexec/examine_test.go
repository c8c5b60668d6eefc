package sshexec_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
	"savepoint/orchestrator/sshexec/wire"
	"savepoint/testbed/sim"
)

// TestSessionOf: what a guest reports is an agent's word.
func TestSessionOf(t *testing.T) {
	many := []string{"/"}
	for i := range 257 {
		many = append(many, fmt.Sprintf("V%d=", i))
	}
	for name, c := range map[string]struct {
		fields []string
		dir    string
		env    map[string]string // nil = no session
	}{
		"plain":             {[]string{"/a b", "A=1=2", "B="}, "/a b", map[string]string{"A": "1=2", "B": ""}},
		"relative":          {[]string{"a", "A=1"}, "", map[string]string{"A": "1"}},
		"no directory":      {[]string{""}, "", map[string]string{}},
		"shell's own":       {[]string{"/", "PWD=/x", "OLDPWD=/", "SHLVL=3", "_=x", "POSIXLY_CORRECT=y", "A=1"}, "/", map[string]string{"A": "1"}},
		"refused names":     {[]string{"/", "BASH_ENV=/x", "LD_PRELOAD=x", "BASH_FUNC_f%%=() { :; }", "1A=x", "=x", "IFS=x", "a b=c"}, "/", map[string]string{}},
		"zero byte":         {[]string{"/", "A=\x00"}, "/", map[string]string{}},
		"no name":           {[]string{"/", "noequals"}, "/", map[string]string{"noequals": ""}},
		"too many":          {many, "", nil},
		"as many as can be": {many[:257], "/", nil},
		"too long":          {[]string{"/", "A=" + strings.Repeat("x", 1<<16)}, "", nil},
		"nothing":           {nil, "", nil},
	} {
		got := sshexec.SessionOf(wire.EncodeFields(c.fields...))
		if name == "as many as can be" {
			if got == nil || len(got.Env) != 256 {
				t.Errorf("%s: got %+v", name, got)
			}
			continue
		}
		if (got == nil) != (c.env == nil) || got != nil && (got.Dir != c.dir || !maps.Equal(got.Env, c.env)) {
			t.Errorf("%s: got %+v, want %q, %v", name, got, c.dir, c.env)
		}
	}
	if got := sshexec.SessionOf([]byte("\x00\x00\x00\x09x")); got != nil {
		t.Errorf("cut short: got %+v", got)
	}
}

func FuzzEntries(f *testing.F) {
	f.Add(wire.EncodeFields("/a", "33188 0 0 5 1 2 3 4 5 0 0:0 0", "", "ab", "", ""))
	f.Add(wire.EncodeFields("/a", "", "", "", "absent", ""))
	f.Add(wire.EncodeFields("/dev/null", "8630 0 0 0 -1 2 18446744073709551615 4 5 16 1:3 1", "", "", "", "xx"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := sshexec.Entries(nil, b)
		for _, e := range got {
			if err == nil && e.Type == "" {
				t.Errorf("%q: an entry without a type: %+v", b, e)
			}
		}
	})
}

// TestManifestEnds: a listing that its context ends leaves a session of use,
// and the order to end it does not reach the next command.
func TestManifestEnds(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	_, sb := w.sandbox(t, 101)
	w.run(t, sb, "mkdir -p /tmp/many; cd /tmp/many; for i in $(seq 400); do : > f$i; done")
	for i := range 60 {
		ctx, cancel := context.WithCancel(within(t, 20*time.Second))
		timer := time.AfterFunc(time.Duration(i)*50*time.Microsecond, cancel)
		m, err := w.Manifest(ctx, sb, orchestrator.ManifestRequest{Roots: []string{"/tmp/many", "/etc"}, Hash: true})
		switch {
		case err == nil && len(m.Entries) < 401:
			t.Errorf("a manifest that is not whole: %d entries", len(m.Entries))
		case err != nil && (!errors.Is(err, orchestrator.ErrUnavailable) || !errors.Is(err, context.Canceled)):
			t.Errorf("got %v, want ErrUnavailable and the context's error", err)
		}
		timer.Stop()
		if got := w.run(t, sb, "printf ok"); got != "ok" {
			t.Errorf("the next command: got %q", got)
		}
		cancel()
	}
	if n := w.dials.Load(); n > 2 {
		t.Errorf("dialled %d times: a listing that ended cost its connection", n)
	}
}

// TestManifestSilent: a guest that does not answer is given up, and the session
// is not used again.
func TestManifestSilent(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, func(c *sshexec.Config) { c.KillTimeout = 20 * time.Millisecond })
	_, sb := w.sandbox(t, 101)
	w.run(t, sb, "true")
	if err := w.Backend.Freeze(101, true); err != nil {
		t.Fatal(err)
	}
	_, err := w.Manifest(within(t, 50*time.Millisecond), sb, orchestrator.ManifestRequest{Roots: []string{"/etc"}})
	wantClass(t, err, orchestrator.ErrUnavailable)
	if err := w.Backend.Freeze(101, false); err != nil {
		t.Fatal(err)
	}
	if m, err := w.Manifest(within(t, 20*time.Second), sb, orchestrator.ManifestRequest{Roots: []string{"/etc/passwd"}}); err != nil || len(m.Entries) != 1 {
		t.Errorf("afterwards: %+v, %v", m, err)
	}
}

// TestManifestLost: a listing whose connection is lost is asked for again.
func TestManifestLost(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	_, sb := w.sandbox(t, 101)
	for i := range 20 {
		timer := time.AfterFunc(time.Duration(i)*100*time.Microsecond, func() { w.Cut(101) })
		m, err := w.Manifest(within(t, 20*time.Second), sb, orchestrator.ManifestRequest{Roots: []string{"/"}, Hash: true})
		if err != nil || len(m.Entries) < 50 {
			t.Errorf("got %d entries, %v", len(m.Entries), err)
		}
		timer.Stop()
	}
}

// A guest that lists without end is not listened to without end.
func TestListIsBounded(t *testing.T) {
	entry := func(path string) []byte { return wire.EncodeFields(path, "", "", "", "absent", "") }
	frames := func(n int, path string) (out []wire.Frame) {
		for range n {
			out = append(out, wire.Frame{Kind: wire.Entries, Payload: entry(path)})
		}
		return append(out, wire.Frame{Kind: wire.Done, Payload: wire.EncodeFields(fmt.Sprint(n))})
	}
	long := "/" + strings.Repeat("x", 100<<10)
	for name, c := range map[string]struct {
		frames []wire.Frame
		many   bool
		says   string // "" = it is taken
	}{
		"as many as may be": {frames(200, "/a"), false, ""},
		"too many":          {frames(201, "/a"), true, "more than 200"},
		"long names":        {frames(2, long), false, "longer than 200 KiB together; name smaller trees"},
		"a long name":       {frames(1, long), false, ""},
	} {
		m, goesOn, err := sshexec.ListOf(within(t, time.Minute), orchestrator.ManifestRequest{Roots: []string{"/"}, Limit: 200}, c.frames)
		if c.says == "" {
			if err != nil || !goesOn || len(m.Entries) != len(c.frames)-1 {
				t.Errorf("%s: got %d entries, %v", name, len(m.Entries), err)
			}
			continue
		}
		var many *orchestrator.TooManyError
		if !errors.Is(err, orchestrator.ErrDenied) || errors.As(err, &many) != c.many || !strings.Contains(err.Error(), c.says) || goesOn || len(m.Entries) > 0 {
			t.Errorf("%s: got %d entries, %v; the session goes on: %t", name, len(m.Entries), err, goesOn)
		}
	}
}
