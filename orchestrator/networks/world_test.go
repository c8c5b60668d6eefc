package networks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"savepoint/network"
	"savepoint/orchestrator"
	"savepoint/orchestrator/networks"
)

const instance = "01kbnetworks"

// world is a cluster's SDN with two nodes and a durable store, and every call
// of either can be the last one that works.
type world struct {
	locks            bool // as PVE 9 has them
	running, pending map[network.Kind]map[string]network.Fields
	lock             string // the token of whoever has it
	tokens           int
	behind           map[string]bool // nodes that do not follow
	follows          time.Time       // when they do after all; zero: never
	failed           map[string]string
	offline          map[string]bool
	attached         []network.Attachment
	hidden           bool // edits that no list shows

	record []byte // what the store holds: text, so that nothing is shared
	trace  []string
	calls  int
	strike map[int]strike // by call
	dead   bool           // the process was killed: nothing gets out any more
}

// strike makes a call go wrong, before or after its effect. kill is the end
// of the process.
type strike struct {
	after, kill bool
	err         error
}

var errKilled = errors.New("the process was killed")

func newWorld(locks bool) *world {
	w := &world{locks: locks, running: empty(), pending: empty(), behind: map[string]bool{}, offline: map[string]bool{}, strike: map[int]strike{}}
	text, err := json.Marshal(network.Record{Allocation: network.Allocation{Instance: instance}, Applied: network.Allocation{Instance: instance}})
	if err != nil {
		panic(err)
	}
	w.record = text
	return w
}

func empty() map[network.Kind]map[string]network.Fields {
	out := map[network.Kind]map[string]network.Fields{}
	for _, k := range []network.Kind{network.KindController, network.KindZone, network.KindVNet, network.KindSubnet} {
		out[k] = map[string]network.Fields{}
	}
	return out
}

func clone(m map[network.Kind]map[string]network.Fields) map[network.Kind]map[string]network.Fields {
	out := empty()
	for k, objects := range m {
		for id, f := range objects {
			out[k][id] = maps.Clone(f)
		}
	}
	return out
}

// do makes one call, or lets it go wrong as planned.
func (w *world) do(name string, effect func() error) error {
	w.calls++
	if w.dead {
		return errKilled
	}
	w.trace = append(w.trace, name)
	s, struck := w.strike[w.calls]
	if struck && !s.after {
		w.dead = s.kill
		return s.err
	}
	err := effect()
	if struck {
		w.dead = s.kill
		return s.err
	}
	return err
}

func (w *world) manager() *networks.Manager {
	return networks.New(networks.Config{Fabric: w, Store: w})
}

func (w *world) Networks(context.Context) (r network.Record, err error) {
	if w.dead {
		return r, errKilled
	}
	return r, json.Unmarshal(w.record, &r)
}

func (w *world) PutNetworks(_ context.Context, r network.Record) error {
	return w.do("record", func() (err error) {
		w.record, err = json.Marshal(r)
		return err
	})
}

func (w *world) kept() network.Record {
	var r network.Record
	if err := json.Unmarshal(w.record, &r); err != nil {
		panic(err)
	}
	return r
}

func (w *world) Observe(_ context.Context, zones []string) (o network.Observed, err error) {
	name := "observe"
	if len(zones) > 0 {
		name = "observe guests"
	}
	return o, w.do(name, func() error {
		o = w.observed()
		if len(zones) > 0 {
			o.Attachments = w.attached
		}
		return nil
	})
}

