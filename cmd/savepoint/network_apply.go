package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"savepoint/orchestrator/networks"
)

func newNetworkApply(a *app) *cobra.Command {
	var timeout time.Duration
	var dryRun bool
	c := &cobra.Command{
		Use: "apply", Short: "Make the cluster's networks what is configured",
		Long: "Does what savepoint network plan shows: takes the cluster's SDN lock (Proxmox VE 9),\n" +
			"writes all changes, applies them once, and waits until every node that is online\n" +
			"has them. A node that is offline follows when it is back and apply is run again.\n" +
			"It can be interrupted and repeated at any time: the next apply does the rest.\n" +
			"What guests still use is kept and named." + networkCodes,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := withTimeout(c.Context(), timeout)
			defer cancel()
			if dryRun {
				return a.planNetworks(ctx, false)
			}
			return a.changeNetworks(ctx, func(s *session, m *networks.Manager) (networks.Result, error) {
				w, err := s.wantedTenants(ctx)
				if err != nil {
					return networks.Result{}, err
				}
				return m.Apply(ctx, w)
			})
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only show the plan, as savepoint network plan does")
	addTimeout(c, &timeout)
	return c
}

func newNetworkDestroy(a *app) *cobra.Command {
	var timeout time.Duration
	var dryRun bool
	c := &cobra.Command{
		Use: "destroy", Short: "Remove all networks that savepoint made and nobody uses",
		Long: "Removes every zone, vnet and subnet that savepoint made, and its EVPN controller,\n" +
			"whatever the configuration says now. A vnet that a guest has a network card on, in\n" +
			"its configuration or in a snapshot, is kept with all that it needs, and the guests\n" +
			"are named; run it again when they are gone. Exit code 0: done, also when something\n" +
			"was kept (\"kept\" in the JSON)." + networkCodes,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := withTimeout(c.Context(), timeout)
			defer cancel()
			if dryRun {
				return a.planNetworks(ctx, true)
			}
			return a.changeNetworks(ctx, func(_ *session, m *networks.Manager) (networks.Result, error) { return m.Destroy(ctx) })
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be removed")
	addTimeout(c, &timeout)
	return c
}

// changeNetworks makes a change and prints what was done, also next to an error.
func (a *app) changeNetworks(ctx context.Context, do func(*session, *networks.Manager) (networks.Result, error)) error {
	s, err := a.openNetworks(true)
	if err != nil {
		return err
	}
	p := newProgress(a.err, s.secrets)
	defer p.stop()
	res, err := do(s, s.networks(p))
	p.stop()
	if err != nil && len(res.Changes) == 0 && !res.Applied {
		return networkError(err)
	}
	if perr := a.printChanged(res, err == nil); perr != nil {
		return perr
	}
	return networkError(err)
}
