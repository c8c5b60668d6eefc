package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/orchestrator/journal"
	"savepoint/orchestrator/provision"
	"savepoint/orchestrator/sshexec"
	"savepoint/proxmox"
)

// session is everything that a command needs to change something: the journal,
// held exclusively, and the cluster.
type session struct {
	app     *app
	cfg     configs.Config
	journal *journal.Journal
	cluster *proxmox.Cluster
	ssh     *sshexec.Client
	engine  *orchestrator.Engine
	prov    *provision.Provisioner
	keys    []string // authorized_keys lines of our identity
	secrets []*regexp.Regexp
	rules   orchestrator.Decider
	// engineConfig is the engine's, for another one on the same journal.
	engineConfig orchestrator.Config
	// workspaces is nil where sandboxes have no workspace volume.
	workspaces *workspaces

	onStep  func(provision.Step)
	onEvent func(orchestrator.Event)
	onNote  func(string) // a line that stays; nil: it is printed
}

// open opens a session with the configuration of the command line and settles
// what an earlier process left.
func (a *app) open(ctx context.Context) (*session, error) {
	s, err := a.openUnsettled(ctx)
	if err != nil {
		return nil, err
	}
	return s, s.settle(ctx)
}

// openUnsettled is open for commands that settle in their own way, or not at all.
func (a *app) openUnsettled(ctx context.Context) (*session, error) {
	cfg, err := a.config(a.configFile, true)
	if err != nil {
		return nil, err
	}
	return a.openWith(ctx, cfg)
}

// openWith opens a session without settling anything. app.close ends it.
func (a *app) openWith(ctx context.Context, cfg configs.Config) (*session, error) {
	s := &session{app: a, cfg: cfg, onStep: func(provision.Step) {}, onEvent: func(orchestrator.Event) {}}
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	var err error
	if s.secrets, err = redactions(cfg.Redact); err != nil {
		return nil, err
	}
	if s.journal, err = journal.Open(journalFile(cfg), journal.Options{}); err != nil {
		return nil, &orchestrator.JournalError{Cause: err}
	}
	a.closers = append(a.closers, s.journal.Close)
	if err := s.openSSH(); err != nil {
		return nil, err
	}
	if err := s.openCluster(); err != nil {
		return nil, err
	}
	if err := s.openWorkspaces(); err != nil {
		return nil, err
	}
	return s, s.build()
}

// openSSH loads the identity, making it the first time, and the client.
func (s *session) openSSH() error {
	path := s.cfg.SSH.IdentityFile
	id, err := sshexec.LoadIdentity(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return fmt.Errorf("make the directory of the SSH identity: %w", err)
		}
		id, err = sshexec.CreateIdentity(path, "savepoint")
	}
	if err != nil {
		return usageError{err}
	}
	c := sshexec.Config{Identities: []sshexec.Identity{id}}
	if j := s.cfg.SSH.Jump; j.Configured() {
		jid := id
		if j.IdentityFile != "" && j.IdentityFile != path {
			if jid, err = sshexec.LoadIdentity(j.IdentityFile); err != nil {
				return usageError{err}
			}
		}
		c.Jump = &sshexec.Jump{Address: j.Address, User: j.User, HostKey: j.HostKey, Identity: jid}
	}
	if s.ssh, err = sshexec.New(c); err != nil {
		return usageError{err}
	}
	s.app.closers = append(s.app.closers, s.ssh.Close)
	s.keys = []string{id.AuthorizedKey()}
	return nil
}