func (w *world) observed() (o network.Observed) {
	for kind, list := range map[network.Kind]*[]network.Object{
		network.KindController: &o.Controllers, network.KindZone: &o.Zones, network.KindVNet: &o.VNets, network.KindSubnet: &o.Subnets,
	} {
		ids := slices.Collect(maps.Keys(w.running[kind]))
		for id := range w.pending[kind] {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		for _, id := range ids {
			obj := network.Object{Kind: kind, ID: id, Running: maps.Clone(w.running[kind][id]), Pending: maps.Clone(w.pending[kind][id])}
			switch {
			case obj.Running == nil:
				obj.State = network.New
			case obj.Pending == nil:
				obj.State = network.Deleted
			case !maps.Equal(obj.Running, obj.Pending):
				obj.State = network.Changed
			}
			*list = append(*list, obj)
		}
	}
	for _, n := range []string{"pve1", "pve2"} {
		node := network.Node{Name: n, Online: !w.offline[n], Zones: map[string]string{}}
		for id := range w.running[network.KindZone] {
			node.Zones[id] = network.Available
			if w.behind[n] && (w.follows.IsZero() || time.Now().Before(w.follows)) {
				node.Zones[id] = "pending"
			}
		}
		o.Nodes = append(o.Nodes, node)
	}
	return o
}

func (w *world) mine(token string) error {
	if w.lock != "" && w.lock != token {
		return fmt.Errorf("invalid lock token: %w", orchestrator.ErrBusy)
	}
	return nil
}

func (w *world) Lock(_ context.Context, pending bool) (token string, err error) {
	return token, w.do("lock", func() error {
		if !w.locks {
			return nil
		}
		clean := !w.hidden && fmt.Sprint(w.running) == fmt.Sprint(w.pending)
		if w.lock != "" || !pending && !clean {
			return fmt.Errorf("locked, or pending changes: %w", orchestrator.ErrBusy)
		}
		w.tokens++
		w.lock = fmt.Sprintf("token%d", w.tokens)
		token = w.lock
		return nil
	})
}

func (w *world) Unlock(_ context.Context, token string) error {
	return w.do("unlock", func() error {
		if w.lock == token {
			w.lock = ""
		}
		return nil
	})
}

func (w *world) Write(_ context.Context, token string, c network.Change) error {
	return w.do(fmt.Sprintf("%s %s", c.Op, c.Kind), func() error {
		if err := w.mine(token); err != nil {
			return err
		}
		have, exists := w.pending[c.Kind][c.ID]
		switch {
		case c.Op == network.OpCreate && exists:
			return orchestrator.ErrExists
		case c.Op != network.OpCreate && !exists:
			return orchestrator.ErrNotFound
		case c.Op == network.OpDelete:
			delete(w.pending[c.Kind], c.ID)
			return nil
		}
		next := network.Fields{}
		maps.Copy(next, have)
		maps.Copy(next, c.Fields)
		for _, key := range c.Unset {
			delete(next, key)
		}
		w.pending[c.Kind][c.ID] = next
		return nil
	})
}

func (w *world) Apply(_ context.Context, token string) (map[string]string, error) {
	return w.failed, w.do("apply", func() error {
		if err := w.mine(token); err != nil {
			return err
		}
		w.running, w.lock = clone(w.pending), ""
		return nil
	})
}

// two tenants, one with two vnets.
func two() network.Wanted {
	vnet := func(name, prefix string) network.VNet {
		return network.VNet{Name: name, Subnets: []network.Subnet{{Prefix: netip.MustParsePrefix(prefix)}}}
	}
	return network.Wanted{
		Peers: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")},
		VNIs:  network.VNIRange{First: 900, Last: 999}, Controller: network.Controller{ASN: 65000},
		Tenants: []network.Tenant{
			{Name: "alpha", Zone: network.Zone{Type: network.EVPN}, VNets: []network.VNet{vnet("main", "10.1.0.0/24"), vnet("side", "10.1.1.0/24")}},
			{Name: "beta", Zone: network.Zone{Type: network.EVPN}, VNets: []network.VNet{vnet("main", "10.2.0.0/24")}},
		},
	}
}

// one is two without the second tenant and the second vnet, and with another MTU.
func one() network.Wanted {
	w := two()
	w.Tenants = w.Tenants[:1]
	w.Tenants[0].VNets = w.Tenants[0].VNets[:1]
	w.Tenants[0].Zone.MTU = 1400
	return w
}

func (w *world) apply(t *testing.T, want network.Wanted) networks.Result {
	t.Helper()
	r, err := w.manager().Apply(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// settled fails the test unless the cluster is as wanted, everything is given
// back, and the record says so.
func (w *world) settled(t *testing.T, want network.Wanted) {
	t.Helper()
	p, err := w.manager().Plan(t.Context(), want)
	if err != nil || !p.Empty() || len(p.Changes) > 0 {
		t.Errorf("there is something left to do: %+v, %v", p.Changes, err)
	}
	r := w.kept()
	if w.lock != "" || r.Lock != (network.Lock{}) {
		t.Errorf("locked with %q, recorded %+v", w.lock, r.Lock)
	}
	if !r.Allocation.Equal(p.Settled) || !r.Applied.Equal(p.Settled) {
		t.Errorf("recorded %+v\nwant %+v", r, p.Settled)
	}
	vnets := 0
	for _, tenant := range want.Tenants {
		vnets += len(tenant.VNets)
		if _, err := networks.Pools(t.Context(), w, want, tenant.Name); err != nil {
			t.Error(err)
		}
	}
	if len(w.running[network.KindZone]) != len(want.Tenants) || len(w.running[network.KindVNet]) != vnets {
		t.Errorf("running: %v", w.running)
	}
}

func (w *world) traced() string {
	out := strings.Join(w.trace, ", ")
	w.trace = nil
	return out
}
