package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/orchestrator/journal"
	"savepoint/orchestrator/provision"
	"savepoint/policy"
)

// app is what the commands share.
type app struct {
	stdin    io.Reader
	out, err io.Writer
	getenv   func(string) string

	format     format
	configFile string
	stateDir   string
	logLevel   string

	closers []func() error // run last to first
}

// close gives back what was opened.
func (a *app) close() error {
	var errs []error
	for i := len(a.closers) - 1; i >= 0; i-- {
		errs = append(errs, a.closers[i]())
	}
	a.closers = nil
	return errors.Join(errs...)
}

func (a *app) lookup(name string) (string, bool) {
	v := a.getenv(name)
	return v, v != ""
}

// state is the directory of all durable state, absolute.
func (a *app) state() (string, error) {
	dir := a.stateDir
	if dir == "" {
		dir = configs.StateDir(a.lookup)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find the state directory: %w", err)
	}
	return abs, nil
}

// config reads the configuration. file overrides the usual search.
func (a *app) config(file string, needCluster bool) (configs.Config, error) {
	return a.load(configs.LoadOptions{File: file, NeedCluster: needCluster})
}

// load is config with more to say about how.
func (a *app) load(o configs.LoadOptions) (configs.Config, error) {
	o.Env, o.SearchDefault, o.Flags = a.lookup, o.File == "", map[string]any{}
	if a.logLevel != "" {
		o.Flags["log.level"] = a.logLevel
	}
	if a.stateDir != "" {
		state, err := a.state()
		if err != nil {
			return configs.Config{}, err
		}
		o.Flags["state_dir"] = state
	}
	return configs.Load(o)
}

// labConfig reads the running lab's configuration for the demo, which must play
// on the lab also where the environment names a real cluster.
func (a *app) labConfig(file string) (configs.Config, error) {
	lab := *a
	lab.getenv = func(name string) string {
		if strings.HasPrefix(name, "SAVEPOINT_CLUSTER_") || strings.HasPrefix(name, "SAVEPOINT_SSH_") {
			return ""
		}
		return a.getenv(name)
	}
	return lab.config(file, true)
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// logger is the lab's: JSON lines, for its log file.
func (a *app) logger(w io.Writer) zerolog.Logger {
	return newLogger(w, configs.Log{Level: a.logLevel, Format: "json"}, cleaner(nil))
}

func newLogger(w io.Writer, c configs.Log, clean func(string) string) zerolog.Logger {
	level, err := zerolog.ParseLevel(c.Level)
	if err != nil || c.Level == "" {
		level = zerolog.InfoLevel
	}
	if c.Format != "json" {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly, NoColor: terminal(w) == 0}
	}
	return zerolog.New(cleanLog{w, clean}).Level(level).With().Timestamp().Logger()
}

// readJournal is readJournalOf for commands that need nothing else of the
// configuration.
func (a *app) readJournal() (*journal.Journal, error) {
	cfg, err := a.config(a.configFile, false)
	if err != nil {
		return nil, err
	}
	return a.readJournalOf(cfg)
}

// readJournalOf opens the journal for looking only; it works while another
// process writes. A journal that does not exist yet is nil.
func (a *app) readJournalOf(cfg configs.Config) (*journal.Journal, error) {
	path := journalFile(cfg)
	if !fileExists(path) {
		return nil, nil
	}
	j, err := journal.OpenReadOnly(path)
	if err != nil {
		return nil, err
	}
	a.closers = append(a.closers, j.Close)
	return j, nil
}

// writeJournalOf opens the journal for a change that needs no cluster.
func (a *app) writeJournalOf(cfg configs.Config) (*journal.Journal, error) {
	path := journalFile(cfg)
	if !fileExists(path) {
		return nil, usagef("open journal %s: there is none yet; make a sandbox first (see savepoint sandbox create)", path)
	}
	j, err := journal.Open(path, journal.Options{})
	if err != nil {
		return nil, &orchestrator.JournalError{Cause: err}
	}
	a.closers = append(a.closers, j.Close)
	return j, nil
}

func journalFile(cfg configs.Config) string { return filepath.Join(cfg.StateDir, "journal.db") }

