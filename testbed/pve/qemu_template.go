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
		v.ID = baseID(old)
		if err := s.saveVolume(w, v); err != nil {
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

// baseID is what a volume is called once others can be linked to it.
func baseID(volid string) string {
	at := strings.LastIndexAny(volid, ":/") + 1
	return volid[:at] + "base-" + strings.TrimPrefix(volid[at:], "vm-")
}
