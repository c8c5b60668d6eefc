package network

import (
	"fmt"
	"net/netip"
	"slices"
)

// Capacity is how many guests [NextAddress] has addresses for in the subnet.
// Very large subnets count as 2^32 addresses.
func Capacity(subnet netip.Prefix) uint64 {
	host := subnet.Addr().BitLen() - subnet.Bits()
	all, not := uint64(1)<<min(host, 32), uint64(Reserved(subnet))+1
	if subnet.Addr().Is4() {
		not++ // the broadcast address
	}
	return all - min(all, not)
}

// Pool is a subnet that sandboxes of a tenant get their addresses from, and
// the vnet to plug them into. It is there before the sandbox, so that making
// one changes nothing about the cluster's networks (F106).
type Pool struct {
	Tenant  string
	VNet    string // its name in the configuration
	Zone    string // id
	Bridge  string // id of the vnet: the bridge of the guest's network card
	Subnet  netip.Prefix
	Gateway netip.Addr // the zero value: none
	MTU     int        // 0: the cluster's default
}

// PoolError says why there are no pools for a tenant.
type PoolError struct{ Tenant, Cause, Mend string }

func (e *PoolError) Error() string {
	return fmt.Sprintf("pools of tenant %q: %s; %s", e.Tenant, e.Cause, e.Mend)
}

// Pools returns the pools of the tenant in the order of the configuration. The
// allocation is what runs, see [Record]. A vnet that is not in it is a
// *PoolError: plugging a guest into a bridge of somebody else is worse.
func Pools(w Wanted, a Allocation, tenant string) ([]Pool, error) {
	var out []Pool
	for _, t := range w.Tenants {
		if t.Name != tenant {
			continue
		}
		for _, v := range t.VNets {
			z, rec := a.Zones[t.Name], a.VNets[vnetKey(t.Name, v.Name)]
			if z.ID == "" || rec.ID == "" {
				return nil, &PoolError{tenant, fmt.Sprintf("vnet %s is not there yet", v.Name), "run savepoint network apply"}
			}
			for _, s := range v.Subnets {
				if !slices.Contains(rec.Subnets, s.Prefix) {
					return nil, &PoolError{tenant, fmt.Sprintf("subnet %s of vnet %s is not there yet", s.Prefix, v.Name), "run savepoint network apply"}
				}
				out = append(out, Pool{t.Name, v.Name, z.ID, rec.ID, s.Prefix, s.Gateway, w.mtu(t.Zone)})
			}
		}
	}
	if len(out) == 0 {
		return nil, &PoolError{tenant, "the configuration has no such tenant, or no subnet for it", "see network.tenants"}
	}
	return out, nil
}

// Next is the next free address of the pool, see [NextAddress].
func (p Pool) Next(after netip.Addr, used map[netip.Addr]bool) netip.Addr {
	return NextAddress(p.Subnet, after, used)
}
