package pve

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"savepoint/testbed/pve/schema"
)

// pool is a named set of VMs and storages.
type pool struct {
	Comment  string   `json:"comment,omitempty"`
	VMs      []int    `json:"vms,omitempty"`
	Storages []string `json:"storages,omitempty"`
}

func (s *Server) poolsPath() string { return filepath.Join(s.root, "pools.json") }

func (s *Server) loadPools() error {
	return readState(s.poolsPath(), "pools", &s.pools)
}

// changePools applies f to a copy of the pools and keeps it.
func (s *Server) changePools(f func(map[string]*pool) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pools := map[string]*pool{}
	for id, p := range s.pools {
		pools[id] = &pool{Comment: p.Comment, VMs: slices.Clone(p.VMs), Storages: slices.Clone(p.Storages)}
	}
	if err := f(pools); err != nil {
		return err
	}
	if err := writeState(s.poolsPath(), "pools", pools); err != nil {
		return err
	}
	s.pools = pools
	return nil
}

// pool returns a copy of a pool, nil when there is none.
func (s *Server) pool(id string) *pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pools[id]
	if p == nil {
		return nil
	}
	return &pool{Comment: p.Comment, VMs: slices.Clone(p.VMs), Storages: slices.Clone(p.Storages)}
}

// poolOf returns the pool of a VM, "" when it is in none.
func (s *Server) poolOf(vmid int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, p := range s.pools {
		if slices.Contains(p.VMs, vmid) {
			return id
		}
	}
	return ""
}

// poolOfPath returns the pool that the object of an access path is in.
func (s *Server) poolOfPath(path string) string {
	if rest, ok := strings.CutPrefix(path, "/vms/"); ok {
		if vmid, err := strconv.Atoi(rest); err == nil {
			return s.poolOf(vmid)
		}
	}
	if rest, ok := strings.CutPrefix(path, "/storage/"); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		for id, p := range s.pools {
			if slices.Contains(p.Storages, rest) {
				return id
			}
		}
	}
	return ""
}

func (s *Server) addToPool(id string, vmid int) error {
	return s.changePools(func(pools map[string]*pool) error {
		p := pools[id]
		if p == nil {
			return fail("pool '%s' does not exist", id)
		}
		if !slices.Contains(p.VMs, vmid) {
			p.VMs = append(p.VMs, vmid)
		}
		return nil
	})
}

// dropFromPools takes a VM out of its pool.
func (s *Server) dropFromPools(vmid int) error {
	if s.poolOf(vmid) == "" {
		return nil
	}
	return s.changePools(func(pools map[string]*pool) error {
		for _, p := range pools {
			p.VMs = slices.DeleteFunc(p.VMs, func(id int) bool { return id == vmid })
		}
		return nil
	})
}

// listPools is GET /pools, or with poolid that pool alone.
func listPools(c *call) (any, error) {
	if id := c.p.Str("poolid"); id != "" {
		if err := checkPrivs(c.s.access, c.who, "/pool/"+id, true, "Pool.Audit"); err != nil {
			return nil, err
		}
		item, err := c.poolItem(id)
		if err != nil {
			return nil, err
		}
		item["poolid"] = id
		return []map[string]any{item}, nil
	}
	c.s.mu.Lock()
	ids := slices.Sorted(maps.Keys(c.s.pools))
	c.s.mu.Unlock()
	out := []map[string]any{}
	for _, id := range ids {
		if p := c.s.pool(id); p != nil && c.may("/pool/"+id, "Pool.Audit") {
			item := map[string]any{"poolid": id}
			if p.Comment != "" {
				item["comment"] = p.Comment
			}
			out = append(out, item)
		}
	}
	return out, nil
}

// readPool is GET /pools/{poolid}.
func readPool(c *call) (any, error) {
	item, err := c.poolItem(c.p.Str("poolid"))
	if err != nil {
		return nil, err
	}
	item["poolid"] = c.p.Str("poolid")
	return item, nil
}

