package networks

import (
	"context"
	"time"

	"savepoint/network"
)

// Fabric is the cluster's software-defined network. Errors have one of the
// classes of package orchestrator. Implementation: proxmox.SDN.
type Fabric interface {
	// Observe reads what the cluster has. Only where zones are named are guests
	// asked for their network cards, which a removal in those zones needs: there
	// can be many. What cannot be seen is an error, counts as in use, or is told
	// as Hidden.
	Observe(ctx context.Context, zones []string) (network.Observed, error)
	// Lock takes the lock on all networks and returns its token, "" where the
	// cluster has no such lock. ErrBusy when somebody has it, or when there are
	// edits although none were seen: pending says that there may be some.
	Lock(ctx context.Context, pending bool) (token string, err error)
	// Write makes one change to the pending configuration.
	Write(ctx context.Context, token string, c network.Change) error
	// Apply makes the nodes follow the pending configuration and gives the
	// lock back with it. It returns when the cluster has set its nodes going
	// and they have ended what was seen of it: failed says what is known to
	// have gone wrong, by node. Only what the nodes report then proves anything.
	Apply(ctx context.Context, token string) (failed map[string]string, err error)
	// Unlock gives the lock back. It may be repeated, and does nothing to a
	// lock that somebody else took since.
	Unlock(ctx context.Context, token string) error
}

// Store keeps the record durably. Implementation: journal.Journal.
type Store interface {
	Networks(ctx context.Context) (network.Record, error)
	PutNetworks(ctx context.Context, r network.Record) error
}

// Step tells what is being done.
type Step struct{ Name, Detail string }

// Config holds the parts of a Manager. Fabric and Store are required.
type Config struct {
	Fabric Fabric
	Store  Store
	// Wait is how long nodes that are online may take to follow an apply;
	// 0 = 5 minutes.
	Wait time.Duration
	// Observe is told every step before it is made; nil = nobody is.
	Observe func(Step)
}

// Manager changes the cluster's networks. Use it from one goroutine, and from
// the process that has the journal.
type Manager struct{ cfg Config }

// New makes a Manager.
func New(cfg Config) *Manager {
	if cfg.Wait == 0 {
		cfg.Wait = 5 * time.Minute
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Step) {}
	}
	return &Manager{cfg}
}

// Result is what an apply or destroy did.
type Result struct {
	// Changes are the ones that were written, in order.
	Changes []network.Change
	// Kept would go and is still used.
	Kept []network.Kept
	// Applied says that the nodes were made to follow.
	Applied bool
	// Offline are nodes that follow when they are back.
	Offline []network.Lag
	// Allocation names all that the other fields are about.
	Allocation network.Allocation
}
