package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// ExecutorUnderTest is one executor with a guest that is prepared for it.
type ExecutorUnderTest struct {
	Executor orchestrator.Executor
	Guest    orchestrator.Guest
	Sandbox  orchestrator.Sandbox
	// Permit makes a valid permit for any text: the suite is about running.
	Permit func(command string, user policy.User) policy.Permit
	// Other is an address nobody listens at, and OtherKey a host key that is
	// not the guest's. Hold needs no address.
	Other    netip.Addr
	OtherKey string
}

// ExecutorCaps says what the guest under test can do.
type ExecutorCaps struct {
	// Clock is true where the guest's clock may be set.
	Clock bool
	// Signals is true for a real guest: bash, signals, every kind of file.
	Signals bool
	// Agent is true where QEMU's guest agent runs.
	Agent bool
	// Parallel is how many commands that keep the guest busy may run at once.
	Parallel int
	// Slack is how long the guest may take for a command that does nothing.
	Slack time.Duration
}

// Executor checks that an executor and its hold of the guest keep their
// contracts. The factory is called once and registers its own clean-up.
func Executor(t *testing.T, factory func(t *testing.T) ExecutorUnderTest, caps ExecutorCaps) {
	s := &executorSuite{ExecutorUnderTest: factory(t), caps: caps}
	for _, c := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"results", s.results}, {"exact text", s.exactText}, {"streams F100", s.streams}, {"stdin", s.stdin},
		{"environment and directory F05", s.surroundings}, {"accounts", s.accounts}, {"refusals", s.refusals},
		{"deadline ends everything F99", s.deadline}, {"deadline keeps the output", s.deadlineOutput}, {"context ends everything", s.cancelled},
		{"leftovers end with the command F05", s.leftovers}, {"lost connection F98", s.lost},
		{"side by side", s.sideBySide}, {"session", s.sessions}, {"session unnoticed", s.unnoticed}, {"health", s.health},
		{"manifest", s.manifest}, {"manifest changes", s.manifestChanges}, {"manifest bounds", s.manifestBounds},
	} {
		t.Run(c.name, c.run)
	}
	s.hold(t)
	t.Run("the marker is not the agent's", s.forged)
}

type executorSuite struct {
	ExecutorUnderTest
	caps ExecutorCaps
}

// patience bounds a step that must not hang.
func (s *executorSuite) patience() time.Duration { return 20*s.caps.Slack + 20*time.Second }

func (s *executorSuite) context(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), s.patience())
	t.Cleanup(cancel)
	return ctx
}

func (s *executorSuite) try(ctx context.Context, user policy.User, command string, r orchestrator.ExecRequest) (orchestrator.ExecResult, error) {
	return s.Executor.Run(ctx, s.Sandbox, s.Permit(command, user), r)
}

func (s *executorSuite) run(t *testing.T, command string, r orchestrator.ExecRequest) orchestrator.ExecResult {
	t.Helper()
	res, err := s.try(s.context(t), policy.Agent, command, r)
	if err != nil {
		t.Fatalf("run %q: %v", command, err)
	}
	return res
}

func (s *executorSuite) results(t *testing.T) {
	cases := []struct {
		command string
		code    int
		signal  string
	}{{"true", 0, ""}, {"exit 7", 7, ""}, {"false", 1, ""}, {"no-such-program-here", 127, ""}}
	if s.caps.Signals {
		cases = append(cases, []struct {
			command string
			code    int
			signal  string
		}{{"kill -KILL $$", -1, "KILL"}, {"kill -TERM $$", -1, "TERM"}}...)
	}
	for _, c := range cases {
		res := s.run(t, c.command, orchestrator.ExecRequest{})
		if res.ExitCode != c.code || res.Signal != c.signal || res.TimedOut || res.Duration <= 0 {
			t.Errorf("%q: got code %d signal %q timed out %t after %s, want code %d signal %q", c.command, res.ExitCode, res.Signal, res.TimedOut, res.Duration, c.code, c.signal)
		}
	}
}

