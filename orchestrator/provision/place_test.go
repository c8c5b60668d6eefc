package provision

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"savepoint/orchestrator"
)

const mib = int64(1) << 20

// change returns a node with something else about it.
func change(n Node, f func(*Node)) Node { f(&n); return n }

// shares are nodes that have storage "ceph", the first with the template on it.
func shares(names ...string) []Node {
	var out []Node
	for i, name := range names {
		n := site(name)
		n.Shared, n.Templates = []string{"ceph"}, nil
		if i == 0 {
			n.Templates = []Template{{VM: orchestrator.VMRef{Node: name, ID: 8000}, Memory: gib / 2, Storages: []string{"ceph"}}}
		}
		out = append(out, n)
	}
	return out
}

// TestChoose: the node comes first and then the template on it (F85); nodes can
// be limited and are compared by free memory (F86); nothing is cloned from local
// storage across nodes (F84).
func TestChoose(t *testing.T) {
	free := func(name string, f int64) Node { return change(site(name), func(n *Node) { n.Free = f }) }
	two := []Node{site("pve2"), site("pve1")}
	for _, c := range []struct {
		name string
		q    Query
		want string // "node: template's node", or a part of the error
	}{
		{"the most free memory", Query{Nodes: []Node{free("pve1", 8*gib), free("pve2", 9*gib)}}, "pve2: pve2"},
		{"the first by name among equals", Query{Nodes: two}, "pve1: pve1"},
		{"a difference that holds no guest is none", Query{Nodes: []Node{free("pve1", 8*gib+3), free("pve2", 8*gib+8)}}, "pve1: pve1"},
		{"the fewest sandboxes among equals", Query{Nodes: two, Load: map[string]Load{"pve1": {Sandboxes: 1}}}, "pve2: pve2"},
		{"those being made count as memory", Query{
			Nodes: []Node{free("pve1", 9*gib), free("pve2", 8*gib)}, Load: map[string]Load{"pve1": {Sandboxes: 3, Starting: 3}},
		}, "pve2: pve2"},
		{"memory that is seen comes first", Query{Nodes: []Node{change(site("pve1"), func(n *Node) { n.Memory, n.Free = 0, 0 }), site("pve2")}}, "pve2: pve2"},
		{"no memory is seen: the fewest", Query{
			Nodes: []Node{{Name: "pve1", Online: true, Templates: site("pve1").Templates}, {Name: "pve2", Online: true, Templates: site("pve2").Templates}},
			Load:  map[string]Load{"pve1": {Sandboxes: 2}, "pve2": {Sandboxes: 1}},
		}, "pve2: pve2"},
		{"where the tenant has a network", Query{Nodes: two, Wish: Wish{Tenant: "alpha", Zone: []string{"pve2"}}}, "pve2: pve2"},
		{"no network of the tenant", Query{Nodes: two, Wish: Wish{Tenant: "alpha", Zone: []string{"pve3"}}}, "has no network of tenant alpha"},
		{"the one asked for", Query{Nodes: two, Wish: Wish{Node: "pve2"}}, "pve2: pve2"},
		{"the template asked for", Query{Nodes: two, Wish: Wish{Template: two[0].Templates[0].VM}}, "pve2: pve2"},
		{"shared storage", Query{Nodes: shares("pve1", "pve2"), Load: map[string]Load{"pve1": {Sandboxes: 1}}}, "pve2: pve1"},
		{"shared storage: among equals where the template is", Query{Nodes: []Node{shares("pve2")[0], shares("x", "pve1")[1]}}, "pve2: pve2"},
		{"shared storage, template's node drained", Query{Nodes: shares("pve1", "pve2"), Limits: Limits{Drained: []string{"pve1"}}}, "pve2: pve1"},
		{"a full clone to local storage stays", Query{Nodes: shares("pve1", "pve2"), Storage: "local", Load: map[string]Load{"pve1": {Sandboxes: 9}}}, "pve1: pve1"},
		{"a replica before one elsewhere", Query{
			Nodes: []Node{shares("pve1")[0], change(site("pve2"), func(n *Node) { n.Shared = []string{"ceph"} })}, Wish: Wish{Node: "pve2"},
		}, "pve2: pve2"},
		{"one below the most", Query{Nodes: []Node{site("pve1")}, Load: map[string]Load{"pve1": {Sandboxes: 1}}, Limits: Limits{PerNode: 2}}, "pve1: pve1"},
		{"just the reserve", Query{Nodes: []Node{free("pve1", gib+512*mib)}, Limits: Limits{Reserve: gib}}, "pve1: pve1"},
		{"too little memory, and no reserve", Query{Nodes: []Node{free("pve1", 0)}}, "pve1: pve1"},

		{"drained", Query{Nodes: two, Limits: Limits{Drained: []string{"pve1", "pve2"}}}, "node pve1 is drained (cluster.drained_nodes); node pve2 is drained"},
		{"offline", Query{Nodes: []Node{{Name: "pve1"}}}, "node pve1 is offline"},
		{"maintenance", Query{Nodes: []Node{change(site("pve1"), func(n *Node) { n.Maintenance = true })}}, "node pve1 is in maintenance"},
		{"silent", Query{Nodes: []Node{{Name: "pve1", Online: true, Unseen: "596"}}}, "node pve1 does not answer (596)"},
		{"not among the configured", Query{Nodes: two, Limits: Limits{Nodes: []string{"pve3"}}}, "node pve1 is not among cluster.nodes; node pve2 is not"},
		{"full", Query{Nodes: []Node{site("pve1")}, Load: map[string]Load{"pve1": {Sandboxes: 2}}, Limits: Limits{PerNode: 2}}, "node pve1 has 2 sandboxes, and cluster.max_per_node is 2"},
		{"reserve", Query{Nodes: []Node{free("pve1", gib+511*mib)}, Limits: Limits{Reserve: gib}}, "node pve1 would have 1023 MiB of memory left, and cluster.memory_reserve is 1024 MiB"},
		{"reserve, with those being made", Query{
			Nodes: []Node{free("pve1", 2*gib)}, Load: map[string]Load{"pve1": {Starting: 2}}, Limits: Limits{Reserve: gib},
		}, "node pve1 would have 512 MiB of memory left"},
		{"reserve of memory that is not seen", Query{
			Nodes: []Node{change(site("pve1"), func(n *Node) { n.Memory, n.Free = 0, 0 })}, Limits: Limits{Reserve: 1},
		}, "give the token Sys.Audit on /nodes/pve1"},
		{"asked for one that is full", Query{
			Nodes: two, Wish: Wish{Node: "pve2"}, Limits: Limits{PerNode: 1}, Load: map[string]Load{"pve2": {Sandboxes: 1}},
		}, "node pve1 is not the one asked for; node pve2 has 1 sandboxes"},
		{"local template elsewhere", Query{
			Name: "guest", Nodes: []Node{site("pve1"), change(site("pve2"), func(n *Node) { n.Templates = nil })}, Wish: Wish{Node: "pve2"},
		}, "node pve2 has no template guest, and that of pve1 needs storage local, which the two do not share"},
		{"the template may be on one that is offline", Query{Name: "guest", Nodes: []Node{{Name: "pve1"}, {Name: "pve2", Online: true}}}, "node pve1 is offline; node pve2 has no template guest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			place, err := Choose(c.q)
			if got := place.Node + ": " + place.Template.Node; err == nil && got != c.want {
				t.Errorf("%s; want %s", got, c.want)
			}
			if err != nil && (!strings.Contains(err.Error(), c.want) || !errors.Is(err, orchestrator.ErrUnavailable)) {
				t.Errorf("%v; want %q, unavailable", err, c.want)
			}
		})
	}
	var never *orchestrator.UnsupportedError
	if _, err := Choose(Query{Name: "guest", Nodes: []Node{{Name: "pve1", Online: true}}}); !errors.As(err, &never) || !strings.Contains(never.Mend, "template build") {
		t.Errorf("no template at all: %v", err)
	}
	if _, err := Choose(Query{Nodes: two, Wish: Wish{Node: "pve9"}}); !errors.Is(err, orchestrator.ErrNotFound) || !strings.Contains(err.Error(), "it has pve1, pve2") {
		t.Errorf("a node that there is not: %v", err)
	}
}

