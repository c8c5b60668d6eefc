package gemini

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"savepoint/testbed/model"
)

// behaves runs a fake CLI without root's namespaces, as an arm.
func behaves(t *testing.T, mode string, a Arm) Outcome {
	t.Helper()
	dir := t.TempDir()
	a.Env = map[string]string{fakeMode: mode}
	if a.Limit == 0 {
		a.Limit = 20 * time.Second
	}
	out, err := fake(t).run(t.Context(), dir, a, ClosedProxy)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the run left %v (%v)", left, err)
	}
	return out
}

func TestRunWithoutCredentials(t *testing.T) {
	out := behaves(t, "auth", Arm{Name: "a"})
	if out.Class != AuthRequired || out.Exit != 41 || out.Killed || out.Seconds <= 0 || out.Matched != "Please set an Auth method" {
		t.Errorf("%+v", out)
	}
}

// A screen that waits for an answer is ended after a while, not at the limit.
func TestRunOnTerminal(t *testing.T) {
	out := behaves(t, "trust", Arm{Name: "a", Terminal: true, Hold: 50 * time.Millisecond})
	if out.Class != TrustScreen || !out.Killed || out.Asked <= 0 || out.Seconds < out.Asked+0.05 || !out.Terminal {
		t.Errorf("%+v", out)
	}
}

// What does not listen to TERM is killed, and nothing counts as an answer.
func TestRunLimit(t *testing.T) {
	p := program{args: []string{fake(t).Node, "-test.run=none"}, env: []string{fakeMode + "=deaf"}, home: t.TempDir(), dir: t.TempDir(),
		limit: 300 * time.Millisecond, grace: 20 * time.Millisecond}
	wait, err := p.start()
	if err != nil {
		t.Fatal(err)
	}
	r, err := wait(t.Context())
	if class, _ := classify(r); err != nil || !r.killed || r.exit != -1 || class != Killed {
		t.Errorf("%+v %v", r, err)
	}
}

// What goes into a session of its own is found by its home and ended.
func TestRunLeavesNoProcess(t *testing.T) {
	p := program{args: []string{fake(t).Node, "-test.run=none"}, home: t.TempDir(), dir: t.TempDir(), limit: 20 * time.Second}
	p.env = []string{fakeMode + "=leave", "HOME=" + p.home}
	wait, err := p.start()
	if err != nil {
		t.Fatal(err)
	}
	r, err := wait(t.Context())
	pid := strings.TrimSpace(r.out)
	if err != nil || r.exit != 0 || pid == "" {
		t.Fatalf("%+v %v", r, err)
	}
	if env, err := os.ReadFile(filepath.Join("/proc", pid, "environ")); err == nil && len(env) > 0 {
		t.Errorf("process %s is left", pid)
	}
}

// Nothing of the caller's environment gets there; proxies are closed.
func TestRunEnvironment(t *testing.T) {
	t.Setenv("A_SECRET", "of the caller")
	p, err := newPlace(t.TempDir(), Arm{})
	if err != nil {
		t.Fatal(err)
	}
	out := Outcome{Isolation: ClosedProxy}
	r, err := fake(t).launch(t.Context(), p, Arm{Limit: 20 * time.Second, Env: map[string]string{fakeMode: "environment"}}, &out)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for line := range strings.Lines(r.out) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		names[k] = v
	}
	if names["A_SECRET"] != "" || names["HOME"] != p.home || !strings.HasPrefix(names["HTTPS_PROXY"], "http://127.0.0.1:") {
		t.Errorf("environment %v", names)
	}
	home, err := ReadTree(p.home)
	settings, _ := os.ReadFile(filepath.Join(p.home, ".gemini/settings.json"))
	if err != nil || len(home) != 2 || string(settings) != `{"privacy":{"usageStatisticsEnabled":false}}` {
		t.Errorf("home has %v (%v) and %s, want statistics off and nothing else", home, err, settings)
	}
}

// The files decide, whatever the exit code.
func TestRunJudgesFiles(t *testing.T) {
	task := &Task{Files: workspaceFiles(), Want: madeFile()}
	if out := behaves(t, "make", Arm{Name: "a", Task: task}); !out.Effect.Wanted || out.Effect.Unchanged || out.Effect.Added != 1 || out.Exit != 3 {
		t.Errorf("%+v %+v", out, out.Effect)
	}
	if out := behaves(t, "environment", Arm{Name: "a", Task: task}); out.Effect.Wanted || !out.Effect.Unchanged || out.Exit != 0 {
		t.Errorf("%+v %+v", out, out.Effect)
	}
}