// exactText: nothing between the permit and the shell may touch the bytes.
func (s *executorSuite) exactText(t *testing.T) {
	for command, want := range map[string]string{
		`printf '%s' 'a"b$HOME\n'`:                `a"b$HOME\n`,
		"printf '%s' \"it's\tfine\"":              "it's\tfine",
		"printf one\nprintf two\n":                "onetwo",
		"printf '%s' 'x\ny'":                      "x\ny",
		"cat <<'END'\n$(id) `id` \\ !\nEND\n":     "$(id) `id` \\ !\n",
		"printf '%s' é€𝄞":                         "é€𝄞",
		"printf '%s' '; rm -rf /tmp/x # & | '":    "; rm -rf /tmp/x # & | ",
		"# only a comment":                        "",
		"printf %s " + strings.Repeat("x", 60000): strings.Repeat("x", 60000),
	} {
		if res := s.run(t, command, orchestrator.ExecRequest{}); string(res.Stdout) != want || res.ExitCode != 0 {
			t.Errorf("%.80q: got %.80q (%s) exit %d, want %.80q", command, res.Stdout, res.Stderr, res.ExitCode, want)
		}
	}
}

func (s *executorSuite) streams(t *testing.T) {
	res := s.run(t, `printf out; printf err >&2; printf '\000\377\r\n'`, orchestrator.ExecRequest{})
	if string(res.Stdout) != "out\x00\xff\r\n" || string(res.Stderr) != "err" || res.Truncated || res.StdoutBytes != 7 || res.StderrBytes != 3 {
		t.Errorf("got %q and %q, %d and %d bytes, truncated %t", res.Stdout, res.Stderr, res.StdoutBytes, res.StderrBytes, res.Truncated)
	}
	const size = 10_000_000
	streamed := &counter{sum: sha256.New()}
	res = s.run(t, fmt.Sprintf("head -c %d /dev/zero", size), orchestrator.ExecRequest{Stdout: streamed, Limit: 1000})
	zero := sha256.New()
	if _, err := io.CopyN(zero, zeros{}, size); err != nil {
		t.Fatal(err)
	}
	if streamed.n != size || !bytes.Equal(streamed.sum.Sum(nil), zero.Sum(nil)) {
		t.Errorf("10 MB of output: %d bytes were streamed, want %d zeros", streamed.n, size)
	}
	if res.StdoutBytes != size || len(res.Stdout) != 1000 || !res.Truncated || res.ExitCode != 0 {
		t.Errorf("10 MB of output: counted %d, kept %d, truncated %t, exit %d", res.StdoutBytes, len(res.Stdout), res.Truncated, res.ExitCode)
	}
	// Every byte value, at the exact limit: whole and not truncated.
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	res = s.run(t, "cat", orchestrator.ExecRequest{Stdin: bytes.NewReader(all), Limit: 256})
	if !bytes.Equal(res.Stdout, all) || res.Truncated {
		t.Errorf("all byte values: got %d bytes, truncated %t", len(res.Stdout), res.Truncated)
	}
	res = s.run(t, "printf kept", orchestrator.ExecRequest{Stdout: brokenWriter{}})
	if string(res.Stdout) != "kept" {
		t.Errorf("with a writer that fails: got %q", res.Stdout)
	}
}

func (s *executorSuite) stdin(t *testing.T) {
	if res := s.run(t, "cat; printf end", orchestrator.ExecRequest{}); string(res.Stdout) != "end" {
		t.Errorf("no stdin: got %q", res.Stdout)
	}
	data := bytes.Repeat([]byte("\x00binary\xff\n"), 200_000)
	sum := sha256.Sum256(data)
	res := s.run(t, "sha256sum", orchestrator.ExecRequest{Stdin: bytes.NewReader(data)})
	if want := hex.EncodeToString(sum[:]); !strings.HasPrefix(string(res.Stdout), want) {
		t.Errorf("1.8 MB of stdin: got %q, want %s", res.Stdout, want)
	}
	if res := s.run(t, "head -c 5", orchestrator.ExecRequest{Stdin: bytes.NewReader(data)}); string(res.Stdout) != "\x00bina" {
		t.Errorf("a command that stops reading: got %q", res.Stdout)
	}
	r, w := io.Pipe()
	defer w.Close()
	if res := s.run(t, "printf done", orchestrator.ExecRequest{Stdin: r}); string(res.Stdout) != "done" {
		t.Errorf("a stdin that never ends: got %q", res.Stdout)
	}
}

