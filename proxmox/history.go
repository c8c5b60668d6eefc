package proxmox

import (
	"cmp"
	"context"
	"slices"
	"time"

	"savepoint/orchestrator"
)

// snapshotEntry is one line of a VM's snapshot list.
type snapshotEntry struct {
	Name        string  `json:"name"`
	Parent      string  `json:"parent"`
	SnapTime    flexInt `json:"snaptime"`
	VMState     flexInt `json:"vmstate"`
	Description string  `json:"description"`
	SnapState   string  `json:"snapstate"`
	Running     flexInt `json:"running"` // only in the entry "current"
	Digest      string  `json:"digest"`  // only in the entry "current"
}

// history is a VM's snapshots and its present state, from one request. Unlike
// status/current it is never behind.
type history struct {
	entries []snapshotEntry // without "current"
	parent  string          // the snapshot the present state descends from
	running bool
}

func (h history) find(name orchestrator.SnapshotName) (snapshotEntry, bool) {
	for _, e := range h.entries {
		if e.Name == string(name) {
			return e, true
		}
	}
	return snapshotEntry{}, false
}

// history reads the snapshot list and takes the present state out of it.
func (c *Cluster) history(ctx context.Context, op string, vm orchestrator.VMRef) (history, error) {
	var list []snapshotEntry
	if err := c.readVM(ctx, op, vm, "/snapshot", nil, &list); err != nil {
		return history{}, err
	}
	var h history
	for _, e := range list {
		// A snapshot may be called "Current"; the present state has exactly this
		// name and is the only one with a digest.
		if e.Name == "current" {
			h.parent, h.running = e.Parent, e.Running != 0
			continue
		}
		h.entries = append(h.entries, e)
	}
	return h, nil
}

// look reads the snapshot list and the configuration.
func (c *Cluster) look(ctx context.Context, op string, vm orchestrator.VMRef) (history, vmConfig, error) {
	h, err := c.history(ctx, op, vm)
	if err != nil {
		return history{}, nil, err
	}
	conf, err := c.config(ctx, op, vm)
	return h, conf, err
}

// List returns the snapshots, parents before their children and otherwise by
// time. The cluster's pseudo snapshot "current" is not one of them.
func (s *Snapshots) List(ctx context.Context, vm orchestrator.VMRef) ([]orchestrator.Snapshot, error) {
	const op = "list snapshots of"
	if err := checkRef(op, vm); err != nil {
		return nil, err
	}
	h, err := s.c.history(ctx, op, vm)
	if err != nil {
		return nil, err
	}
	return ordered(h), nil
}

func ordered(h history) []orchestrator.Snapshot {
	rest := make([]orchestrator.Snapshot, 0, len(h.entries))
	listed := map[orchestrator.SnapshotName]bool{}
	for _, e := range h.entries {
		name := orchestrator.SnapshotName(e.Name)
		listed[name] = true
		rest = append(rest, orchestrator.Snapshot{
			Name: name, Parent: orchestrator.SnapshotName(e.Parent), Taken: time.Unix(int64(e.SnapTime), 0),
			Memory: e.VMState != 0, Description: e.Description, Incomplete: e.SnapState, Current: e.Name == h.parent,
		})
	}
	slices.SortFunc(rest, func(a, b orchestrator.Snapshot) int {
		return cmp.Or(a.Taken.Compare(b.Taken), cmp.Compare(a.Name, b.Name))
	})
	out := make([]orchestrator.Snapshot, 0, len(rest))
	placed := map[orchestrator.SnapshotName]bool{}
	for len(rest) > 0 {
		i := slices.IndexFunc(rest, func(s orchestrator.Snapshot) bool {
			return s.Parent == "" || !listed[s.Parent] || placed[s.Parent]
		})
		if i < 0 { // a ring of parents: the cluster's list is damaged, time is all there is
			return append(out, rest...)
		}
		placed[rest[i].Name] = true
		out = append(out, rest[i])
		rest = slices.Delete(rest, i, i+1)
	}
	return out
}

// newerThan returns the snapshots that descend from name, oldest first.
func newerThan(h history, name orchestrator.SnapshotName) []orchestrator.SnapshotName {
	under := map[string]bool{string(name): true}
	var out []orchestrator.SnapshotName
	for _, s := range ordered(h) {
		if under[string(s.Parent)] && !under[string(s.Name)] {
			under[string(s.Name)] = true
			out = append(out, s.Name)
		}
	}
	return out
}
