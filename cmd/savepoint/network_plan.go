package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"savepoint/network"
)

func newNetworkPlan(a *app) *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use: "plan", Short: "Show what network apply would change",
		Long: "Compares the configuration with what is pending on the cluster and with what runs,\n" +
			"and prints the difference. It changes nothing, and works while another instance runs.\n\n" +
			"create, update and delete write the pending configuration. apply is for what is\n" +
			"pending and does not run yet, as an interrupted apply leaves it.\n" +
			"Exit code 0: there is a plan, with changes or without (\"empty\" in the JSON)." + networkCodes,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := withTimeout(c.Context(), timeout)
			defer cancel()
			return a.planNetworks(ctx, false)
		},
	}
	addTimeout(c, &timeout)
	return c
}

// planNetworks prints the plan for what is configured, or for the removal of
// everything.
func (a *app) planNetworks(ctx context.Context, destroy bool) error {
	s, err := a.openNetworks(false)
	if err != nil {
		return err
	}
	p := newProgress(a.err, s.secrets)
	defer p.stop()
	p.say("looking at the cluster's networks")
	var plan network.Plan
	if destroy {
		plan, err = s.networks(p).PlanDestroy(ctx)
	} else {
		var w network.Wanted
		if w, err = s.wantedTenants(ctx); err == nil {
			plan, err = s.networks(p).Plan(ctx, w)
		}
	}
	p.stop()
	if err != nil {
		return networkError(err)
	}
	return a.printPlan(plan)
}

// wantedTenants is wanted for commands that make it: nothing wanted is for
// network destroy, so that a configuration that lost its section removes nothing.
func (s *session) wantedTenants(ctx context.Context) (network.Wanted, error) {
	if len(s.cfg.Network.Tenants) == 0 {
		return network.Wanted{}, usagef("network.tenants is empty; write at least one tenant, or remove all networks with savepoint network destroy")
	}
	return s.wanted(ctx)
}