func (s *executorSuite) surroundings(t *testing.T) {
	res := s.run(t, "pwd", orchestrator.ExecRequest{})
	if got := string(res.Stdout); got != "/home/agent\n" {
		t.Errorf("default directory: got %q", got)
	}
	res = s.run(t, "pwd", orchestrator.ExecRequest{Dir: "/workspace"})
	if got := string(res.Stdout); got != "/workspace\n" {
		t.Errorf("directory: got %q", got)
	}
	res = s.run(t, `printf '%s|%s|%s' "$A" "$B" "$HOME"`, orchestrator.ExecRequest{Env: map[string]string{"A": `x "y' $z`, "B": "two\nlines"}})
	if got, want := string(res.Stdout), "x \"y' $z|two\nlines|/home/agent"; got != want {
		t.Errorf("environment: got %q, want %q", got, want)
	}
	// A directory change does not outlive its command.
	s.run(t, "cd /tmp", orchestrator.ExecRequest{})
	if got := string(s.run(t, "pwd", orchestrator.ExecRequest{}).Stdout); got != "/home/agent\n" {
		t.Errorf("directory after another command's cd: got %q", got)
	}
	// What the agent writes into its start-up files must not run.
	s.run(t, "printf 'echo intruder\\n' > ~/.profile; cp ~/.profile ~/.bashrc; cp ~/.profile ~/.bash_profile", orchestrator.ExecRequest{})
	if got := string(s.run(t, "printf clean", orchestrator.ExecRequest{}).Stdout); got != "clean" {
		t.Errorf("with start-up files of the agent: got %q", got)
	}
	s.run(t, "rm -f ~/.profile ~/.bashrc ~/.bash_profile", orchestrator.ExecRequest{})
}

func (s *executorSuite) accounts(t *testing.T) {
	for _, user := range []policy.User{policy.Agent, policy.Root} {
		res, err := s.try(s.context(t), user, "id -un", orchestrator.ExecRequest{})
		if err != nil || string(res.Stdout) != string(user)+"\n" {
			t.Errorf("as %s: got %q, %v", user, res.Stdout, err)
		}
	}
	if res := s.run(t, "echo x > /etc/conformance", orchestrator.ExecRequest{}); res.ExitCode == 0 {
		t.Error("the agent wrote to /etc")
	}
	res, err := s.try(s.context(t), policy.Root, "echo x > /etc/conformance && rm /etc/conformance", orchestrator.ExecRequest{})
	if err != nil || res.ExitCode != 0 {
		t.Errorf("root could not write to /etc: exit %d, %s, %v", res.ExitCode, res.Stderr, err)
	}
	res = s.run(t, "cd /workspace && echo x > conformance && cat conformance && rm conformance", orchestrator.ExecRequest{})
	if string(res.Stdout) != "x\n" {
		t.Errorf("the agent in /workspace: got %q, %s", res.Stdout, res.Stderr)
	}
}