// anyQuery is a cluster by chance, small enough that limits are met often.
func anyQuery(r *rand.Rand) Query {
	q := Query{Load: map[string]Load{}, Limits: Limits{PerNode: r.IntN(4), Reserve: int64(r.IntN(3)) * gib}}
	for i := range 1 + r.IntN(5) {
		name := fmt.Sprintf("pve%d", i+1)
		n := Node{Name: name, Online: r.IntN(5) > 0, Maintenance: r.IntN(8) == 0}
		if n.Online && r.IntN(8) > 0 {
			n.Memory, n.Free = 8*gib, int64(r.IntN(16))*gib/2
		}
		if n.Online && r.IntN(8) == 0 {
			n.Unseen = "596"
		}
		if r.IntN(2) == 0 {
			n.Shared = []string{"ceph"}
		}
		if n.Online && n.Unseen == "" && r.IntN(3) > 0 {
			n.Templates = []Template{{VM: orchestrator.VMRef{Node: name, ID: 8000}, Memory: gib / 2, Storages: []string{[]string{"ceph", "local"}[r.IntN(2)]}}}
		}
		started := r.IntN(3)
		q.Nodes, q.Load[name] = append(q.Nodes, n), Load{Sandboxes: started + r.IntN(3), Starting: started}
		if r.IntN(6) == 0 {
			q.Limits.Drained = append(q.Limits.Drained, name)
		}
		if r.IntN(3) > 0 {
			q.Limits.Nodes = append(q.Limits.Nodes, name)
		}
	}
	if r.IntN(4) == 0 {
		q.Wish.Node = q.Nodes[r.IntN(len(q.Nodes))].Name
	}
	return q
}

