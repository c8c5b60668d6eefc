package gemini

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"savepoint/testbed/model"
)

// Outcome is what one run of one arm came to.
type Outcome struct {
	Arm       string
	Terminal  bool
	Isolation Isolation
	Class     Class
	Matched   string  // the text that told the class
	Exit      int     // of a killed one how it answered TERM, or -1
	Killed    bool    // it had not ended by itself
	Seconds   float64 // wall
	Asked     float64 // seconds until a screen that waits for an answer was there, or 0
	RSS       int64   // of its largest process, KiB
	Requests  int     // that the stand-in model server got
	Model     string  // model.Name, when there was one
	Tools     Tools
	Attempts  []Attempt // whether each step of a task was tried, for arms with a model
	Effect    *Effect   // what became of the workspace, for arms with a task
	Victims   []Victim  // for tasks with victims
}

// Run runs one arm once, in a new directory below dir that is gone afterwards.
// What the CLI does wrong is an outcome; an error says that the run could not
// be made. An arm with a model needs root: what the model says is run only where
// nothing but the arm's own directory can be written. Without it the error is a
// *MissingError.
func (c *CLI) Run(ctx context.Context, dir string, a Arm) (out Outcome, err error) {
	isolation := Namespace
	if os.Geteuid() != 0 {
		isolation = ClosedProxy
	}
	return c.run(ctx, dir, a, isolation)
}

func (c *CLI) run(ctx context.Context, dir string, a Arm, isolation Isolation) (out Outcome, err error) {
	if a.Answer != nil && isolation != Namespace {
		return out, &MissingError{"root for " + a.Name, errors.New("the commands of a model run only where nothing but their own directory can be written")}
	}
	p, err := newPlace(dir, a)
	if err != nil {
		return out, fmt.Errorf("prepare the Gemini CLI's directory for %s: %w", a.Name, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(p.dir)) }()
	before, err := ReadTree(p.work)
	if err != nil {
		return out, err
	}
	out = Outcome{Arm: a.Name, Terminal: a.Terminal, Isolation: isolation}
	r, err := c.launch(ctx, p, a, &out)
	if err != nil {
		return out, fmt.Errorf("run the Gemini CLI for %s: %w", a.Name, err)
	}
	out.Class, out.Matched = classify(r)
	out.Exit, out.Killed, out.Seconds, out.Asked, out.RSS, out.Tools = r.exit, r.killed, r.seconds, r.asked, r.rss, tools(r.out)
	if a.Task == nil {
		return out, nil
	}
	return out, p.judge(ctx, a.Task, before, &out)
}

// launch runs the CLI, with a stand-in model server beside it if the arm has one.
func (c *CLI) launch(ctx context.Context, p *place, a Arm, out *Outcome) (ran, error) {
	prog := program{args: append([]string{c.Node, c.Entry}, a.Args...), dir: p.work, home: p.home, terminal: a.Terminal, limit: a.Limit}
	if a.Terminal {
		prog.asks, prog.hold = asks, a.Hold
	}
	env := map[string]string{
		"PATH": filepath.Dir(c.Node) + ":/usr/local/bin:/usr/bin:/bin", "HOME": p.home, "TMPDIR": p.tmp,
		// The machine's own settings of the CLI, if there are any, do not count.
		"GEMINI_CLI_SYSTEM_SETTINGS_PATH": filepath.Join(p.dir, "none"), "GEMINI_CLI_SYSTEM_DEFAULTS_PATH": filepath.Join(p.dir, "none"),
	}
	if a.Terminal {
		env["TERM"] = "xterm-256color"
	}
	if out.Isolation == ClosedProxy {
		at, release, err := closedPort()
		if err != nil {
			return ran{}, err
		}
		defer release()
		for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
			env[name], env[strings.ToLower(name)] = "http://"+at, "http://"+at
		}
		env["NO_PROXY"], env["no_proxy"] = "127.0.0.1", "127.0.0.1"
	}
	var server *model.Server
	var wait func(context.Context) (ran, error)
	start := func() (err error) {
		if a.Answer != nil {
			l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
			if err != nil {
				return fmt.Errorf("listen for the stand-in model server: %w", err)
			}
			server = model.New(a.Answer())
			env["GOOGLE_GEMINI_BASE_URL"], env["GEMINI_API_KEY"] = server.Serve(l), "stand-in-key"
			out.Model = model.Name
		}
		maps.Copy(env, a.Env)
		for _, name := range slices.Sorted(maps.Keys(env)) {
			prog.env = append(prog.env, name+"="+env[name])
		}
		wait, err = prog.start()
		return err
	}
	err := contained(out.Isolation, p.dir, start)
	if server != nil {
		defer server.Close() // a connection that is cut then is the CLI's, which has ended
	}
	if err != nil {
		return ran{}, err
	}
	r, err := wait(ctx)
	if server != nil {
		out.Requests = server.Count()
		if a.Task != nil {
			out.Attempts = attempts(a.Task.steps(), server.Trials())
		}
	}
	return r, err
}

func contained(isolation Isolation, dir string, f func() error) error {
	if isolation == Namespace {
		return inNamespace(dir, f)
	}
	return f()
}

// place is the directory of one run.
type place struct {
	dir, home, work, tmp string
	fresh                fs.FileMode // of files that programs make
}

func newPlace(parent string, a Arm) (p *place, err error) {
	if parent, err = filepath.Abs(parent); err != nil {
		return nil, err
	}
	if parent, err = filepath.EvalSymlinks(parent); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "gemini-")
	if err != nil {
		return nil, err
	}
	p = &place{dir: dir, home: filepath.Join(dir, "home"), work: filepath.Join(dir, "work"), tmp: filepath.Join(dir, "tmp")}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	for _, d := range []string{p.home, p.work, p.tmp} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return nil, err
		}
	}
	if p.fresh, err = freshMode(p.tmp); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(a.settings())
	if err != nil {
		return nil, err
	}
	files := map[string]string{"home/.gemini/settings.json": string(raw)}
	for name, content := range a.Home {
		files["home/"+name] = content
	}
	if a.Task != nil {
		for name, content := range a.Task.workspace() {
			files["work/"+name] = content
		}
	}
	return p, writeFiles(dir, files)
}

// judgeTime bounds each program that looks at what a run left.
const judgeTime = 30 * time.Second