// decider builds the policy from the configuration.
func decider(cfg configs.Config) (*policy.Engine, error) {
	o := policy.Options{OpenHosts: cfg.Policy.OpenHosts}
	for _, path := range cfg.Policy.Rules {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, usagef("read policy rules: %w", err)
		}
		o.Rules = append(o.Rules, policy.RuleFile{Name: path, Data: text})
	}
	e, err := policy.New(o)
	if err != nil {
		return nil, usageError{err}
	}
	return e, nil
}

// sandboxView is a sandbox together with what the journal says is wrong with it.
type sandboxView struct {
	orchestrator.Sandbox
	Open string `json:"open_transaction,omitempty"`
	Hint string `json:"hint,omitempty"`
	// Unavailable says why the sandbox's node is out of reach; it is as it was.
	Unavailable string `json:"unavailable,omitempty"`
	// Begun is the open transaction of several commands that has the sandbox.
	Begun   string                     `json:"begun_transaction,omitempty"`
	Expires time.Time                  `json:"begun_expires,omitzero"`
	Session []orchestrator.SessionView `json:"session,omitempty"`
}

// Health is the one word a list shows.
func (v sandboxView) Health() string {
	switch {
	case v.Open != "":
		return "quarantined"
	case v.Unavailable != "" && (v.State == orchestrator.SandboxReady || v.State == orchestrator.SandboxPooled):
		return "unavailable"
	}
	return string(v.State)
}

// sandboxViews reads the sandboxes from the journal and asks the cluster no more
// than which nodes are there.
func (a *app) sandboxViews(ctx context.Context, all bool) ([]sandboxView, error) {
	j, err := a.readJournal()
	if err != nil || j == nil {
		return nil, err
	}
	sandboxes, err := j.Sandboxes(ctx)
	if err != nil {
		return nil, err
	}
	held, err := orchestrator.List(ctx, j, orchestrator.Filter{Open: true, States: []orchestrator.State{orchestrator.StateStuck, orchestrator.StateOpen}})
	if err != nil {
		return nil, err
	}
	var views []sandboxView
	for _, sb := range sandboxes {
		if (sb.State == orchestrator.SandboxDestroyed || sb.State == orchestrator.SandboxPooled) && !all {
			continue
		}
		v := sandboxView{Sandbox: sb}
		for _, t := range held {
			switch {
			case t.Sandbox.ID != sb.ID:
			case t.State == orchestrator.StateStuck:
				v.Open, v.Hint = string(t.ID), t.Mend
			default:
				v.Begun, v.Expires = string(t.ID), t.Expires
			}
		}
		if v.Session, err = orchestrator.Sessions(ctx, j, sb.ID); err != nil {
			return nil, err
		}
		if v.State == orchestrator.SandboxQuarantined && v.Open == "" {
			v.Hint = "mend the cause, then run savepoint sandbox release " + v.Name + " (or reset, or destroy)"
		}
		views = append(views, v)
	}
	a.reachability(ctx, views)
	return views, nil
}

// openSandbox opens the session and finds the sandbox.
func (a *app) openSandbox(ctx context.Context, name string) (*session, orchestrator.Sandbox, error) {
	s, err := a.open(ctx)
	if err != nil {
		return nil, orchestrator.Sandbox{}, err
	}
	sb, err := provision.Lookup(ctx, s.journal, name)
	return s, sb, named(err)
}

// addTimeout adds --timeout of a whole command that waits.
func addTimeout(c *cobra.Command, d *time.Duration) {
	addSpan(c.Flags(), d, "timeout", 0, "give up after this long, e.g. 5m (default: the limits in the configuration)")
}

// span is the value of a flag that says how long something may take. No time is
// less than nothing.
type span time.Duration

// String, Set and Type make span a flag.
func (s *span) String() string {
	if *s == 0 {
		return "" // a default that the help leaves out
	}
	return time.Duration(*s).String()
}
func (s *span) Type() string { return "duration" }
func (s *span) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	if d < 0 {
		return errors.New("is negative")
	}
	*s = span(d)
	return nil
}

// addSpan adds a flag that says how long.
func addSpan(f *pflag.FlagSet, d *time.Duration, name string, def time.Duration, usage string) {
	*d = def
	f.Var((*span)(d), name, usage)
}

func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("not done within %s (--timeout)", d))
}
