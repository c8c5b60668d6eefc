package pve

import (
	"regexp"
	"strings"

	"savepoint/testbed/pve/schema"
)

// route is one call of the API.
type route struct {
	method, path string
	perm         permission
	params       []schema.Param // besides those of the path
	handler      func(*call) (any, error)

	proxy   bool   // belongs to the node in the path
	open    bool   // accepts parameters that are not described
	noToken bool   // refuses API tokens
	blind   bool   // accepts any parameter, whatever the schema says
	upload  bool   // takes multipart bodies
	since   string // the first major version that has it
	until   string // the last one

	set *schema.Set // of the server's version
}

// pathParams describes what can stand in paths.
var pathParams = map[string]schema.Param{
	"node":       schema.Str("node").Fmt("pve-node"),
	"vmid":       schema.Int("vmid").Fmt("pve-vmid").Range(100, 999999999),
	"snapname":   schema.Str("snapname").Fmt("pve-configid").Len(40),
	"upid":       schema.Str("upid"),
	"storage":    schema.Str("storage").Fmt("pve-storage-id"),
	"volume":     schema.Str("volume"),
	"userid":     schema.Str("userid").Fmt("pve-userid").Len(64),
	"tokenid":    schema.Str("tokenid").Match(`[A-Za-z][A-Za-z0-9\.\-_]+`),
	"groupid":    schema.Str("groupid").Fmt("pve-groupid"),
	"roleid":     schema.Str("roleid").Fmt("pve-roleid"),
	"poolid":     schema.Str("poolid").Fmt("pve-poolid"),
	"zone":       schema.Str("zone").Fmt("pve-sdn-zone-id"),
	"vnet":       schema.Str("vnet").Fmt("pve-sdn-vnet-id"),
	"subnet":     schema.Str("subnet").Fmt("pve-sdn-subnet-id"),
	"realm":      schema.Str("realm").Fmt("pve-realm").Len(32),
	"pos":        schema.Int("pos").Opt().Min(0),
	"controller": schema.Str("controller").Fmt("pve-sdn-controller-id"),
	"iface":      schema.Str("iface").Fmt("pve-iface").AtLeast(2).Len(20),
}

// all returns the descriptions of all parameters, the path's included.
func (r *route) all() []schema.Param {
	var ps []schema.Param
	for part := range strings.SplitSeq(r.path, "/") {
		if strings.HasPrefix(part, "{") {
			name := part[1 : len(part)-1]
			declared := false
			for _, p := range r.params {
				declared = declared || p.Name == name
			}
			if !declared {
				ps = append(ps, pathParams[name])
			}
		}
	}
	return append(ps, r.params...)
}

// reQuiet are the calls that change nothing that the cluster keeps.
var reQuiet = regexp.MustCompile(`^/access/ticket$|/agent(/|$)|/status/(stop|shutdown|reset|suspend|resume)$|/tasks/`)

// in reports whether a major version has the call.
func (r *route) in(major string) bool {
	return r.since <= major && (r.until == "" || r.until >= major)
}

// writes reports whether the call needs a cluster that can be written to.
func (r *route) writes() bool { return r.method != "GET" && !reQuiet.MatchString(r.path) }

// routeTree finds routes by the parts of a path.
type routeTree struct {
	next    map[string]*routeTree
	param   *routeTree
	name    string // of the parameter that leads here
	methods map[string]*route
}

// newRoutes makes the tree of the calls that a major version has.
func newRoutes(major string, table []route) *routeTree {
	root := &routeTree{}
	for i := range table {
		r := &table[i]
		if !r.in(major) {
			continue
		}
		r.set = schema.NewSet(major, r.all()...)
		if r.open || r.blind {
			r.set.AllowMore()
		}
		at := root
		for _, part := range strings.FieldsFunc(r.path, func(c rune) bool { return c == '/' }) {
			at = at.child(part)
		}
		if at.methods == nil {
			at.methods = map[string]*route{}
		}
		at.methods[r.method] = r
	}
	return root
}

func (t *routeTree) child(part string) *routeTree {
	if strings.HasPrefix(part, "{") {
		if t.param == nil {
			t.param = &routeTree{name: part[1 : len(part)-1]}
		}
		return t.param
	}
	if t.next == nil {
		t.next = map[string]*routeTree{}
	}
	if t.next[part] == nil {
		t.next[part] = &routeTree{}
	}
	return t.next[part]
}

// find returns the route of a method and path, and the path's parameters. A
// volume's name takes the whole rest of the path.
func (t *routeTree) find(method string, parts []string) (*route, map[string]string, bool) {
	vars := map[string]string{}
	for i, part := range parts {
		switch {
		case t.next[part] != nil:
			t = t.next[part]
		case t.param != nil:
			t = t.param
			vars[t.name] = part
			if t.name == "volume" {
				vars[t.name] = strings.Join(parts[i:], "/")
				r, ok := t.methods[method]
				return r, vars, ok
			}
		default:
			return nil, nil, false
		}
	}
	r, ok := t.methods[method]
	return r, vars, ok
}
