package configs

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Pool keeps sandboxes warm: made before anybody asks for one, so that sandbox
// create only has to hand one out.
type Pool struct {
	// Size is how many wait, for each of the tenants. Default 0: no pool.
	Size int `mapstructure:"size"`
	// MaxPerNode is the most that wait on one node. Default 0: any number, within
	// Cluster.MaxPerNode, which counts them too.
	MaxPerNode int `mapstructure:"max_per_node"`
	// Tenants that it is kept for, of Network.Tenants. Not set: the one that new
	// sandboxes are for, see Sandbox.Tenant.
	Tenants []string `mapstructure:"tenants"`
	// ProofAge is how old the proof of isolation may be of one that is handed
	// out; an older one is repeated before. Default 1h.
	ProofAge time.Duration `mapstructure:"proof_age"`
}

// pool checks section pool.
func (k checker) pool() {
	p := k.c.Pool
	for i, name := range p.Tenants {
		known := slices.ContainsFunc(k.c.Network.Tenants, func(t Tenant) bool { return t.Name == name })
		switch {
		case !known:
			k.bad("pool.tenants", fmt.Sprintf("names %q, which is not one of network.tenants", name), "choose among network.tenants, or remove the key")
		case slices.Contains(p.Tenants[:i], name):
			k.bad("pool.tenants", fmt.Sprintf("names %q twice", name), "name each tenant once: "+strings.Join(slices.Compact(slices.Sorted(slices.Values(p.Tenants))), ", "))
		}
	}
}