// Files are as wanted whatever umask they were made with; the mode of a file that was
// there stays.
func TestWantedMode(t *testing.T) {
	before := Tree{"old.txt": fileLine("-rwx------", "a"), "other": fileLine("-rw-r--r--", "b")}
	task := &Task{Want: map[string]string{"old.txt": "c", "new.txt": "d"}}
	after := func(old, fresh string) Tree {
		return Tree{"old.txt": fileLine(old, "c"), "new.txt": fileLine(fresh, "d"), "other": before["other"]}
	}
	for _, tt := range []struct {
		old, fresh string
		mode       fs.FileMode
		want       bool
	}{
		{"-rwx------", "-rw-r--r--", 0o644, true},
		{"-rwx------", "-rw-------", 0o600, true},
		{"-rwx------", "-rw-r--r--", 0o600, false},
		{"-rw-r--r--", "-rw-r--r--", 0o644, false},
	} {
		if got := task.wanted(before, after(tt.old, tt.fresh), tt.mode); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
	dir := t.TempDir()
	mode, err := freshMode(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("sh", "-c", "echo x > "+dir+"/made").Run(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "made")); err != nil || info.Mode() != mode {
		t.Errorf("a program's file has %v (%v), want %s", info, err, mode)
	}
}

// Without namespaces nothing that a model says is run.
func TestRunRefusesModels(t *testing.T) {
	asked := false
	a := Arm{Name: "a", Limit: time.Second, Answer: func() model.Answer { asked = true; return model.Script{}.Answer() }}
	_, err := fake(t).run(t.Context(), t.TempDir(), a, ClosedProxy)
	if missing := (*MissingError)(nil); !errors.As(err, &missing) || asked {
		t.Errorf("%v, a model was there: %v", err, asked)
	}
}

func TestClassify(t *testing.T) {
	for _, tt := range []struct {
		r    ran
		want Class
	}{
		{ran{diag: "x\nPlease set an Auth method in your /h/.gemini/settings.json", exit: 41}, AuthRequired},
		{ran{diag: "FatalAuthenticationError: Manual authorization is required but", exit: 41}, AuthRequired},
		{ran{out: "│ How would you like to │\r\n│ authenticate for this project? │", killed: true, exit: -1}, SignInScreen},
		{ran{diag: "Gemini CLI is not running in a trusted directory.", exit: 55}, Untrusted},
		{ran{diag: "Attempt 1 failed. Retrying with backoff... fetch failed", killed: true}, Unreachable},
		{ran{diag: "Attempt 1 failed with status 429. Retrying with backoff...", exit: 1}, ModelFailed},
		{ran{diag: "Error when talking to Gemini API Full report available at", exit: 173}, ModelFailed},
		{ran{diag: "Reached max session turns for this session.", exit: 53}, TurnLimit},
		{ran{out: "hello"}, Answered},
		{ran{killed: true}, Killed},
		{ran{exit: 7, diag: "something else"}, Unknown},
	} {
		if got, text := classify(tt.r); got != tt.want || (got == Unknown) != (text == "something else") {
			t.Errorf("%+v is %s (%s), want %s", tt.r, got, text, tt.want)
		}
	}
}

func TestTools(t *testing.T) {
	out := `{"type":"init"}
not JSON
{"type":"tool_result","status":"success"}
{"type":"tool_result","status":"error","error":{"type":"policy_violation"}}
{"type":"tool_result","status":"error","error":{"type":"tool_not_registered"}}`
	if got := tools(out); got != (Tools{Called: 3, Failed: 1, Denied: 1}) {
		t.Errorf("%+v", got)
	}
}

func TestTree(t *testing.T) {
	dir := t.TempDir()
	if err := writeFiles(dir, workspaceFiles()); err != nil {
		t.Fatal(err)
	}
	read := func() Tree {
		t.Helper()
		tree, err := ReadTree(dir)
		if err != nil {
			t.Fatal(err)
		}
		return tree
	}
	before := read()
	if before.Hash() != read().Hash() {
		t.Error("the same tree has two hashes")
	}
	for name, change := range map[string]func(string) error{
		"content": func(p string) error { return os.WriteFile(p, []byte("x"), 0o644) },
		"mode":    func(p string) error { return os.Chmod(p, 0o755) },
		"kind":    func(p string) error { return errors.Join(os.Remove(p), os.Symlink("elsewhere", p)) },
		"link":    func(p string) error { return errors.Join(os.Remove(p), os.Symlink("elsewhere else", p)) },
		"lost":    os.Remove,
	} {
		was := read()
		if err := change(filepath.Join(dir, "notes.txt")); err != nil && name != "content" {
			t.Fatal(err)
		}
		if d := was.To(read()); was.Hash() == read().Hash() || d.Lost+d.Changed != 1 {
			t.Errorf("%s: %+v", name, d)
		}
		if err := errors.Join(os.RemoveAll(filepath.Join(dir, "notes.txt")), writeFiles(dir, workspaceFiles())); err != nil {
			t.Fatal(err)
		}
	}
	if gone, err := ReadTree(filepath.Join(dir, "not there")); err != nil || len(gone) != 0 {
		t.Errorf("%v %v", gone, err)
	}
}
