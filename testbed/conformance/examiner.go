package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
)

func (s *executorSuite) examiner(t *testing.T) orchestrator.Examiner {
	t.Helper()
	e, ok := s.Guest.(orchestrator.Examiner)
	if !ok {
		t.Skip("this guest is no Examiner")
	}
	return e
}

func (s *executorSuite) health(t *testing.T) {
	e := s.examiner(t)
	marked, err := s.Guest.Mark(s.context(t), s.Sandbox, "healthy")
	if err != nil {
		t.Fatal(err)
	}
	h, err := e.Health(s.context(t), s.Sandbox)
	if err != nil {
		t.Fatalf("health: %v", err)
	}
	if h.BootID != marked.BootID || h.Generation != "healthy" || h.RoundTrip <= 0 || h.Clock.Before(marked.Clock) {
		t.Errorf("marked %+v, then saw %+v", marked, h.GuestFacts)
	}
	if len(h.Free) == 0 || h.Free[0].Mount != "/" {
		t.Fatalf("free space: got %+v", h.Free)
	}
	for _, f := range h.Free {
		if f.Bytes <= 0 || f.Bytes > f.TotalBytes || f.Inodes < 0 || f.Inodes > f.TotalInodes {
			t.Errorf("free space: got %+v", f)
		}
	}
	if !h.Services[orchestrator.ServiceSSH] || h.Services[orchestrator.ServiceAgent] != s.caps.Agent || len(h.Services) != 2 {
		t.Errorf("services: got %v, want sshd and the guest agent %t", h.Services, s.caps.Agent)
	}
	other := s.Sandbox
	other.HostKey = s.OtherKey
	var key *orchestrator.HostKeyError
	if _, err := e.Health(s.context(t), other); !errors.As(err, &key) {
		t.Errorf("health with another pin: got %v, want *HostKeyError", err)
	}
	if _, err := e.Manifest(s.context(t), other, orchestrator.ManifestRequest{Roots: []string{"/etc"}}); !errors.As(err, &key) {
		t.Errorf("manifest with another pin: got %v, want *HostKeyError", err)
	}
}

const plot = "/workspace/plot"

const plant = `rm -rf ` + plot + `; mkdir -p ` + plot + `/dir/deep && cd ` + plot + ` &&
printf hello > file; printf secret > dir/deep/file; : > empty; head -c 300000 /dev/zero > big
touch "$(printf 'new\nline')" "$(printf 'no\377text')" ' spaced '
ln -s file link; ln -s /nowhere dangling; ln -s dir to-dir; chmod 640 file; chmod 4755 empty`

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (s *executorSuite) list(t *testing.T, hash bool, roots ...string) orchestrator.Manifest {
	t.Helper()
	m, err := s.examiner(t).Manifest(s.context(t), s.Sandbox, orchestrator.ManifestRequest{Roots: roots, Hash: hash})
	if err != nil {
		t.Fatalf("manifest of %q: %v", roots, err)
	}
	return m
}