// clusterConfig is how the cluster is reached.
func clusterConfig(cfg configs.Config, instance string) proxmox.Config {
	c := cfg.Cluster
	return proxmox.Config{
		URL: c.URL, CAFile: c.CAFile, Fingerprint: c.Fingerprint,
		TokenID: c.TokenID, TokenSecret: proxmox.Secret(c.TokenSecret.Reveal()),
		Nodes: c.Nodes, Pool: c.Pool, StateStorage: c.StateStorage, Bridge: cfg.Sandbox.Bridge, Instance: instance,
		PollInterval: c.PollInterval, TaskTimeout: c.TaskTimeout, RequestTimeout: c.RequestTimeout,
		AgentTimeout: cfg.Sandbox.BootTimeout, ClonesPerStorage: c.ClonesPerStorage,
		FullClones: c.Limits.FullClones, LinkedClones: c.Limits.LinkedClones, PerNode: c.Limits.PerNode,
	}
}

func (s *session) openCluster() (err error) {
	c := clusterConfig(s.cfg, strings.ToLower(s.journal.Instance()))
	c.Waiting = func(w proxmox.Wait) {
		s.onEvent(orchestrator.Event{At: time.Now(), Step: stepWait, Phase: orchestrator.PhaseProgress, Detail: w.String()})
	}
	c.Logger = newLogger(s.app.err, s.cfg.Log, cleaner(s.secrets))
	s.cluster, err = proxmox.Open(c)
	if err != nil {
		return usageError{err}
	}
	s.app.closers = append(s.app.closers, func() error { s.cluster.Close(); return nil })
	return nil
}

// build puts the engine and the provisioner together.
func (s *session) build() error {
	rules, err := decider(s.cfg)
	if err != nil {
		return err
	}
	checks, err := guards(s.cfg.Validate)
	if err != nil {
		return err
	}
	snaps := s.cluster.Snapshots()
	boundaries := map[orchestrator.Boundary]orchestrator.Snapshotter{
		orchestrator.BoundaryDisk: snaps, orchestrator.BoundaryMachine: snaps,
	}
	if s.workspaces != nil {
		boundaries[orchestrator.BoundaryWorkspace] = s.workspaces
	}
	s.rules = rules
	s.engineConfig = orchestrator.Config{
		Journal: s.journal, Decider: rules, Snapshotters: boundaries,
		Hypervisor: s.cluster.VMs(), Executor: s.ssh, Guest: s.ssh, Tasks: s.cluster.Tasks(), Prover: isolation{s},
		Observer:     func(e orchestrator.Event) { s.onEvent(e) },
		RootBoundary: orchestrator.Boundary(s.cfg.Sandbox.RootBoundary),
		OutputLimit:  int64(s.cfg.Run.OutputLimit),
		Idle:         s.cfg.Transaction.Idle,
		Guards:       checks,
		Redact:       s.secrets,
		Deadlines: orchestrator.Deadlines{
			Command: s.cfg.Run.Timeout, Snapshot: s.cfg.Run.SnapshotTimeout, Validate: s.cfg.Run.ValidateTimeout,
			Rollback: s.cfg.Run.RollbackTimeout, Boot: s.cfg.Sandbox.BootTimeout,
		},
	}
	if s.engine, err = orchestrator.New(s.engineConfig); err != nil {
		return err
	}
	s.prov = s.provisioner()
	return nil
}

func (s *session) provisioner() *provision.Provisioner {
	var volumes provision.Workspaces
	if s.workspaces != nil {
		volumes = resetVolumes{s.workspaces}
	}
	return provision.New(provision.Config{
		Registry: s.registry(), Hypervisor: s.cluster.VMs(), Snapshots: s.cluster.Snapshots(), Identity: s.cluster, Guest: s.ssh,
		Networks: isolation{s}, Prover: isolation{s}, Workspaces: volumes,
		Fleet: fleet{s.cluster}, Template: s.cfg.Sandbox.Template, Limits: limits(s.cfg.Cluster),
		FirstVMID: orchestrator.VMID(s.cfg.Cluster.VMIDFirst), LastVMID: orchestrator.VMID(s.cfg.Cluster.VMIDLast),
		Rest: s.cfg.Cluster.VMIDRest, Subnet: s.cfg.Sandbox.Subnet, Gateway: s.cfg.Sandbox.Gateway,
		SSHKeys: s.keys, FullClone: s.cfg.Sandbox.FullClone, Storage: s.cfg.Cluster.Storage,
		BootTimeout: s.cfg.Sandbox.BootTimeout, Recipe: s.recipe(), Warm: s.warm(),
		Now:     time.Now,
		NewID:   func() string { return string(orchestrator.NewTxID(time.Now())) },
		Observe: func(st provision.Step) { s.onStep(st) },
	})
}

