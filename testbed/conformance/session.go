package conformance

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// sessions: what a command's shell leaves is reported, and only if asked for.
func (s *executorSuite) sessions(t *testing.T) {
	big := strings.Repeat("x", 70_000)
	for _, c := range []struct {
		name, command string
		req           orchestrator.ExecRequest
		dir           string // "-" for no report
		env           map[string]string
		out           string
		code          int
		real          bool // needs bash itself
	}{
		{name: "nothing", command: "true", dir: "/home/agent"},
		{name: "nothing at all", command: "", dir: "/home/agent"},
		{name: "directory", command: "cd /workspace", dir: "/workspace"},
		{name: "directory asked for", command: "true", req: orchestrator.ExecRequest{Dir: "/tmp"}, dir: "/tmp"},
		{name: "variables", command: `export A='x "y' B=$'two\nlines=='; C=3; export D=; A2=no`, dir: "/home/agent",
			env: map[string]string{"A": `x "y`, "B": "two\nlines==", "D": ""}},
		{name: "bytes", command: `export A="$(printf '\303\050\377')"`, dir: "/home/agent", env: map[string]string{"A": "\xc3(\xff"}},
		{name: "one of the login's", command: `export PATH="/opt/x:$PATH" HOME`, dir: "/home/agent", env: map[string]string{"PATH": "/opt/x:/usr/local/bin:/usr/bin:/bin"}},
		{name: "of the request", command: "export B=2; unset C", req: orchestrator.ExecRequest{Env: map[string]string{"A": "1", "C": "3"}}, dir: "/home/agent",
			env: map[string]string{"A": "1", "B": "2"}},
		{name: "exit", command: "cd /workspace; export A=1; exit 3", dir: "/workspace", env: map[string]string{"A": "1"}, code: 3},
		{name: "failure", command: "set -e; cd /workspace; false; cd /tmp", dir: "/workspace", code: 1},
		{name: "subshells", command: "(cd /tmp; export A=1; printf sub); printf '%s' \"$(cd /tmp; pwd)\"", dir: "/home/agent", out: "sub/tmp"},
		{name: "function", command: "go() { cd \"$1\"; export A=$2; }; go /workspace 1; false || true", dir: "/workspace", env: map[string]string{"A": "1"}},
		{name: "refused names", command: "export LD_PRELOAD_NOT=1 PS4=x ENV=y BASH_ENV=z A=1", dir: "/home/agent", env: map[string]string{"A": "1"}},
		{name: "background", command: "cd /tmp; sleep 1000 & printf over", dir: "/tmp", out: "over"},
		{name: "too large", command: "export A=" + big, dir: "-"},
		{name: "too many", command: "for i in $(seq 300); do export V$i=1; done; printf done", dir: "-", out: "done"},
		{name: "another program", command: "cd /tmp; exec printf gone", dir: "-", out: "gone"},
		{name: "a trap of its own", command: "trap 'printf own' EXIT; cd /tmp", dir: "-", out: "own"},
		{name: "killed", command: "cd /tmp; kill -KILL $$", dir: "-", code: -1, real: true},
		{name: "terminated", command: "cd /tmp; kill -TERM $$", dir: "-", code: -1, real: true},
		{name: "removed directory", command: "d=$(mktemp -d); cd $d; rmdir $d; export A=1", dir: "", env: map[string]string{"A": "1"}, real: true},
		{name: "link", command: "ln -sfn /workspace /tmp/link-of-session; cd /tmp/link-of-session", dir: "/workspace", real: true},
		{name: "exported function", command: "f() { :; }; export -f f; export A=1", dir: "/home/agent", env: map[string]string{"A": "1"}, real: true},
		{name: "unset but exported", command: "export A; set -u", dir: "/home/agent", real: true},
		{name: "everything exported", command: "set -a; A=1", dir: "/home/agent", env: map[string]string{"A": "1"}, real: true},
		{name: "functions in the way", command: "printf() { echo mine; }; pwd() { echo mine; }; cd /tmp", dir: "/tmp", real: true},
		{name: "options in the way", command: "cd /tmp; export A='* a'; set -efu; IFS=/; shopt -s nullglob extglob; trap 'x=1' DEBUG", dir: "/tmp", env: map[string]string{"A": "* a"}, real: true},
		{name: "restricted", command: "export A=1; set -r", dir: "/home/agent", env: map[string]string{"A": "1"}, real: true},
	} {
		if c.real && !s.caps.Signals {
			continue
		}
		c.req.Capture = true
		res := s.run(t, c.command, c.req)
		if string(res.Stdout) != c.out || res.ExitCode != c.code {
			t.Errorf("%s: got %q (%s), exit %d, want %q, exit %d", c.name, res.Stdout, res.Stderr, res.ExitCode, c.out, c.code)
		}
		switch {
		case c.dir == "-":
			if res.Session != nil {
				t.Errorf("%s: got %+v, want no report", c.name, res.Session)
			}
		case res.Session == nil:
			t.Errorf("%s: no report", c.name)
		case res.Session.Dir != c.dir || !maps.Equal(res.Session.Env, c.env):
			t.Errorf("%s: got %+v, want %s and %v", c.name, res.Session, c.dir, c.env)
		}
	}
	if res := s.run(t, "cd /tmp; export A=1", orchestrator.ExecRequest{}); res.Session != nil {
		t.Errorf("without being asked: got %+v", res.Session)
	}
	res, err := s.try(s.context(t), policy.Root, "cd /etc; export A=1", orchestrator.ExecRequest{Capture: true})
	if err != nil || res.Session == nil || res.Session.Dir != "/etc" || !maps.Equal(res.Session.Env, map[string]string{"A": "1"}) {
		t.Errorf("as root: got %+v, %v", res.Session, err)
	}
	if res := s.run(t, "cd /tmp; sleep 1000", orchestrator.ExecRequest{Capture: true, Timeout: 200*time.Millisecond + 5*s.caps.Slack}); !res.TimedOut || res.Session != nil {
		t.Errorf("after a deadline: timed out %t, %+v", res.TimedOut, res.Session)
	}
	s.handedOn(t)
}

