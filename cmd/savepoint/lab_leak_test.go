package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// leak opens the zone that has a subnet, on one node: a pair of interfaces leads
// from it to the node, which translates addresses as an exit node does. It is done
// to the lab from outside, as a mistake of an administrator would be.
func leak(ts *testscript.TestScript, _ bool, args []string) {
	node, zone := zoneOf(ts, args)
	ip(ts, "-n", zone, "link", "add", "leak", "type", "veth", "peer", "name", "leaked", "netns", node)
	for _, at := range [][2]string{{zone, "leak/proxy_arp"}, {node, "leaked/proxy_arp"}, {node, "all/forwarding"}} {
		ip(ts, "netns", "exec", at[0], "sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/"+at[1])
	}
	ip(ts, "-n", zone, "link", "set", "leak", "up")
	ip(ts, "-n", node, "link", "set", "leaked", "up")
	ip(ts, "-n", node, "route", "add", args[1], "dev", "leaked")
	ip(ts, "-n", zone, "route", "add", "default", "dev", "leak")
	ip(ts, "netns", "exec", node, "nft", "add table ip leak; add chain ip leak out { type nat hook postrouting priority 100; }; add rule ip leak out oifname eth0 masquerade")
}

// seal takes back what leak did.
func seal(ts *testscript.TestScript, _ bool, args []string) {
	node, zone := zoneOf(ts, args)
	ip(ts, "-n", zone, "link", "del", "leak")
	ip(ts, "netns", "exec", node, "nft", "delete table ip leak")
	ip(ts, "netns", "exec", node, "sh", "-c", "echo 0 > /proc/sys/net/ipv4/conf/all/forwarding")
}

// zoneOf names the namespaces of a node and of its zone with the subnet.
func zoneOf(ts *testscript.TestScript, args []string) (node, zone string) {
	if len(args) != 2 {
		ts.Fatalf("usage: leak|seal NODE SUBNET")
	}
	raw, err := os.ReadFile(filepath.Join(labPath(ts), "fabric", "fabric.json"))
	ts.Check(err)
	var r struct{ Namespaces []string }
	ts.Check(json.Unmarshal(raw, &r))
	for _, ns := range r.Namespaces {
		switch {
		case strings.HasSuffix(ns, "-node-"+args[0]):
			node = ns
		case strings.Contains(ns, "-"+args[0]+"-") && ip(ts, "-n", ns, "route", "show", args[1]) != "":
			zone = ns
		}
	}
	if node == "" || zone == "" {
		ts.Fatalf("node %s has no zone with %s among %q", args[0], args[1], r.Namespaces)
	}
	return node, zone
}

func ip(ts *testscript.TestScript, args ...string) string {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		ts.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}
