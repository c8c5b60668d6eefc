package network

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Op is what is to be written to the pending configuration.
type Op string

// The operations. OpApply writes nothing: the pending configuration is right
// already, as a crash before the apply leaves it, and only the apply is missing.
const (
	OpCreate Op = "create"
	OpUpdate Op = "update"
	OpDelete Op = "delete"
	OpApply  Op = "apply"
)

// Change is one step of a plan.
type Change struct {
	Op     Op
	Kind   Kind
	ID     string
	Parent string   // the vnet of a subnet, which is part of its path
	Fields Fields   // all of a new object, what changes of another one
	Unset  []string // options to take away
	Reason string
}

// Kept is an object of ours that would go and cannot yet.
type Kept struct {
	Kind   Kind
	ID     string
	Reason string
	VMs    []string // the guests that use it
}

// Plan is how to get from what is observed to what is wanted. The changes are
// made in their order, and then applied once. Record Allocation durably before
// the first, and Settled after the apply: a crash in between leaves a state
// from which the next plan goes on.
type Plan struct {
	Changes    []Change
	Kept       []Kept
	Lagging    []Lag // nodes that an apply has to reach, also without changes
	Allocation Allocation
	Settled    Allocation
}

// Empty says whether there is nothing to write and nothing that an apply could
// bring to a node: one that is offline takes it up when it returns.
func (p Plan) Empty() bool {
	return len(p.Changes) == 0 && !slices.ContainsFunc(p.Lagging, func(l Lag) bool { return l.Online })
}

// Diff plans the wanted state. It has an error that holds a *ConfigError, a
// *ForeignError or both, with everything that is wrong, and no plan then.
func Diff(w Wanted, o Observed, a Allocation) (Plan, error) {
	if err := a.check(); err != nil {
		return Plan{}, err
	}
	var config, foreign error
	own := newOwner(a)
	problems := validate(w, o, a)
	next := a
	if len(problems) == 0 {
		next, problems = allocate(w, o, a)
	}
	if len(problems) > 0 {
		config = &ConfigError{problems}
	}
	if refusals := append(own.refusals(o), own.secondController(w, o)...); len(refusals) > 0 {
		foreign = &ForeignError{refusals}
	}
	if err := errors.Join(config, foreign); err != nil {
		return Plan{}, err
	}
	p := planner{w: w, o: o, own: own, plan: Plan{Allocation: next}}
	return p.make(wantedObjects(w, next))
}

// Destroy plans the removal of everything that is ours and unused. What guests
// still use is kept and named.
func Destroy(o Observed, a Allocation) (Plan, error) { return Diff(Wanted{}, o, a) }

// secondController refuses to make an EVPN controller where there is one.
func (w owner) secondController(wanted Wanted, o Observed) []Refusal {
	var out []Refusal
	for _, c := range o.Controllers {
		if wanted.ownController() && c.has("type", "evpn") && !w.owns(c) {
			out = append(out, Refusal{c.Kind, c.ID, "is there already, and a cluster can have one EVPN controller",
				fmt.Sprintf("set network.controller to %q to use it", c.ID)})
		}
	}
	return out
}

// planner puts one plan together.
type planner struct {
	w    Wanted
	o    Observed
	own  owner
	plan Plan
}

func (p *planner) make(wanted []object) (Plan, error) {
	present := map[Kind]map[string]Object{KindController: {}, KindZone: {}, KindVNet: {}, KindSubnet: {}}
	surplus := map[Kind]map[string]Object{KindController: {}, KindZone: {}, KindVNet: {}, KindSubnet: {}}
	for _, obj := range p.o.planned() {
		if p.own.owns(obj) {
			present[obj.Kind][obj.ID], surplus[obj.Kind][obj.ID] = obj, obj
		}
	}
	for _, w := range wanted {
		delete(surplus[w.kind], w.id)
	}
	kept := p.keep(surplus)
	for _, k := range kept {
		delete(surplus[k.kind], k.id)
	}
	if problems := p.overlapsKept(kept); len(problems) > 0 {
		return Plan{}, &ConfigError{problems}
	}
	for _, objects := range surplus {
		for _, obj := range objects {
			p.remove(obj)
		}
	}
	slices.SortFunc(p.plan.Changes, func(a, b Change) int { return compareChanges(b, a) })
	var writes []Change
	for _, w := range slices.Concat(wanted, kept) {
		if c, needed := write(w, present[w.kind][w.id]); needed {
			writes = append(writes, c)
		}
	}
	slices.SortFunc(writes, compareChanges)
	p.plan.Changes = append(p.plan.Changes, writes...)
	p.plan.Lagging = Lagging(p.o, p.plan.Allocation)
	p.plan.Settled = settle(p.plan.Allocation, slices.Concat(wanted, kept))
	return p.plan, nil
}