func (s *executorSuite) refusals(t *testing.T) {
	ctx := s.context(t)
	for name, r := range map[string]struct {
		req  orchestrator.ExecRequest
		want error
	}{
		"missing directory":   {orchestrator.ExecRequest{Dir: "/no/such/directory"}, orchestrator.ErrNotFound},
		"forbidden directory": {orchestrator.ExecRequest{Dir: "/root"}, orchestrator.ErrDenied},
		"environment name":    {orchestrator.ExecRequest{Env: map[string]string{"A=B": "x"}}, orchestrator.ErrDenied},
		"start-up file":       {orchestrator.ExecRequest{Env: map[string]string{"BASH_ENV": "/tmp/x"}}, orchestrator.ErrDenied},
		"zero byte":           {orchestrator.ExecRequest{Dir: "/tmp\x00/x"}, orchestrator.ErrDenied},
	} {
		if _, err := s.try(ctx, policy.Agent, "touch /tmp/refused", r.req); !errors.Is(err, r.want) {
			t.Errorf("%s: got %v, want %v", name, err, r.want)
		}
	}
	if _, err := s.try(ctx, policy.Agent, "touch /tmp/refused; : "+strings.Repeat("x", 200_000), orchestrator.ExecRequest{}); !errors.Is(err, orchestrator.ErrDenied) {
		t.Errorf("a command longer than the kernel takes: got %v, want ErrDenied", err)
	}
	if res := s.run(t, "test -e /tmp/refused", orchestrator.ExecRequest{}); res.ExitCode == 0 {
		t.Error("a refused command ran")
	}
	gone := s.Sandbox
	gone.ID, gone.Address = gone.ID+"-unreachable", s.Other
	if _, err := s.Executor.Run(ctx, gone, s.Permit("true", policy.Agent), orchestrator.ExecRequest{}); !errors.Is(err, orchestrator.ErrUnavailable) {
		t.Errorf("unreachable guest: got %v, want ErrUnavailable", err)
	}
}

// The ways in which a process tries to outlive its command. Each writes to
// a file of its own for as long as it lives.
var clingers = map[string]string{
	"foreground":  `BEAT`,
	"background":  `(BEAT) & wait`,
	"nohup":       `nohup sh -c 'BEAT' >/dev/null 2>&1 & wait`,
	"setsid":      `setsid sh -c 'BEAT' & sleep 1000`,
	"double fork": `( (BEAT) & ) ; sleep 1000`,
	"trap":        `trap '' TERM HUP INT QUIT; BEAT`,
	"pipeline":    `(BEAT) | sleep 1000`,
	"respawn":     `while :; do (sleep 0.1; echo x >> FILE) & sleep 0.02; done`,
}

func clinger(how string) string {
	return "rm -f " + beat(how) + "; " + strings.NewReplacer("BEAT", "while :; do echo x >> "+beat(how)+"; sleep 0.05; done", "FILE", beat(how)).Replace(clingers[how])
}

func beat(how string) string { return "/tmp/beat-" + strings.ReplaceAll(how, " ", "-") }

// started waits until the clinger has written, over a connection of its own.
func (s *executorSuite) started(t *testing.T, how string) {
	t.Helper()
	s.run(t, "until test -s "+beat(how)+"; do sleep 0.05; done", orchestrator.ExecRequest{})
}

// silent checks that nothing of the clinger writes any more.
func (s *executorSuite) silent(t *testing.T, how string) {
	t.Helper()
	res := s.run(t, "wc -c < "+beat(how)+"; sleep 0.3; wc -c < "+beat(how), orchestrator.ExecRequest{})
	f := strings.Fields(string(res.Stdout))
	if len(f) != 2 || f[0] != f[1] || f[0] == "0" {
		t.Errorf("a process of the command lives on, or never ran: %s has %q bytes (%s)", beat(how), f, res.Stderr)
	}
}

func (s *executorSuite) deadline(t *testing.T) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, max(1, s.caps.Parallel))
	for how := range clingers {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			t.Run(how, func(t *testing.T) {
				timeout := 500*time.Millisecond + 10*s.caps.Slack
				began := time.Now()
				res := s.run(t, clinger(how), orchestrator.ExecRequest{Timeout: timeout})
				if !res.TimedOut || res.ExitCode != -1 || res.Signal != "KILL" {
					t.Errorf("got timed out %t, code %d, signal %q", res.TimedOut, res.ExitCode, res.Signal)
				}
				if took := time.Since(began); took < timeout {
					t.Errorf("ended after %s, before the deadline of %s", took, timeout)
				}
				s.silent(t, how)
			})
		})
	}
}

