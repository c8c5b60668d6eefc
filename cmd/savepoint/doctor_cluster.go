package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"savepoint/configs"
)

// versions says what runs, and where nodes differ.
func (d *doctor) versions(ctx context.Context) {
	const check = "version"
	edition := ""
	if len(d.facts) > 0 {
		if e, err := d.s.cluster.Edition(ctx, d.facts[0].Node); err == nil {
			edition = ", " + e + " edition"
		}
	}
	if d.version.Supported() {
		d.ok(check, "Proxmox VE %s%s", d.version.Text, edition)
	} else {
		d.add(check, levelWarning, "Proxmox VE "+d.version.Text+edition+" is not one that savepoint knows", "use 8.4 or 9")
	}
	var differ perNode
	for _, f := range d.facts {
		v := f.Version.Value
		if f.Version.Err == nil && (v.Major != d.version.Major || v.Minor != d.version.Minor) {
			differ.add(f.Node, v.Text)
		}
	}
	differ.each(func(nodes, version string) {
		d.add(check, levelWarning, fmt.Sprintf("%s: runs %s, and the node that answers us %s", nodes, version, d.version.Text),
			"finish the upgrade: what one of them can, another cannot")
	})
}

// quorum: a cluster without it changes nothing.
func (d *doctor) quorum(ctx context.Context) {
	const check = "quorum"
	m, err := d.s.cluster.Membership(ctx)
	switch {
	case err != nil:
		d.unknown(check, "whether the cluster is quorate is", err)
	case !m.Quorate:
		d.add(check, levelProblem, fmt.Sprintf("cluster %s has no quorum: %s of its nodes are online, %s are not, and nothing can be changed",
			m.Name, names(m.Online), names(m.Offline)), "bring nodes back, and see pvecm status on one that is there")
	case m.Name == "":
		d.ok(check, "a node alone, which needs none")
	default:
		d.ok(check, "cluster %s is quorate", m.Name)
	}
}

func names(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// How far clocks may be apart. Tasks whose answer was lost are looked for by
// the time that their node gives them.
const (
	clockWarns = 2 * time.Second
	clockFails = 5 * time.Second
)

// clocks compares the nodes' clocks with ours and with each other. Where all of
// them agree, it is ours that is wrong.
func (d *doctor) clocks(context.Context) {
	const check = "clock"
	var known []time.Duration
	var denied []string
	for _, f := range d.facts {
		switch {
		case f.Skew.Denied():
			denied = append(denied, f.Node)
		case f.Skew.Err != nil:
			d.failed(check, levelWarning, f.Skew.Err)
		default:
			known = append(known, f.Skew.Value)
		}
	}
	d.unknownOf(check, "the clocks", denied)
	if len(known) == 0 {
		return
	}
	least, most := slices.Min(known), slices.Max(known)
	if min(least.Abs(), most.Abs()) > clockWarns && most-least <= clockWarns {
		d.add(check, levelWarning, fmt.Sprintf("our clock is %s the cluster's", apart(-least)), "set the clock of this machine: timedatectl set-ntp true")
		return
	}
	slices.Sort(known)
	middle, good := known[(len(known)-1)/2], true
	for _, f := range d.facts {
		s := f.Skew.Value
		if f.Skew.Err != nil || s.Abs() <= clockWarns {
			continue
		}
		good = false
		level := levelWarning
		if (s - middle).Abs() > clockFails {
			level = levelProblem
		}
		d.add(check, level, fmt.Sprintf("the clock of %s is %s ours; work whose answer was lost is found by its time", f.Node, apart(s)),
			"on "+f.Node+": timedatectl set-ntp true")
	}
	if good {
		d.ok(check, "the nodes' clocks agree with ours")
	}
}

func apart(s time.Duration) string {
	if s < 0 {
		return s.Abs().Round(time.Second).String() + " behind"
	}
	return s.Round(time.Second).String() + " ahead of"
}

// certificateWarns is how long before its end a certificate is to be renewed.
const certificateWarns = 14 * 24 * time.Hour

// certificates looks at what each node presents. That of the node that answers
// us is good now: otherwise there would be no answer.
func (d *doctor) certificates(context.Context) {
	const check = "certificate"
	var good perNode
	now := time.Now()
	for _, f := range d.facts {
		c := f.Certificate.Value
		ends := c.Ends.UTC().Format(time.DateOnly)
		renew := "on " + f.Node + ": pvecm updatecerts --force"
		if c.File != "pve-ssl.pem" {
			renew = "renew " + c.File + " on " + f.Node
		}
		switch {
		case f.Certificate.Err != nil:
			d.failed(check, levelWarning, f.Certificate.Err)
		case !now.Before(c.Ends):
			d.add(check, levelWarning, fmt.Sprintf("that of %s has run out on %s: it cannot be entered through it", f.Node, ends), renew)
		case c.Ends.Sub(now) < certificateWarns:
			d.add(check, levelWarning, fmt.Sprintf("that of %s runs out on %s", f.Node, ends), renew)
		case c.Distrust != "":
			d.add(check, levelWarning, fmt.Sprintf("that of %s would not be accepted: %s", f.Node, c.Distrust),
				"put the authority that signed it into cluster.ca_file")
		default:
			good.add(f.Node, "good until "+ends)
		}
	}
	good.each(func(nodes, text string) { d.ok(check, "%s: %s", nodes, text) })
}

// packages looks for what networks are made with.
func (d *doctor) packages(context.Context) {
	const check = "packages"
	var good perNode
	var denied []string
	needs, evpn := len(d.cfg.Network.Tenants) > 0, usesEVPN(d.cfg)
	for _, f := range d.usableFacts() {
		if f.Packages.Denied() {
			denied = append(denied, f.Node)
			continue
		}
		if f.Packages.Err != nil {
			d.failed(check, levelWarning, f.Packages.Err)
			continue
		}
		has := f.Packages.Value
		frr := has["frr-pythontools"] // it comes from the same source as frr, which is not listed
		if frr == "" {
			frr = has["frr"]
		}
		bad := false
		miss := func(needed bool, name, version, why, mend string) {
			if needed && version == "" {
				bad = true
				d.add(check, levelProblem, fmt.Sprintf("%s is not installed on %s, and %s", name, f.Node, why), "on "+f.Node+": "+mend)
			}
		}
		miss(needs, "ifupdown2", has["ifupdown2"], "no network of a tenant comes up without it", "apt install ifupdown2")
		miss(evpn, "FRR", frr, "it makes the routes of evpn zones", "apt install frr frr-pythontools && systemctl enable --now frr")
		if !bad {
			good.add(f.Node, "ifupdown2 "+cmp.Or(has["ifupdown2"], "missing")+", FRR "+cmp.Or(frr, "missing"))
		}
	}
	good.each(func(nodes, text string) { d.ok(check, "%s: %s", nodes, text) })
	d.unknownOf(check, "the packages", denied)
}

// usesEVPN reports whether a tenant has a zone that is routed between nodes.
func usesEVPN(cfg configs.Config) bool {
	return slices.ContainsFunc(cfg.Network.Tenants, func(t configs.Tenant) bool { return t.Zone == "" || t.Zone == "evpn" })
}