func (s *executorSuite) manifest(t *testing.T) {
	s.examiner(t)
	s.run(t, plant, orchestrator.ExecRequest{})
	dir, file, link := orchestrator.EntryDir, orchestrator.EntryFile, orchestrator.EntryLink
	want := map[string]orchestrator.ManifestEntry{
		"": {Type: dir, Mode: 0o755}, "/dir": {Type: dir, Mode: 0o755}, "/dir/deep": {Type: dir, Mode: 0o755},
		"/file": {Type: file, Mode: 0o640, Size: 5, SHA256: digestOf("hello")}, "/dir/deep/file": {Type: file, Mode: 0o644, Size: 6, SHA256: digestOf("secret")},
		"/empty": {Type: file, Mode: 0o4755, SHA256: digestOf("")}, "/big": {Type: file, Mode: 0o644, Size: 300000, SHA256: digestOf(strings.Repeat("\x00", 300000))},
		"/new\nline": {Type: file, Mode: 0o644, SHA256: digestOf("")}, "/no\xfftext": {Type: file, Mode: 0o644, SHA256: digestOf("")}, "/ spaced ": {Type: file, Mode: 0o644, SHA256: digestOf("")},
		"/link": {Type: link, Target: "file", Mode: 0o777}, "/dangling": {Type: link, Target: "/nowhere", Mode: 0o777}, "/to-dir": {Type: link, Target: "dir", Mode: 0o777},
	}
	for _, hash := range []bool{true, false} {
		m := s.list(t, hash, plot+"/dir/deep/", plot, plot+"/dir", plot) // each path once
		if m.Hash != hash || len(m.Entries) != len(want) || !slices.IsSortedFunc(m.Entries, func(a, b orchestrator.ManifestEntry) int { return strings.Compare(a.Path, b.Path) }) {
			t.Errorf("hash %t: got %d entries, want %d, sorted", hash, len(m.Entries), len(want))
		}
		for _, e := range m.Entries {
			w, ok := want[strings.TrimPrefix(e.Path, plot)]
			if !hash {
				w.SHA256 = ""
			}
			if e.Type != file {
				e.Size = 0
			}
			if !ok || e.Type != w.Type || e.Mode != w.Mode || e.Size != w.Size || e.SHA256 != w.SHA256 || e.Target != w.Target || e.UID == 0 || e.Problem != "" || e.MTime.IsZero() {
				t.Errorf("hash %t: got %+v, want %+v", hash, e, w)
			}
		}
		if again := s.list(t, hash, plot); len(m.Diff(again)) != 0 || m.Sum() != again.Sum() {
			t.Errorf("hash %t: a second look differs: %+v", hash, m.Diff(again))
		}
	}
	for root, want := range map[string]orchestrator.EntryType{
		plot + "/none": orchestrator.EntryAbsent, plot + "/file/below": orchestrator.EntryAbsent, plot + "/none/below": orchestrator.EntryAbsent,
		plot + "/file": file, plot + "/to-dir": link, plot + "/dangling": link, plot + "/to-dir/deep/file": file,
	} {
		if m := s.list(t, true, root); len(m.Entries) != 1 || m.Entries[0].Path != root || m.Entries[0].Type != want || m.Entries[0].Problem != "" {
			t.Errorf("root %s: got %+v, want one %s", root, m.Entries, want)
		}
	}
	if s.caps.Signals {
		s.manifestKinds(t)
	} else if m := s.list(t, false, "/"); len(m.Entries) < 50 || m.Entries[0].Path != "/" || m.Entries[1].Path != "/bin" {
		t.Errorf("of everything: got %d entries", len(m.Entries)) // a real disk may hold more than the limit
	}
}

