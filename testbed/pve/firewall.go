package pve

import (
	"crypto/sha1"
	"encoding/hex"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// firewall is the firewall of one VM or vnet. It is no part of a VM's
// configuration: snapshots do not hold it and a rollback leaves it alone.
// Nothing is filtered by it here.
type firewall struct {
	Options options   `json:"options,omitempty"`
	Rules   []options `json:"rules,omitempty"`
}

// The owners of firewalls, as keys.
func vmWall(vmid int) string      { return "vm/" + strconv.Itoa(vmid) }
func vnetWall(vnet string) string { return "vnet/" + vnet }

func (f firewall) clone() firewall {
	n := firewall{Options: maps.Clone(f.Options), Rules: slices.Clone(f.Rules)}
	if n.Options == nil {
		n.Options = options{}
	}
	return n
}

// digest names the content; an empty one is the digest of nothing.
func (f firewall) digest() string {
	var b strings.Builder
	if len(f.Options) > 0 {
		b.WriteString("[OPTIONS]\n")
		writeOptions(&b, f.Options)
	}
	for _, r := range f.Rules {
		b.WriteString("[RULE]\n")
		writeOptions(&b, r)
	}
	sum := sha1.Sum([]byte(b.String()))
	return hex.EncodeToString(sum[:])
}

func (s *Server) firewallPath() string { return filepath.Join(s.root, "firewall.json") }

func (s *Server) loadFirewalls() error {
	s.walls = map[string]*firewall{}
	return readState(s.firewallPath(), "firewalls", &s.walls)
}

// firewall returns a copy of an owner's firewall, an empty one when there is none.
func (s *Server) firewall(owner string) firewall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.firewallLocked(owner)
}

func (s *Server) firewallLocked(owner string) firewall {
	if f := s.walls[owner]; f != nil {
		return f.clone()
	}
	return firewall{}.clone()
}

// changeFirewall applies f to a copy of an owner's firewall and keeps it.
func (s *Server) changeFirewall(owner string, f func(*firewall) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changeFirewallLocked(owner, f)
}

func (s *Server) changeFirewallLocked(owner string, f func(*firewall) error) error {
	wall := s.firewallLocked(owner)
	before := wall.digest()
	if err := f(&wall); err != nil {
		return err
	}
	if wall.digest() == before {
		return nil
	}
	walls := maps.Clone(s.walls)
	walls[owner] = &wall
	if len(wall.Options) == 0 && len(wall.Rules) == 0 {
		delete(walls, owner)
	}
	if err := writeState(s.firewallPath(), "firewalls", walls); err != nil {
		return err
	}
	s.walls = walls
	return nil
}

// wallOf finds whose firewall a call is about.
type wallOf func(c *call, write bool) (owner string, err error)

// ofVM is a VM's; the VM need not exist.
func ofVM(c *call, _ bool) (string, error) { return vmWall(c.vmid()), nil }

// ofVNet is a vnet's, which must exist.
func ofVNet(c *call, write bool) (string, error) {
	privs := sdnSee
	if write {
		privs = []string{"SDN.Allocate"}
	}
	vnet := c.p.Str("vnet")
	_, err := c.mayVNet(vnet, privs...)
	return vnetWall(vnet), err
}

// reads makes a handler that answers something of a firewall.
func (of wallOf) reads(f func(*call, firewall) (any, error)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		owner, err := of(c, false)
		if err != nil {
			return nil, err
		}
		return f(c, c.s.firewall(owner))
	}
}

// writes makes a handler that changes a firewall.
func (of wallOf) writes(f func(*call, *firewall) error) func(*call) (any, error) {
	return func(c *call) (any, error) {
		owner, err := of(c, true)
		if err != nil {
			return nil, err
		}
		return nil, c.s.changeFirewall(owner, func(wall *firewall) error {
			if d := c.p.Str("digest"); d != "" && d != wall.digest() {
				return errModified()
			}
			return f(c, wall)
		})
	}
}

// wallValue is an option or a rule's property in the type that answers have.
func wallValue(name, text string) any {
	switch name {
	case "enable", "dhcp", "ipfilter", "macfilter", "ndp", "radv":
		if n, err := strconv.Atoi(text); err == nil {
			return n
		}
	}
	return text
}

func wallItem(o options) map[string]any {
	out := map[string]any{}
	for name, text := range o {
		out[name] = wallValue(name, text)
	}
	return out
}

// readWallOptions is GET …/firewall/options.
func readWallOptions(_ *call, f firewall) (any, error) {
	out := wallItem(f.Options)
	out["digest"] = f.digest()
	return out, nil
}

// notWallOptions are parameters that name the firewall or tell how to change it.
var notWallOptions = []string{"node", "vmid", "vnet", "digest", "delete", "pos", "moveto"}

// putWallOptions is PUT …/firewall/options.
func putWallOptions(c *call, f *firewall) error {
	changeOptions(c, f.Options)
	return nil
}

// changeOptions sets what the call gives and takes off what it deletes.
func changeOptions(c *call, o options) {
	for _, name := range splitDelete(c) {
		delete(o, name)
	}
	for name := range c.p {
		if !slices.Contains(notWallOptions, name) {
			o[name] = c.p.Str(name)
		}
	}
}
