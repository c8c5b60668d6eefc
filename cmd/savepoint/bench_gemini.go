package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"strings"

	"savepoint/orchestrator"
	"savepoint/policy"
	"savepoint/testbed/bench/gemini"
	"savepoint/testbed/bench/trials"
)

// geminiBox is the sandbox in which the Gemini CLI's tasks are made under
// savepoint: its commands are transactions of the agent, or of root where the
// sandbox has no workspace volume.
type geminiBox struct {
	b   *benchmark
	rig *trials.Rig
}

var _ gemini.Host = (*geminiBox)(nil)

const geminiDir = "/workspace/task"

// Name makes the sandbox: whether it has a workspace volume is known afterwards.
func (g *geminiBox) Name(ctx context.Context) (string, error) {
	sb, err := g.b.sandbox(ctx)
	if err != nil {
		return "", err
	}
	if sb.Workspace == "" {
		return "boundary " + string(g.b.s.engineConfig.RootBoundary), nil
	}
	return "boundary " + string(orchestrator.BoundaryWorkspace), nil
}

// Seed puts the files where the commands run, by tar over the connection. They get
// the mode of new files, as those that commands make: whose umask it is too.
func (g *geminiBox) Seed(ctx context.Context, files map[string]string) error {
	sb, err := g.b.sandbox(ctx)
	if err != nil {
		return err
	}
	archive, err := trials.Archive(files, 0o666)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		command string
		stdin   io.Reader
	}{
		{"rm -rf " + geminiDir + " && mkdir -p " + geminiDir, nil},
		{"tar -x -f - -C " + geminiDir + " --no-same-permissions", bytes.NewReader(archive)},
	} {
		out, err := g.b.s.engine.Run(ctx, orchestrator.Spec{Sandbox: sb, Command: step.command, Stdin: step.stdin, By: "bench"})
		if err == nil && out.State != orchestrator.StateCommitted {
			err = fmt.Errorf("it is %s: %s", out.State, out.Reason)
		}
		if err != nil {
			return fmt.Errorf("seed %s: %w", geminiDir, err)
		}
	}
	return nil
}

// Exec runs one command as a transaction.
func (g *geminiBox) Exec(ctx context.Context, c gemini.Command) (gemini.Ran, error) {
	sb, err := g.b.sandbox(ctx)
	if err != nil {
		return gemini.Ran{}, err
	}
	spec := orchestrator.Spec{Sandbox: sb, Command: c.Line, Dir: geminiDir, Env: c.Env, Timeout: c.Limit, By: "bench"}
	if c.Validate != "" {
		spec.Validate = []orchestrator.Validation{{Command: "cd " + geminiDir + " && " + c.Validate}}
	}
	out, err := g.b.s.engine.Run(ctx, spec)
	if err != nil {
		return gemini.Ran{}, err
	}
	ran := gemini.Ran{Output: out.Stdout, Diag: out.Stderr, Reason: out.Reason, Exit: -1}
	if out.ExitCode != nil {
		ran.Ended, ran.Exit = true, *out.ExitCode
	}
	for _, check := range out.Checks {
		ran.Missed = ran.Missed || !check.OK && len(spec.Validate) > 0 && check.Name == spec.Validate[0].Command
	}
	switch out.State {
	case orchestrator.StateCommitted:
		ran.Verdict = gemini.Committed
	case orchestrator.StateRolledBack:
		ran.Verdict = gemini.RolledBack
	case orchestrator.StateDenied:
		ran.Verdict = gemini.Denied
	default:
		return gemini.Ran{}, fmt.Errorf("it is %s: %s", out.State, out.Reason)
	}
	return ran, nil
}

// Install unpacks the archive as root, beside the transactions: what they may change
// does not hold it.
func (g *geminiBox) Install(ctx context.Context, dir, stamp string, archive []byte) error {
	sb, err := g.b.sandbox(ctx)
	if err != nil {
		return err
	}
	if out, err := g.asRoot(ctx, sb, "cat "+dir+"/stamp", nil); err == nil && string(out) == stamp {
		return nil
	}
	for _, step := range []struct {
		command string
		stdin   io.Reader
	}{
		{"rm -rf " + dir + " && mkdir -p " + dir, nil},
		{"tar -xz -f - -C " + dir + " --no-same-owner --same-permissions", bytes.NewReader(archive)},
		{"chmod -R a+rX " + dir, nil}, // root's umask may keep the agent out
		{"tee " + dir + "/stamp", strings.NewReader(stamp)},
	} {
		if _, err := g.asRoot(ctx, sb, step.command, step.stdin); err != nil {
			return err
		}
	}
	return nil
}

func (g *geminiBox) asRoot(ctx context.Context, sb orchestrator.Sandbox, command string, stdin io.Reader) ([]byte, error) {
	verdict := g.rig.Decider.Decide(policy.Request{Command: command, User: policy.Root})
	permit, ok := verdict.Permit()
	if !ok {
		return nil, fmt.Errorf("%s: the policy denies it (%s): %s", command, verdict.Rule, verdict.Reason)
	}
	res, err := g.rig.Bare(ctx, sb, permit, stdin)
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("%s: exit %d: %s", command, res.ExitCode, printable(string(res.Stderr)))
	}
	return res.Stdout, err
}

// Forward leads a port of the guest's loopback here.
func (g *geminiBox) Forward(ctx context.Context, address string) (port int, end func(), err error) {
	sb, err := g.b.sandbox(ctx)
	if err != nil {
		return 0, nil, err
	}
	f, err := g.b.s.ssh.Forward(ctx, sb, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	})
	if err != nil {
		return 0, nil, err
	}
	return f.Port, f.Close, nil
}

// TreeHash is the digest of the manifest of the task's directory.
func (g *geminiBox) TreeHash(ctx context.Context) (string, error) {
	sb, err := g.b.sandbox(ctx)
	if err != nil {
		return "", err
	}
	m, err := g.rig.Examiner.Manifest(ctx, sb, orchestrator.ManifestRequest{Roots: []string{geminiDir}, Hash: true})
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, e := range m.Entries {
		fmt.Fprintf(h, "%q %s %o %d %d %q %s %s %q\n", e.Path, e.Type, e.Mode, e.UID, e.GID, e.Target, e.XAttrs, e.SHA256, e.Problem)
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}
