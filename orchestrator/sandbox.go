package orchestrator

import (
	"net/netip"
	"time"
)

// SandboxState is where a sandbox is in its life.
type SandboxState string

// The states of a sandbox. A sandbox can be used only when Ready.
const (
	SandboxCreating    SandboxState = "creating"    // an id is reserved, a VM may exist
	SandboxReady       SandboxState = "ready"       // started, identity pinned
	SandboxPooled      SandboxState = "pooled"      // as Ready, and nobody's yet: it waits to be handed out
	SandboxQuarantined SandboxState = "quarantined" // an operator is needed; never handed out
	SandboxDestroying  SandboxState = "destroying"  // being removed; finish on recovery
	SandboxDestroyed   SandboxState = "destroyed"   // kept so that its VM id rests for a while
)

// Sandbox is one agent VM as savepoint knows it.
type Sandbox struct {
	ID       SandboxID    `json:"id"`
	Name     string       `json:"name"`
	State    SandboxState `json:"state"`
	VM       VMRef        `json:"vm"`
	Template VMRef        `json:"template"`
	// Recipe names the settings that the sandbox was made with, besides its
	// template: one that waits in the pool is outdated when they change.
	Recipe string `json:"recipe,omitempty"`
	// Address is where the guest's sshd listens, reached through the jump host.
	Address netip.Addr `json:"address"`
	// Tenant whose zone the sandbox is in, and its VNet there, by their names in
	// the configuration. Empty: it is on a bridge that savepoint did not make,
	// and nothing is proved about it.
	Tenant string `json:"tenant,omitempty"`
	VNet   string `json:"vnet,omitempty"`
	// HostKey is the guest's SSH host key in authorized_keys form, read
	// through the guest agent when the sandbox was made. Empty until Ready.
	HostKey string `json:"host_key"`
	// Workspace names the sandbox's workspace volume on its node. Empty when
	// it has none: then the boundaries disk and machine serve for everything.
	// The guest keeps its generation marker on it, see Guest.Mark.
	Workspace string    `json:"workspace,omitempty"`
	Created   time.Time `json:"created"`
	// Reason says why the sandbox is quarantined.
	Reason string `json:"reason,omitempty"`
}
