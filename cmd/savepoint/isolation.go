package main

import (
	"context"

	"savepoint/network"
	"savepoint/orchestrator"
	"savepoint/orchestrator/provision"
)

// isolation is what sandboxes of tenants need of the networks: a place in one,
// and the proof that it is sealed.
type isolation struct{ s *session }

var (
	_ provision.Networks  = isolation{}
	_ orchestrator.Prover = isolation{}
)

// Pools implements provision.Networks.
func (i isolation) Pools(ctx context.Context, tenant string) ([]network.Pool, error) {
	return i.s.pools(ctx, tenant)
}

// Prove implements orchestrator.Prover.
func (i isolation) Prove(ctx context.Context, sb orchestrator.Sandbox) error {
	return i.s.prove(ctx, sb)
}
