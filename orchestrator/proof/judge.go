package proof

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"savepoint/network"
	"savepoint/orchestrator"
)

// judge says what a round shows of a check. Not known: the round had nothing to
// do with it.
func (w *world) judge(c network.Check, probes []uint64, r round) (seen, bool) {
	if c.Protocol == network.Route {
		return seen{}, false
	}
	if c.Source == "" { // the orchestrator reaches whom it can give orders
		_, obeyed := r.reports[c.Target]
		switch err := r.failed[c.Target]; {
		case obeyed:
			return seen{reach: network.Reachable}, true
		case errors.Is(err, orchestrator.ErrUnavailable):
			return seen{reach: network.Unreachable, why: err.Error()}, true
		}
		return seen{}, false
	}
	report, measured := r.reports[c.Source]
	switch {
	case !measured:
		return seen{}, false
	case len(probes) == 0:
		return seen{why: "the target's addresses are not known"}, true
	}
	if s := w.arrived(c, probes, r); s.reach != "" {
		return s, true
	}
	unknown, reach := "", network.Unreachable
	for _, id := range probes {
		res := report.Results[id]
		switch {
		case res.Answer == orchestrator.ProbeAccepted, res.Answer == orchestrator.ProbeAnswered && !c.Open:
			return seen{reach: network.Reachable, why: res.Detail}, true
		case res.Answer == orchestrator.ProbeNoRoute:
			reach = network.NoRoute
		case res.Answer != orchestrator.ProbeAnswered && res.Answer != orchestrator.ProbeSilent:
			unknown = "in the guest: " + res.Detail
		}
	}
	if unknown != "" {
		return seen{why: unknown}, true
	}
	if _, listened := r.reports[c.Target]; c.Expected == network.Unreachable && c.Target != "" && !listened {
		return seen{why: "the target did not listen"}, true
	}
	return seen{reach: reach}, true
}

// arrived looks for what must not get through and was heard on the other side: by
// the target, or by a guest of another tenant than the sender's. Who is neither
// sender nor target cannot say so by itself: ids of probes are secrets.
func (w *world) arrived(c network.Check, probes []uint64, r round) seen {
	if c.Expected != network.Unreachable || c.Target == "" {
		return seen{}
	}
	from := w.sandboxes[c.Source].Tenant
	for _, name := range slices.Sorted(maps.Keys(r.reports)) {
		report := r.reports[name]
		tenant := w.sandboxes[name].Tenant
		if name == c.Source || name != c.Target && tenant == from {
			continue
		}
		if slices.ContainsFunc(probes, func(id uint64) bool { return report.Heard[id] }) {
			return seen{reach: network.Reachable, why: name + " heard it", witness: name}
		}
	}
	return seen{}
}

// routes reads the tables that the checks are about, each once.
func (w *world) routes(ctx context.Context, checks []network.Check) measured {
	m := measured{seen: map[string]seen{}, failed: map[string]error{}}
	type place struct{ node, zone string }
	var places []place
	for _, c := range checks {
		if at := (place{c.Node, c.Zone}); c.Protocol == network.Route && !slices.Contains(places, at) {
			places = append(places, at)
		}
	}
	tables := map[place][]orchestrator.ZoneRoute{}
	failed := map[place]error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, at := range places {
		wg.Go(func() {
			table, err := w.table(ctx, at.node, at.zone)
			mu.Lock()
			defer mu.Unlock()
			tables[at], failed[at] = table, err
		})
	}
	wg.Wait()
	for _, c := range checks {
		if c.Protocol != network.Route {
			continue
		}
		at := place{c.Node, c.Zone}
		s := seen{reach: network.Unreachable}
		if err := failed[at]; err != nil {
			s = seen{why: err.Error()}
		} else if leads(tables[at], c) {
			s.reach = network.Reachable
		}
		m.seen[key(c)] = s
	}
	return m
}

func (w *world) table(ctx context.Context, node, zone string) ([]orchestrator.ZoneRoute, error) {
	if w.p.c.Router == nil {
		return nil, errors.New("nothing is configured that reads routing tables")
	}
	return w.p.c.Router.Routes(ctx, node, zone)
}

// leads says whether a table has a route to the guest. In the guest's own zone
// that is one for the guest alone, which EVPN brings: its subnet is on every
// node. In another zone every route that covers it is too much, but for a
// default route: where that leads, the guests of that zone find out.
func leads(table []orchestrator.ZoneRoute, c network.Check) bool {
	return slices.ContainsFunc(table, func(r orchestrator.ZoneRoute) bool {
		if len(r.NextHops) == 0 || !r.Prefix.Contains(c.Address) {
			return false
		}
		return r.Prefix.IsSingleIP() || c.Expected == network.Unreachable && r.Prefix.Bits() > 0
	})
}
