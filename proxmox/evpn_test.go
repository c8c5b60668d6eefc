package proxmox_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"savepoint/orchestrator"
	"savepoint/orchestrator/proof"
	"savepoint/proxmox"
	"savepoint/testbed/pve"
)

var _ proof.Router = (*proxmox.Cluster)(nil)

// tables is a fabric whose nodes know routes.
type tables struct{ err error }

func (*tables) Apply(context.Context, string, pve.SDN) error { return nil }

func (f *tables) ZoneRoutes(_ context.Context, node, zone string) ([]orchestrator.ZoneRoute, error) {
	if f.err != nil {
		return nil, f.err
	}
	return []orchestrator.ZoneRoute{
		{Prefix: netip.MustParsePrefix("10.1.0.0/24"), Protocol: "connected", NextHops: []string{"v1"}},
		{Prefix: netip.MustParsePrefix("10.1.0.12/32"), Protocol: "bgp", Metric: 20, NextHops: []string{"192.0.2.2"}},
		{Prefix: netip.MustParsePrefix("fd00:1::c/128"), Protocol: "bgp", NextHops: []string{"192.0.2.2"}},
		{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Protocol: "kernel"},
	}, nil
}

func (*tables) VNetMACs(context.Context, string, string) ([][3]string, error) { return nil, nil }

// The routes of a zone are those of the node's table, with the doctor's
// privileges, where the release shows them; an older one is told apart from an
// empty table.
func TestRoutes(t *testing.T) {
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			from := &tables{}
			f := startFabric(t, release, 2, func(c *pve.Config) { c.Fabric = from })
			if _, err := f.manager(f.cluster).Apply(t.Context(), tenants()); err != nil {
				t.Fatal(err)
			}
			zone := f.store.now().Applied.Zones["alpha"].ID
			got, err := f.cluster.Routes(t.Context(), "pve2", zone)
			if release == "8.4" {
				var unsupported *orchestrator.UnsupportedError
				if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "savepoint-evpn") {
					t.Errorf("got %v, %v", got, err)
				}
				return
			}
			want, _ := from.ZoneRoutes(t.Context(), "pve2", zone)
			if err != nil || !slices.EqualFunc(got, want, func(a, b orchestrator.ZoneRoute) bool {
				return a.Prefix == b.Prefix && a.Protocol == b.Protocol && a.Metric == b.Metric && slices.Equal(a.NextHops, b.NextHops)
			}) {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
			if _, err := f.cluster.Routes(t.Context(), "pve2", f.store.now().Applied.Zones["beta"].ID); err == nil {
				t.Error("a zone without a routing table has routes")
			}
			from.err = errors.New("no zebra")
			if _, err := f.cluster.Routes(t.Context(), "pve2", zone); err == nil {
				t.Error("a node that cannot tell has no routes, and that is no error")
			}
			if _, err := f.cluster.Routes(t.Context(), "../x", zone); !errors.Is(err, orchestrator.ErrDenied) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The nodes' addresses are those by which they know each other.
func TestMembers(t *testing.T) {
	at := map[string]netip.Addr{"pve1": netip.MustParseAddr("192.0.2.1"), "pve2": netip.MustParseAddr("192.0.2.2")}
	f := startFabric(t, "9", 2, func(c *pve.Config) { c.Addresses = at })
	if err := f.server.SetNode("pve2", false); err != nil {
		t.Fatal(err)
	}
	got, err := f.admin.Members(t.Context())
	want := []proxmox.Member{{Name: "pve1", Online: true, Address: at["pve1"]}, {Name: "pve2", Address: at["pve2"]}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}