// compareChanges orders by dependency, then by id.
func compareChanges(a, b Change) int {
	return cmp.Or(cmp.Compare(a.Kind.rank(), b.Kind.rank()), cmp.Compare(a.ID, b.ID))
}

// keep finds what is not wanted and cannot go: the vnets of guests and what
// they rest on. It is kept as it runs, so that a pending deletion of it, which
// the apply would commit, is taken back.
func (p *planner) keep(surplus map[Kind]map[string]Object) []object {
	var out []object
	hold := func(obj Object, reason string, vms []string) {
		p.plan.Kept = append(p.plan.Kept, Kept{obj.Kind, obj.ID, reason, vms})
		fields := Fields{}
		for _, key := range set[obj.Kind] {
			if v := cmp.Or(obj.Running.value(key), obj.Pending.value(key)); v != "" {
				fields[key] = v
			}
		}
		out = append(out, object{obj.Kind, obj.ID, fields})
	}
	zones := map[string]string{} // zone → why it is kept
	for _, id := range sorted(surplus[KindVNet]) {
		v := surplus[KindVNet][id]
		if why, vms := p.used(id); why != "" {
			hold(v, why, vms)
			short := "is used"
			if len(vms) == 0 {
				short = "may be used"
			}
			for _, s := range v.sides() {
				zones[s["zone"]] = "has vnet " + id + ", which " + short
			}
		}
	}
	for _, id := range sorted(surplus[KindSubnet]) {
		s := surplus[KindSubnet][id]
		for _, side := range s.sides()[:1] {
			if why, vms := p.used(side["vnet"]); why != "" {
				hold(s, "is in vnet "+side["vnet"]+", which "+why, vms)
			}
		}
	}
	for _, id := range sorted(surplus[KindZone]) {
		if why := zones[id]; why != "" {
			hold(surplus[KindZone][id], why, nil)
		}
	}
	for _, id := range sorted(surplus[KindController]) {
		for _, z := range p.o.Zones {
			_, goes := surplus[KindZone][z.ID]
			if z.has("controller", id) && (!goes || zones[z.ID] != "") {
				hold(surplus[KindController][id], "has zone "+z.ID, nil)
				break
			}
		}
	}
	return out
}

// used says why a vnet cannot go, "" when nobody can be on it.
func (p *planner) used(vnet string) (why string, vms []string) {
	switch vms = p.o.users(vnet); {
	case len(vms) > 0:
		return "is used by " + strings.Join(vms, ", "), vms
	case p.o.Hidden != "":
		return "may be used by guests that cannot be seen: " + p.o.Hidden, nil
	}
	return "", nil
}

// overlapsKept finds wanted subnets that would share addresses with one that
// guests still use.
func (p *planner) overlapsKept(kept []object) []Problem {
	var out []Problem
	for key, rec := range p.plan.Allocation.VNets {
		for _, old := range rec.Subnets {
			id := subnetID(p.plan.Allocation.Zones[tenantOf(key)].ID, old)
			if !slices.ContainsFunc(kept, func(k object) bool { return k.kind == KindSubnet && k.id == id }) {
				continue
			}
			p.w.eachSubnet(func(at string, s Subnet) {
				if s.Prefix.Overlaps(old) && s.Prefix != old {
					out = append(out, Problem{at, fmt.Sprintf("overlaps %s, which guests on vnet %s still use", old, rec.ID), "destroy those sandboxes first"})
				}
			})
		}
	}
	slices.SortFunc(out, func(a, b Problem) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

// remove adds the removal of an object of ours that nobody needs.
func (p *planner) remove(obj Object) {
	c := Change{Op: OpDelete, Kind: obj.Kind, ID: obj.ID, Reason: "is not wanted and not used"}
	if obj.Pending == nil {
		c.Op, c.Reason = OpApply, "its removal is pending"
	}
	if obj.Kind == KindSubnet {
		c.Parent = obj.sides()[0]["vnet"]
	}
	p.plan.Changes = append(p.plan.Changes, c)
}