// manifestKinds is what only a real guest has.
func (s *executorSuite) manifestKinds(t *testing.T) {
	root := func(command string) orchestrator.ExecResult {
		t.Helper()
		res, err := s.try(s.context(t), policy.Root, command, orchestrator.ExecRequest{})
		if err != nil {
			t.Fatalf("%q: %v", command, err)
		}
		return res
	}
	s.run(t, plant+`; mkfifo fifo; touch -a -d '3 days ago' file; touch -d '1965-01-02' empty`, orchestrator.ExecRequest{})
	root("mknod " + plot + "/null c 1 3")
	before := s.list(t, true, plot, "/proc/sys/kernel/ostype", "/dev/null")
	types := map[string]orchestrator.ManifestEntry{}
	for _, e := range before.Entries {
		types[e.Path] = e
	}
	if e := types[plot+"/fifo"]; e.Type != orchestrator.EntryFIFO {
		t.Errorf("fifo: got %+v", e)
	}
	if e := types["/dev/null"]; e.Type != orchestrator.EntryChar || e.Device != "1:3" {
		t.Errorf("/dev/null: got %+v", e)
	}
	if e := types["/proc/sys/kernel/ostype"]; e.SHA256 != digestOf("Linux\n") {
		t.Errorf("a file without a size: got %+v", e)
	}
	if e := types[plot+"/empty"]; e.MTime.Year() != 1965 {
		t.Errorf("a time before 1970: got %s", e.MTime)
	}
	if got := strings.TrimSpace(string(s.run(t, "test $(stat -c %X "+plot+"/file) -lt $(date -d yesterday +%s) && echo old", orchestrator.ExecRequest{}).Stdout)); got != "old" {
		t.Error("a manifest changed the access time of a file")
	}
	// Extended attributes, where the file system has them.
	set := `perl -e 'my ($f, $k, $v) = ("` + plot + `/file", "user.note", "v"); syscall($ARGV[0] =~ /x86_64/ ? 188 : 5, $f, $k, $v, 1, 0) == 0 or die "$!\n"' $(uname -m)`
	if res := root(set); res.ExitCode == 0 {
		d := before.Diff(s.list(t, true, plot, "/proc/sys/kernel/ostype", "/dev/null"))
		if len(d) != 1 || d[0].Path != plot+"/file" || d[0].What != "extended attributes" {
			t.Errorf("an extended attribute: got %+v", d)
		}
	} else {
		t.Logf("no extended attributes here: %s", res.Stderr)
	}
	// Another file system is named, not entered; as a root it is.
	for _, e := range s.list(t, false, "/dev").Entries {
		if strings.HasPrefix(e.Path, "/dev/pts/") {
			t.Fatalf("entered another file system: %s", e.Path)
		}
		if e.Path == "/dev/pts" && !e.Mount {
			t.Errorf("/dev/pts: got %+v", e)
		}
	}
	both := s.list(t, false, "/dev", "/dev/pts")
	if !slices.ContainsFunc(both.Entries, func(e orchestrator.ManifestEntry) bool { return e.Path == "/dev/pts/ptmx" }) {
		t.Error("a file system that is a root was not entered")
	}
}

// manifestChanges: what a command did is seen in both kinds of manifest.
func (s *executorSuite) manifestChanges(t *testing.T) {
	s.examiner(t)
	for name, c := range map[string]struct {
		command string
		want    string // PATH KIND, without the plot
	}{
		"content of the same length": {"printf jello > file", "/file changed"},
		"large file":                 {"printf x >> big", "/big changed"},
		"deep":                       {"printf secreT > dir/deep/file", "/dir/deep/file changed"},
		"mode":                       {"chmod 600 file", "/file changed"},
		"removed":                    {"rm file", "/file removed"},
		"removed with all below":     {"rm -r dir", "/dir removed,/dir/deep removed,/dir/deep/file removed"},
		"added":                      {"printf x > dir/new", "/dir/new added"},
		"moved":                      {"mv dir/deep dir/d", "/dir/d added,/dir/d/file added,/dir/deep removed,/dir/deep/file removed"},
		"link":                       {"ln -sfn empty link || { rm link; ln -s empty link; }", "/link changed"},
		"a file in place of a link":  {"rm link; printf hello > link", "/link changed"},
		"odd name":                   {"printf x > \"$(printf 'no\\377text')\"", "/no\xfftext changed"},
		"nothing":                    {"cat file >/dev/null; ls -l", ""},
	} {
		s.run(t, plant, orchestrator.ExecRequest{})
		hashed, plain := s.list(t, true, plot), s.list(t, false, plot)
		s.run(t, "cd "+plot+" && "+c.command, orchestrator.ExecRequest{})
		for kind, diff := range map[string][]orchestrator.Change{"hashed": hashed.Diff(s.list(t, true, plot)), "plain": plain.Diff(s.list(t, false, plot))} {
			var got []string
			for _, d := range diff {
				got = append(got, strings.TrimPrefix(d.Path, plot)+" "+string(d.Kind))
			}
			if strings.Join(got, ",") != c.want {
				t.Errorf("%s, %s: got %+v, want %s", name, kind, diff, c.want)
			}
		}
	}
	// Back to the same bytes: content says no, the trace says yes.
	s.run(t, plant, orchestrator.ExecRequest{})
	hashed, plain := s.list(t, true, plot), s.list(t, false, plot)
	s.run(t, "cd "+plot+"; printf hello > file", orchestrator.ExecRequest{})
	if d := hashed.Diff(s.list(t, true, plot)); len(d) != 0 {
		t.Errorf("the same bytes again: got %+v", d)
	}
	if d := plain.Diff(s.list(t, false, plot)); len(d) != 1 || d[0].Path != plot+"/file" {
		t.Errorf("the same bytes again, without digests: got %+v", d)
	}
}

