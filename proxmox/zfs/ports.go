package zfs

import (
	"context"
	"slices"
	"strings"
	"time"

	"savepoint/orchestrator"
)

// Guest works on the workspace volume inside a sandbox's VM. Errors wrap a class
// of the orchestrator; ErrUnavailable means that nothing was done. Each call may
// be made again and again.
type Guest interface {
	// Freeze writes everything to the volume and holds further writes. It arms a
	// watchdog in the guest, before it freezes, that thaws after atMost whatever
	// becomes of the caller.
	Freeze(ctx context.Context, sb orchestrator.Sandbox, atMost time.Duration) error
	// Thaw ends a freeze and its watchdog. No error when nothing is frozen.
	Thaw(ctx context.Context, sb orchestrator.Sandbox) error
	// Unmount ends every process of the agent, thaws what is frozen, and unmounts
	// the volume everywhere, so that the guest keeps nothing of it in memory. No
	// error when it is not mounted. ErrBusy: something that is not the agent's
	// holds it, and it stays mounted.
	Unmount(ctx context.Context, sb orchestrator.Sandbox) error
	// Mount mounts the volume where the agent finds it, and returns only when it
	// can be written. No error when it is mounted.
	Mount(ctx context.Context, sb orchestrator.Sandbox) error
}

// Target is one dataset on one node and the owner that it must carry.
type Target struct {
	Node    string
	Dataset string
	Owner   string // "instance/sandbox"
}

// Node gives ZFS orders on nodes. Each returns the volume as it is afterwards.
// Errors wrap a class of the orchestrator, or are *orchestrator.FullError. Whether a rollback
// was refused because of newer snapshots is *orchestrator.NotLatestError without
// names.
type Node interface {
	// List looks. It does not check the owner.
	List(ctx context.Context, t Target) (Volume, error)
	// Claim makes the owner the dataset's if it has none; ErrDenied if it has another.
	Claim(ctx context.Context, t Target) (Volume, error)
	// Snapshot takes a snapshot with its owner and text in one step. It is refused
	// with *orchestrator.FullError while fewer than reserve bytes are free.
	Snapshot(ctx context.Context, t Target, name orchestrator.SnapshotName, text string, reserve int64) (Volume, error)
	// Rollback restores exactly that snapshot, which must carry the owner.
	Rollback(ctx context.Context, t Target, name orchestrator.SnapshotName) (Volume, error)
	// Delete removes the snapshot if it carries the owner. No error when it is missing.
	Delete(ctx context.Context, t Target, name orchestrator.SnapshotName) (Volume, error)
}

// Volume is a dataset with what was taken of it.
type Volume struct {
	Dataset string
	Owner   string // set on the dataset itself; "" when it is nobody's
	Free    int64  // bytes
	Taken   []Taken
}

// Taken is a snapshot or a bookmark, oldest first in a Volume.
type Taken struct {
	Name     string // a bookmark's begins with '#'
	Owner    string // set on the snapshot itself; "" when it is not ours
	Text     string
	Created  time.Time
	Sequence uint64 // orders them: the pool's transaction group
}

// find returns the position of a snapshot, -1 when there is none.
func (v Volume) find(name orchestrator.SnapshotName) int {
	return slices.IndexFunc(v.Taken, func(t Taken) bool { return t.Name == string(name) })
}

// newer returns what is in the way of a snapshot, oldest first.
func (v Volume) newer(name orchestrator.SnapshotName) (names []orchestrator.SnapshotName) {
	for _, t := range v.Taken[v.find(name)+1:] {
		names = append(names, orchestrator.SnapshotName(t.Name))
	}
	return names
}

// snapshots is the volume's chain as the port has it.
func (v Volume) snapshots() []orchestrator.Snapshot {
	var chain []orchestrator.Snapshot
	var parent orchestrator.SnapshotName
	for _, t := range v.Taken {
		if strings.HasPrefix(t.Name, "#") {
			continue
		}
		s := orchestrator.Snapshot{Name: orchestrator.SnapshotName(t.Name), Parent: parent, Taken: t.Created, Description: t.Text}
		chain, parent = append(chain, s), s.Name
	}
	if len(chain) > 0 {
		chain[len(chain)-1].Current = true
	}
	return chain
}
