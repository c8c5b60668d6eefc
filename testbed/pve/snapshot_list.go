package pve

// listSnapshots is GET …/snapshot. Its order means nothing, as on a real node.
func listSnapshots(c *call) (any, error) {
	conf, err := c.s.conf(c.vmid())
	if err != nil {
		return nil, err
	}
	out := []map[string]any{}
	for name, o := range conf.snaps {
		item := map[string]any{
			"name": name, "description": o["description"], "snaptime": c.s.vmOpts.jsonValue("snaptime", o["snaptime"]), "vmstate": 0,
		}
		if o["vmstate"] != "" {
			item["vmstate"] = 1
		}
		for _, k := range []string{"parent", "snapstate"} {
			if o[k] != "" {
				item[k] = o[k]
			}
		}
		out = append(out, item)
	}
	now := map[string]any{
		"name": "current", "description": "You are here!", "digest": conf.digest(), "running": 0,
	}
	if c.s.cfg.Machines.Status(c.vmid()).Running {
		now["running"] = 1
	}
	if p := conf.main["parent"]; p != "" {
		now["parent"] = p
	}
	return append(out, now), nil
}

// readSnapshot is GET …/snapshot/{snapname}/config.
func readSnapshot(c *call) (any, error) {
	conf, err := c.s.conf(c.vmid())
	if err != nil {
		return nil, err
	}
	snap, err := conf.snapshot(c.p.Str("snapname"))
	if err != nil {
		return nil, err
	}
	return c.s.optionValues(snap), nil
}

// putSnapshot is PUT …/snapshot/{snapname}/config: a new description.
func putSnapshot(c *call) (any, error) {
	if !c.p.Has("description") {
		return nil, nil
	}
	s, vmid := c.s, c.vmid()
	release, err := s.holdFile(c.ctx, nil, vmid, true, s.cfg.LockTimeout)
	if err != nil {
		return nil, err
	}
	defer release()
	return nil, s.update(nil, vmid, func(conf *vmConf) error {
		if err := conf.locked(); err != nil {
			return err
		}
		snap, err := conf.snapshot(c.p.Str("snapname"))
		if err != nil {
			return err
		}
		snap["description"] = c.p.Str("description")
		if snap["description"] == "" {
			delete(snap, "description")
		}
		return nil
	})
}

// readFeature is GET …/feature.
func readFeature(c *call) (any, error) {
	s := c.s
	conf, err := s.conf(c.vmid())
	if err != nil {
		return nil, err
	}
	o, snap := conf.main, c.p.Str("snapname")
	if snap != "" {
		if o, err = conf.snapshot(snap); err != nil {
			return nil, err
		}
	}
	has := 1
	for _, d := range s.vmOpts.images(o) {
		v, err := s.volume(d.file())
		if err != nil {
			return nil, err
		}
		st, err := s.storage(storageID(v.ID))
		if err != nil {
			return nil, err
		}
		ok := false
		switch c.p.Str("feature") {
		case "snapshot":
			ok = st.snapshots(v)
		case "clone":
			ok = snap == "" && isBase(v.ID)
		case "copy":
			ok = snap == "" || st.copiesSnapshots(v)
		}
		if !ok {
			has = 0
		}
	}
	out := map[string]any{"hasFeature": has, "nodes": []string{s.cfg.Node}}
	return out, nil
}
