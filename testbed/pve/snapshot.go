package pve

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"savepoint/testbed/pve/task"
)

// postSnapshot is POST …/snapshot.
func postSnapshot(c *call) (any, error) {
	s, vmid := c.s, c.vmid()
	name, description, memory := c.p.Str("snapname"), c.p.Str("description"), c.p.Bool("vmstate")
	if name == "current" || strings.EqualFold(name, "pending") {
		if name != "current" {
			name = "pending"
		}
		return nil, fail("unable to use snapshot name '%s' (reserved name)", name)
	}
	if _, err := s.conf(vmid); err != nil {
		return nil, err
	}
	return c.start("qmsnapshot", vmid, func(w *task.Worker) error {
		return s.takeSnapshot(w, vmid, name, description, memory)
	})
}

// takeSnapshot is the whole of a qmsnapshot task. Until "commit" the
// configuration holds lock "snapshot" and the section's snapstate "prepare".
func (s *Server) takeSnapshot(w *task.Worker, vmid int, name, description string, memory bool) error {
	running, err := s.prepareSnapshot(w, vmid, name, description, memory)
	if err != nil {
		return err
	}
	if err = w.Step("prepared"); err == nil {
		err = s.snapshotDisks(w, vmid, name, running)
	}
	if err == nil {
		err = w.Step("commit")
	}
	if err != nil {
		if !w.Alive() {
			return err
		}
		return joinCleanup(err, s.removeSnapshot(context.WithoutCancel(w.Context()), w, vmid, name, true, true))
	}
	return s.withFile(w, vmid, func() error {
		return s.update(w, vmid, func(c *vmConf) error {
			snap, err := c.snapshot(name)
			if err != nil {
				return err
			}
			if c.main["lock"] != "snapshot" || snap["snapstate"] != "prepare" {
				return fail("missing snapshot lock")
			}
			delete(snap, "snapstate")
			delete(c.main, "lock")
			c.main["parent"] = name
			return nil
		})
	})
}

// prepareSnapshot checks, allocates the memory's volume and writes the section.
func (s *Server) prepareSnapshot(w *task.Worker, vmid int, name, description string, memory bool) (running bool, err error) {
	err = s.withFile(w, vmid, func() error {
		conf, err := s.conf(vmid)
		if err != nil {
			return err
		}
		if conf.template() {
			return fail("you can't take a snapshot if it's a template")
		}
		if err := conf.locked(); err != nil {
			return err
		}
		if _, taken := conf.snaps[name]; taken {
			return fail("snapshot name '%s' already used", name)
		}
		if !s.canSnapshot(conf.main) {
			return fail("snapshot feature is not available")
		}
		running = s.cfg.Machines.Status(vmid).Running
		snap := options{}
		for k, v := range conf.main {
			if bus, n := splitName(k); k != "lock" && k != "vmstate" && (bus != "unused" || n < 0) {
				snap[k] = v
			}
		}
		snap["snapstate"], snap["snaptime"] = "prepare", strconv.FormatInt(s.cfg.Now().Unix(), 10)
		delete(snap, "description")
		if description != "" {
			snap["description"] = description
		}
		if memory && running {
			v, err := s.stateVolume(w, vmid, "state-"+name, conf.main)
			if err != nil {
				return err
			}
			if err := w.Step("allocated"); err != nil {
				return err
			}
			snap["vmstate"] = v.ID
			s.noteRunning(snap)
		}
		return s.update(w, vmid, func(c *vmConf) error {
			c.main["lock"] = "snapshot"
			c.snaps[name] = snap
			return nil
		})
	})
	return running, err
}

// noteRunning keeps what the saved memory depends on.
func (s *Server) noteRunning(o options) {
	o["runningmachine"], o["runningcpu"] = s.machineType(), "kvm64,enforce,+kvm_pv_eoi,+kvm_pv_unhalt,+lahf_lm,+sep"
	if s.cfg.major() < "9" {
		return
	}
	var nets []string
	for _, n := range s.vmOpts.nics(o) {
		nets = append(nets, n.Slot+"=0")
	}
	if len(nets) > 0 {
		o["running-nets-host-mtu"] = strings.Join(nets, ",")
	}
}

// canSnapshot reports whether every disk can be snapshotted.
func (s *Server) canSnapshot(o options) bool {
	for _, d := range s.vmOpts.images(o) {
		v, err := s.volume(d.file())
		if err != nil {
			return false
		}
		st, err := s.storage(storageID(v.ID))
		if err != nil || !st.snapshots(v) {
			return false
		}
	}
	return true
}

