package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/testbed/bench"
	"savepoint/testbed/bench/trials"
	"savepoint/testbed/lab"
	records "savepoint/testbed/notes"
)

// benchmark is one bench run: the session on the cluster, and its sandbox.
type benchmark struct {
	app   *app
	flags benchFlags
	dir   string

	s           *session
	eager       *orchestrator.Engine
	accelerator string
	lab         *lab.Status           // nil when the cluster is not the lab
	where       *bench.Environment    // the cluster's; nil until it was asked
	box         *orchestrator.Sandbox // made by this run, which destroys it
}

// open opens the configured cluster, or the lab, once.
func (b *benchmark) open(ctx context.Context, rig *trials.Rig) error {
	if b.s != nil {
		return nil
	}
	cfg, err := b.config(ctx)
	if err != nil {
		return err
	}
	s, err := b.app.openWith(ctx, cfg)
	if err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	c := s.engineConfig
	c.Ahead = true
	if b.eager, err = orchestrator.New(c); err != nil {
		return err
	}
	b.s = s
	*rig = trials.Rig{
		Engine: s.engine, Eager: b.eager, Decider: s.rules, Examiner: s.ssh, Bare: s.ssh.Bare, Box: b.sandbox,
		Reset: b.reset, Facts: map[string]string{},
	}
	return nil
}

// config is the cluster's: the configured one, else the lab, which is started.
func (b *benchmark) config(ctx context.Context) (configs.Config, error) {
	cfg, err := b.app.config(b.app.configFile, false)
	if err != nil {
		return cfg, err
	}
	if cfg.Cluster.URL != "" {
		b.accelerator = "the cluster's"
		state, err := b.app.state()
		if err != nil {
			return cfg, err
		}
		if st, err := lab.Read(labDir(state)); err == nil && st.Running && st.APIURL == cfg.Cluster.URL {
			b.accelerator, b.lab = st.Accelerator, &st
		}
		return b.app.config(b.app.configFile, true)
	}
	st, _, err := b.app.labUp(ctx, labFlags{}, nil)
	if err != nil {
		return cfg, err
	}
	b.accelerator, b.lab = st.Accelerator, &st
	return b.app.labConfig(st.Config)
}

// sandbox makes the sandbox of the experiments anew, once.
func (b *benchmark) sandbox(ctx context.Context) (orchestrator.Sandbox, error) {
	if b.box != nil {
		return *b.box, nil
	}
	if err := b.dropOld(ctx); err != nil {
		return orchestrator.Sandbox{}, err
	}
	if _, err := b.place(ctx); err != nil {
		return orchestrator.Sandbox{}, err
	}
	p := newProgress(b.app.err, b.s.secrets)
	defer p.stop()
	p.say("create sandbox %s", b.flags.sandbox)
	wish, err := b.s.wish("")
	if err != nil {
		return orchestrator.Sandbox{}, err
	}
	sb, err := b.s.prov.Create(ctx, b.flags.sandbox, wish)
	if err != nil {
		return sb, err
	}
	b.box = &sb
	note, err := b.note()
	if err == nil {
		err = records.Write(note, []byte(sb.ID))
	}
	return sb, err
}

func (b *benchmark) dropOld(ctx context.Context) error {
	old, err := b.s.prov.Lookup(ctx, b.flags.sandbox)
	if errors.Is(err, orchestrator.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	note, err := b.note()
	if err != nil {
		return err
	}
	// Its name alone does not make it ours to ruin.
	if id, err := os.ReadFile(note); err != nil || string(id) != string(old.ID) {
		return usagef("bench run --sandbox %s: it exists, and the experiments ruin theirs; name another or destroy it", old.Name)
	}
	return b.destroy(ctx, old)
}

// note is the file that holds the id of the last sandbox of the experiments, which
// the next run replaces when it is still there.
func (b *benchmark) note() (string, error) {
	all, err := b.app.benchDir()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(all, 0o700); err != nil {
		return "", fmt.Errorf("make the directory of the runs: %w", err)
	}
	return filepath.Join(all, "sandbox"), nil
}

func (b *benchmark) destroy(ctx context.Context, sb orchestrator.Sandbox) error {
	if err := b.s.prov.Destroy(ctx, sb); err != nil {
		return err
	}
	return errors.Join(b.s.engine.Forget(ctx, sb.ID), b.eager.Forget(ctx, sb.ID))
}

// drop destroys the sandbox at the end.
func (b *benchmark) drop(ctx context.Context) error {
	if b.box == nil || b.flags.keep {
		return nil
	}
	return b.destroy(ctx, *b.box)
}

// reset brings the sandbox back to its first state.
func (b *benchmark) reset(ctx context.Context, sb orchestrator.Sandbox) error {
	return b.s.prov.Reset(ctx, sb)
}

// pairs measures the networks, for the isolation experiment.
func (b *benchmark) pairs(ctx context.Context) ([]trials.Pair, error) {
	if len(b.s.cfg.Network.Tenants) == 0 {
		return nil, nil
	}
	if _, err := b.sandbox(ctx); err != nil {
		return nil, err
	}
	p := newProgress(b.app.err, b.s.secrets)
	defer p.stop()
	res, err := b.s.verify(ctx, p, "")
	if err != nil {
		return nil, err
	}
	var out []trials.Pair
	for _, c := range res.Report.Checks {
		out = append(out, trials.Pair{From: c.From, To: c.To, Protocol: string(c.Protocol), Expected: string(c.Expected), Observed: string(c.Observed), OK: c.OK})
	}
	return out, nil
}
