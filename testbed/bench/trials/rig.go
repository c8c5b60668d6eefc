package trials

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
	"savepoint/testbed/bench"
)

// Rig is a sandbox on a cluster, and what acts on it.
type Rig struct {
	// Engine runs transactions one after the other; Eager takes the next one's
	// snapshot while nothing runs. They may share a journal.
	Engine, Eager *orchestrator.Engine
	Decider       orchestrator.Decider
	Examiner      orchestrator.Examiner
	// Bare runs a command without savepoint on the sandbox's connection.
	Bare func(ctx context.Context, sb orchestrator.Sandbox, p policy.Permit, stdin io.Reader) (orchestrator.ExecResult, error)
	// Box makes the sandbox, or returns the one that was made.
	Box func(ctx context.Context) (orchestrator.Sandbox, error)
	// Reset brings it back to its first state.
	Reset func(ctx context.Context, sb orchestrator.Sandbox) error
	// Facts are kept with every result: accelerator, storage, hash of the image.
	Facts map[string]string

	sent bool // what the guest needs is there
}

// stage is where the experiments keep their things in a guest.
const stage = "/opt/savepoint-bench"

// ready returns the sandbox, with everything that the experiments need in it.
func (g *Rig) ready(ctx context.Context, r *bench.Run) (orchestrator.Sandbox, error) {
	sb, err := g.Box(ctx)
	if err != nil {
		return sb, err
	}
	for _, name := range slices.Sorted(maps.Keys(g.Facts)) {
		r.Fact(name, g.Facts[name])
	}
	if g.sent {
		return sb, nil
	}
	if err := g.send(ctx, sb, pieces()); err != nil {
		return sb, err
	}
	g.sent = true
	return sb, nil
}

// reset brings a sandbox back that an experiment left in another state.
func (g *Rig) reset(ctx context.Context, sb orchestrator.Sandbox) error {
	g.sent = false
	if err := g.Reset(ctx, sb); err != nil {
		return fmt.Errorf("reset sandbox %s: %w", sb.Name, err)
	}
	if err := g.send(ctx, sb, pieces()); err != nil {
		return err
	}
	g.sent = true
	return nil
}

// pieces are all files that experiments need in the guest, below stage.
func pieces() map[string]string {
	out := map[string]string{treeFile: treeScript}
	for _, d := range damages() {
		out[d.file()] = d.text()
	}
	maps.Copy(out, workloadFiles())
	return out
}

// Archive is a tar of files by path and content, all with one mode, and of the
// directories above them.
func Archive(files map[string]string, mode int64) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	dirs := map[string]bool{}
	for name := range files {
		for dir := path.Dir(name); dir != "." && !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if err := w.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(files[name]))}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, files[name]); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buf.Bytes(), err
}

// send unpacks files below stage, owned by root and readable by all: root's umask
// may be one that would keep the agent out.
func (g *Rig) send(ctx context.Context, sb orchestrator.Sandbox, files map[string]string) error {
	archive, err := Archive(files, 0o755)
	if err != nil {
		return err
	}
	if _, err := g.bare(ctx, sb, "mkdir -p -m 0755 "+stage, nil); err != nil {
		return err
	}
	_, err = g.bare(ctx, sb, "tar -x -f - -C "+stage+" --no-same-owner --same-permissions", bytes.NewReader(archive))
	return err
}

// bare runs a command as root without savepoint; another exit code than 0 is an
// error.
func (g *Rig) bare(ctx context.Context, sb orchestrator.Sandbox, command string, stdin io.Reader) (orchestrator.ExecResult, error) {
	res, _, err := g.timed(ctx, sb, command, stdin)
	return res, err
}

// timed is bare with how long it took, in seconds. The policy's decision, without
// which nothing runs, is not in that: a bare command is not judged.
func (g *Rig) timed(ctx context.Context, sb orchestrator.Sandbox, command string, stdin io.Reader) (orchestrator.ExecResult, float64, error) {
	permit, err := g.permit(command)
	if err != nil {
		return orchestrator.ExecResult{}, 0, err
	}
	began := time.Now()
	res, err := g.Bare(ctx, sb, permit, stdin)
	took := time.Since(began).Seconds()
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("%s: exit %d: %s", command, res.ExitCode, firstLine(res.Stderr))
	}
	return res, took, err
}

func (g *Rig) permit(command string) (policy.Permit, error) {
	v := g.Decider.Decide(policy.Request{Command: command, User: policy.Root})
	permit, ok := v.Permit()
	if !ok {
		return permit, fmt.Errorf("%s: the policy denies it (%s): %s", command, v.Rule, v.Reason)
	}
	return permit, nil
}

func firstLine(b []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	if len(line) > 200 {
		line = line[:200]
	}
	return line
}

// transact runs one transaction and returns it as a sample: its wall time, and
// its steps.
func transact(ctx context.Context, e *orchestrator.Engine, s orchestrator.Spec) (bench.Sample, orchestrator.Outcome, error) {
	s.By = "bench"
	began := time.Now()
	out, err := e.Run(ctx, s)
	t := out.Timings
	sample := bench.Sample{
		Metrics: map[string]float64{bench.MetricSeconds: time.Since(began).Seconds()},
		Steps: map[string]float64{
			bench.StepPolicy: t.Policy.Seconds(), bench.StepSnapshot: t.Snapshot.Seconds(), bench.StepExecute: t.Execute.Seconds(),
			bench.StepValidate: t.Validate.Seconds(), bench.StepCommit: t.Commit.Seconds(), bench.StepRollback: t.Rollback.Seconds(),
		},
	}
	maps.DeleteFunc(sample.Steps, func(_ string, v float64) bool { return v == 0 })
	return sample, out, err
}

// committed is transact of a command that has to be committed.
func committed(ctx context.Context, e *orchestrator.Engine, s orchestrator.Spec) (bench.Sample, error) {
	sample, out, err := transact(ctx, e, s)
	if err == nil && out.State != orchestrator.StateCommitted {
		err = fmt.Errorf("%s: it is %s: %s: %s", s.Command, out.State, out.Reason, firstLine([]byte(out.Stderr)))
	}
	return sample, err
}

// covering are the boundaries that a sandbox has, the cheapest first.
func covering(sb orchestrator.Sandbox) []orchestrator.Boundary {
	all := []orchestrator.Boundary{orchestrator.BoundaryDisk, orchestrator.BoundaryMachine}
	if sb.Workspace != "" {
		all = append([]orchestrator.Boundary{orchestrator.BoundaryWorkspace}, all...)
	}
	return all
}
