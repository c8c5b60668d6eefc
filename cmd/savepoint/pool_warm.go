package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/orchestrator/journal"
	"savepoint/orchestrator/provision"
)

// warm is the configured pool.
func (s *session) warm() provision.Warm {
	w := provision.Warm{Size: s.cfg.Pool.Size, PerNode: s.cfg.Pool.MaxPerNode, ProofAge: s.cfg.Pool.ProofAge, Proofs: proofs{s.journal}}
	for _, name := range poolTenants(s.cfg) {
		if wish, err := s.wish(name); err == nil { // another tenant is for sandbox create to refuse
			w.Wishes = append(w.Wishes, wish)
		}
	}
	return w
}

// poolTenants are those that the pool is for; "" is the bridge, without tenants.
func poolTenants(cfg configs.Config) []string {
	if len(cfg.Pool.Tenants) > 0 {
		return cfg.Pool.Tenants
	}
	tenant := cfg.Sandbox.Tenant
	if tenant == "" && len(cfg.Network.Tenants) > 0 {
		tenant = cfg.Network.Tenants[0].Name
	}
	return []string{tenant}
}

// recipe are the settings that a sandbox is made with and keeps, besides those
// that the provisioner knows.
func (s *session) recipe() string {
	r := "workspace " + s.cfg.Workspace.Storage
	if state := s.cfg.Cluster.StateStorage; state != "" {
		r += ", memory on " + state
	}
	if len(s.cfg.Network.Tenants) == 0 {
		r += ", bridge " + s.cfg.Sandbox.Bridge
	}
	return r
}

// proofs are those of the journal.
type proofs struct{ j *journal.Journal }

var _ provision.Proofs = proofs{}

// Proved implements provision.Proofs.
func (p proofs) Proved(ctx context.Context, sb orchestrator.SandboxID) (time.Time, error) {
	data, at, err := p.j.Proof(ctx, sb)
	if err != nil || data == nil {
		return time.Time{}, err
	}
	var report struct {
		Sealed bool `json:"sealed"`
	}
	if err := json.Unmarshal(data, &report); err != nil {
		return time.Time{}, &orchestrator.JournalError{Cause: fmt.Errorf("read the proof of sandbox %s: %w", sb, err)}
	}
	if !report.Sealed {
		return time.Time{}, nil
	}
	return at, nil
}

// NetworksChanged implements provision.Proofs.
func (p proofs) NetworksChanged(ctx context.Context) (time.Time, error) {
	return p.j.NetworksChanged(ctx)
}
