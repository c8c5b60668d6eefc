package world

import (
	"fmt"
	"slices"
	"time"

	"savepoint/orchestrator"
)

// What an operator of the cluster does, with or against savepoint.

// TakeSnapshot takes a snapshot that is not ours.
func (c *Cluster) TakeSnapshot(sb orchestrator.Sandbox, name orchestrator.SnapshotName) {
	_ = c.at(sb.VM, func(v *vm) error {
		if v.lock != "" || v.find(name) != nil {
			return orchestrator.ErrBusy
		}
		s := &snap{kind: orchestrator.BoundaryDisk, foreign: true}
		s.Name, s.Parent, s.Taken = name, v.parent, c.now().Truncate(time.Second)
		v.snaps = append(v.snaps, s)
		c.capture(v, s)
		c.remember(v.ref.ID)
		return nil
	})
}

// DeleteOurs deletes the newest of our snapshots.
func (c *Cluster) DeleteOurs(sb orchestrator.Sandbox) {
	_ = c.at(sb.VM, func(v *vm) error {
		for _, s := range slices.Backward(v.snaps) {
			if !s.foreign && s.Incomplete == "" && v.lock == "" {
				v.remove(s)
				return nil
			}
		}
		return nil
	})
}

// Give changes the owner's tag.
func (c *Cluster) Give(sb orchestrator.Sandbox, owner orchestrator.SandboxID) {
	_ = c.at(sb.VM, func(v *vm) error { v.owner = owner; return nil })
}

// PowerCycle switches the VM off and, with on, on again.
func (c *Cluster) PowerCycle(sb orchestrator.Sandbox, on bool) {
	_ = c.at(sb.VM, func(v *vm) error {
		if v.lock != "" {
			return orchestrator.ErrBusy
		}
		c.powerOff(v)
		if on {
			c.boot(v)
		}
		return nil
	})
}

// Rekey gives the guest another host key.
func (c *Cluster) Rekey(sb orchestrator.Sandbox) {
	_ = c.at(sb.VM, func(v *vm) error { v.guest.key = "ssh-ed25519 ZZZZ"; return nil })
}

// Boot starts the VM if it is stopped.
func (c *Cluster) Boot(sb orchestrator.Sandbox) {
	_ = c.at(sb.VM, func(v *vm) error { c.boot(v); return nil })
}

// Backup locks the VM for that long.
func (c *Cluster) Backup(sb orchestrator.Sandbox, d time.Duration) {
	_ = c.at(sb.VM, func(v *vm) error {
		was := c.Task
		defer func() { c.Task = was }()
		c.Task = d
		_, err := c.order(v, FateDone, job{
			kind: "vzdump", lock: "backup", start: func() error { return nil }, finish: func() error { return nil },
		})
		return err
	})
}

// Mute keeps the guest from answering for that long.
func (c *Cluster) Mute(sb orchestrator.Sandbox, d time.Duration) {
	_ = c.at(sb.VM, func(v *vm) error { v.guest.mute = c.now().Add(d); return nil })
}

// Skew puts the guest's clock off.
func (c *Cluster) Skew(sb orchestrator.Sandbox, d time.Duration) {
	_ = c.at(sb.VM, func(v *vm) error { v.guest.skew = d; return nil })
}

// Grieve notes that something happened to the sandbox for which an operator is
// needed and that no state of the cluster shows, such as rights taken away.
func (c *Cluster) Grieve(sb orchestrator.SandboxID, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.vms {
		if c.nameOf(v.ref) == sb {
			v.needs = append(v.needs, why)
		}
	}
}

// NeedsOperator says why nobody but an operator can bring the transaction's
// sandbox back; nothing when savepoint could.
func (c *Cluster) NeedsOperator(t orchestrator.Transaction) (why []string) {
	err := c.at(t.Sandbox.VM, func(v *vm) error {
		why = slices.Clone(v.needs)
		if v.owner != t.Sandbox.ID {
			why = append(why, fmt.Sprintf("the vm belongs to %q", v.owner))
		}
		if v.lock != "" && !v.holder.moves() {
			why = append(why, "stale lock "+v.lock)
		}
		if slices.ContainsFunc(v.tasks, func(k *task) bool { return k.Running && k.ends.IsZero() }) {
			why = append(why, "a task hangs")
		}
		if v.guest.key != t.Sandbox.HostKey {
			why = append(why, "another host key")
		}
		if len(t.Points) == 0 {
			return nil
		}
		s := v.find(t.Points[0].Snapshot)
		switch {
		case s == nil:
			why = append(why, "the snapshot of the begin is gone")
		case s.Incomplete != "":
			why = append(why, "the snapshot of the begin is incomplete")
		case c.NewestOnly:
			for _, name := range v.newer(s) {
				if _, ours := orchestrator.TxOf(name); !ours {
					why = append(why, "newer snapshot "+string(name))
				}
			}
		}
		return nil
	})
	if err != nil {
		why = append(why, err.Error())
	}
	return why
}

// moves reports whether the task runs and will end by itself.
func (k *task) moves() bool { return k != nil && k.Running && !k.ends.IsZero() }

// Mend is what an operator does about a VM that needs him. It reports whether
// the snapshot with that name can still be restored.
func (c *Cluster) Mend(sb orchestrator.Sandbox, keep orchestrator.SnapshotName) (restorable bool) {
	_ = c.at(sb.VM, func(v *vm) error {
		for _, k := range v.tasks {
			if k.Running {
				c.end(v, k, FateDies)
			}
		}
		v.lock, v.holder = "", nil
		v.owner, v.guest.key, v.needs, v.guest.mute = sb.ID, sb.HostKey, nil, time.Time{}
		for _, s := range slices.Clone(v.snaps) {
			kept := v.find(keep)
			newer := kept != nil && slices.Contains(v.newer(kept), s.Name)
			if s.Incomplete != "" || s.foreign && newer {
				v.remove(s)
			}
		}
		c.remember(v.ref.ID)
		restorable = v.find(keep) != nil
		return nil
	})
	return restorable
}

// Rebuild is the sandbox made anew, after the old one was destroyed.
func (c *Cluster) Rebuild(sb orchestrator.Sandbox) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.vms[sb.VM.ID]
	v := c.make(sb)
	if old != nil {
		c.powerOff(old)
		for _, k := range old.tasks {
			k.Running = false
		}
		v.runs = old.runs
	}
	c.remember(sb.VM.ID)
}

// Strip removes every snapshot of the VM.
func (c *Cluster) Strip(sb orchestrator.Sandbox) {
	_ = c.at(sb.VM, func(v *vm) error {
		v.snaps, v.parent, v.work = nil, "", ""
		c.remember(v.ref.ID)
		return nil
	})
}

// Write writes a file in the guest.
func (c *Cluster) Write(sb orchestrator.Sandbox, path, text string) {
	_ = c.at(sb.VM, func(v *vm) error { v.files[path] = text; v.writes++; return nil })
}
