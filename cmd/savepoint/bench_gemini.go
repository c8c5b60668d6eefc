package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"

	"savepoint/orchestrator"
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

var _ gemini.Sandbox = (*geminiBox)(nil)

const geminiDir = "/workspace/task"

func (g *geminiBox) Name() string {
	if g.b.box != nil && g.b.box.Workspace == "" {
		return "boundary " + string(g.b.s.engineConfig.RootBoundary)
	}
	return "boundary workspace"
}

// Seed puts the files where the commands run, by tar over the connection.
func (g *geminiBox) Seed(ctx context.Context, files map[string]string) error {
	sb, err := g.b.sandbox(ctx)
	if err != nil {
		return err
	}
	archive, err := trials.Archive(files, 0o644)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		command string
		stdin   io.Reader
	}{
		{"rm -rf " + geminiDir + " && mkdir -p " + geminiDir, nil},
		{"tar -x -f - -C " + geminiDir, bytes.NewReader(archive)},
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
func (g *geminiBox) Exec(ctx context.Context, command, validate string) (gemini.Verdict, error) {
	sb, err := g.b.sandbox(ctx)
	if err != nil {
		return "", err
	}
	spec := orchestrator.Spec{Sandbox: sb, Command: command, Dir: geminiDir, By: "bench"}
	if validate != "" {
		spec.Validate = []orchestrator.Validation{{Command: "cd " + geminiDir + " && " + validate}}
	}
	out, err := g.b.s.engine.Run(ctx, spec)
	if err != nil {
		return "", err
	}
	switch out.State {
	case orchestrator.StateCommitted:
		return gemini.Committed, nil
	case orchestrator.StateRolledBack:
		return gemini.RolledBack, nil
	case orchestrator.StateDenied:
		return gemini.Denied, nil
	default:
		return "", fmt.Errorf("it is %s: %s", out.State, out.Reason)
	}
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