// TestChooseProperties: whatever the cluster is like, a choice keeps every
// limit, does not depend on the order of the nodes, and a refusal names every
// node with a reason.
func TestChooseProperties(t *testing.T) {
	chosen, refused := 0, 0
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		q := anyQuery(r)
		place, err := Choose(q)
		other := q
		other.Nodes = slices.Clone(q.Nodes)
		r.Shuffle(len(other.Nodes), func(i, j int) { other.Nodes[i], other.Nodes[j] = other.Nodes[j], other.Nodes[i] })
		again, err2 := Choose(other)
		if place != again || fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Fatalf("seed %d: %v, %v; in another order %v, %v", seed, place, err, again, err2)
		}
		if err != nil {
			refused++
			var p *PlaceError
			if errors.As(err, &p) && (len(p.Refusals) != len(q.Nodes) || slices.ContainsFunc(p.Refusals, func(r Refusal) bool { return r.Why == "" })) {
				t.Fatalf("seed %d: refusals %+v of %d nodes", seed, p.Refusals, len(q.Nodes))
			}
			continue
		}
		chosen++
		at := func(name string) Node {
			return q.Nodes[slices.IndexFunc(q.Nodes, func(n Node) bool { return n.Name == name })]
		}
		n, from, load, l := at(place.Node), at(place.Template.Node), q.Load[place.Node], q.Limits
		switch {
		case !n.Online, n.Maintenance, n.Unseen != "", slices.Contains(l.Drained, n.Name), len(l.Nodes) > 0 && !slices.Contains(l.Nodes, n.Name):
			t.Fatalf("seed %d: chose %+v with %+v", seed, n, l)
		case q.Wish.Node != "" && q.Wish.Node != n.Name:
			t.Fatalf("seed %d: chose %s, asked for %s", seed, n.Name, q.Wish.Node)
		case l.PerNode > 0 && load.Sandboxes+1 > l.PerNode:
			t.Fatalf("seed %d: %d sandboxes with the new one, %+v", seed, load.Sandboxes+1, l)
		case l.Reserve > 0 && (n.Memory == 0 || n.Free-int64(load.Starting+1)*gib/2 < l.Reserve):
			t.Fatalf("seed %d: %+v with %+v, %+v", seed, n, load, l)
		case from.Name != n.Name && !(slices.Contains(n.Shared, "ceph") && from.Templates[0].Storages[0] == "ceph"):
			t.Fatalf("seed %d: from %+v to %+v", seed, from, n)
		}
	}
	if chosen < 2000 || refused < 2000 {
		t.Errorf("%d chosen, %d refused: the clusters are too much alike to prove anything", chosen, refused)
	}
}

