package pve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"savepoint/testbed/pve/schema"
	"savepoint/testbed/pve/task"
)

// readConfig is GET …/config: the options as they will be after a restart, or
// with current as they are now.
func readConfig(c *call) (any, error) {
	conf, err := c.s.conf(c.vmid())
	if err != nil {
		return nil, err
	}
	var o options
	if snap := c.p.Str("snapshot"); snap != "" {
		if o, err = conf.snapshot(snap); err != nil {
			return nil, err
		}
	} else {
		o = conf.main
		if !c.p.Bool("current") {
			maps.Copy(o, conf.pending)
			for _, name := range conf.drop {
				delete(o, name)
			}
		}
	}
	out := c.s.optionValues(o)
	out["digest"] = conf.digest()
	return out, nil
}

func (s *Server) optionValues(o options) map[string]any {
	out := make(map[string]any, len(o)+1)
	for k, v := range o {
		if k == "cipassword" {
			v = "**********"
		}
		out[k] = s.vmOpts.jsonValue(k, v)
	}
	return out
}

// readPending is GET …/pending.
func readPending(c *call) (any, error) {
	conf, err := c.s.conf(c.vmid())
	if err != nil {
		return nil, err
	}
	var out []map[string]any
	names := slices.Sorted(maps.Keys(conf.main))
	for name := range conf.pending {
		if _, ok := conf.main[name]; !ok {
			names = append(names, name)
		}
	}
	for _, name := range names {
		item := map[string]any{"key": name}
		if v, ok := conf.main[name]; ok {
			item["value"] = c.s.vmOpts.jsonValue(name, v)
		}
		if v, ok := conf.pending[name]; ok {
			item["pending"] = c.s.vmOpts.jsonValue(name, v)
		}
		if slices.Contains(conf.drop, name) {
			item["delete"] = 1
		}
		out = append(out, item)
	}
	return append(out, map[string]any{"key": "digest", "value": conf.digest()}), nil
}

// change is a change of a VM's options.
type change struct {
	set      options
	drop     []string
	revert   []string
	force    bool
	skipLock bool
	digest   string
}

// readChange reads a change off the parameters and says at once what is wrong with it.
func (c *call) readChange() (change, error) {
	ch := change{set: options{}, force: c.p.Bool("force"), skipLock: c.p.Bool("skiplock"), digest: c.p.Str("digest")}
	if c.p.Has("skiplock") && !c.who.root() {
		return ch, badParam("skiplock", "Only root may use this option.")
	}
	for name, value := range c.p {
		if _, ok := c.s.vmOpts.byName[name]; !ok {
			continue
		}
		if value == nil {
			return ch, fail("unable to parse value of '%s' - got undefined value", name)
		}
		ch.set[name] = c.p.Str(name)
	}
	if cd, ok := ch.set["cdrom"]; ok { // an old name of the second IDE drive
		delete(ch.set, "cdrom")
		ch.set["ide2"] = cd + ",media=cdrom"
	}
	ch.drop, ch.revert = schema.SplitList(c.p.Str("delete")), schema.SplitList(c.p.Str("revert"))
	for _, list := range []struct {
		name  string
		names []string
	}{{"delete", ch.drop}, {"revert", ch.revert}} {
		for _, name := range list.names {
			if _, ok := c.s.vmOpts.byName[name]; !ok && name != "lock" {
				return ch, badParam(list.name, "unknown option '%s'", name)
			}
			if _, both := ch.set[name]; both {
				return ch, badParam(list.name, "you can't use '-%s' and -%s %s' at the same time", name, list.name, name)
			}
		}
	}
	if len(ch.set)+len(ch.drop)+len(ch.revert) == 0 {
		return ch, fail("no options specified")
	}
	if _, err := c.s.conf(c.vmid()); err != nil {
		return ch, err
	}
	return ch, c.checkSettable(c.vmid(), "", ch.set, ch.drop)
}

// needVM refuses unless the caller has one of the privileges on the VM, or on
// the pool that a new VM is to join.
func (c *call) needVM(vmid int, pool string, privs ...string) error {
	if pool != "" && c.may("/pool/"+pool, privs...) {
		return nil
	}
	return checkPrivs(c.s.access, c.who, "/vms/"+itoa(vmid), len(privs) > 1, privs...)
}

