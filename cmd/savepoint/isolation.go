package main

import (
	"context"
	"slices"

	"savepoint/configs"
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
	pools, err := i.s.pools(ctx, tenant)
	if err != nil {
		return nil, err
	}
	// Found here, and not when the VM is made and cannot be proved.
	if !slices.ContainsFunc(i.s.cfg.Network.Places, func(p configs.Place) bool { return p.Role == string(network.RoleOutside) }) {
		return nil, usagef("create a sandbox of tenant %s: network.places has none of role outside, and what is not tried is not sealed; write an address that no sandbox may reach", tenant)
	}
	return pools, nil
}

// Prove implements orchestrator.Prover.
func (i isolation) Prove(ctx context.Context, sb orchestrator.Sandbox) error {
	return i.s.prove(ctx, sb)
}