// TestSpread: creations at the same time count each other, and keep the limit
// of a node together.
func TestSpread(t *testing.T) {
	w := newWorld()
	w.nodes = []Node{site("pve1"), site("pve2"), site("pve3")}
	w.limits = Limits{PerNode: 3}
	p := w.provisioner()
	var wg sync.WaitGroup
	errs := make([]error, 12)
	for i := range errs {
		wg.Go(func() { _, errs[i] = p.Create(t.Context(), fmt.Sprintf("box-%d", i), Wish{}) })
	}
	wg.Wait()
	full := 0
	for _, err := range errs {
		var place *PlaceError
		switch {
		case errors.As(err, &place):
			full++
		case err != nil:
			t.Error(err)
		}
	}
	per := map[string]int{}
	for _, sb := range w.living() {
		per[sb.VM.Node]++
		if sb.Template.Node != sb.VM.Node {
			t.Errorf("%s is on %s and was cloned from %s", sb.Name, sb.VM, sb.Template)
		}
	}
	if full != 3 || per["pve1"] != 3 || per["pve2"] != 3 || per["pve3"] != 3 {
		t.Errorf("placed %v, %d refused; want 3 each and 3 refused", per, full)
	}
}

// TestSameNameAtOnce: of creations of one name at the same time one is made.
func TestSameNameAtOnce(t *testing.T) {
	w := newWorld()
	p := w.provisioner()
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { _, errs[i] = p.Create(t.Context(), "box", Wish{}) })
	}
	wg.Wait()
	taken := 0
	for _, err := range errs {
		if errors.Is(err, orchestrator.ErrExists) {
			taken++
		}
	}
	if taken != 3 || len(w.living()) != 1 {
		t.Errorf("%v; sandboxes %v", errs, w.living())
	}
}

// A refusal leaves nothing, and a cluster that does not answer is said so.
func TestNotPlaced(t *testing.T) {
	w := newWorld()
	w.limits = Limits{Drained: []string{"pve1"}}
	_, err := w.provisioner().Create(t.Context(), "box", Wish{})
	if !errors.Is(err, orchestrator.ErrUnavailable) || !strings.Contains(err.Error(), "node pve1 is drained") || len(w.ops) != 0 {
		t.Errorf("%v, operations %v", err, w.ops)
	}
	empty(t, w)
	w.limits, w.mute = Limits{}, true
	if _, err = w.provisioner().Create(t.Context(), "box", Wish{}); !errors.Is(err, orchestrator.ErrUnavailable) || len(w.ops) != 0 {
		t.Errorf("%v, operations %v", err, w.ops)
	}
}