// handedOn gives a session to the next command.
func (s *executorSuite) handedOn(t *testing.T) {
	first := s.run(t, "mkdir -p /workspace/on; cd /workspace/on; export A=1 B='x y'", orchestrator.ExecRequest{Capture: true})
	if first.Session == nil {
		t.Fatal("no report")
	}
	next := orchestrator.ExecRequest{Dir: first.Session.Dir, Env: first.Session.Env, Capture: true}
	second := s.run(t, `printf '%s|%s|%s' "$PWD" "$A" "$B"; export B=z; cd ..; rmdir on`, next)
	if string(second.Stdout) != "/workspace/on|1|x y" {
		t.Errorf("handed on: got %q, %s", second.Stdout, second.Stderr)
	}
	if second.Session == nil || second.Session.Dir != "/workspace" || !maps.Equal(second.Session.Env, map[string]string{"A": "1", "B": "z"}) {
		t.Errorf("after the second: got %+v", second.Session)
	}
	if _, err := s.try(s.context(t), policy.Agent, "touch /tmp/refused", next); !errors.Is(err, orchestrator.ErrNotFound) {
		t.Errorf("a directory that is gone: got %v, want ErrNotFound", err)
	}
}

// unnoticed: a command cannot tell whether its session is reported, and neither
// can its programs.
func (s *executorSuite) unnoticed(t *testing.T) {
	commands := []string{
		"", "true", "false", "exit 7", "exit 300", "env | sort", "(exit 5)", "f() { return 9; }; f", "no-such-program-here", "echo one\nno-such-program-here\necho two >&2",
		"set -e; false; echo no", "set -e; (exit 4); echo no", "set -e; f() { false; }; f || echo caught; f", "set -u; echo $nope; echo no", "set -o pipefail; false | true",
		"trap 'echo bye' EXIT; exit 3", "trap 'echo bye' EXIT; false", "exec sh -c 'exit 6'", "cd /nonexistent-here", "set -- a b; echo $# $* $0", "cat; echo end",
		"echo a | while read x; do echo $x; exit 3; done; echo $?", "echo ${", "printf '%s' \"$((1+1))\"", "export A=1; sh -c 'echo $A'", "sleep 0.01 & wait; echo $?",
		"PATH=/nonexistent; ls; echo $?", "exec >/dev/null; echo no", "exit", "false; exit",
	}
	if s.caps.Signals {
		commands = append(commands,
			`echo "$0 $# $? $_ $LINENO $- $BASH_SUBSHELL $SHLVL [$BASH_ENV] ${BASH_SOURCE[*]} ${FUNCNAME[*]} $BASHOPTS $SHELLOPTS"`, "echo $_", "declare -x", "compgen -v | grep -v PIPESTATUS", "declare -F; alias; shopt; set +o",
			"ls /proc/self/fd", "bash -c 'trap -p; echo [$BASH_ENV]; ls /proc/self/fd'", "sh -c 'env; trap; ls /proc/self/fd'; true", "(ls /proc/self/fd; true)", "cat /proc/self/environ | tr '\\0' '\\n' | sort; true",
			"exec no-such-program-here", "exec 2>&-; true", "exec >&-; true", "exec 0<&-; true", "exec >&- 2>&-; echo x", "return 3", "if", "echo 'open", "break", "kill -KILL $$", "kill -TERM $$; echo after", "kill -PIPE $$; echo after", "kill -INT $$; echo after",
			"trap 'echo term' TERM; kill -TERM $$; echo after", "trap '' TERM; kill -TERM $$; echo after", "trap 'echo err' ERR; false; true", "set -E; trap 'echo err $?' ERR; f() { false; }; f; true",
			"trap 'echo r' RETURN; f() { :; }; set -T; f", "trap 'echo dbg' DEBUG; true; false", "trap 'echo hup; exit 4' HUP; kill -HUP $$", "trap 'exit 9' EXIT; exit 2",
			"set -x; true; f() { : a; }; f; false", "set -ex; false", "set -x; cd /tmp", "set -a; X=1; env | sort", "set -r; true", "set -o posix; export A=1; true", "set -k; true", "set -n; echo no", "set -t; true; echo no",
			"printf() { echo mine; }; builtin() { echo mine; }; pwd() { echo mine; }; trap() { echo mine; }; true", "readonly _savepoint_name=1; true", "declare -r PATH; true", "enable -n printf pwd; true", "unset PATH; true",
			"ulimit -f 0; true", "ulimit -n 20; true; ls /proc/self/fd", "umask 777; true", "yes | head -n 1", "yes | head -n 1 >/dev/null; echo ${PIPESTATUS[*]}", "wait 12345; echo $?", "d=$(mktemp -d); cd $d; rmdir $d; true",
			"{ sh -c 'kill -KILL $$'; } 2>/dev/null; echo $?", "shopt -s lastpipe; echo a | read x; echo $x", "coproc cat; echo hi >&${COPROC[1]}; read y <&${COPROC[0]}; echo $y", "echo $BASH_COMMAND; echo $BASH_EXECUTION_STRING", "history; jobs; echo $!", "f() { f2; }; f2() { caller 0; exit 8; }; f",
			"declare -A m=([a]=1); export m; echo ${m[a]}", "export -f nofunction", "f() { echo in; }; export -f f; bash -c f", "source /dev/stdin <<< 'exit 5'", "eval 'exit 6'", "echo $(exit 3); echo $?", "x=$(exit 3)", ": ${nope?message}", "let 1/0; echo $?", "echo $((1/0)); echo no",
		)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	turns := make(chan struct{}, s.caps.Parallel)
	for _, command := range commands {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			plain, captured := s.said(t, command, false), s.said(t, command, true)
			if plain != captured {
				t.Errorf("%q: with the session's report\n%s\nwithout\n%s", command, captured, plain)
			}
		})
	}
}

// said is all that a command lets its caller know.
func (s *executorSuite) said(t *testing.T, command string, capture bool) string {
	r, err := s.try(s.context(t), policy.Agent, command, orchestrator.ExecRequest{Capture: capture, Stdin: strings.NewReader("in\n")})
	if err != nil {
		t.Errorf("%q: %v", command, err)
	}
	return fmt.Sprintf("exit %d %s\n%s\nstderr:\n%s", r.ExitCode, r.Signal, r.Stdout, r.Stderr)
}
