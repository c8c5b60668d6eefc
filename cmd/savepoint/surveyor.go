package main

import (
	"context"

	"savepoint/orchestrator"
	"savepoint/orchestrator/janitor"
	"savepoint/proxmox"
)

// surveyor shows the janitor the cluster.
type surveyor struct {
	c           *proxmox.Cluster
	first, last orchestrator.VMID
}

var _ janitor.Cluster = surveyor{}

// Inventory reads the volumes before the VMs: what refers to a volume that is
// there has been written by then.
func (s surveyor) Inventory(ctx context.Context) (janitor.Inventory, error) {
	var inv janitor.Inventory
	volumes, unseen, err := s.c.SavedMemories(ctx)
	if err != nil {
		return inv, err
	}
	for _, v := range volumes {
		inv.Volumes = append(inv.Volumes, janitor.Volume(v))
	}
	for _, u := range unseen {
		inv.Unseen = append(inv.Unseen, "storage "+u)
	}
	vms, nodes, err := s.c.Inventory(ctx, s.first, s.last)
	if err != nil {
		return inv, err
	}
	inv.Nodes = nodes
	asked := map[string]bool{}
	for _, v := range vms {
		inv.VMs = append(inv.VMs, janitor.VM(v))
	}
	for _, v := range vms {
		if asked[v.VM.Node] || v.Lock == "" {
			continue
		}
		asked[v.VM.Node] = true
		if all, err := s.c.SeesAllTasks(ctx, v.VM.Node); err != nil || !all {
			inv.OwnTasks = append(inv.OwnTasks, v.VM.Node)
		}
	}
	guards, err := s.c.Guards(ctx)
	if ctx.Err() != nil {
		return inv, err
	}
	if err != nil { // it is only for warnings
		inv.Unseen = append(inv.Unseen, "HA and replication")
	}
	for _, g := range guards {
		inv.Guards = append(inv.Guards, janitor.Guard(g))
	}
	return inv, nil
}

func (s surveyor) Working(ctx context.Context, vm orchestrator.VMRef, lock string) ([]orchestrator.UPID, error) {
	return s.c.Working(ctx, vm, lock)
}

func (s surveyor) RemoveBuilding(ctx context.Context, vm orchestrator.VMRef, started orchestrator.Started) error {
	return s.c.RemoveBuilding(ctx, vm, started)
}

func (s surveyor) DeleteVolume(ctx context.Context, vm orchestrator.VMRef, sandbox orchestrator.SandboxID, volume string, started orchestrator.Started) error {
	return s.c.DeleteSavedMemory(ctx, vm, sandbox, volume, started)
}
