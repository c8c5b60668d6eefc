package pve

import (
	"fmt"
	"maps"

	"savepoint/testbed/pve/task"
)

// suspendToDisk saves a VM's memory and ends it; the next start resumes it.
func (s *Server) suspendToDisk(w *task.Worker, vmid int, storage string) error {
	kind := "state-suspend-" + s.cfg.Now().Format("2006-01-02")
	var state volume
	err := s.withFile(w, vmid, func() error {
		conf, err := s.conf(vmid)
		if err != nil {
			return err
		}
		if err := conf.locked(); err != nil {
			return err
		}
		o := maps.Clone(conf.main)
		if storage != "" {
			o["vmstatestorage"] = storage
		}
		if state, err = s.stateVolume(w, vmid, kind, o); err != nil {
			return err
		}
		return s.update(w, vmid, func(c *vmConf) error {
			c.main["lock"], c.main["vmstate"] = "suspending", state.ID
			s.noteRunning(c.main)
			return nil
		})
	})
	if err != nil {
		return err
	}
	if err := w.Step("saving"); err != nil {
		return err
	}
	e := s.entry(vmid)
	e.backend.Lock()
	defer e.backend.Unlock()
	if err := s.cfg.Machines.Snapshot(w.Context(), vmid, suspendTag, state.Path); err != nil {
		return joinCleanup(fail("%w", err), s.free(w.Context(), w, state.ID), s.forgetState(w, vmid))
	}
	w.Log("State saved, quitting")
	if err := s.cfg.Machines.Stop(w.Context(), vmid, false); err != nil {
		return fail("%w", err)
	}
	conf, err := s.conf(vmid)
	if err != nil {
		return err
	}
	for _, d := range s.vmOpts.images(conf.main) { // what ran on after the state was saved goes
		v, err := s.volume(d.file())
		if err != nil {
			return err
		}
		if err := s.cfg.Disks.Revert(w.Context(), v.disk(d.slot), suspendTag); err != nil {
			return fail("%w", err)
		}
	}
	return s.update(w, vmid, func(c *vmConf) error { c.main["lock"] = "suspended"; return nil })
}

// suspendTag is the disks' snapshot that goes with a suspended VM's memory.
const suspendTag = "__suspend__"

// forgetState removes what suspending wrote into the configuration.
func (s *Server) forgetState(w *task.Worker, vmid int) error {
	return s.update(w, vmid, func(c *vmConf) error {
		for _, k := range []string{"lock", "vmstate", "runningmachine", "runningcpu", "running-nets-host-mtu"} {
			delete(c.main, k)
		}
		return nil
	})
}

// resumeSuspended starts a VM from the state that suspending saved.
func (s *Server) resumeSuspended(w *task.Worker, vmid int, conf *vmConf) error {
	w.Log("Resuming suspended VM")
	v, err := s.volume(conf.main["vmstate"])
	if err != nil {
		return err
	}
	w.Log("activating and using '%s' as vmstate", v.ID)
	if err := s.boot(w, vmid, 0, v.Path, suspendTag); err != nil {
		return err
	}
	e := s.entry(vmid)
	e.backend.Lock()
	defer e.backend.Unlock()
	for _, d := range s.vmOpts.images(conf.main) {
		if err := s.cfg.Machines.DeleteSnapshot(w.Context(), vmid, d.slot, suspendTag); err != nil {
			w.Warn("%v", err)
		}
	}
	w.Log("Resumed VM, removing state")
	if err := s.free(w.Context(), w, v.ID); err != nil {
		return err
	}
	return s.forgetState(w, vmid)
}

// postSuspend is POST …/status/suspend: to halt, or with todisk to save and end.
func postSuspend(c *call) (any, error) {
	if !c.p.Bool("todisk") {
		return c.pauser("qmpause", Pauser.Pause)
	}
	if err := c.rootOnly("skiplock"); err != nil {
		return nil, err
	}
	if err := c.mustRun(); err != nil {
		return nil, err
	}
	s, vmid := c.s, c.vmid()
	if id := c.p.Str("statestorage"); id != "" {
		if err := c.need("/storage/"+id, "Datastore.AllocateSpace"); err != nil {
			return nil, err
		}
		if _, err := s.storage(id); err != nil {
			return nil, err
		}
	} else if err := c.need(fmt.Sprintf("/vms/%d", vmid), "VM.Config.Disk"); err != nil {
		return nil, err
	}
	storage := c.p.Str("statestorage")
	return c.start("qmsuspend", vmid, func(w *task.Worker) error { return s.suspendToDisk(w, vmid, storage) })
}
