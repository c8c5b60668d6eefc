package pve

import (
	"maps"
	"slices"
	"strconv"
	"sync"
)

// guards is what other parts of a cluster do with its VMs. This server has
// none of them; tests say what they would.
type guards struct {
	mu         sync.Mutex
	ha         map[int]string
	replicated map[int][]string
}

// SetHA makes a VM look managed by HA in that state, "started" for instance;
// "" takes it out. Starting and stopping it works as before.
func (s *Server) SetHA(vmid int, state string) {
	s.guards.mu.Lock()
	defer s.guards.mu.Unlock()
	if s.guards.ha == nil {
		s.guards.ha = map[int]string{}
	}
	if s.guards.ha[vmid] = state; state == "" {
		delete(s.guards.ha, vmid)
	}
}

// SetReplication gives a VM a replication job for each target node.
func (s *Server) SetReplication(vmid int, targets ...string) {
	s.guards.mu.Lock()
	defer s.guards.mu.Unlock()
	if s.guards.replicated == nil {
		s.guards.replicated = map[int][]string{}
	}
	s.guards.replicated[vmid] = targets
}

// haState is "" for a VM that HA does not manage.
func (s *Server) haState(vmid int) string {
	s.guards.mu.Lock()
	defer s.guards.mu.Unlock()
	return s.guards.ha[vmid]
}

// listReplication is GET /cluster/replication.
func listReplication(c *call) (any, error) {
	g := &c.s.guards
	g.mu.Lock()
	jobs := maps.Clone(g.replicated)
	g.mu.Unlock()
	out := []map[string]any{}
	for _, vmid := range slices.Sorted(maps.Keys(jobs)) {
		if !c.may("/vms/"+itoa(vmid), "VM.Audit") {
			continue
		}
		for n, target := range jobs[vmid] {
			out = append(out, map[string]any{
				"id": strconv.Itoa(vmid) + "-" + strconv.Itoa(n), "guest": vmid, "jobnum": n, "type": "local",
				"target": target, "schedule": "*/15", "source": c.s.owner(vmid).cfg.Node,
			})
		}
	}
	return out, nil
}
