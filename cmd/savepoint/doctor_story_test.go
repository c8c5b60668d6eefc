package main

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/orchestrator/journal"
	"savepoint/testbed/pve"
)

// doctorCommands disturb the cluster in ways that only the doctor looks for:
//
//	odd NODE WHAT VALUE    its clock is off by that ("skew"), its certificate ends then
//	                       ("certificate"), a storage has so many bytes left ("STORAGE"),
//	                       a package has that version ("package:NAME"), "-" for none
//	backup ID VALUE...     a backup job of "all", of a pool or of VM ids
//	zone NAME              somebody else begins to make a zone
//	tenants NAME...        the configuration has these tenants, with simple zones
//	agent VMID 0|1         the option of the VM's configuration
//	interrupt-canary, crash-canary COMMAND...   as interrupt and crash, once a canary is up
var doctorCommands = map[string]func(*testscript.TestScript, bool, []string){
	"odd":    odd,
	"backup": backup,
	"zone": func(ts *testscript.TestScript, _ bool, args []string) {
		_, err := of(ts).request(http.MethodPost, "/cluster/sdn/zones", url.Values{"zone": {args[0]}, "type": {"simple"}}.Encode())
		ts.Check(err)
	},
	"tenants": tenants,
	"agent": func(ts *testscript.TestScript, _ bool, args []string) {
		_, err := of(ts).configure(http.MethodPut, number(ts, args), url.Values{"agent": {args[1]}}.Encode())
		ts.Check(err)
	},
	"interrupt-canary": func(ts *testscript.TestScript, _ bool, args []string) {
		signalWhen(ts, args, os.Interrupt, exitInterrupted, canaryUp)
	},
	"crash-canary": func(ts *testscript.TestScript, _ bool, args []string) {
		signalWhen(ts, args, os.Kill, -1, canaryUp)
	},
}

// odd replaces what is out of the ordinary on a node.
func odd(ts *testscript.TestScript, _ bool, args []string) {
	node, what, value := args[0], args[1], args[2]
	var f pve.Facts
	if value == "-" {
		value = ""
	}
	var err error
	switch name, isPackage := strings.CutPrefix(what, "package:"); {
	case what == "skew":
		f.Skew, err = time.ParseDuration(value)
	case what == "certificate":
		var d time.Duration
		d, err = time.ParseDuration(value)
		f.CertificateEnds = time.Now().Add(d)
	case what == "version":
		f.Version = value
	case isPackage:
		f.Packages = map[string]string{name: value}
	default:
		f.Free = map[string]int64{}
		f.Free[what], err = strconv.ParseInt(value, 10, 64)
	}
	ts.Check(err)
	ts.Check(of(ts).api.SetFacts(node, f))
}

func backup(ts *testscript.TestScript, _ bool, args []string) {
	j := pve.BackupJob{ID: args[0]}
	for _, a := range args[1:] {
		if id, err := strconv.Atoi(a); err == nil {
			j.VMs = append(j.VMs, id)
		} else if a == "all" {
			j.All = true
		} else {
			j.Pool = a
		}
	}
	of(ts).api.SetBackupJobs(j)
}

func tenants(ts *testscript.TestScript, _ bool, args []string) {
	c := of(ts)
	for i, name := range args {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, byte(i), 0}), 24)
		c.config.Network.Tenants = append(c.config.Network.Tenants, configs.Tenant{Name: name, Zone: "simple", VNets: []configs.VNet{
			{Name: "main", Subnets: []configs.Subnet{{Prefix: prefix}}},
		}})
	}
	ts.Check(configs.WriteWithSecrets(c.file, c.config))
}

// canaryUp reports whether a canary has booted and is not yet being removed.
func canaryUp(file string) bool {
	j, err := journal.OpenReadOnly(file)
	if err != nil {
		return false
	}
	defer j.Close()
	all, err := j.Sandboxes(context.Background())
	return err == nil && slices.ContainsFunc(all, func(sb orchestrator.Sandbox) bool {
		return sb.Name == canaryName && sb.State == orchestrator.SandboxCreating && sb.HostKey != ""
	})
}
