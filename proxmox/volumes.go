package proxmox

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"savepoint/orchestrator"
)

// SavedMemory is the volume that one snapshot's memory was written to.
type SavedMemory struct {
	ID       string // "local:9000/vm-9000-state-sp-x.raw"
	Node     string
	Storage  string
	VM       orchestrator.VMID
	Snapshot orchestrator.SnapshotName // from the volume's name
	Size     int64                     // bytes
}

// savedRE matches the names that the cluster gives to volumes of snapshots'
// memory, on file storages and on all others.
var savedRE = regexp.MustCompile(`\A(?:([1-9][0-9]*)/)?vm-([1-9][0-9]*)-state-([A-Za-z][A-Za-z0-9_-]{1,39})(?:\.(?:raw|qcow2))?\z`)

// parseSaved reads a volume's id; ok is false for any other volume.
func parseSaved(volid string) (s SavedMemory, ok bool) {
	storage, name, ok := strings.Cut(volid, ":")
	sub := savedRE.FindStringSubmatch(name)
	if !ok || sub == nil || sub[1] != "" && sub[1] != sub[2] {
		return SavedMemory{}, false
	}
	id, err := strconv.Atoi(sub[2])
	if err != nil {
		return SavedMemory{}, false
	}
	return SavedMemory{ID: volid, Storage: storage, VM: orchestrator.VMID(id), Snapshot: orchestrator.SnapshotName(sub[3])}, true
}

// SavedMemories lists the volumes of snapshots' memory on every storage for
// disks that the token may see. Storages that could not be asked are returned
// as unseen. It is slow on slow storages: never call it on the way of a command.
func (c *Cluster) SavedMemories(ctx context.Context) (out []SavedMemory, unseen []string, err error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	shared := map[string]bool{}
	for _, n := range nodes {
		if !n.Online {
			unseen = append(unseen, "of node "+n.Name)
			continue
		}
		storages, err := c.Storages(ctx, n.Name)
		if ctx.Err() != nil {
			return nil, nil, err
		}
		if err != nil {
			c.log.Warn().Err(err).Str("node", n.Name).Msg("the node's storages cannot be listed")
			unseen = append(unseen, "of node "+n.Name)
			continue
		}
		for _, s := range storages {
			if !s.Active || shared[s.ID] || !slices.Contains(s.Content, "images") {
				continue
			}
			on, err := c.savedOn(ctx, n.Name, s.ID)
			if ctx.Err() != nil {
				return nil, nil, err
			}
			if err != nil {
				c.log.Warn().Err(err).Str("storage", s.ID).Msg("the storage cannot be listed")
				unseen = append(unseen, s.ID+" on "+n.Name)
				continue
			}
			shared[s.ID] = s.Shared
			out = append(out, on...)
		}
	}
	slices.SortFunc(out, func(a, b SavedMemory) int { return strings.Compare(a.ID, b.ID) })
	return out, unseen, nil
}

func (c *Cluster) savedOn(ctx context.Context, node, storage string) ([]SavedMemory, error) {
	var list []struct {
		VolID string  `json:"volid"`
		Size  flexInt `json:"size"`
	}
	path := contentPath(node, storage)
	if err := c.get(ctx, path, url.Values{"content": {"images"}}, &list); err != nil {
		return nil, explain("list volumes of", "storage "+storage+" on node "+node, err, false)
	}
	var out []SavedMemory
	for _, v := range list {
		if s, ok := parseSaved(v.VolID); ok && s.Storage == storage {
			s.Node, s.Size = node, int64(v.Size)
			out = append(out, s)
		}
	}
	return out, nil
}

func contentPath(node, storage string) string {
	return nodePath(node) + "/storage/" + url.PathEscape(storage) + "/content"
}

// DeleteSavedMemory removes a volume that no snapshot refers to any more; a
// missing one is no error. Before it asks, it reads again that the VM is the
// sandbox's, that no snapshot of that name is listed, that the VM does not
// resume from it, and that nobody holds its lock. A token needs
// Datastore.Allocate on the storage: without it the error is ErrDenied.
func (c *Cluster) DeleteSavedMemory(ctx context.Context, vm orchestrator.VMRef, sandbox orchestrator.SandboxID, volid string, started orchestrator.Started) error {
	op, subject := "delete volume "+volid+" of", vm.String()
	s, ok := parseSaved(volid)
	if !ok || s.VM != vm.ID {
		return refuse(op, subject, orchestrator.ErrDenied, "that is not a volume of the vm's saved memory", "nothing was changed")
	}
	release, err := c.exclusive(ctx, op, vm)
	if err != nil {
		return err
	}
	defer release()
	return c.again(ctx, func() error {
		conf, err := c.owned(ctx, op, vm, sandbox, false)
		if err != nil {
			return err
		}
		h, err := c.history(ctx, op, vm)
		if err != nil {
			return err
		}
		if _, used := h.find(s.Snapshot); used || conf.text("vmstate") == volid {
			return refuse(op, subject, orchestrator.ErrDenied, "the volume is in use", "nothing was changed")
		}
		if err := c.checkLock(ctx, op, vm, conf); err != nil {
			return err
		}
		return c.freeVolume(ctx, op, vm, s, started)
	})
}

// freeVolume gives the order and makes sure that the volume is gone.
func (c *Cluster) freeVolume(ctx context.Context, op string, vm orchestrator.VMRef, s SavedMemory, started orchestrator.Started) error {
	subject := vm.String()
	listed := func(ctx context.Context) (bool, error) {
		list, err := c.savedOn(ctx, vm.Node, s.Storage)
		return slices.ContainsFunc(list, func(o SavedMemory) bool { return o.ID == s.ID }), err
	}
	if there, err := listed(ctx); err != nil || !there {
		return err
	}
	err := c.carryOut(ctx, order{
		op: op, subject: subject, node: vm.Node, kind: "imgdel", task: fmt.Sprintf("%d@%s", vm.ID, s.Storage), started: started,
		send: func(ctx context.Context) (string, error) {
			return c.deleteTask(ctx, contentPath(vm.Node, s.Storage)+"/"+url.PathEscape(s.ID), nil)
		},
	})
	if err != nil {
		if there, lerr := listed(ctx); lerr != nil || there || errors.Is(err, orchestrator.ErrDenied) {
			return err
		}
		return nil
	}
	return c.verify(ctx, op, subject, func(ctx context.Context) (string, error) {
		there, err := listed(ctx)
		if err == nil && there {
			return "the volume is still listed", nil
		}
		return "", err
	})
}
