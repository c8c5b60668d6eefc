package pve

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// The four kinds of objects, as the configuration's keys.
const (
	sdnControllers = "controllers"
	sdnZones       = "zones"
	sdnVNets       = "vnets"
	sdnSubnets     = "subnets"
)

// localZone is the zone of the node's own bridges; it is in no configuration.
const localZone = "localnetwork"

// sdnConfig is one configuration: options by kind and id.
type sdnConfig map[string]map[string]options

// ids lists the objects of a kind, sorted.
func (c sdnConfig) ids(kind string) []string { return slices.Sorted(maps.Keys(c[kind])) }

func (c sdnConfig) clone() sdnConfig {
	n := sdnConfig{}
	for kind, objects := range c {
		n[kind] = make(map[string]options, len(objects))
		for id, o := range objects {
			n[kind][id] = maps.Clone(o)
		}
	}
	return n
}

// equal reports whether two configurations hold the same.
func (c sdnConfig) equal(d sdnConfig) bool {
	for _, kind := range []string{sdnControllers, sdnZones, sdnVNets, sdnSubnets} {
		if !maps.EqualFunc(c[kind], d[kind], maps.Equal) {
			return false
		}
	}
	return true
}

// digest names the content of one kind's objects; every kind has a file of its
// own on a real node.
func (c sdnConfig) digest(kind string) string {
	var b strings.Builder
	for _, id := range c.ids(kind) {
		fmt.Fprintf(&b, "%s: %s\n", c[kind][id]["type"], id)
		writeOptions(&b, c[kind][id])
	}
	sum := sha1.Sum([]byte(b.String()))
	return hex.EncodeToString(sum[:])
}

// set puts an object in the place of the one of that id.
func (c sdnConfig) set(kind, id string, o options) {
	if c[kind] == nil {
		c[kind] = map[string]options{}
	}
	c[kind][id] = o
}

// sdnNode is what one node made of the running configuration.
type sdnNode struct {
	// Version is the one that the node's own files were written from.
	Version int `json:"version"`
	// Failed means that the last reload did not succeed.
	Failed bool `json:"failed,omitempty"`
	// Bridges are the vnets that exist on the node.
	Bridges []string `json:"bridges,omitempty"`
}

// sdnKept is the whole state, in the form of its file. Values are replaced,
// never changed in place.
type sdnKept struct {
	Config  sdnConfig          `json:"config"`  // as written
	Running sdnConfig          `json:"running"` // as applied last
	Version int                `json:"version"` // counts the applies
	Lock    string             `json:"lock,omitempty"`
	Nodes   map[string]sdnNode `json:"nodes,omitempty"`
}

// sdnState is the network configuration of the cluster.
type sdnState struct {
	mu     sync.Mutex
	kept   sdnKept
	reload map[string]*flock // one reload at a time, by node
}

func (s *Server) sdnPath() string { return filepath.Join(s.root, "sdn.json") }

func (s *Server) loadSDN() error {
	s.sdn.kept = sdnKept{Config: sdnConfig{}, Running: sdnConfig{}}
	s.sdn.reload = map[string]*flock{}
	return readState(s.sdnPath(), "network configuration", &s.sdn.kept)
}

// sdnNow is the present state, to read only.
func (s *Server) sdnNow() sdnKept {
	s.sdn.mu.Lock()
	defer s.sdn.mu.Unlock()
	return s.sdn.kept
}

// changeSDN applies f to a copy of the state and keeps it. On an error of f
// nothing has changed.
func (s *Server) changeSDN(f func(*sdnKept) error) error {
	s.sdn.mu.Lock()
	defer s.sdn.mu.Unlock()
	k := s.sdn.kept
	k.Config, k.Nodes = k.Config.clone(), maps.Clone(k.Nodes)
	if k.Nodes == nil {
		k.Nodes = map[string]sdnNode{}
	}
	if err := f(&k); err != nil {
		return err
	}
	if err := writeState(s.sdnPath(), "network configuration", k); err != nil {
		return err
	}
	s.sdn.kept = k
	return nil
}

// writeSDN changes the written configuration for a call. While somebody holds
// the lock the call must carry its token. what begins every error's text.
func (c *call) writeSDN(what string, f func(sdnConfig) error) error {
	return wrapSDN(what, c.s.changeSDN(func(k *sdnKept) error {
		if err := c.checkToken(k); err != nil {
			return err
		}
		return f(k.Config)
	}))
}

// wrapSDN puts the operation before an error's text. Complaints about
// parameters become part of the text: the API has no place for them there.
func wrapSDN(what string, err error) error {
	if err == nil {
		return nil
	}
	e := asAPI(err)
	text := e.text
	for _, name := range slices.Sorted(maps.Keys(e.params)) {
		text += "\n" + name + ": " + e.params[name]
	}
	if e.params != nil {
		text = "400 " + text
	}
	return fail("%s: %s", what, text)
}

// checkToken refuses a call that does not hold the lock while somebody does.
func (c *call) checkToken(k *sdnKept) error {
	if k.Lock != "" && c.p.Str("lock-token") != k.Lock {
		return fail("invalid lock token provided!%s", place)
	}
	return nil
}

// errModified is the complaint about a stale digest of these files.
func errModified() error {
	return fail("detected modified configuration - file changed by other user? Try again.")
}

// zoneOf is the zone of a bridge: that of the vnet of this name, applied or
// not, else the one of the node's own bridges.
func (s *Server) zoneOf(bridge string) string {
	if o, ok := s.sdnNow().Config[sdnVNets][bridge]; ok {
		return o["zone"]
	}
	return localZone
}
