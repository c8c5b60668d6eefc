package pve

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"savepoint/testbed/pve/schema"
	"savepoint/testbed/pve/task"
)

// start runs fn as a task of the caller and returns the task's name.
func (c *call) start(kind string, id int, fn func(*task.Worker) error) (any, error) {
	return c.s.startTask(kind, strconv.Itoa(id), c.who.name, fn)
}

func (s *Server) startTask(kind, id, user string, fn func(*task.Worker) error) (string, error) {
	upid, err := s.tasks.Run(kind, id, user, fn)
	if err != nil {
		return "", fail("%w", err)
	}
	return upid, nil
}

// createVM is POST /nodes/{node}/qemu.
func createVM(c *call) (any, error) {
	s, vmid := c.s, c.vmid()
	poolID := c.p.Str("pool")
	if poolID != "" && s.pool(poolID) == nil {
		return nil, forbidden(fmt.Sprintf("pool '%s' does not exist", poolID))
	}
	if !c.may(fmt.Sprintf("/vms/%d", vmid), "VM.Allocate") && (poolID == "" || !c.may("/pool/"+poolID, "VM.Allocate")) {
		return nil, forbidden("")
	}
	if c.p.Has("archive") {
		return nil, fail("unable to restore VM %d: archives are not supported here", vmid)
	}
	set := options{}
	for name := range c.p {
		if _, ok := s.vmOpts.byName[name]; ok {
			set[name] = c.p.Str(name)
		}
	}
	if err := c.checkSettable(vmid, poolID, set, nil); err != nil {
		return nil, err
	}
	taken := fail("unable to create VM %d - VM %d already exists on node '%s'", vmid, vmid, s.owner(vmid).cfg.Node)
	if s.exists(vmid) {
		return nil, taken
	}
	start := c.p.Bool("start")
	return c.start("qmcreate", vmid, func(w *task.Worker) error {
		err := s.withFile(w, vmid, func() error { return s.buildVM(w, vmid, poolID, set, taken) })
		if err != nil {
			return err
		}
		if start {
			_, err = s.startTask("qmstart", strconv.Itoa(vmid), c.who.name, func(w *task.Worker) error {
				return s.startVM(w, vmid, startOptions{})
			})
		}
		return err
	})
}

// buildVM makes the configuration and the disks of a new VM, and neither when
// one of them cannot be made.
func (s *Server) buildVM(w *task.Worker, vmid int, poolID string, set options, taken error) error {
	conf := newVMConf()
	conf.main["lock"] = "create"
	if err := s.create(w, vmid, conf, taken); err != nil {
		return err
	}
	before := s.volumesOf("", vmid)
	undo := func(err error) error {
		ctx := context.WithoutCancel(w.Context())
		errs := []error{err}
		for _, v := range s.newVolumes(vmid, before) {
			errs = append(errs, s.free(ctx, w, v.ID))
		}
		return joinCleanup(append(errs, s.forget(w, vmid))...)
	}
	if err := w.Step("created"); err != nil {
		return undo(err)
	}
	main := options{}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		value, err := s.settle(w, w.Context(), vmid, name, set[name])
		if err != nil {
			return undo(fail("unable to create VM %d - %w", vmid, err))
		}
		main[name] = value
	}
	s.addDefaults(main)
	err := s.update(w, vmid, func(c *vmConf) error { c.main = main; return nil })
	if err != nil {
		return undo(err)
	}
	if poolID != "" {
		return s.addToPool(poolID, vmid)
	}
	return nil
}

// newVolumes lists the VM's volumes that were not there before.
func (s *Server) newVolumes(vmid int, before []volume) []volume {
	return slices.DeleteFunc(s.volumesOf("", vmid), func(v volume) bool {
		return slices.ContainsFunc(before, func(o volume) bool { return o.ID == v.ID })
	})
}

// addDefaults adds what every new VM has.
func (s *Server) addDefaults(main options) {
	if main["smbios1"] == "" {
		main["smbios1"] = "uuid=" + newUUID()
	}
	if main["vmgenid"] == "" || main["vmgenid"] == "1" {
		main["vmgenid"] = newUUID()
	}
	main["meta"] = fmt.Sprintf("creation-qemu=%s,ctime=%d", s.qemuVersion(), s.cfg.Now().Unix())
	if main["boot"] == "" && main["bootdisk"] == "" {
		if order := s.vmOpts.bootOrder(main); order != "" {
			main["boot"] = "order=" + order
		}
	}
}

// bootOrder is the default order of a configuration: the first disk, CDs, the first card.
func (v *vmOptions) bootOrder(main options) string {
	var disk, cd, net []string
	for _, d := range v.drives(main) {
		bus := busOf(d.slot)
		switch {
		case bus == "efidisk" || bus == "tpmstate" || d.cloudinit():
		case d.cdrom():
			cd = append(cd, d.slot)
		case len(disk) == 0:
			disk = append(disk, d.slot)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(main)) {
		if bus, n := splitName(name); bus == "net" && n >= 0 && len(net) == 0 {
			net = append(net, name)
		}
	}
	return strings.Join(slices.Concat(disk, cd, net), ";")
}

// settle brings an option into the form it is kept in, making disks and
// addresses on the way.
func (s *Server) settle(w *task.Worker, ctx context.Context, vmid int, name, value string) (string, error) {
	bus, n := splitName(name)
	switch {
	case busOf(name) != "":
		d, err := s.vmOpts.parseDrive(name, value)
		if err != nil {
			return "", err
		}
		return s.makeDrive(w, ctx, vmid, d)
	case bus == "net" && n >= 0:
		props, err := s.vmOpts.net.Parse(name, value)
		if err != nil {
			return "", fail("%w", err)
		}
		if props["macaddr"] == "" {
			props["macaddr"] = newMAC()
		}
		props["macaddr"] = strings.ToUpper(props["macaddr"])
		return s.vmOpts.net.Print(props), nil
	case name == "tags":
		return normalTags(value), nil
	case name == "vmgenid" && value == "1":
		return newUUID(), nil
	}
	return value, nil
}

// normalTags is a list of tags in its one form.
func normalTags(value string) string {
	tags := schema.SplitList(strings.ToLower(value))
	slices.Sort(tags)
	return strings.Join(slices.Compact(tags), ";")
}

// newMAC makes an address with the prefix that Proxmox's own cards have.
func newMAC() string {
	b := make([]byte, 3)
	rand.Read(b)
	return fmt.Sprintf("BC:24:11:%02X:%02X:%02X", b[0], b[1], b[2])
}

func (s *Server) qemuVersion() string {
	if s.cfg.major() == "8" {
		return "9.2.0"
	}
	return "10.1.2"
}

// joinCleanup keeps the first error's text and what went wrong while cleaning
// up behind it.
func joinCleanup(errs ...error) error {
	var rest []error
	for _, e := range errs[1:] {
		if e != nil && !errors.Is(e, task.ErrKilled) {
			rest = append(rest, e)
		}
	}
	if len(rest) == 0 {
		return errs[0]
	}
	return errors.Join(append([]error{errs[0]}, rest...)...)
}