// stateVolume allocates what a VM's memory is saved to: twice its size and 500 MiB.
func (s *Server) stateVolume(w *task.Worker, vmid int, kind string, o options) (volume, error) {
	id := o["vmstatestorage"]
	if id == "" {
		id = "local"
		for _, d := range s.vmOpts.images(o) {
			id = storageID(d.file())
			break
		}
	}
	st, err := s.storage(id)
	if err != nil {
		return volume{}, err
	}
	size := (int64(memoryMiB(o))*2 + 500) << 20
	return s.allocate(w.Context(), w, st, vmid, kind, "raw", size)
}

// snapshotDisks makes the snapshot itself: all disks of a running VM at one
// instant, those of a stopped one after the other.
func (s *Server) snapshotDisks(w *task.Worker, vmid int, name string, running bool) error {
	conf, err := s.conf(vmid)
	if err != nil {
		return err
	}
	snap, err := conf.snapshot(name)
	if err != nil {
		return err
	}
	stateFile := ""
	if id := snap["vmstate"]; id != "" {
		v, err := s.volume(id)
		if err != nil {
			return err
		}
		stateFile = v.Path
		w.Log("saving VM state and RAM using storage '%s'", storageID(id))
	}
	thaw := func() {}
	if running && stateFile == "" {
		thaw = s.freeze(w, vmid, conf.main)
	}
	defer thaw()
	if err := w.Step("disks"); err != nil {
		return err
	}
	e := s.entry(vmid)
	e.backend.Lock()
	defer e.backend.Unlock()
	images := s.vmOpts.images(snap)
	if running {
		begin := time.Now()
		if err := s.cfg.Machines.Snapshot(w.Context(), vmid, name, stateFile); err != nil {
			return fail("%w", err)
		}
		if stateFile != "" {
			_, saved, _ := s.cfg.Disks.Size(w.Context(), Disk{Path: stateFile, Format: "raw"}) // for the log alone
			w.Log("completed saving the VM state in %.0fs, saved %.2f MiB", time.Since(begin).Seconds(), float64(saved)/(1<<20))
		}
	}
	for _, d := range images {
		v, err := s.volume(d.file())
		if err != nil {
			return err
		}
		w.Log("snapshotting 'drive-%s' (%s)", d.slot, v.ID)
		if !running {
			if err := s.cfg.Disks.Snapshot(w.Context(), v.disk(d.slot), name); err != nil {
				return fail("%w", err)
			}
		} else if s.cfg.major() >= "9" && !v.Pooled {
			w.Log("internal qemu snapshot")
		}
		v.Snaps = append(slices.Clone(v.Snaps), name)
		if err := s.saveVolume(w, v); err != nil {
			return err
		}
	}
	return nil
}

// freeze asks the guest agent to freeze the file systems and returns how to
// thaw them. Without an answering agent the snapshot goes on without.
func (s *Server) freeze(w *task.Worker, vmid int, o options) (thaw func()) {
	agent := s.vmOpts.agent(o)
	if agent["enabled"] != "1" || agent["freeze-fs"] == "0" {
		if s.cfg.major() >= "9" && agent["enabled"] != "1" {
			w.Log("skipping guest filesystem freeze - disabled in VM options")
		}
		return func() {}
	}
	if !s.agentAnswers(w.Context(), vmid) {
		if s.cfg.major() >= "9" {
			w.Log("skipping guest filesystem freeze - agent configured but not running?")
		} else {
			w.Log("QEMU Guest Agent is not running - VM %d qmp command 'guest-ping' failed - got timeout", vmid)
		}
		return func() {}
	}
	if _, err := s.cfg.Machines.Agent(w.Context(), vmid, "guest-fsfreeze-freeze", nil); err != nil {
		w.Warn("unable to freeze guest fs - %v", err)
	}
	return func() {
		if !w.Alive() {
			return // nobody is left to thaw them
		}
		if err := s.thaw(context.WithoutCancel(w.Context()), vmid); err != nil {
			w.Warn("unable to thaw guest fs - %v", err)
		}
	}
}

// thaw asks until the agent answers, for a while: a guest that stays frozen is
// of no use to anybody, and an agent that froze it may still be busy.
func (s *Server) thaw(ctx context.Context, vmid int) error {
	ctx, cancel := context.WithTimeout(ctx, max(s.cfg.AgentTimeout, 10*time.Second))
	defer cancel()
	for {
		short, done := context.WithTimeout(ctx, s.cfg.AgentTimeout)
		_, err := s.cfg.Machines.Agent(short, vmid, "guest-fsfreeze-thaw", nil)
		done()
		var refused *AgentError
		if err == nil || errors.As(err, &refused) || !s.cfg.Machines.Status(vmid).Running {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}
