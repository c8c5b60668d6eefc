package proof

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"savepoint/network"
	"savepoint/orchestrator"
)

// world is what a proof is made in.
type world struct {
	p         *Proof
	record    network.Record
	places    []network.Place
	away      []string                        // nodes that are out of reach
	sandboxes map[string]orchestrator.Sandbox // that can take part, by name
	known     []orchestrator.Sandbox          // all that have an address
	notes     []string
}

// look reads what there is. extra is a sandbox that is not recorded as ready
// and takes part all the same.
func (p *Proof) look(ctx context.Context, extra ...orchestrator.Sandbox) (*world, error) {
	if len(p.c.Wanted.Tenants) == 0 {
		return nil, &UnprovidedError{"no tenants are configured, so sandboxes are on a common bridge or on user-mode networking", "write network.tenants and run savepoint network apply"}
	}
	w := &world{p: p, sandboxes: map[string]orchestrator.Sandbox{}}
	var err error
	if w.record, err = p.c.Records.Networks(ctx); err != nil {
		return nil, err
	}
	if w.places, w.away, err = p.c.Surroundings.Places(ctx); err != nil {
		return nil, err
	}
	all, err := p.c.Records.Sandboxes(ctx)
	if err != nil {
		return nil, err
	}
	for _, sb := range all {
		i := slices.IndexFunc(extra, func(e orchestrator.Sandbox) bool { return e.ID == sb.ID })
		switch {
		case i >= 0, sb.State == orchestrator.SandboxDestroyed:
			continue
		case sb.Tenant == "" && len(extra) > 0: // no affair of the one that is proved
			continue
		case sb.Tenant == "":
			w.note("sandbox %s has no tenant: it is in no zone, and its isolation is not provided", sb.Name)
			continue
		case sb.Address.IsValid():
			w.known = append(w.known, sb)
		}
		if sb.State == orchestrator.SandboxReady {
			w.sandboxes[sb.Name] = sb
		} else if len(extra) == 0 {
			w.note("sandbox %s is %s and took no part", sb.Name, sb.State)
		}
	}
	for _, sb := range extra {
		w.sandboxes[sb.Name] = sb
		w.known = append(w.known, sb)
	}
	for _, node := range w.away {
		w.note("node %s is out of reach: what it has of the zones was not read", node)
	}
	return w, nil
}

func (w *world) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(w.notes, text) {
		w.notes = append(w.notes, text)
	}
}

// guest is the sandbox as package network knows it.
func guest(sb orchestrator.Sandbox) network.Guest {
	return network.Guest{Name: sb.Name, Tenant: sb.Tenant, VNet: sb.VNet, Node: sb.VM.Node, Addresses: []netip.Addr{sb.Address}}
}

// checks are what has to be measured among the named sandboxes. Routes on nodes
// that are out of reach cannot be read, and lead nowhere.
func (w *world) checks(names []string, focus string) ([]network.Check, error) {
	s := network.Scene{Places: w.places, Focus: focus}
	for _, n := range names {
		s.Guests = append(s.Guests, guest(w.sandboxes[n]))
	}
	checks, err := network.Checks(w.p.c.Wanted, w.record.Applied, s)
	if err != nil { // its text says what to do
		return nil, &orchestrator.UnsupportedError{What: err.Error()}
	}
	return slices.DeleteFunc(checks, func(c network.Check) bool {
		return c.Protocol == network.Route && slices.Contains(w.away, c.Node)
	}), nil
}

// maxSilent is how many guests of one network and node are tried until one
// takes part.
const maxSilent = 2

