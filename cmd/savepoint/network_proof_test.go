package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"savepoint/configs"
	"savepoint/network"
	"savepoint/orchestrator/proof"
	"savepoint/proxmox"
)

// placeLines are places as "role name addresses tcp udp".
func placeLines(list []network.Place) []string {
	var out []string
	for _, p := range list {
		line := string(p.Role) + " " + p.Name
		for _, a := range p.Addresses {
			line += " " + a.String()
		}
		for _, ports := range [][]uint16{p.TCP, p.UDP} {
			line += " /"
			for _, n := range ports {
				line += fmt.Sprintf(" %d", n)
			}
		}
		out = append(out, line)
	}
	return out
}

// F108: what is known of the surroundings is tried without being configured;
// a loopback address is the guest's own there and shows nothing.
func TestPlaces(t *testing.T) {
	addrs := func(list ...string) []netip.Addr {
		var out []netip.Addr
		for _, s := range list {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	members := []proxmox.Member{{Name: "pve1", Address: addrs("192.0.2.1")[0]}, {Name: "pve2", Address: addrs("192.0.2.2")[0]}}
	outside := configs.Place{Role: "outside", Name: "web", Addresses: []string{"203.0.113.80"}, TCP: []int{443}, UDP: []int{53}}
	roles := func(list []network.Place) map[network.Role]int {
		out := map[network.Role]int{}
		for _, p := range list {
			out[p.Role]++
		}
		return out
	}

	cfg := configs.Config{Network: configs.Network{Places: []configs.Place{outside}}}
	got := places(cfg, members, addrs("192.0.2.1"), addrs("192.0.2.9"), addrs("192.0.2.50"))
	want := map[network.Role]int{network.RoleOutside: 1, network.RoleNode: 2, network.RoleAPI: 1, network.RoleOrchestrator: 1, network.RoleMetadata: 1}
	if r := roles(got); len(r) != len(want) || r[network.RoleNode] != 2 {
		t.Errorf("got %q", placeLines(got))
	}
	for _, p := range got {
		if len(p.TCP) == 0 || len(p.UDP) == 0 || len(p.Addresses) == 0 || p.Name == "" {
			t.Errorf("%+v is not complete", p)
		}
	}

	// The API and this machine are on loopback, as through a tunnel and in the lab.
	got = places(cfg, members, nil, addrs("127.0.0.1", "::1"), addrs("127.0.0.1"))
	if r := roles(got); r[network.RoleOrchestrator] != 0 {
		t.Errorf("a guest's own loopback stands for this machine: %q", placeLines(got))
	}
	i := slices.IndexFunc(got, func(p network.Place) bool { return p.Role == network.RoleAPI })
	if i < 0 || !slices.Equal(got[i].Addresses, addrs("192.0.2.1", "192.0.2.2")) || !slices.Equal(got[i].TCP, []uint16{8006}) {
		t.Errorf("the nodes' API is not tried: %q", placeLines(got))
	}

	// What is configured is tried besides, and stands where nothing is known.
	cfg.Network.Places = append(cfg.Network.Places,
		configs.Place{Role: "node", Name: "pve1", Addresses: []string{"198.51.100.1"}, TCP: []int{22}, UDP: []int{53}},
		configs.Place{Role: "metadata", Name: "ours", Addresses: []string{"198.51.100.7"}, TCP: []int{80}, UDP: []int{53}},
		configs.Place{Role: "orchestrator", Name: "ours", Addresses: []string{"198.51.100.8"}, TCP: []int{22}, UDP: []int{53}})
	cfg.Network.Places = append(cfg.Network.Places,
		configs.Place{Role: "jump", Name: "bastion", Addresses: []string{"10.1.0.8"}, TCP: []int{22}, UDP: []int{53}})
	cfg.SSH.Jump.Address = "bastion.example:2222"
	got = places(cfg, nil, addrs("198.51.100.1", "198.51.100.21", "198.51.100.22"), nil, nil)
	// Between the nodes guests must not be either, whatever the nodes are called there.
	if !slices.Contains(placeLines(got), "underlay peers 198.51.100.21 198.51.100.22 / 22 8006 / 33434") {
		t.Errorf("the addresses between the nodes are not tried: %q", placeLines(got))
	}
	if i := slices.IndexFunc(got, func(p network.Place) bool { return p.Role == network.RoleJump }); i < 0 || got[i].JumpPort() != 2222 {
		t.Errorf("the jump host's SSH port: %+v", got)
	}
	for _, line := range []string{"node pve1 198.51.100.1", "metadata ours 198.51.100.7", "orchestrator ours 198.51.100.8", "api cluster 198.51.100.1"} {
		if !slices.ContainsFunc(placeLines(got), func(l string) bool { return strings.HasPrefix(l, line+" ") }) {
			t.Errorf("%q is missing in %q", line, placeLines(got))
		}
	}
	if r := roles(got); r[network.RoleMetadata] != 1 {
		t.Errorf("got %q", placeLines(got))
	}
}

func verified3() network.Report {
	checks := []network.Check{
		{From: "guest one", To: "api cluster 192.0.2.1:8006", Protocol: network.TCP, Expected: network.Unreachable},
		{From: "guest one", To: "guest two 10.60.0.12", Protocol: network.MTU, Expected: network.Reachable},
		{From: "node pve1 zone z8h2k001", To: "guest two 10.60.0.12", Protocol: network.Route, Expected: network.Reachable},
	}
	return network.Judge(checks, []network.Observation{
		{From: "guest one", To: "api cluster 192.0.2.1:8006", Protocol: network.TCP, Observed: network.Reachable},
		{From: "guest one", To: "guest two 10.60.0.12", Protocol: network.MTU, Observed: network.Reachable},
	})
}

// The table says in each width what was measured, what was expected, and what it
// comes to; no line is wider than the terminal.
func TestPrintProof(t *testing.T) {
	for width, want := range map[string]string{
		"100": "guest one\n" +
			"  FAILED  tcp   reachable, expected unreachable  api cluster 192.0.2.1:8006\n" +
			"  ok      mtu   reachable                        guest two 10.60.0.12\n" +
			"node pve1 zone z8h2k001\n" +
			"  FAILED  evpn-route  not measured, expected reachable  guest two 10.60.0.12\n" +
			"not sealed: 2 of 3 checks\n" +
			"  guest one to api cluster 192.0.2.1:8006 over tcp is reachable, expected unreachable\n" +
			"  node pve1 zone z8h2k001 to guest two 10.60.0.12 over evpn-route is not measured, expected reachable\n",
		"60": "guest one\n" +
			"  FAILED  tcp  reachable, expected unreachable\n      api cluster 192.0.2.1:8006\n",
	} {
		var out, errs bytes.Buffer
		a := &app{out: &out, err: &errs, format: formatText, getenv: func(k string) string { return map[string]string{"COLUMNS": width}[k] }}
		err := a.printProof(proof.Result{Report: verified3(), Notes: []string{"node pve3 is out of reach"}})
		if code, quiet := exitCode(t.Context(), err); code != exitUnusable || !quiet {
			t.Errorf("exit code %d, quiet %v", code, quiet)
		}
		flat := func(s string) string { return strings.Join(strings.Fields(s), " ") }
		if !strings.HasPrefix(flat(out.String()), flat(want)) || !strings.HasSuffix(out.String(), "\nnote: node pve3 is out of reach\n") || errs.Len() > 0 {
			t.Errorf("width %s: got\n%s\n%s", width, out.String(), errs.String())
		}
		for line := range strings.Lines(out.String()) {
			if n := len(strings.TrimSuffix(line, "\n")); width == "60" && n > 60 {
				t.Errorf("%d columns: %q", n, line)
			}
		}
	}
}

// What is exempt, and how a sealed network was found to be, is in the table.
func TestPrintProofExempt(t *testing.T) {
	checks := []network.Check{
		{From: "guest one", To: "guest two 10.60.0.12", Protocol: network.ICMP, Expected: network.Reachable},
		{From: "guest one", To: "jump bastion 10.60.0.8:22", Protocol: network.TCP, Expected: network.Exempt},
		{From: "guest one", To: "outside web 192.0.2.80", Protocol: network.ICMP, Expected: network.Unreachable, Gateless: true},
	}
	obs := []network.Observation{
		{From: "guest one", To: "guest two 10.60.0.12", Protocol: network.ICMP, Observed: network.Reachable},
		{From: "guest one", To: "jump bastion 10.60.0.8:22", Protocol: network.TCP, Observed: network.Reachable},
		{From: "guest one", To: "outside web 192.0.2.80", Protocol: network.ICMP, Observed: network.NoRoute},
	}
	var out bytes.Buffer
	a := &app{out: &out, err: &out, format: formatText, getenv: func(k string) string { return map[string]string{"COLUMNS": "100"}[k] }}
	if err := a.printProof(proof.Result{Report: network.Judge(checks, obs)}); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"ok tcp reachable, exempt jump bastion 10.60.0.8:22", "ok icmp no route outside web 192.0.2.80", "sealed: all 3 checks"} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

// The JSON is the contract, with the notes in a field beside it.
func TestPrintProofJSON(t *testing.T) {
	var out, errs bytes.Buffer
	a := &app{out: &out, err: &errs, format: formatNDJSON, getenv: func(string) string { return "" }}
	r := verified3()
	r.Checks = r.Checks[:1]
	if err := a.printProof(proof.Result{Report: r, Notes: []string{"a note"}}); err == nil {
		t.Error("not sealed, and exit code 0")
	}
	want := `{"sealed":false,"checks":[{"from":"guest one","to":"api cluster 192.0.2.1:8006","protocol":"tcp","expected":"unreachable","observed":"reachable","ok":false}],"notes":["a note"]}` + "\n"
	if out.String() != want || errs.Len() > 0 {
		t.Errorf("got %s, want %s", out.String(), want)
	}
	out.Reset()
	if err := a.printProof(proof.Result{Report: network.Report{Sealed: true, Checks: []network.Result{}}}); err != nil || out.String() != `{"sealed":true,"checks":[]}`+"\n" {
		t.Errorf("got %s, %v", out.String(), err)
	}
}
