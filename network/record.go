package network

import (
	"net/netip"
	"slices"
	"time"
)

// Record is everything that has to be kept durably about the networks.
type Record struct {
	// Allocation is what is ours: it is recorded before it is made.
	Allocation Allocation `json:"allocation"`
	// Applied is the part of it that runs on the nodes: what sandboxes can be
	// plugged into.
	Applied Allocation `json:"applied"`
	Lock    Lock       `json:"lock,omitzero"`
}

// Lock is the record of the cluster's lock on its networks. The cluster tells
// neither who has the lock nor since when, and never frees it: what is recorded
// here is the only way to tell a lock that a crash left from somebody else's.
type Lock struct {
	// Asked is when the lock was asked for. The zero value: it is not ours.
	Asked time.Time `json:"asked,omitzero"`
	// Token is the answer, "" when it did not reach us or was not recorded.
	Token string `json:"token,omitempty"`
}

// Still returns the part of the allocation that another one has as well: what
// is left of what runs while something is taken away.
func (a Allocation) Still(b Allocation) Allocation {
	out := a.clone()
	if out.Controller != b.Controller {
		out.Controller = ""
	}
	for tenant, z := range a.Zones {
		if b.Zones[tenant] != z {
			delete(out.Zones, tenant)
		}
	}
	for key, v := range out.VNets {
		other := b.VNets[key]
		if out.Zones[tenantOf(key)].ID == "" || other.ID != v.ID || other.VNI != v.VNI {
			delete(out.VNets, key)
			continue
		}
		v.Subnets = slices.DeleteFunc(v.Subnets, func(p netip.Prefix) bool { return !slices.Contains(other.Subnets, p) })
		out.VNets[key] = v
	}
	return out
}
