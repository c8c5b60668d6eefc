package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"savepoint/configs"
	"savepoint/network"
	"savepoint/orchestrator"
)

// A problem of the configuration is the user's to mend, the cluster's state is
// not; with both the configuration comes first, and everything is told.
func TestNetworkErrors(t *testing.T) {
	config := &network.ConfigError{Problems: []network.Problem{{Key: "tenants[0].mtu", Cause: "9000 is too much", Mend: "lower it"}}}
	foreign := &network.ForeignError{Refusals: []network.Refusal{{Kind: network.KindZone, ID: "dmz", Reason: "is being edited", Mend: "apply it"}}}
	other := fmt.Errorf("lock: %w", orchestrator.ErrBusy)
	for _, tt := range []struct {
		err  error
		code int
		text []string
	}{
		{config, exitUsage, []string{"network.tenants[0].mtu: 9000 is too much; lower it"}},
		{foreign, exitUnusable, []string{"zone dmz is being edited; apply it"}},
		{errors.Join(config, foreign), exitUsage, []string{"network.tenants[0].mtu", "zone dmz"}},
		{other, exitUnusable, []string{"lock"}},
	} {
		err := networkError(tt.err)
		if code, _ := exitCode(t.Context(), err); code != tt.code {
			t.Errorf("%v: exit code %d, want %d", err, code, tt.code)
		}
		for _, text := range tt.text {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%q does not say %q", err, text)
			}
		}
	}
	if networkError(nil) != nil {
		t.Error("no error is one")
	}
}

// Every key of the configuration reaches the plan. A controller of the
// cluster's has its own number.
func TestWantedNetworks(t *testing.T) {
	prefix, gateway := netip.MustParsePrefix("10.1.0.0/24"), netip.MustParseAddr("10.1.0.1")
	n := configs.Network{
		UnderlayMTU: 9000, Peers: []string{"192.0.2.1"}, VNIFirst: 5, VNILast: 9, ASN: 65001,
		Tenants: []configs.Tenant{
			{Name: "a", VRF: 5, MTU: 1400, Nodes: []string{"pve1"}, VNets: []configs.VNet{
				{Name: "main", VNI: 6, Guests: 20, Subnets: []configs.Subnet{{Prefix: prefix, Gateway: gateway}}},
			}},
			{Name: "b", Zone: "simple"},
		},
	}
	want := network.Wanted{
		UnderlayMTU: 9000, Peers: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, VNIs: network.VNIRange{First: 5, Last: 9},
		Controller: network.Controller{ASN: 65001},
		Tenants: []network.Tenant{
			{Name: "a", Zone: network.Zone{Type: network.EVPN, VRF: 5, MTU: 1400, Nodes: []string{"pve1"}}, VNets: []network.VNet{
				{Name: "main", VNI: 6, Guests: 20, Subnets: []network.Subnet{{Prefix: prefix, Gateway: gateway}}},
			}},
			{Name: "b", Zone: network.Zone{Type: network.Simple}},
		},
	}
	if got := wantedNetworks(n); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	n.Controller = "core"
	if got := wantedNetworks(n).Controller; got != (network.Controller{ID: "core"}) {
		t.Errorf("%+v", got)
	}
}