func (s *executorSuite) manifestBounds(t *testing.T) {
	e := s.examiner(t)
	s.run(t, plant, orchestrator.ExecRequest{})
	for name, r := range map[string]orchestrator.ManifestRequest{
		"no root": {}, "relative": {Roots: []string{"etc"}}, "zero byte": {Roots: []string{"/etc\x00/x"}}, "negative": {Roots: []string{"/etc"}, Limit: -1},
	} {
		if _, err := e.Manifest(s.context(t), s.Sandbox, r); !errors.Is(err, orchestrator.ErrDenied) {
			t.Errorf("%s: got %v, want ErrDenied", name, err)
		}
	}
	for _, limit := range []int{12, 13} { // there are 13
		m, err := e.Manifest(s.context(t), s.Sandbox, orchestrator.ManifestRequest{Roots: []string{plot}, Limit: limit, Hash: true})
		var many *orchestrator.TooManyError
		if limit < 13 && (!errors.As(err, &many) || many.Limit != limit || !errors.Is(err, orchestrator.ErrDenied) || len(m.Entries) > 0) {
			t.Errorf("limit %d: got %v, want *TooManyError", limit, err)
		}
		if limit == 13 && err != nil {
			t.Errorf("limit %d: got %v", limit, err)
		}
	}
	// A tree that is being changed is listed all the same.
	ctx, cancel := context.WithCancel(s.context(t))
	var wg sync.WaitGroup
	wg.Go(func() {
		s.try(ctx, policy.Agent, "cd "+plot+"; touch churning; while :; do mkdir m; echo x > m/a; echo y > b; mv b c; rm -r m c; done", orchestrator.ExecRequest{}) //nolint:errcheck // is ended below
	})
	s.run(t, "until test -e "+plot+"/churning; do sleep 0.02; done", orchestrator.ExecRequest{})
	for i := range 6 {
		s.list(t, i%2 == 0, plot)
	}
	cancel()
	wg.Wait()
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := e.Manifest(ctx, s.Sandbox, orchestrator.ManifestRequest{Roots: []string{plot}}); !errors.Is(err, orchestrator.ErrUnavailable) {
		t.Errorf("under a context that had ended before: got %v, want ErrUnavailable", err)
	}
	if !s.caps.Signals {
		return
	}
	// A listing ends with its context, in the guest too.
	s.run(t, "truncate -s 30G "+plot+"/endless", orchestrator.ExecRequest{})
	ctx, cancel = context.WithTimeout(s.context(t), 300*time.Millisecond+s.caps.Slack)
	defer cancel()
	if _, err := e.Manifest(ctx, s.Sandbox, orchestrator.ManifestRequest{Roots: []string{plot}, Hash: true}); !errors.Is(err, orchestrator.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after its deadline: got %v, want ErrUnavailable and the context's error", err)
	}
	// A process that has just been killed may be waiting for its parent.
	if res := s.run(t, "rm "+plot+"/endless; for i in $(seq 50); do grep -l '^sha256sum$' /proc/[0-9]*/comm 2>/dev/null || exit 0; sleep 0.1; done; exit 1", orchestrator.ExecRequest{}); res.ExitCode != 0 {
		t.Errorf("a listing that was ended goes on in the guest: %s", res.Stdout)
	}
}
