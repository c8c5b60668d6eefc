package pve

import (
	"strings"

	"savepoint/testbed/pve/task"
)

// postTemplate is POST …/template.
func postTemplate(c *call) (any, error) {
	s, vmid := c.s, c.vmid()
	conf, err := s.conf(vmid)
	if err != nil {
		return nil, err
	}
	if err := s.checkTemplate(vmid, conf); err != nil {
		return nil, err
	}
	only := c.p.Str("disk")
	return c.start("qmtemplate", vmid, func(w *task.Worker) error {
		return s.withFile(w, vmid, func() error {
			conf, err := s.conf(vmid)
			if err != nil {
				return err
			}
			if err := s.checkTemplate(vmid, conf); err != nil {
				return err
			}
			if err := w.Step("template"); err != nil {
				return err
			}
			if err := s.update(w, vmid, func(c *vmConf) error { c.main["template"] = "1"; return nil }); err != nil {
				return err
			}
			return s.makeBases(w, vmid, only)
		})
	})
}

func (s *Server) checkTemplate(vmid int, conf *vmConf) error {
	if err := conf.locked(); err != nil {
		return err
	}
	switch {
	case conf.template():
		return fail("you can't convert a template to a template")
	case len(conf.snaps) > 0:
		return fail("unable to create template, because VM contains snapshots")
	case s.cfg.Machines.Status(vmid).Running:
		return fail("you can't convert a VM to template if VM is running")
	}
	return nil
}

// makeBases renames a template's volumes, so that they can be linked to.
func (s *Server) makeBases(w *task.Worker, vmid int, only string) error {
	conf, err := s.conf(vmid)
	if err != nil {
		return err
	}
	for _, d := range s.vmOpts.images(conf.main) {
		v, err := s.volume(d.file())
		if err != nil {
			return err
		}
		if only != "" && d.slot != only || isBase(v.ID) {
			continue
		}
		old := v.ID
		if v, err = s.makeBase(w, v); err != nil {
			return err
		}
		if err := s.update(w, vmid, func(c *vmConf) error {
			d.props["file"] = v.ID
			c.main[d.slot] = s.vmOpts.printDrive(d)
			return nil
		}); err != nil {
			return err
		}
		if err := s.dropVolume(old); err != nil {
			return err
		}
	}
	return nil
}

// makeBase renames one volume to a base's name. The old record stays.
func (s *Server) makeBase(w *task.Worker, v volume) (volume, error) {
	v.ID = baseID(v.ID)
	if v.Pooled {
		st, err := s.storage(storageID(v.ID))
		if err != nil {
			return v, err
		}
		path := st.pooledPath(v.ID[strings.LastIndexAny(v.ID, ":/")+1:])
		if err := s.cfg.Disks.(PoolDisks).Base(w.Context(), v.disk(""), path); err != nil {
			return v, fail("%w", err)
		}
		v.Path = path
	}
	return v, s.saveVolume(w, v)
}

// baseID is what a volume is called once others can be linked to it.
func baseID(volid string) string {
	at := strings.LastIndexAny(volid, ":/") + 1
	return volid[:at] + "base-" + strings.TrimPrefix(volid[at:], "vm-")
}