func (c *call) poolItem(id string) (map[string]any, error) {
	p := c.s.pool(id)
	if p == nil {
		return nil, fail("pool '%s' does not exist", id)
	}
	kind := c.p.Str("type")
	members := []map[string]any{}
	for _, vmid := range p.VMs {
		if item := c.s.owner(vmid).vmResource(vmid); item != nil && (kind == "" || kind == "qemu") {
			for _, name := range []string{"pool", "tags", "lock", "hastate"} { // these are for the list of resources
				delete(item, name)
			}
			members = append(members, item)
		}
	}
	for _, sid := range p.Storages {
		for _, m := range c.s.members {
			if st, err := m.storage(sid); err == nil && (kind == "" || kind == "storage") {
				members = append(members, m.storageResource(c.ctx, st))
			}
		}
	}
	out := map[string]any{"members": members}
	if p.Comment != "" {
		out["comment"] = p.Comment
	}
	return out, nil
}

// createPool is POST /pools.
func createPool(c *call) (any, error) {
	id := c.p.Str("poolid")
	return nil, c.s.changePools(func(pools map[string]*pool) error {
		if pools[id] != nil {
			return fail("create pool failed: pool '%s' already exists", id)
		}
		if at := strings.LastIndexByte(id, '/'); at >= 0 && pools[id[:at]] == nil {
			return fail("create pool failed: parent '%s' of pool '%s' does not exist", id[:at], id)
		}
		pools[id] = &pool{Comment: c.p.Str("comment")}
		return nil
	})
}

// updatePool is PUT /pools and PUT /pools/{poolid}.
func updatePool(c *call) (any, error) {
	id, drop, move := c.p.Str("poolid"), c.p.Bool("delete"), c.p.Bool("allow-move")
	return nil, c.s.changePools(func(pools map[string]*pool) error {
		p := pools[id]
		if p == nil {
			return fail("update pools failed: pool '%s' does not exist", id)
		}
		if c.p.Has("comment") {
			p.Comment = c.p.Str("comment")
		}
		for _, text := range schema.SplitList(c.p.Str("vms")) {
			vmid, err := strconv.Atoi(text)
			if err != nil {
				return fail("update pools failed: %w", err)
			}
			if err := p.changeVM(c, pools, id, vmid, drop, move); err != nil {
				return err
			}
		}
		for _, sid := range schema.SplitList(c.p.Str("storage")) {
			has := slices.Contains(p.Storages, sid)
			switch {
			case drop && !has:
				return fail("update pools failed: Storage '%s' is not a pool member", sid)
			case drop:
				p.Storages = slices.DeleteFunc(p.Storages, func(s string) bool { return s == sid })
			case has:
				return fail("update pools failed: Storage '%s' is already a pool member", sid)
			default:
				p.Storages = append(p.Storages, sid)
			}
		}
		return nil
	})
}

func (p *pool) changeVM(c *call, pools map[string]*pool, id string, vmid int, drop, move bool) error {
	has := slices.Contains(p.VMs, vmid)
	switch {
	case drop && !has:
		return fail("update pools failed: VM %d is not a pool member", vmid)
	case drop:
		p.VMs = slices.DeleteFunc(p.VMs, func(v int) bool { return v == vmid })
		return nil
	case has:
		return fail("update pools failed: VM %d is already a pool member", vmid)
	}
	for other, q := range pools {
		if !slices.Contains(q.VMs, vmid) {
			continue
		}
		if !move {
			return fail("update pools failed: VM %d belongs already to pool '%s' and 'allow-move' is not set", vmid, other)
		}
		q.VMs = slices.DeleteFunc(q.VMs, func(v int) bool { return v == vmid })
	}
	p.VMs = append(p.VMs, vmid)
	return nil
}

// deletePool is DELETE /pools and DELETE /pools/{poolid}.
func deletePool(c *call) (any, error) {
	id := c.p.Str("poolid")
	return nil, c.s.changePools(func(pools map[string]*pool) error {
		p := pools[id]
		if p == nil {
			return fail("delete pool failed: pool '%s' does not exist", id)
		}
		for _, other := range slices.Sorted(maps.Keys(pools)) {
			if strings.HasPrefix(other, id+"/") {
				return fail("delete pool failed: pool '%s' is not empty (contains pool '%s')", id, other)
			}
		}
		for _, vmid := range p.VMs { // those that do not exist do not count
			if e := c.s.vms[vmid]; e != nil && e.conf != nil {
				return fail("delete pool failed: pool '%s' is not empty (contains VM %d)", id, vmid)
			}
		}
		if len(p.Storages) > 0 {
			return fail("delete pool failed: pool '%s' is not empty (contains storage '%s')", id, p.Storages[0])
		}
		delete(pools, id)
		return nil
	})
}