// registry is that of the journal, as the provisioner and the janitor write it.
func (s *session) registry() registry { return registry{s.journal, cleaner(s.secrets)} }

// stepWait is the step of events that say how many calls are ahead of one that
// waits for its turn on the cluster.
const stepWait orchestrator.Step = "wait"

// settle finishes or undoes what an earlier process left, and says so. What
// cannot be settled now is the trouble of one sandbox, which the engine
// withholds: it is told, and the others can be used.
func (s *session) settle(ctx context.Context) error {
	left, err := s.prov.Recover(ctx)
	for _, sb := range left {
		fmt.Fprintf(s.app.err, "savepoint: sandbox %s was left %s by an earlier run; it was removed\n", sb.Name, sb.State)
	}
	if err := s.tell(ctx, err); err != nil {
		return err
	}
	_, err = s.settleTransactions(ctx)
	return err
}

// settleTransactions is the part of settle that is about transactions. It
// returns how many are stuck.
func (s *session) settleTransactions(ctx context.Context) (stuck int, err error) {
	outcomes, err := s.engine.Recover(ctx)
	for _, o := range outcomes {
		switch {
		case o.State == orchestrator.StateStuck:
			stuck++
			fmt.Fprintf(s.app.err, "savepoint: transaction %s in %s is stuck: %s\n", o.Transaction, o.Sandbox, printable(o.Reason))
			continue
		case !o.State.Final(): // it is as it was, and the error says why
			continue
		}
		fmt.Fprintf(s.app.err, "savepoint: transaction %s in %s was left open by an earlier run; it is %s now\n", o.Transaction, o.Sandbox, o.State)
	}
	return stuck, s.tell(ctx, err)
}

// tell passes on an error that concerns everything, and otherwise says it.
func (s *session) tell(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || !ofOneSandbox(err) {
		return err
	}
	fmt.Fprintf(s.app.err, "savepoint: not settled yet: %s\n", printable(err.Error()))
	return nil
}

// ofOneSandbox reports whether an error of recovery is about what the cluster
// or a guest answered, and not about the journal that all sandboxes share.
func ofOneSandbox(err error) bool {
	var damaged *journal.CorruptError
	var impossible *orchestrator.TransitionError
	var unwritten *orchestrator.JournalError
	if errors.As(err, &damaged) || errors.As(err, &impossible) || errors.As(err, &unwritten) {
		return false
	}
	return slices.ContainsFunc([]error{
		orchestrator.ErrNotFound, orchestrator.ErrExists, orchestrator.ErrBusy,
		orchestrator.ErrUnavailable, orchestrator.ErrUnknownOutcome, orchestrator.ErrDenied,
	}, func(class error) bool { return errors.Is(err, class) })
}

// narrate shows the steps of a long operation on a terminal until the returned
// progress is stopped.
func (s *session) narrate() *progress {
	p := newProgress(s.app.err, s.secrets)
	s.onNote = p.note
	s.onStep = func(st provision.Step) {
		if !st.Done {
			p.say("%s %s", st.Name, st.Detail)
		}
	}
	s.onEvent = func(e orchestrator.Event) {
		switch {
		case e.Step == stepWait:
			p.say("%s", e.Detail)
		case e.Phase != orchestrator.PhaseFinished:
			p.say("%s %s", e.Step, e.Detail)
		}
	}
	return p
}
