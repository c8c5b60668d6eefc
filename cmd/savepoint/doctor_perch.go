package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"savepoint/orchestrator"
	"savepoint/proxmox"
)

// perch is a place where a canary is to live: a linked clone stays where the
// template is, a full one goes to any storage.
type perch struct {
	storage, node string
	full          bool
	used          bool // sandboxes are meant to be there
}

func (p perch) String() string { return p.storage + " on " + p.node }

// perches are the storages to prove, those that sandboxes use first. One that is
// not shared is another one on each node.
func (d *doctor) perches(ctx context.Context) []perch {
	var out []perch
	for _, s := range d.stores() {
		if !s.Active || !slices.Contains(s.Content, "images") || !s.Snapshots().Possible {
			continue
		}
		for _, node := range s.nodes {
			source, ok := d.sourceOn(node)
			p := perch{s.ID, node, true, len(s.uses) > 0}
			switch {
			case ok && source.Storage == s.ID && !d.cfg.Sandbox.FullClone:
				p.full, p.used = false, true
			case !ok || !d.mayFill(ctx, s.ID):
				continue
			}
			if why := d.noRoom(p); why != "" {
				d.add("canary", levelWarning, fmt.Sprintf("%s: nothing was proved there: %s", p, why), "make room, then run savepoint doctor --canary again")
			} else {
				out = append(out, p)
			}
			if s.Shared {
				break
			}
		}
	}
	slices.SortStableFunc(out, func(a, b perch) int { return cmp.Compare(rank(a.used), rank(b.used)) })
	return out
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// noRoom says why a canary would only find out that a storage is full.
func (d *doctor) noRoom(p perch) string {
	room := func(id string, need int64) string {
		if s, ok := d.storageOn(p.node, id); ok && s.Free < need {
			return fmt.Sprintf("storage %s has %s free there, and one sandbox takes up to %s", id, bytesText(s.Free), bytesText(need))
		}
		return ""
	}
	why := room(p.storage, d.oneSandbox())
	if w := d.cfg.Workspace; why == "" && !p.full && w.Storage != "" {
		why = room(w.Storage, int64(w.Reserve))
	}
	return why
}

// sourceOn is the template that a sandbox on that node is cloned from: the newest of
// those that are there, as provisioning takes it.
func (d *doctor) sourceOn(node string) (proxmox.Source, bool) {
	l := limits(d.cfg.Cluster)
	for i, site := range d.sites {
		if site.Name == node && len(site.Templates) > 0 && l.Closed(placesOf(d.sites)[i]) == "" {
			return site.Templates[0], true
		}
	}
	return proxmox.Source{}, false
}

// mayFill reports whether our token may make disks on the storage.
func (d *doctor) mayFill(ctx context.Context, storage string) bool {
	missing, err := d.s.cluster.MissingPrivileges(ctx, d.version, proxmox.Use{Storages: []string{storage}})
	return err == nil && !slices.ContainsFunc(missing, func(p proxmox.Privilege) bool { return p.Path == "/storage/"+storage })
}

// blameLock is what says nothing about a place: others were at work there.
const blameLock = "a lock"

// blame says what an error is to be put down to. The storage is blamed only for
// what it did itself.
func (c *canary) blame(err error) (what, mend string) {
	const again = "run savepoint doctor --canary again"
	var key *orchestrator.HostKeyError
	var unsealed *orchestrator.UnsealedError
	var unsupported *orchestrator.UnsupportedError
	keepOff := fmt.Sprintf("keep sandboxes off %s until this is mended", c.tries)
	switch {
	case errors.As(err, &key):
		return "another host answers", "see that nothing else has the guest's address, then " + again
	case errors.As(err, &unsealed):
		return "the network is not sealed", "savepoint network verify"
	case errors.Is(err, orchestrator.ErrDenied):
		return "a missing permission", "grant what it names (see the findings on privileges), then " + again
	case errors.Is(err, context.DeadlineExceeded):
		return "too little time", "see what is slow there, or raise cluster.task_timeout and sandbox.boot_timeout, then " + again
	case errors.Is(err, orchestrator.ErrBusy):
		return blameLock, "wait for what works there (savepoint gc --dry-run names stale locks), then " + again
	case errors.As(err, &unsupported):
		return "it cannot be done there", cmp.Or(unsupported.Mend, keepOff)
	case errors.Is(err, orchestrator.ErrUnavailable):
		return "no answer", "see why it does not answer, then " + again
	case c.tries != "":
		return "storage " + c.tries, keepOff
	}
	return "the guest", "see why that does not work in the guest, then " + again
}
