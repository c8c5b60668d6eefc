package gemini

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"

	"savepoint/testbed/model"
)

// Host is a sandbox in which the CLI itself can run.
type Host interface {
	Sandbox
	// Install unpacks a gzip-compressed tar archive at dir, for root alone to
	// change, unless what is there already has that stamp.
	Install(ctx context.Context, dir, stamp string, archive []byte) error
	// Forward makes a port of the guest's own loopback lead to address, over the
	// sandbox's connection, until end is called or something is rolled back.
	Forward(ctx context.Context, address string) (port int, end func(), err error)
}

// Guest is the isolation of a run inside a sandbox.
const Guest Isolation = "virtual-machine"

// placeholder is the key that a guest gets: there is none in it.
const placeholder = "placeholder-no-key"

// insideLimit bounds a turn of the CLI inside a sandbox: emulated, its start alone
// can take minutes.
const insideLimit = 8 * time.Minute

// insideDir is where the CLI is in a guest, outside of what a turn can change.
const insideDir = "/opt/savepoint-gemini"

// Within is what one turn of the CLI inside a sandbox came to: the whole turn is one
// transaction.
type Within struct {
	Outcome
	Sandbox string
	Verdict Verdict
	Missed  bool // the validation saw damage
}

// Within runs an arm's task by the CLI inside a sandbox. The stand-in model listens
// on this machine's loopback; the guest reaches it, and nothing else of ours, at a
// port of its own loopback.
func (c *CLI) Within(ctx context.Context, h Host, a Arm) (w Within, err error) {
	w = Within{Outcome: Outcome{Arm: a.Name, Isolation: Guest, Model: model.Name, Exit: -1}}
	fail := func(what string, err error) (Within, error) {
		return w, fmt.Errorf("%s by the Gemini CLI inside sandbox %s: %s: %w", a.Name, w.Sandbox, what, err)
	}
	if w.Sandbox, err = h.Name(ctx); err != nil {
		return fail("make it", err)
	}
	if err := c.install(ctx, h); err != nil {
		return fail("install the CLI", err)
	}
	before, want, err := trees(ctx, h, a.Task)
	if err != nil {
		return fail("prepare", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return fail("listen for the stand-in model server", err)
	}
	server := model.New(a.Answer())
	server.Serve(l)
	defer server.Close() // a connection that is cut then is the CLI's, which has ended
	port, end, err := h.Forward(ctx, l.Addr().String())
	if err != nil {
		return fail("forward a port", err)
	}
	defer end()
	began := time.Now()
	ran, err := h.Exec(ctx, Command{Line: insideLine(a.Args), Validate: a.Task.Validate, Limit: insideLimit, Env: insideEnv(port)})
	if err != nil {
		return fail("run it", err)
	}
	w.Seconds, w.Requests = time.Since(began).Seconds(), server.Count()
	w.Verdict, w.Missed = ran.Verdict, ran.Missed
	w.Exit, w.Killed = ran.Exit, !ran.Ended && ran.Verdict != Denied
	w.Class, w.Matched = classify(outcomeOf(ran, w.Killed))
	w.Tools, w.Attempts = tools(ran.Output), attempts(a.Task.steps(), server.Trials())
	after, err := h.TreeHash(ctx)
	if err != nil {
		return fail("hash the tree", err)
	}
	w.Effect = &Effect{Before: before, After: after, Unchanged: after == before, Wanted: after == want}
	return w, nil
}

func outcomeOf(r Ran, killed bool) ran {
	return ran{exit: r.Exit, killed: killed, out: r.Output, diag: r.Diag}
}

// install puts the CLI into the guest.
func (c *CLI) install(ctx context.Context, h Host) error {
	archive, stamp, err := c.archive(ctx)
	if err != nil {
		return err
	}
	return h.Install(ctx, insideDir, stamp, archive)
}

// insideLine is the command of a turn.
func insideLine(args []string) string {
	line := insideDir + "/gemini"
	for _, a := range args {
		line += " '" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return line
}

func insideEnv(port int) map[string]string {
	return map[string]string{
		"GEMINI_API_KEY": placeholder, "GOOGLE_GEMINI_BASE_URL": fmt.Sprintf("http://127.0.0.1:%d", port),
		"GEMINI_CLI_SYSTEM_SETTINGS_PATH": insideDir + "/settings.json",
		// One process in place of two: the memory of a guest is small.
		"GEMINI_CLI_NO_RELAUNCH": "true",
	}
}

func insideSettings() ([]byte, error) {
	return json.Marshal(Arm{Answer: func() model.Answer { return nil }}.settings())
}
