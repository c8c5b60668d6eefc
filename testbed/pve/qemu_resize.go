package pve

import (
	"strings"

	"savepoint/testbed/pve/task"
)

// resizeVM is PUT …/resize.
func resizeVM(c *call) (any, error) {
	s, vmid := c.s, c.vmid()
	if c.p.Has("skiplock") && !c.who.root() {
		return nil, badParam("skiplock", "Only root may use this option.")
	}
	slot, size, digest := c.p.Str("disk"), c.p.Str("size"), c.p.Str("digest")
	ch := change{digest: digest, skipLock: c.p.Bool("skiplock")}
	if _, err := s.conf(vmid); err != nil {
		return nil, err
	}
	return c.start("resize", vmid, func(w *task.Worker) error {
		return s.withFile(w, vmid, func() error {
			if err := s.checkChange(vmid, ch); err != nil {
				return err
			}
			return s.resizeDisk(w, vmid, slot, size)
		})
	})
}

func (s *Server) resizeDisk(w *task.Worker, vmid int, slot, text string) error {
	conf, err := s.conf(vmid)
	if err != nil {
		return err
	}
	value, ok := conf.main[slot]
	if !ok {
		return fail("disk '%s' does not exist", slot)
	}
	d, err := s.vmOpts.parseDrive(slot, value)
	if err != nil {
		return err
	}
	if d.cdrom() {
		return fail("you can't resize a cdrom")
	}
	v, err := s.volume(d.file())
	if err != nil {
		return err
	}
	size, err := parseSize(strings.TrimPrefix(text, "+"))
	if err != nil {
		return fail("%w", err)
	}
	if strings.HasPrefix(text, "+") {
		size += v.Size
	}
	if size < v.Size {
		return fail("shrinking disks is not supported")
	}
	if s.cfg.Machines.Status(vmid).Running && size != v.Size {
		return fail("disk '%s' of a running VM can't be resized here - stop it first", slot)
	}
	if err := w.Step("resize"); err != nil {
		return err
	}
	if size != v.Size {
		if err := s.cfg.Disks.Resize(w.Context(), v.disk(slot), size); err != nil {
			return fail("%w", err)
		}
		v.Size = size
		if err := s.saveVolume(w, v); err != nil {
			return err
		}
		w.Log("Image resized.")
	}
	return s.update(w, vmid, func(c *vmConf) error {
		d.props["size"] = sizeText(size)
		c.main[slot] = s.vmOpts.printDrive(d)
		return nil
	})
}