func (s *executorSuite) deadlineOutput(t *testing.T) {
	res := s.run(t, "printf before; sleep 1000", orchestrator.ExecRequest{Timeout: 300*time.Millisecond + 5*s.caps.Slack})
	if string(res.Stdout) != "before" || !res.TimedOut {
		t.Errorf("output before the deadline: got %q, timed out %t", res.Stdout, res.TimedOut)
	}
	res = s.run(t, "yes", orchestrator.ExecRequest{Timeout: 200*time.Millisecond + 5*s.caps.Slack, Limit: 100})
	if !res.TimedOut || len(res.Stdout) != 100 || !res.Truncated {
		t.Errorf("deadline of a flood: timed out %t, kept %d", res.TimedOut, len(res.Stdout))
	}
}

func (s *executorSuite) cancelled(t *testing.T) {
	cause := errors.New("the person had enough")
	ctx, cancel := context.WithCancelCause(s.context(t))
	s.run(t, "rm -f "+beat("nohup"), orchestrator.ExecRequest{})
	var wg sync.WaitGroup
	var res orchestrator.ExecResult
	var err error
	wg.Go(func() {
		res, err = s.try(ctx, policy.Agent, "printf some; "+clinger("nohup"), orchestrator.ExecRequest{})
	})
	s.started(t, "nohup")
	cancel(cause)
	wg.Wait()
	if !errors.Is(err, cause) || errors.Is(err, orchestrator.ErrUnknownOutcome) || res.Signal != "KILL" || string(res.Stdout) != "some" {
		t.Errorf("got %+v, %v; want the context's cause and what is known", res, err)
	}
	s.silent(t, "nohup")
	ctx, cancel = context.WithCancelCause(t.Context())
	cancel(cause)
	for range 10 {
		if _, err := s.try(ctx, policy.Agent, "touch /tmp/refused", orchestrator.ExecRequest{}); !errors.Is(err, orchestrator.ErrUnavailable) {
			t.Fatalf("under a context that had ended before: got %v, want ErrUnavailable", err)
		}
	}
	if res := s.run(t, "test -e /tmp/refused", orchestrator.ExecRequest{}); res.ExitCode == 0 {
		t.Error("a command ran under a context that had ended before")
	}
}

func (s *executorSuite) leftovers(t *testing.T) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, how := range []string{"nohup", "setsid", "double fork"} {
		wg.Go(func() {
			t.Run(how, func(t *testing.T) {
				command := strings.NewReplacer("& wait", "&", "; sleep 1000", "", "& sleep 1000", "&").Replace(clinger(how))
				res := s.run(t, command+"\nuntil test -s "+beat(how)+"; do sleep 0.05; done; printf over", orchestrator.ExecRequest{})
				if res.ExitCode != 0 || string(res.Stdout) != "over" || res.TimedOut {
					t.Errorf("got exit %d, %q, %s", res.ExitCode, res.Stdout, res.Stderr)
				}
				s.silent(t, how)
			})
		})
	}
}

func (s *executorSuite) lost(t *testing.T) {
	s.run(t, "rm -f "+beat("setsid"), orchestrator.ExecRequest{})
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { _, err = s.try(s.context(t), policy.Agent, clinger("setsid"), orchestrator.ExecRequest{}) })
	s.started(t, "setsid")
	s.Executor.Disconnect(s.Sandbox.ID)
	wg.Wait()
	if !errors.Is(err, orchestrator.ErrUnknownOutcome) {
		t.Errorf("got %v, want ErrUnknownOutcome", err)
	}
	// The guest ends the command once it notices; the next call dials anew.
	s.run(t, "while a=$(wc -c < "+beat("setsid")+"); sleep 0.3; test $a != $(wc -c < "+beat("setsid")+"); do :; done", orchestrator.ExecRequest{})
	s.silent(t, "setsid")
}

func (s *executorSuite) sideBySide(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			want := fmt.Sprint("command ", i)
			res, err := s.try(s.context(t), policy.Agent, "cat; sleep 0.2; printf ' "+fmt.Sprint(i)+"'", orchestrator.ExecRequest{Stdin: strings.NewReader("command")})
			if err != nil || string(res.Stdout) != want {
				t.Errorf("got %q, %v, want %q", res.Stdout, err, want)
			}
		})
	}
	wg.Wait()
}

type counter struct {
	n   int64
	sum interface {
		io.Writer
		Sum([]byte) []byte
	}
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.sum.Write(p)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken") }