// peers chooses who takes part in the proof of one sandbox: of every network and
// node the first that is not known to be silent.
func (w *world) peers(focus orchestrator.Sandbox, silent map[string]error) []string {
	type group struct{ tenant, vnet, node string }
	first, tried := map[group]string{}, map[group]int{}
	for name := range silent {
		sb := w.sandboxes[name]
		tried[group{sb.Tenant, sb.VNet, sb.VM.Node}]++
	}
	for name, sb := range w.sandboxes {
		g := group{sb.Tenant, sb.VNet, sb.VM.Node}
		if name == focus.Name || silent[name] != nil || tried[g] >= maxSilent || slices.Contains(w.away, sb.VM.Node) || !w.networked(sb) {
			continue
		}
		if have, found := first[g]; !found || name < have {
			first[g] = name
		}
	}
	names := []string{focus.Name}
	for _, n := range first {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// untried notes the networks on nodes for which none of the named took part: that
// those are apart was not measured.
func (w *world) untried(names []string) {
	at := func(sb orchestrator.Sandbox) string {
		return fmt.Sprintf("network %s/%s on node %s", sb.Tenant, sb.VNet, sb.VM.Node)
	}
	tried, missing := map[string]bool{}, map[string][]string{}
	for _, n := range names {
		tried[at(w.sandboxes[n])] = true
	}
	for _, sb := range w.known {
		if !tried[at(sb)] {
			who := sb.Name
			if sb.State != orchestrator.SandboxReady {
				who += " is " + string(sb.State)
			}
			missing[at(sb)] = append(missing[at(sb)], who)
		}
	}
	for _, where := range slices.Sorted(maps.Keys(missing)) {
		list := missing[where]
		slices.Sort(list)
		if more := len(list) - 3; more > 0 {
			list = append(list[:3], fmt.Sprintf("%d more", more))
		}
		w.note("%s was not tried: none of its sandboxes took part (%s)", where, strings.Join(list, ", "))
	}
}

// networked says whether the sandbox is on a network that is configured and
// there: one that is not is named where all are verified, and is nobody's peer.
func (w *world) networked(sb orchestrator.Sandbox) bool {
	s := network.Scene{Places: w.places, Guests: []network.Guest{guest(sb)}}
	_, err := network.Checks(w.p.c.Wanted, w.record.Applied, s)
	return err == nil
}

// focused proves one sandbox. A peer that does not answer is replaced, and in
// the end left out.
func (p *Proof) focused(ctx context.Context, sb orchestrator.Sandbox) (Result, error) {
	w, err := p.look(ctx, sb)
	if err != nil {
		return Result{}, err
	}
	silent := map[string]error{}
	for {
		names := w.peers(sb, silent)
		checks, err := w.checks(names, sb.Name)
		if err != nil {
			return Result{}, err
		}
		m := w.measure(ctx, checks, names, true)
		if err := context.Cause(ctx); err != nil {
			return Result{}, err
		}
		if err := m.failed[sb.Name]; err != nil {
			return Result{}, err
		}
		if len(m.failed) == 0 {
			w.untried(names)
			return w.result(checks, m), nil
		}
		for name, err := range m.failed {
			silent[name] = err
			w.note("sandbox %s did not take part: %v", name, err)
		}
	}
}

// all proves every sandbox, some at a time.
func (p *Proof) all(ctx context.Context) (Result, error) {
	w, err := p.look(ctx)
	if err != nil {
		return Result{}, err
	}
	names := make([]string, 0, len(w.sandboxes))
	for name := range w.sandboxes {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) == 0 {
		return Result{Notes: w.notes}, &UnprovidedError{"no sandbox of a tenant is there to measure from", "create one with savepoint sandbox create"}
	}
	checks, err := w.checks(names, "")
	if err != nil {
		return Result{}, err
	}
	total := measured{seen: map[string]seen{}, failed: map[string]error{}}
	for batch := range slices.Chunk(names, p.c.Batch) {
		// What has no guest as its source belongs to its target.
		mine := slices.DeleteFunc(slices.Clone(checks), func(c network.Check) bool {
			return !slices.Contains(batch, cmp.Or(c.Source, c.Target))
		})
		total.add(w.measure(ctx, mine, parties(mine), false))
		if err := context.Cause(ctx); err != nil {
			return Result{}, err
		}
	}
	res := w.result(checks, total)
	for _, name := range names {
		own := slices.DeleteFunc(slices.Clone(checks), func(c network.Check) bool { return c.Source != name && c.Target != name })
		if err := p.store(ctx, w.sandboxes[name], w.result(own, total)); err != nil {
			return res, err
		}
	}
	return res, nil
}

// parties are all guests that the checks need.
func parties(checks []network.Check) []string {
	var out []string
	for _, c := range checks {
		for _, n := range []string{c.Source, c.Target} {
			if n != "" {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// result judges what was measured.
func (w *world) result(checks []network.Check, m measured) Result {
	var obs []network.Observation
	notes, missed := slices.Clone(w.notes), map[string]int{}
	for _, c := range checks {
		s := m.seen[key(c)]
		if s.witness != "" && s.witness != c.Target {
			notes = append(notes, fmt.Sprintf("%s to %s over %s: sandbox %s heard it", c.From, c.To, c.Protocol, s.witness))
		}
		if s.reach != "" {
			obs = append(obs, network.Observation{From: c.From, To: c.To, Protocol: c.Protocol, Observed: s.reach})
		} else if name := m.absent(c); name != "" {
			missed[name]++
		} else if s.why != "" {
			if text := fmt.Sprintf("%s to %s over %s was not measured: %s", c.From, c.To, c.Protocol, s.why); !slices.Contains(notes, text) {
				notes = append(notes, text)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missed)) {
		notes = append(notes, fmt.Sprintf("sandbox %s took no part, so %d lines were not measured: %v", name, missed[name], m.failed[name]))
	}
	return Result{Report: network.Judge(checks, obs), Notes: notes}
}

// absent is the guest that a check needs and that did not measure, "" when all did.
func (m measured) absent(c network.Check) string {
	for _, n := range []string{c.Source, c.Target} {
		if m.failed[n] != nil {
			return n
		}
	}
	return ""
}

func key(c network.Check) string { return c.From + "\x00" + c.To + "\x00" + string(c.Protocol) }
