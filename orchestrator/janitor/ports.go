package janitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"savepoint/orchestrator"
)

// VM is one VM of the cluster that may be ours.
type VM struct {
	VM       orchestrator.VMRef
	Name     string
	Lock     string
	Running  bool
	Template bool
	Ours     bool // tags and description say that it belongs to this instance
	HalfMade bool // its clone call did not come to its end
	Building bool // a template of ours whose build did not come to its end
	Sandbox  orchestrator.SandboxID
	Instance string // who made it, as its description says; "" for a stranger's
	Saved    string // the volume that a suspended VM resumes from
}

// Volume is one volume of a snapshot's saved memory.
type Volume struct {
	ID       string
	Node     string
	Storage  string
	VM       orchestrator.VMID
	Snapshot orchestrator.SnapshotName
	Size     int64
}

// Guard is what else works on a VM.
type Guard struct {
	VM          orchestrator.VMID
	HA          string
	Replication []string
}

// Inventory is what there is on the cluster.
type Inventory struct {
	VMs     []VM
	Volumes []Volume
	Guards  []Guard
	// OwnTasks are the nodes whose other tasks than our own the token may not see.
	OwnTasks []string
	Nodes    []string // those that did not answer
	Unseen   []string // what else could not be asked: "storage local on pve1"
}

// Cluster is what the janitor asks of the cluster besides the ports of the
// engine. Errors are of the engine's classes.
type Cluster interface {
	Inventory(ctx context.Context) (Inventory, error)
	// Working lists the running tasks that can hold that lock of the VM.
	Working(ctx context.Context, vm orchestrator.VMRef, lock string) ([]orchestrator.UPID, error)
	// DeleteVolume removes a volume of saved memory after it has checked that
	// the VM is the sandbox's and that nothing refers to the volume.
	DeleteVolume(ctx context.Context, vm orchestrator.VMRef, sandbox orchestrator.SandboxID, volume string, started orchestrator.Started) error
	// RemoveBuilding removes what a build of a template left, after it has
	// checked that the VM still says so; a missing one is no error.
	RemoveBuilding(ctx context.Context, vm orchestrator.VMRef, started orchestrator.Started) error
}

// Registry is the durable list of sandboxes.
type Registry interface {
	Sandboxes(ctx context.Context) ([]orchestrator.Sandbox, error)
	PutSandbox(ctx context.Context, sb orchestrator.Sandbox) error
}

// Claim is what the journal says of the transaction of a snapshot.
type Claim struct {
	Tx      orchestrator.TxID
	Sandbox orchestrator.Sandbox // as it was at begin
	State   orchestrator.State
	Settled bool // nothing is left to do
}

// Ledger knows transactions.
type Ledger interface {
	// Claim returns ErrNotFound for a transaction that the journal does not know.
	Claim(ctx context.Context, tx orchestrator.TxID) (Claim, error)
	// Spent lists the transactions that are finished and whose snapshots are
	// still to be deleted by the engine's collector.
	Spent(ctx context.Context) ([]Claim, error)
}

// Journal makes a Ledger of the engine's journal.
func Journal(j orchestrator.Journal) Ledger { return ledger{j} }

type ledger struct{ j orchestrator.Journal }

func claimOf(t orchestrator.Transaction) Claim {
	return Claim{Tx: t.ID, Sandbox: t.Sandbox, State: t.State, Settled: t.Settled}
}

func (l ledger) Claim(ctx context.Context, tx orchestrator.TxID) (Claim, error) {
	t, err := orchestrator.Show(ctx, l.j, tx)
	if err != nil {
		return Claim{}, err
	}
	return claimOf(t), nil
}

func (l ledger) Spent(ctx context.Context) ([]Claim, error) {
	if u, ok := l.j.(orchestrator.Unsettler); ok {
		return l.spent(ctx, u)
	}
	done, err := orchestrator.List(ctx, l.j, orchestrator.Filter{States: []orchestrator.State{orchestrator.StateCommitted, orchestrator.StateRolledBack}})
	if err != nil {
		return nil, err
	}
	var out []Claim
	for _, t := range done {
		if !t.Settled && t.Snapshot != "" {
			out = append(out, claimOf(t))
		}
	}
	return out, nil
}

func (l ledger) spent(ctx context.Context, u orchestrator.Unsettler) ([]Claim, error) {
	var out []Claim
	seen := map[orchestrator.TxID]bool{}
	for r, err := range u.Unsettled(ctx) {
		if err != nil {
			return nil, err
		}
		if seen[r.Tx] {
			continue
		}
		seen[r.Tx] = true
		t, err := orchestrator.Show(ctx, l.j, r.Tx)
		if err != nil {
			return nil, err
		}
		if t.State.Final() && !t.Settled && t.Snapshot != "" {
			out = append(out, claimOf(t))
		}
	}
	return out, nil
}

// Config is what a Janitor works with. All fields are required but Observe and
// those that say so.
type Config struct {
	Cluster    Cluster
	Snapshots  orchestrator.Snapshotter
	Hypervisor orchestrator.Hypervisor
	Registry   Registry
	Ledger     Ledger
	Notes      Notes
	// Remove finishes the removal of a sandbox, its entry and address included.
	Remove func(ctx context.Context, sb orchestrator.Sandbox) error
	// Collect deletes the snapshots of finished transactions.
	Collect func(ctx context.Context) (int, error)

	Instance    string
	First, Last orchestrator.VMID           // the range of ids that is ours
	Keep        []orchestrator.SnapshotName // snapshots of ours that belong to no transaction

	// LockAge is how long a lock of savepoint's own kinds has to be seen without
	// a task before it is called stale. 0 = 10 minutes; negative = two looks are
	// enough.
	LockAge time.Duration

	Now     func() time.Time
	Observe func(Finding) // told before and after each finding is dealt with
}

// Janitor looks and cleans. It is not safe for concurrent use.
type Janitor struct{ c Config }

// New returns a Janitor.
func New(c Config) (*Janitor, error) {
	if c.Cluster == nil || c.Snapshots == nil || c.Hypervisor == nil || c.Registry == nil || c.Ledger == nil ||
		c.Notes == nil || c.Remove == nil || c.Collect == nil || c.Now == nil || c.Instance == "" {
		return nil, errors.New("make a janitor: a port, the clock or the instance is missing")
	}
	if c.First <= 0 || c.Last < c.First {
		return nil, fmt.Errorf("make a janitor: %d to %d is no range of vm ids", c.First, c.Last)
	}
	if c.LockAge == 0 {
		c.LockAge = 10 * time.Minute
	}
	if c.Observe == nil {
		c.Observe = func(Finding) {}
	}
	return &Janitor{c: c}, nil
}