// checkSettable refuses options that the caller must not change, and drives
// that cannot be made. pool is the one that a new VM is to join.
func (c *call) checkSettable(vmid int, pool string, set options, drop []string) error {
	names := append(slices.Sorted(maps.Keys(set)), drop...)
	for _, name := range names {
		o := c.s.vmOpts.byName[name]
		if o.root && !c.who.root() {
			return fail("only root can set '%s' config", name)
		}
		privs := []string{o.priv}
		if value, ok := set[name]; ok && busOf(name) != "" && strings.Contains(value, "media=cdrom") {
			privs = []string{privCDROM}
		}
		if o.priv == privCI {
			privs = append(privs, privNet)
		}
		if err := c.needVM(vmid, pool, privs...); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		bus, n := splitName(name)
		switch {
		case busOf(name) != "":
			d, err := c.s.vmOpts.parseDrive(name, set[name])
			if err != nil {
				return err
			}
			if err := c.s.checkDrive(c, vmid, d); err != nil {
				return err
			}
		case name == "vmstatestorage":
			if err := c.need("/storage/"+set[name], "Datastore.AllocateSpace"); err != nil {
				return err
			}
		case bus == "net" && n >= 0:
			if err := c.mayBridge(name, set[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// mayBridge refuses a network card on a bridge that the caller must not use.
func (c *call) mayBridge(name, value string) error {
	props, err := c.s.vmOpts.net.Parse(name, value)
	if err != nil {
		return fail("%w", err)
	}
	if b := props["bridge"]; b != "" {
		return c.need("/sdn/zones/"+c.s.zoneOf(b)+"/"+b, "SDN.Use")
	}
	return nil
}

// checkChange says what the present configuration has against a change.
func (s *Server) checkChange(vmid int, ch change) error {
	conf, err := s.conf(vmid)
	if err != nil {
		return err
	}
	if ch.digest != "" && ch.digest != conf.digest() {
		return fail("checksum mismatch (file change by other user?)")
	}
	if !ch.skipLock {
		if err := conf.locked(); err != nil {
			return err
		}
	}
	return nil
}

// putConfig is PUT …/config: everything happens before the answer.
func putConfig(c *call) (any, error) {
	ch, err := c.readChange()
	if err != nil {
		return nil, err
	}
	s, vmid := c.s, c.vmid()
	if err := s.checkChange(vmid, ch); err != nil {
		return nil, err
	}
	release, err := s.holdFile(c.ctx, nil, vmid, true, s.cfg.LockTimeout)
	if err != nil {
		return nil, err
	}
	defer release()
	return nil, s.apply(nil, c.ctx, vmid, ch)
}

// postConfig is POST …/config: the change is a task.
func postConfig(c *call) (any, error) {
	ch, err := c.readChange()
	if err != nil {
		return nil, err
	}
	s, vmid := c.s, c.vmid()
	if err := s.checkChange(vmid, ch); err != nil {
		return nil, err
	}
	upid, err := s.startTask("qmconfig", fmt.Sprint(vmid), c.who.name, func(w *task.Worker) error {
		w.Log("update VM %d: %s", vmid, ch)
		return s.withFile(w, vmid, func() error { return s.apply(w, w.Context(), vmid, ch) })
	})
	if err != nil {
		return nil, err
	}
	if delay := c.p.Int("background_delay", 0); delay > 0 {
		ctx, cancel := context.WithTimeout(c.ctx, time.Duration(delay)*time.Second)
		defer cancel()
		if err := s.tasks.Wait(ctx, upid); err == nil {
			if info, ok := s.tasks.Lookup(upid); ok && info.Status != "OK" {
				return nil, errors.New(info.Status)
			}
			return nil, nil
		}
	}
	return upid, nil
}

// unlinkDisks is PUT …/unlink: PUT …/config with delete, by another name.
func unlinkDisks(c *call) (any, error) {
	c.p["delete"] = c.p.Str("idlist")
	return putConfig(c)
}

// String is the change as a command line would give it.
func (ch change) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(ch.set)) {
		value := ch.set[name]
		if name == "cipassword" {
			value = "<hidden>"
		}
		parts = append(parts, "-"+name+" "+value)
	}
	for _, name := range ch.drop {
		parts = append(parts, "-delete "+name)
	}
	return strings.Join(parts, " ")
}
