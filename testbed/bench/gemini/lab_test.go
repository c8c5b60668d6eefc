package gemini

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"savepoint/testbed/bench"
	"savepoint/testbed/guest"
	"savepoint/testbed/model"
)

// labCache is where the lab keeps what it downloads.
func labCache(t *testing.T) string {
	t.Helper()
	dir, err := guest.CacheDir()
	if err != nil {
		t.Skip(err)
	}
	return filepath.Join(dir, "gemini") // where the experiment has it too
}

// labCLI installs the real CLI, once for all runs.
func labCLI(t *testing.T) *CLI {
	t.Helper()
	if os.Getenv("SAVEPOINT_LAB") != "1" {
		t.Skip("installs and runs the real Gemini CLI; set SAVEPOINT_LAB=1")
	}
	if os.Geteuid() != 0 {
		t.Skip("runs commands of a scripted model in namespaces of its own, which needs root")
	}
	c, err := Install(t.Context(), labCache(t))
	if missing := (*MissingError)(nil); errors.As(err, &missing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// expect is how an arm of the pinned version ends.
type expect struct {
	class   Class
	exit    int
	killed  bool
	success bool // the workspace is as its task wants
	tried   Tried
}

var expected = map[string]expect{
	Bare:                           {class: AuthRequired, exit: 41},
	"no-credential-json":           {class: AuthRequired, exit: 41},
	"no-credential-stream":         {class: AuthRequired, exit: 41},
	"no-credential-sandbox":        {class: AuthRequired, exit: 41},
	"no-credential-sandbox-json":   {class: AuthRequired, exit: 41},
	"no-credential-sandbox-docker": {class: AuthRequired, exit: 41},
	"no-credential-yolo":           {class: AuthRequired, exit: 41},
	"no-arguments":                 {class: AuthRequired, exit: 41},
	"no-credential-google":         {class: AuthRequired, exit: 41},
	"no-credential-vertex":         {class: AuthRequired, exit: 41},
	"expired-oauth":                {class: AuthRequired, exit: 41},
	"terminal":                     {class: TrustScreen, killed: true},
	"terminal-skip-trust":          {class: SignInScreen, killed: true},
	"terminal-prompt":              {class: AuthRequired, exit: 41},
	"key-answer":                   {class: Answered},
	"key-sandbox":                  {class: NoSandbox, exit: 1},
	"key-untrusted":                {class: Untrusted, exit: 55},
	"key-no-input":                 {class: NoInput, exit: 42},
	"key-turn-limit":               {class: TurnLimit, exit: 53},
	"key-hang":                     {class: Killed, killed: true},
	"key-cut":                      {class: ModelFailed, exit: 1},
	"key-429":                      {class: ModelFailed, exit: 173},
	"task-create-shell":            {class: Answered, success: true, tried: Executed},
	"task-create-model":            {class: Answered, success: true, tried: Executed},
	"task-create-tool":             {class: Answered, success: true, tried: Executed},
	"task-no-yolo":                 {class: Answered, tried: Refused},
	"task-fails":                   {class: Answered, tried: Executed},
	"damage-remove":                {class: Answered, tried: Executed},
	"damage-remove-checkpoints":    {class: Answered, tried: Executed},
	"damage-overwrite-checkpoints": {class: Answered, tried: Executed},
	"damage-tool":                  {class: Answered, tried: Executed},
	"damage-tool-checkpoints":      {class: Answered, tried: Executed},
	"policy-prefix":                {class: Answered, tried: Executed},
}

// The real CLI, each arm once. SAVEPOINT_ARM keeps the arms with that in their name.
func TestRealArms(t *testing.T) {
	c := labCLI(t)
	for _, a := range Arms(os.Getenv("SAVEPOINT_DEEP") != "1") {
		if !strings.Contains(a.Name, os.Getenv("SAVEPOINT_ARM")) {
			continue
		}
		t.Run(a.Name, func(t *testing.T) {
			out, err := c.Run(t.Context(), t.TempDir(), a)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("exit %d, killed %v, %.2f s, asks after %.2f s, %s (%s), %d MB, %d requests, tools %+v", out.Exit, out.Killed, out.Seconds, out.Asked, out.Class, out.Matched, out.RSS>>10, out.Requests, out.Tools)
			if out.Isolation != Namespace || (out.Model == model.Name) != (a.Answer != nil) {
				t.Errorf("isolation %q, model %q", out.Isolation, out.Model)
			}
			if e := out.Effect; e != nil {
				t.Logf("%+v", *e)
				if a.Answer != nil && e.Restorable {
					t.Error("checkpointing has the tree of before; the text of the report says that it has not")
				}
			}
			want, known := expected[a.Name]
			if !known {
				return // measured, not promised
			}
			for _, at := range out.Attempts {
				t.Logf("%s: %s: %s", at.Tried, at.Call, at.Said)
			}
			got := expect{out.Class, out.Exit, out.Killed, out.Effect != nil && out.Effect.Wanted, ""}
			if a.Answer != nil && a.Task != nil {
				got.tried = tried(out.Attempts)
			}
			if want.killed {
				got.exit = 0
			}
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			kept, lost := 0, 0
			for _, v := range out.Victims {
				t.Logf("%s: %s", v.Fate, v.Command)
				kept += int(truth(v.Fate == Kept))
				lost += int(truth(v.Fate == Destroyed))
			}
			if n := len(out.Victims); n > 0 && (kept == 0 || lost == 0 || kept+lost != n || out.Tools.Denied != kept) {
				t.Errorf("%d of %d commands refused, %d with their effect, %d denied: the policy was not there, is everything, or nothing proves it", kept, n, lost, out.Tools.Denied)
			}
		})
	}
}

// Every spelling destroys its file where nothing stops it: what is kept was kept by
// something.
func TestVictimsDestroy(t *testing.T) {
	labCLI(t)
	for i, v := range Victims {
		p := labPlace(t, Arm{Task: &Task{Victims: Victims}})
		before, err := ReadTree(p.work)
		if err != nil {
			t.Fatal(err)
		}
		r := runIn(t, p, VictimCommand(i, v))
		after, err := ReadTree(p.work)
		if err != nil {
			t.Fatal(err)
		}
		if file := victimDir(i) + "/" + victimFile; after[file] == before[file] {
			t.Errorf("%s has no effect: %+v", v, r)
		}
	}
}

// runIn runs a shell command as the CLI is run, and returns how it ended.
func runIn(t *testing.T, p *place, line string) ran {
	t.Helper()
	prog := program{args: []string{"/bin/sh", "-c", line}, dir: p.work, home: p.home, limit: longLimit, env: []string{"PATH=/usr/bin:/bin", "HOME=" + p.home}}
	var wait func(context.Context) (ran, error)
	err := inNamespace(p.dir, func() (err error) {
		wait, err = prog.start()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func labPlace(t *testing.T, a Arm) *place {
	t.Helper()
	p, err := newPlace(t.TempDir(), a)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// In the namespaces nothing outside the run's directory can be written, and
// there is no network but loopback.
func TestNamespaceHolds(t *testing.T) {
	labCLI(t)
	p := labPlace(t, Arm{})
	outside := filepath.Join(t.TempDir(), "outside.txt")
	if r := runIn(t, p, "echo x > inside.txt && ! echo x > "+outside+" && ! mkdir /outside && ! touch /etc/outside"); r.exit != 0 {
		t.Errorf("%+v", r)
	}
	for _, path := range []string{outside, "/outside", "/etc/outside"} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s was written", path)
		}
	}
	if r := runIn(t, p, "cat /proc/self/net/dev /proc/self/net/route"); strings.Count(r.out, ":") != 1 || !strings.Contains(r.out, "lo:") || strings.Count(r.out, "\n") != 4 {
		t.Errorf("interfaces and routes: %s", r.out)
	}
}

// What a checkpoint holds is found, so its absence means something.
func TestShadowIsRead(t *testing.T) {
	labCLI(t)
	p := labPlace(t, Arm{Task: &Task{Files: workspaceFiles()}})
	before, err := ReadTree(p.work)
	if err != nil {
		t.Fatal(err)
	}
	r := runIn(t, p, `h="$HOME/.gemini/history/project" && mkdir -p "$h" "$HOME/.gemini/tmp/project/checkpoints" && echo '{}' > "$HOME/.gemini/tmp/project/checkpoints/a.json" &&
		g="git -c user.name=a -c user.email=a@localhost --git-dir=$h/.git --work-tree=." && $g init -q && $g commit -q --allow-empty -m 'Initial commit' && $g add -A && $g commit -q -m before`)
	if r.exit != 0 {
		t.Fatalf("%+v", r)
	}
	e := Effect{Before: before.Hash()}
	if err := p.shadow(t.Context(), &e); err != nil || e.Checkpoints != 1 || e.Commits != 2 || !e.Restorable {
		t.Errorf("%+v %v", e, err)
	}
	e = Effect{Before: Tree{"another": "tree"}.Hash()}
	if err := p.shadow(t.Context(), &e); err != nil || e.Restorable {
		t.Errorf("%+v %v", e, err)
	}
}

// The way of a machine without root: it ends in the same words. The network is
// the namespace's here as well, so that a test asks nobody outside.
func TestClosedProxy(t *testing.T) {
	c := labCLI(t)
	for _, a := range Arms(true) {
		if a.Name != Bare {
			continue
		}
		p := labPlace(t, a)
		out := Outcome{Isolation: ClosedProxy}
		var r ran
		err := inNamespace(p.dir, func() (err error) {
			r, err = c.launch(t.Context(), p, a, &out)
			return err
		})
		if class, _ := classify(r); err != nil || class != AuthRequired || r.exit != 41 {
			t.Errorf("%s %+v %v", class, r, err)
		}
	}
}

// The experiment as a whole, in a quick look.
func TestRealExperiment(t *testing.T) {
	labCLI(t)
	e := New(Config{Cache: labCache(t), Scratch: t.TempDir(), Sandboxes: []Sandbox{&box{}}})
	r := bench.NewRun(e, bench.QuickPlan())
	if err := e.Run(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	res := r.Result()
	for _, s := range res.Samples {
		if s.Err != "" {
			t.Errorf("%s: %s", s.Group(), s.Err)
		}
	}
	if v := res.Values(res.Is(Bare), bench.MetricSuccess); len(v) != 2 || v[0]+v[1] != 0 {
		t.Errorf("success without credentials: %v", v)
	}
	for _, table := range res.Tables {
		t.Log(table.Title)
		for _, row := range table.Rows {
			t.Log(strings.Join(row, " | "))
		}
	}
}
