package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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
	more        []orchestrator.Sandbox
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
	state, err := b.app.state()
	if err != nil {
		return cfg, err
	}
	st, err := lab.Read(labDir(state))
	// A lab that was ended leaves its configuration, for when it is started again.
	down := err == nil && !st.Running && cfg.Source.File == configs.LabFile(state)
	if cfg.Cluster.URL != "" && !down {
		b.accelerator = "the cluster's"
		if err == nil && st.Running && st.APIURL == cfg.Cluster.URL {
			b.accelerator, b.lab = st.Accelerator, &st
		}
		return b.app.config(b.app.configFile, true)
	}
	if st, _, err = b.app.labUp(ctx, labFlags{}, nil); err != nil {
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
	if err := b.dropOld(ctx, b.flags.sandbox); err != nil {
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
	return sb, b.noted(sb)
}

// noted notes the sandbox for the next run.
func (b *benchmark) noted(sb orchestrator.Sandbox) error {
	note, err := b.note(sb.Name)
	if err != nil {
		return err
	}
	return records.Write(note, []byte(sb.ID))
}

func (b *benchmark) dropOld(ctx context.Context, name string) error {
	old, err := b.s.prov.Lookup(ctx, name)
	if errors.Is(err, orchestrator.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	note, err := b.note(name)
	if err != nil {
		return err
	}
	// Its name alone does not make it ours to ruin.
	if id, err := os.ReadFile(note); err != nil || string(id) != string(old.ID) {
		return usagef("bench run --sandbox %s: it exists, and the experiments ruin theirs; name another or destroy it", old.Name)
	}
	return b.destroy(ctx, old, true) // who wanted to look at it had the time since
}

// note is the file that holds the id of the last sandbox of the experiments, which
// the next run replaces when it is still there; further ones have one each.
func (b *benchmark) note(name string) (string, error) {
	all, err := b.app.benchDir()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(all, 0o700); err != nil {
		return "", fmt.Errorf("make the directory of the runs: %w", err)
	}
	return filepath.Join(all, "sandbox"+strings.TrimPrefix(name, b.flags.sandbox)), nil
}

// destroy removes a sandbox of the run. What is unfinished in it, because the run was
// ended or the cluster did not answer in time, is settled first. By force also one
// with a stuck transaction, which else stays to be looked at.
func (b *benchmark) destroy(ctx context.Context, sb orchestrator.Sandbox, force bool) error {
	for _, e := range []*orchestrator.Engine{b.s.engine, b.eager} {
		err := idle(ctx, e, sb, force)
		if errors.Is(err, orchestrator.ErrBusy) {
			_, err = e.Recover(ctx)
			err = errors.Join(err, idle(ctx, e, sb, force))
		}
		if err != nil {
			return fmt.Errorf("sandbox %s is kept: %w", sb.Name, err)
		}
	}
	if err := b.s.remove(ctx, sb, force); err != nil {
		return err
	}
	return b.eager.Forget(ctx, sb.ID)
}

// drop destroys the sandboxes at the end.
func (b *benchmark) drop(ctx context.Context) error {
	err := b.dropMore(ctx)
	if b.box == nil || b.flags.keep {
		return err
	}
	return errors.Join(err, b.destroy(ctx, *b.box, false))
}

// reset brings the sandbox back to its first state.
func (b *benchmark) reset(ctx context.Context, sb orchestrator.Sandbox) error {
	return b.s.prov.Reset(ctx, sb)
}
