package main

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"savepoint/configs"
	"savepoint/network"
	"savepoint/orchestrator/journal"
	"savepoint/testbed/pve"
)

// networkCommands are those of the stories called network_*, which have three
// nodes; one whose name ends in _8 has a cluster of Proxmox VE 8.4:
//
//	networks NAME                 the configuration's networks: two (alpha and beta, evpn),
//	                              one (alpha alone, with less), none, bad (wrong in several ways)
//	api METHOD PATH [FORM]        what another administrator does
//	fault METHOD PATH WHAT        the next such request is answered with the status WHAT, has
//	                              its connection closed (drop), after it was done (drop-after,
//	                              596-after), or waits for two seconds (slow)
//	interrupt-apply COMMAND...    as interrupt, once new ids of networks are recorded and a zone is pending
//	crash-apply COMMAND...        the same with SIGKILL
//	crash-locked COMMAND...       the same once the lock on the networks is recorded
//	guest-on TENANT/VNET VMID     another administrator's VM on that vnet
//	sdn zones|vnets N             so many run
//	sdn lock free|held            somebody has the lock on the networks, or nobody
var networkCommands = map[string]func(*testscript.TestScript, bool, []string){
	"networks": func(ts *testscript.TestScript, _ bool, args []string) {
		c := of(ts)
		c.config.Network = storyNetworks(args[0])
		ts.Check(configs.WriteWithSecrets(c.file, c.config))
	},
	"api": func(ts *testscript.TestScript, _ bool, args []string) {
		_, err := of(ts).request(args[0], args[1], strings.Join(args[2:], "&"))
		ts.Check(err)
	},
	"fault": func(ts *testscript.TestScript, _ bool, args []string) {
		f := pve.Fault{Method: args[0], Path: args[1], Nth: 1}
		what, after := strings.CutSuffix(args[2], "-after")
		f.AfterEffect = after
		switch what {
		case "drop":
			f.Drop = true
		case "slow":
			f.Delay = 2 * time.Second
		default:
			var err error
			f.Status, err = strconv.Atoi(what)
			ts.Check(err)
		}
		of(ts).api.Faults.Add(f)
	},
	"interrupt-apply": func(ts *testscript.TestScript, _ bool, args []string) {
		signalWhen(ts, args, os.Interrupt, exitInterrupted, allocated(ts))
	},
	"crash-apply": func(ts *testscript.TestScript, _ bool, args []string) {
		signalWhen(ts, args, os.Kill, -1, allocated(ts))
	},
	"crash-locked": func(ts *testscript.TestScript, _ bool, args []string) {
		signalWhen(ts, args, os.Kill, -1, func(file string) bool { return recorded(file).Lock.Token != "" })
	},
	"guest-on": func(ts *testscript.TestScript, _ bool, args []string) {
		vnet := recorded(journalFile(of(ts).config)).Allocation.VNets[args[0]].ID
		_, err := of(ts).request("POST", "/nodes/pve1/qemu", "vmid="+args[1]+"&memory=64&net0=virtio,bridge%3D"+vnet)
		ts.Check(err)
		ts.Check(of(ts).idle(number(ts, args[1:])))
	},
	"sdn": sdn,
}

// sdn checks what runs on the cluster.
func sdn(ts *testscript.TestScript, _ bool, args []string) {
	c := of(ts)
	if args[0] == "lock" {
		state := "held"
		raw, err := c.request("POST", "/cluster/sdn/lock", "allow-pending=1")
		if err == nil {
			state = "free"
			var answer struct{ Data string }
			ts.Check(json.Unmarshal(raw, &answer))
			_, err = c.request("DELETE", "/cluster/sdn/lock?lock-token="+answer.Data, "")
			ts.Check(err)
		}
		if state != args[1] {
			ts.Fatalf("the lock is %s", state)
		}
		return
	}
	run := c.api.RunningSDN()
	have := map[string]int{"controllers": len(run.Controllers), "zones": len(run.Zones), "vnets": len(run.VNets), "subnets": len(run.Subnets)}
	if want := number(ts, args[1:]); have[args[0]] != want {
		ts.Fatalf("%d %s run, want %d: %+v", have[args[0]], args[0], want, run)
	}
}

// allocated waits for new ids in the record, which are there before the first
// of them is made, and then for a zone that is written and does not run.
func allocated(ts *testscript.TestScript) func(file string) bool {
	c := of(ts)
	before := recorded(journalFile(c.config)).Allocation
	return func(file string) bool {
		if a := recorded(file).Allocation; len(a.Zones) == 0 || a.Equal(before) {
			return false
		}
		zones, err := c.request("GET", "/cluster/sdn/zones?pending=1", "")
		return err == nil && strings.Contains(string(zones), `"state":"new"`)
	}
}

// recorded is the journal's record of the networks, empty while there is none.
func recorded(file string) network.Record {
	j, err := journal.OpenReadOnly(file)
	if err != nil {
		return network.Record{}
	}
	defer j.Close()
	r, err := j.Networks(context.Background())
	if err != nil {
		return network.Record{}
	}
	return r
}

func storyNetworks(name string) configs.Network {
	n := configs.Network{UnderlayMTU: 1500, Peers: []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}, VNIFirst: 900000, VNILast: 900999, ASN: 65000}
	vnet := func(name, prefix string) configs.VNet {
		p := netip.MustParsePrefix(prefix)
		return configs.VNet{Name: name, Subnets: []configs.Subnet{{Prefix: p, Gateway: p.Addr().Next()}}}
	}
	alpha := configs.Tenant{Name: "alpha", Zone: "evpn", VNets: []configs.VNet{vnet("main", "10.61.0.0/24"), vnet("side", "10.61.1.0/24")}}
	beta := configs.Tenant{Name: "beta", Zone: "evpn", VNets: []configs.VNet{vnet("main", "10.62.0.0/24")}}
	switch name {
	case "two":
		n.Tenants = []configs.Tenant{alpha, beta}
	case "one":
		alpha.MTU, alpha.VNets = 1400, alpha.VNets[:1]
		n.Tenants = []configs.Tenant{alpha}
	case "bad":
		alpha.MTU, alpha.Nodes = 9000, []string{"pve9"}
		beta.VNets[0].Subnets[0].Prefix = netip.MustParsePrefix("10.61.0.0/16")
		n.Tenants = []configs.Tenant{alpha, beta}
	}
	return n
}
