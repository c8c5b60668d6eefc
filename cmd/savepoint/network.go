package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"savepoint/configs"
	"savepoint/network"
	"savepoint/orchestrator"
	"savepoint/orchestrator/journal"
	"savepoint/orchestrator/networks"
	"savepoint/orchestrator/provision"
)

const networkCodes = "\n\nExit code 2: the configuration cannot be made; every problem is named with its key.\n" +
	"7: the cluster is in the way: somebody else's pending edits or lock, a node that does\n" +
	"not follow, a missing privilege."

func newNetwork(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "network", Short: "Zones and vnets that keep tenants apart",
		Long: "Makes what the configuration's network section says of the cluster's software-defined\n" +
			"network: a zone for each tenant, its vnets and subnets. Only what savepoint made is\n" +
			"changed or removed; what somebody else is editing is left alone.",
	}
	c.AddCommand(newNetworkPlan(a), newNetworkApply(a), newNetworkVerify(a), newNetworkDestroy(a))
	return c
}

// openNetworks opens the cluster and the journal. To look the journal is only
// read, so that it works beside the process that holds it; the first time there
// is none, and it is made: ids of networks begin with the installation's.
func (a *app) openNetworks(change bool) (*session, error) {
	cfg, err := a.config(a.configFile, true)
	if err != nil {
		return nil, err
	}
	s := &session{app: a, cfg: cfg, onStep: func(provision.Step) {}, onEvent: func(orchestrator.Event) {}}
	if s.secrets, err = redactions(cfg.Redact); err != nil {
		return nil, err
	}
	if change || !fileExists(journalFile(cfg)) {
		if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
			return nil, fmt.Errorf("make the state directory: %w", err)
		}
		if s.journal, err = journal.Open(journalFile(cfg), journal.Options{}); err != nil {
			return nil, &orchestrator.JournalError{Cause: err}
		}
		a.closers = append(a.closers, s.journal.Close)
	} else if s.journal, err = a.readJournalOf(cfg); err != nil {
		return nil, err
	}
	return s, s.openCluster()
}

// networks is the manager of the cluster's networks; p may be nil.
func (s *session) networks(p *progress) *networks.Manager {
	return networks.New(networks.Config{
		Fabric: s.cluster.SDN(), Store: s.journal,
		Observe: func(st networks.Step) { p.say("%s %s", st.Name, st.Detail) },
	})
}

// pools are the networks that sandboxes of the tenant can be plugged into.
func (s *session) pools(ctx context.Context, tenant string) ([]network.Pool, error) {
	w, err := s.wanted(ctx)
	if err != nil {
		return nil, err
	}
	pools, err := networks.Pools(ctx, s.journal, w, tenant)
	var config *network.PoolError
	if errors.As(err, &config) {
		return nil, usageError{err}
	}
	return pools, err
}

// freeNetworks gives back the cluster's lock that an apply left when it was
// killed. It asks the cluster only if the journal knows of one.
func (s *session) freeNetworks(ctx context.Context) error {
	freed, err := s.networks(nil).Release(ctx)
	if freed && err == nil {
		fmt.Fprintln(s.app.err, "savepoint: an earlier run left the cluster's networks locked; the lock was given back")
	}
	return err
}

// foreignError is what somebody else has on the cluster: its state is in the
// way, and not the configuration.
type foreignError struct{ *network.ForeignError }

// Is makes it a case of busy for callers that only know classes.
func (e foreignError) Is(target error) bool { return target == orchestrator.ErrBusy }

func (e foreignError) Error() string {
	lines := make([]string, len(e.Refusals))
	for i, r := range e.Refusals {
		lines[i] = "\n  " + r.String()
	}
	return "the cluster's networks are not savepoint's alone to change:" + strings.Join(lines, "")
}

// networkError gives errors of planning their exit codes, and problems of the
// configuration their full keys.
func networkError(err error) error {
	var config *network.ConfigError
	var foreign *network.ForeignError
	var errs []error
	if errors.As(err, &config) {
		e := &configs.Error{}
		for _, p := range config.Problems {
			e.Problems = append(e.Problems, configs.Problem{Key: "network." + p.Key, Cause: p.Cause, Mend: p.Mend})
		}
		errs = append(errs, e)
	}
	if errors.As(err, &foreign) {
		errs = append(errs, foreignError{foreign})
	}
	if len(errs) == 0 {
		return err
	}
	return errors.Join(errs...)
}
