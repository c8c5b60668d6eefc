package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"savepoint/network"
)

// networks says whether sandboxes have the networks that are configured.
func (d *doctor) networks(ctx context.Context) {
	if len(d.cfg.Network.Tenants) == 0 {
		d.bridges()
		return
	}
	d.zones(ctx)
	d.planned(ctx)
}

// bridges looks for the bridge of sandboxes on each node. The list has those
// alone that our token may use.
func (d *doctor) bridges() {
	const check = "network"
	bridge := d.cfg.Sandbox.Bridge
	var with perNode
	for _, f := range d.usableFacts() {
		switch {
		case f.Bridges.Err != nil:
			d.failed(check, levelWarning, f.Bridges.Err)
		case slices.Contains(f.Bridges.Value, bridge):
			with.add(f.Node, bridge)
		default:
			d.add(check, levelWarning, fmt.Sprintf("bridge %s is not on %s, or our token may not use it: sandboxes do not start there", bridge, f.Node),
				"make it there, or take the node out of cluster.nodes")
		}
	}
	with.each(func(nodes, bridge string) {
		d.add(check, levelWarning, fmt.Sprintf("sandboxes are on bridge %s (%s): nothing keeps them apart, and nothing proves that they are sealed", bridge, nodes),
			"write network.tenants, then run savepoint network apply")
	})
}

// zones says where a zone of ours does not run as it should.
func (d *doctor) zones(ctx context.Context) {
	const check = "network"
	r, err := d.s.journal.Networks(ctx)
	if err != nil {
		d.problem(check, err)
		return
	}
	routes := &router{s: d.s}
	defer routes.close()
	var good perNode
	for _, tenant := range slices.Sorted(maps.Keys(r.Applied.Zones)) {
		zone := r.Applied.Zones[tenant].ID
		for _, f := range d.usableFacts() {
			status, known := f.Zones.Value[zone]
			switch {
			case f.Zones.Err != nil:
				d.failed(check, levelWarning, f.Zones.Err)
			case status == "available":
				if r.Applied.Zones[tenant].Type == network.EVPN {
					if _, err := routes.Routes(ctx, f.Node, zone); err != nil { // a proof needs them
						d.failed(check, levelWarning, err)
						d.mendLast("on " + f.Node + ", as root: sh setup.sh node, of savepoint doctor --setup > setup.sh")
					}
				}
				good.add(f.Node, fmt.Sprintf("zone %s of tenant %s is available", zone, tenant))
			case !known && !d.zoneOn(tenant, f.Node):
			default:
				d.add(check, levelWarning, fmt.Sprintf("zone %s of tenant %s is %s on %s", zone, tenant, notThere(status), f.Node),
					"savepoint network apply; if that does not help, see the node's task srvreload")
			}
		}
	}
	good.each(func(nodes, text string) { d.ok(check, "%s on %s", text, nodes) })
}

// zoneOn reports whether the tenant's zone is meant to be on the node.
func (d *doctor) zoneOn(tenant, node string) bool {
	for _, t := range d.cfg.Network.Tenants {
		if t.Name == tenant {
			return len(t.Nodes) == 0 || slices.Contains(t.Nodes, node)
		}
	}
	return false
}

func notThere(status string) string {
	if status == "" {
		return "not there"
	}
	return status
}

// planned says what network apply would do, and what keeps it from doing it:
// pending edits of others would be committed with ours (F102).
func (d *doctor) planned(ctx context.Context) {
	const check = "network"
	w, err := d.s.wanted(ctx)
	if err != nil {
		d.failed(check, levelWarning, err)
		return
	}
	for _, t := range w.Tenants {
		if _, err := d.s.pools(ctx, t.Name); err != nil {
			d.add(check, levelProblem, fmt.Sprintf("tenant %s has no network that a sandbox can be plugged into: %v", t.Name, err), "savepoint network apply")
		}
	}
	p, err := d.s.networks(nil).Plan(ctx, w)
	var config *network.ConfigError
	var foreign *network.ForeignError
	if errors.As(err, &config) {
		for _, c := range config.Problems {
			d.add(check, levelProblem, "network."+c.Key+" "+c.Cause, c.Mend)
		}
	}
	if errors.As(err, &foreign) {
		for _, r := range foreign.Refusals {
			d.add(check, levelWarning, fmt.Sprintf("%s %s %s: savepoint network apply waits for that", r.Kind, r.ID, r.Reason), r.Mend)
		}
	}
	switch {
	case config != nil || foreign != nil:
	case err != nil:
		d.failed(check, levelWarning, err)
	case len(p.Changes) > 0:
		d.add(check, levelWarning, fmt.Sprintf("%d changes are configured and not applied", len(p.Changes)), "savepoint network apply")
	default:
		d.ok(check, "what is configured is applied, and nobody else's edits are pending")
	}
}
