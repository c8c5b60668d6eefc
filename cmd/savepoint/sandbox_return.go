package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"savepoint/orchestrator"
)

func newSandboxReturn(a *app) *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use: "return NAME", Short: "Give a sandbox back: reset it for the pool, or destroy it",
		Long: "Rolls the VM back to the pristine snapshot, verifies it and puts it into the pool without\n" +
			"a name, for the next savepoint sandbox create. When the pool has enough (pool.size), or\n" +
			"new sandboxes are made differently by now, it is destroyed. Either way everything in it\n" +
			"is gone, the name is free, its grants are revoked and its idempotency keys are forgotten.\n" +
			"A sandbox with an open or stuck transaction is left as it is.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onSandbox(c, args[0], timeout, func(ctx context.Context, s *session, sb *orchestrator.Sandbox) error {
				release, err := s.engine.Hold(ctx, *sb, "return")
				if err != nil {
					return err
				}
				*sb, err = s.prov.Return(ctx, *sb)
				release()
				if err != nil || sb.State != orchestrator.SandboxDestroyed {
					return err
				}
				return s.engine.Forget(ctx, sb.ID)
			})
		},
	}
	addTimeout(c, &timeout)
	return c
}
