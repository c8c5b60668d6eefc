package network

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Refusal is one thing of somebody else's that a plan must not touch.
type Refusal struct {
	Kind   Kind
	ID     string
	Reason string
	Mend   string
}

// String is one line: object, reason, what to do.
func (r Refusal) String() string { return fmt.Sprintf("%s %s %s; %s", r.Kind, r.ID, r.Reason, r.Mend) }

// ForeignError says that no plan was made because of objects or pending edits
// that are not ours. It holds every one, never none.
type ForeignError struct{ Refusals []Refusal }

func (e *ForeignError) Error() string {
	lines := make([]string, len(e.Refusals))
	for i, r := range e.Refusals {
		lines[i] = r.String()
	}
	if len(lines) == 1 {
		return "plan networks: " + lines[0]
	}
	return fmt.Sprintf("plan networks: %d things are not ours to change\n  %s", len(lines), strings.Join(lines, "\n  "))
}

// signs are the options by which each recorded object is recognised, by kind
// and id. Only a vnet has a place for a mark of ours. The others are
// recognised by what nobody would set by chance: an id of ours together with
// the routing table or the vnet that is recorded with it.
func (a Allocation) signs() map[Kind]map[string]Fields {
	out := map[Kind]map[string]Fields{KindController: {}, KindZone: {}, KindVNet: {}, KindSubnet: {}}
	if a.Controller != "" {
		out[KindController][a.Controller] = Fields{"type": "evpn"}
	}
	for _, z := range a.Zones {
		out[KindZone][z.ID] = Fields{"type": string(z.Type), "vrf-vxlan": number(z.VRF)}
	}
	for key, v := range a.VNets {
		out[KindVNet][v.ID] = Fields{"alias": mark(a.Instance, key)}
		for _, p := range v.Subnets {
			out[KindSubnet][subnetID(a.Zones[tenantOf(key)].ID, p)] = Fields{"vnet": v.ID}
		}
	}
	return out
}

// number writes an option; 0 is not set.
func number(n VNI) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(n), 10)
}

// vnisOf are the VXLAN identifiers that the object has on any side. Tags of
// zones that are not VXLAN are something else.
func vnisOf(o Observed, obj Object) []VNI {
	var out []VNI
	for _, s := range obj.sides() {
		text := ""
		switch {
		case obj.Kind == KindZone:
			text = s["vrf-vxlan"]
		case obj.Kind == KindVNet && o.zoneType(s["zone"]).overlay():
			text = s["tag"]
		}
		if n, err := strconv.ParseUint(text, 10, 32); err == nil && !slices.Contains(out, VNI(n)) {
			out = append(out, VNI(n))
		}
	}
	return out
}

// owner tells what is ours from what is not.
type owner struct {
	Allocation
	known map[Kind]map[string]Fields
	vnis  map[VNI]bool
}

func newOwner(a Allocation) owner {
	w := owner{a, a.signs(), map[VNI]bool{}}
	for _, z := range a.Zones {
		w.vnis[z.VRF] = true
	}
	for _, v := range a.VNets {
		w.vnis[v.VNI] = true
	}
	delete(w.vnis, 0)
	return w
}

// owns says whether the object is recorded and looks as it was made, on every
// side: an edit that takes our mark away is somebody taking the object over.
func (w owner) owns(obj Object) bool {
	signs, recorded := w.known[obj.Kind][obj.ID]
	if !recorded {
		return false
	}
	for _, side := range obj.sides() {
		for key := range signs {
			if side.value(key) != signs.value(key) {
				return false
			}
		}
	}
	return true
}

// refusals names everything that a plan has to leave alone and cannot work
// around. A plan ends with an apply, and that commits everyone's edits.
func (w owner) refusals(o Observed) []Refusal {
	var out []Refusal
	for _, obj := range append(o.planned(), o.Others...) {
		refuse := func(reason, mend string) {
			out = append(out, Refusal{obj.Kind, obj.ID, reason, mend})
		}
		_, recorded := w.known[obj.Kind][obj.ID]
		const settle = "apply or revert it in the cluster's SDN view first"
		switch {
		case w.owns(obj):
			if key := strangeEdit(obj); key != "" {
				refuse(fmt.Sprintf("is ours and has a pending edit of %q that is not", key), settle)
			}
			continue
		case recorded:
			signs := w.known[obj.Kind][obj.ID]
			refuse(fmt.Sprintf("is recorded as ours and does not look it: expected %s", text(signs)), "restore that, or remove the object if nobody needs it")
			continue
		case inIDSpace(w.Instance, obj.Kind, obj.ID):
			refuse("has an id of ours and is not recorded", "remove or rename it, or restore the journal that knows it")
		case obj.Kind == KindVNet && w.anyHas(obj, "zone", KindZone):
			refuse("is not ours and is in a zone of ours, whose guests it reaches", "move it to another zone")
		}
		if obj.State != Settled {
			refuse(fmt.Sprintf("is not ours and has a pending edit (%s) that an apply would commit", obj.State), settle)
		}
		for _, vni := range vnisOf(o, obj) {
			if w.vnis[vni] {
				refuse(fmt.Sprintf("has VNI %d, which is recorded as ours, and would join its guests", vni), "give it another VNI")
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Refusal) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// anyHas says whether the option names a recorded object, on any side.
func (w owner) anyHas(obj Object, key string, kind Kind) bool {
	for id := range w.known[kind] {
		if obj.has(key, id) {
			return true
		}
	}
	return false
}

// strangeEdit finds an option that is being set on a running object of ours and
// that no plan ever sets. An edit of an option that we do set may be what a
// crash left of an older plan, and is replaced. So may an option that goes, or
// the MAC address, which the cluster makes up: an object that was removed and
// made anew before an apply shows as changed.
func strangeEdit(obj Object) string {
	if obj.Running == nil {
		return ""
	}
	for _, key := range sorted(obj.Pending) {
		v := obj.Pending.value(key)
		if !manages(obj.Kind, key) && key != "mac" && v != "" && v != obj.Running.value(key) {
			return key
		}
	}
	return ""
}

// text lists options for people.
func text(f Fields) string {
	var out []string
	for _, k := range sorted(f) {
		if f[k] != "" {
			out = append(out, fmt.Sprintf("%s %q", k, f[k]))
		}
	}
	return strings.Join(out, ", ")
}