func TestLoads(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	box := func(node string, s orchestrator.SandboxState, age time.Duration) orchestrator.Sandbox {
		return orchestrator.Sandbox{VM: orchestrator.VMRef{Node: node}, State: s, Created: now.Add(-age)}
	}
	got := Loads([]orchestrator.Sandbox{
		box("pve1", orchestrator.SandboxReady, time.Hour), box("pve1", orchestrator.SandboxReady, time.Second),
		box("pve1", orchestrator.SandboxCreating, time.Hour), box("pve1", orchestrator.SandboxDestroyed, 0),
		box("pve2", orchestrator.SandboxQuarantined, time.Hour), box("pve2", orchestrator.SandboxDestroying, time.Hour),
	}, now)
	if len(got) != 2 || got["pve1"] != (Load{3, 2}) || got["pve2"] != (Load{2, 0}) {
		t.Errorf("%+v", got)
	}
}

// TestNodeDown: sandboxes of a node that is out of reach are neither removed nor
// withheld; what was begun with them goes on when it is back.
func TestNodeDown(t *testing.T) {
	down := func(w *world) { w.down = []string{"pve1"} }
	away := func(t *testing.T, err error) {
		t.Helper()
		var node *orchestrator.NodeError
		if !errors.As(err, &node) || node.Node != "pve1" || !errors.Is(err, orchestrator.ErrUnavailable) || !strings.Contains(err.Error(), "pve1") {
			t.Errorf("%v; want that pve1 is out of reach", err)
		}
	}
	same := func(t *testing.T, w *world, want orchestrator.Sandbox) {
		t.Helper()
		if got := w.sandboxes[want.ID]; got != want || w.vms[want.VM.ID] == nil || len(w.addresses) != 1 {
			t.Errorf("sandbox %+v, vms %v, addresses %v; want all as it was", got, w.vms, w.addresses)
		}
	}
	t.Run("used", func(t *testing.T) {
		w, sb := made(t)
		down(w)
		away(t, w.provisioner().Wake(t.Context(), sb))
		same(t, w, sb)
		if _, err := w.provisioner().Recover(t.Context()); err != nil {
			t.Error(err)
		}
		same(t, w, sb)
	})
	t.Run("reset", func(t *testing.T) {
		w, sb := made(t)
		down(w)
		away(t, w.provisioner().Reset(t.Context(), sb))
		same(t, w, sb)
		w.down = nil
		if err := w.provisioner().Reset(t.Context(), sb); err != nil {
			t.Error(err)
		}
	})
	t.Run("released", func(t *testing.T) {
		w, sb := made(t)
		sb.State, sb.Reason = orchestrator.SandboxQuarantined, "because"
		w.sandboxes[sb.ID] = sb
		down(w)
		away(t, w.provisioner().Release(t.Context(), sb))
		same(t, w, sb)
	})
	t.Run("destroyed", func(t *testing.T) {
		w, sb := made(t)
		down(w)
		away(t, w.provisioner().Destroy(t.Context(), sb))
		sb.State = orchestrator.SandboxDestroying
		same(t, w, sb)
		_, err := w.provisioner().Recover(t.Context())
		away(t, err)
		same(t, w, sb)
		w.down = nil
		if removed, err := w.provisioner().Recover(t.Context()); err != nil || len(removed) != 1 {
			t.Errorf("when it is back: %v, %v", removed, err)
		}
		empty(t, w)
	})
	// It goes down while a sandbox is made: at every step that asks the node.
	for _, op := range []string{"clone", "start", "snapshot"} {
		t.Run("made/"+op, func(t *testing.T) {
			w := newWorld()
			w.before = func(_ int, o string) error {
				if o == op {
					down(w)
				}
				return nil
			}
			_, err := w.provisioner().Create(t.Context(), "box", Wish{})
			away(t, err)
			if l := w.living(); len(l) != 1 || l[0].State != orchestrator.SandboxDestroying {
				t.Fatalf("left %+v; want one to be removed", l)
			}
			w.before, w.down = nil, nil
			if _, err := w.provisioner().Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			empty(t, w)
		})
	}
}
