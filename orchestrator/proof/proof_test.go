package proof

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"savepoint/network"
	"savepoint/orchestrator"
)

// mustVerify verifies everything in a bubble and returns the result.
func mustVerify(t *testing.T, w *fakeWorld, change func(*Config)) Result {
	t.Helper()
	var res Result
	synctest.Test(t, func(t *testing.T) {
		var err error
		if res, err = w.proof(change).Verify(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return res
}

// mustFail proves one sandbox and returns why it is not handed out.
func mustFail(t *testing.T, w *fakeWorld, name string) error {
	t.Helper()
	var err error
	synctest.Test(t, func(t *testing.T) { err = w.proof(nil).Prove(t.Context(), w.named(name)) })
	if err == nil {
		t.Errorf("%s is handed out", name)
	}
	return err
}

func failed(r Result) []string {
	var out []string
	for _, c := range r.Failed() {
		out = append(out, Line(c))
	}
	return out
}

// F101: two tenants on two nodes that are apart are sealed, and that is stored
// with each sandbox.
func TestVerifySealed(t *testing.T) {
	w := newWorld(t)
	res := mustVerify(t, w, nil)
	if !res.Sealed || len(res.Notes) > 0 {
		t.Fatalf("failed %q, notes %q", failed(res), res.Notes)
	}
	if w.listened != 1 || w.rounds != 2 {
		t.Errorf("%d rounds, %d of them listening; want one for what must be reachable and one for everything", w.rounds, w.listened)
	}
	kinds := map[network.Protocol]bool{}
	for _, c := range res.Checks {
		kinds[c.Protocol] = true
	}
	for _, k := range []network.Protocol{network.TCP, network.UDP, network.ICMP, network.LinkLocal, network.ARPSpoof, network.MACSpoof, network.MTU, network.Route} {
		if !kinds[k] {
			t.Errorf("nothing is measured over %s", k)
		}
	}
	for _, sb := range w.sandboxes {
		stored := w.stored[sb.ID]
		if !stored.Sealed || len(stored.Checks) == 0 || len(stored.Checks) >= len(res.Checks) {
			t.Errorf("%s: stored %d checks, sealed %v", sb.Name, len(stored.Checks), stored.Sealed)
		}
	}
}

// Some at a time give the same table.
func TestVerifyInBatches(t *testing.T) {
	whole := mustVerify(t, newWorld(t), nil)
	w := newWorld(t)
	parts := mustVerify(t, w, func(c *Config) { c.Batch = 2 })
	if !parts.Sealed || !slices.Equal(parts.Checks, whole.Checks) {
		t.Errorf("%d checks in parts, %d as a whole; failed %q", len(parts.Checks), len(whole.Checks), failed(parts))
	}
	if w.listened != 3 {
		t.Errorf("%d rounds for five guests, two at a time", w.listened)
	}
}

// F108: each way out of the zone shows in its line, and the sandbox is not
// handed out.
func TestLeaksShow(t *testing.T) {
	answers := func(kind orchestrator.ProbeKind, a string, answer orchestrator.ProbeAnswer) func(*fakeWorld) {
		return func(w *fakeWorld) {
			w.answer = func(from, _ orchestrator.Sandbox, p orchestrator.Probe) orchestrator.ProbeAnswer {
				if from.Name == "b1" && p.Kind == kind && (a == "" || p.Address == addr(a)) {
					return answer
				}
				return ""
			}
		}
	}
	extra := func(zone, prefix string) func(*fakeWorld) {
		return func(w *fakeWorld) {
			w.routes = func(node, z string, table []orchestrator.ZoneRoute) ([]orchestrator.ZoneRoute, error) {
				if node == "pve2" && z == zone {
					table = append(table, orchestrator.ZoneRoute{Prefix: netip.MustParsePrefix(prefix), NextHops: []string{"10.0.0.1"}})
				}
				return table, nil
			}
		}
	}
	const yes, no = "is reachable, expected unreachable", "is unreachable, expected reachable"
	for _, tt := range []struct {
		name string
		leak func(*fakeWorld)
		want string
	}{
		{"the outside by TCP", answers(orchestrator.ProbeTCP, "198.51.100.9", orchestrator.ProbeAccepted), "guest b1 to outside web 198.51.100.9:22 over tcp " + yes},
		{"a refusal is an answer", answers(orchestrator.ProbeTCP, "192.168.50.9", orchestrator.ProbeAnswered), "guest b1 to api api 192.168.50.9:22 over tcp " + yes},
		{"this machine by UDP", answers(orchestrator.ProbeUDP, "192.168.60.1", orchestrator.ProbeAnswered), "guest b1 to orchestrator self 192.168.60.1:53 over udp " + yes},
		{"metadata by ICMP", answers(orchestrator.ProbeEcho, "169.254.169.254", orchestrator.ProbeAnswered), "guest b1 to metadata cloud 169.254.169.254 over icmp " + yes},
		{"a service of the router", answers(orchestrator.ProbeTCP, "10.20.0.1", orchestrator.ProbeAccepted), "guest b1 to gateway 10.20.0.1:22 over tcp " + yes},
		{"a service of the node on the link", answers(orchestrator.ProbeLink, "", orchestrator.ProbeAccepted), "guest b1 to node pve1 port 22 over ipv6-link-local " + yes},
		{"another tenant", answers(orchestrator.ProbeTCP, "10.21.0.12", orchestrator.ProbeAnswered), "guest b1 to guest r2 10.21.0.12 over tcp " + yes},
		{"another tenant on the link", answers(orchestrator.ProbeEcho, eui(macOf("r1")).String(), orchestrator.ProbeAnswered), "guest b1 to guest r1 over ipv6-link-local " + yes},
		{"what is heard and not answered", func(w *fakeWorld) {
			w.hears = func(at, from orchestrator.Sandbox, p orchestrator.Probe) bool {
				return at.Name == "r1" && from.Name == "b1" && p.Kind == orchestrator.ProbeUDP && p.Address == at.Address
			}
		}, "guest b1 to guest r1 10.21.0.11 over udp " + yes},
		{"a forged frame that another guest of the tenant hears", func(w *fakeWorld) {
			w.hears = func(at, from orchestrator.Sandbox, p orchestrator.Probe) bool {
				return at.Name == "r2" && from.Name == "b1" && p.Kind == orchestrator.ProbeForge && p.Address == addr("10.21.0.11")
			}
		}, "guest b1 to guest r1 10.21.0.11 over mac-spoof " + yes},
		{"a claim arrives", func(w *fakeWorld) {
			w.sandboxes = slices.DeleteFunc(w.sandboxes, func(sb orchestrator.Sandbox) bool { return sb.Name == "r2" })
			w.hears = func(at, from orchestrator.Sandbox, p orchestrator.Probe) bool {
				return at.Name == "r1" && from.Name == "b1" && p.Kind == orchestrator.ProbeClaim && p.Address == addr("10.21.0.0")
			}
		}, "guest b1 to guest r1 as 10.21.0.0 over arp-spoof " + yes},
		{"a route of another zone", extra("zred", "10.20.0.10/31"), "node pve2 zone zred to guest b1 10.20.0.11 over evpn-route " + yes},
		{"frames are cut", func(w *fakeWorld) {
			w.answer = func(from, _ orchestrator.Sandbox, p orchestrator.Probe) orchestrator.ProbeAnswer {
				if from.Name == "b1" && p.Size > 0 {
					return orchestrator.ProbeSilent
				}
				return ""
			}
		}, "guest b1 to guest b2 10.20.0.12 over mtu " + no},
		{"no route to a guest", func(w *fakeWorld) {
			w.routes = func(node, _ string, table []orchestrator.ZoneRoute) ([]orchestrator.ZoneRoute, error) {
				return slices.DeleteFunc(table, func(r orchestrator.ZoneRoute) bool { return node == "pve2" && r.Prefix.Addr() == addr("10.20.0.11") }), nil
			}
		}, "node pve2 zone zblue to guest b1 10.20.0.11 over evpn-route " + no},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.leak(w)
			if res := mustVerify(t, w, nil); res.Sealed || !slices.Equal(failed(res), []string{tt.want}) {
				t.Errorf("sealed %v, failed %q, want %q", res.Sealed, failed(res), tt.want)
			}
			err := mustFail(t, w, "b1")
			var unsealed *orchestrator.UnsealedError
			if !errors.As(err, &unsealed) || unsealed.Sandbox != "b1" || !slices.Contains(unsealed.Failed, tt.want) {
				t.Errorf("handed out with %v", err)
			}
			if got := w.stored["id-b1"]; got.Sealed || len(got.Failed()) == 0 {
				t.Errorf("stored as sealed %v with %q", got.Sealed, failed(got))
			}
		})
	}
}

// What a router answers anyway, and what a switch floods within a tenant, is no
// leak; nor is a default route, which the guests behind it try out.
func TestWhatIsNoLeak(t *testing.T) {
	w := newWorld(t)
	w.hears = func(at, from orchestrator.Sandbox, p orchestrator.Probe) bool { return at.Tenant == from.Tenant }
	w.routes = func(_, _ string, table []orchestrator.ZoneRoute) ([]orchestrator.ZoneRoute, error) {
		return append(table, orchestrator.ZoneRoute{Prefix: netip.MustParsePrefix("0.0.0.0/0"), NextHops: []string{"lo"}},
			orchestrator.ZoneRoute{Prefix: netip.MustParsePrefix("10.0.0.0/8"), Protocol: "kernel"}), nil // leads nowhere
	}
	if res := mustVerify(t, w, nil); !res.Sealed {
		t.Errorf("failed %q", failed(res))
	}
}

// A fresh guest's routes take a moment: nothing is judged before, and not
// forever.
func TestConvergence(t *testing.T) {
	slow := func(w *fakeWorld, rounds int) {
		w.answer = func(from, to orchestrator.Sandbox, p orchestrator.Probe) orchestrator.ProbeAnswer {
			if from.Name == "b1" && to.Name == "b2" && w.rounds <= rounds {
				return orchestrator.ProbeSilent
			}
			return ""
		}
	}
	w := newWorld(t)
	slow(w, 5)
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if err := w.proof(nil).Prove(t.Context(), w.named("b1")); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != 5*500*time.Millisecond {
			t.Errorf("it took %v for five pauses", took)
		}
	})
	if w.listened != 1 || w.rounds != 7 {
		t.Errorf("%d rounds, %d with everything", w.rounds, w.listened)
	}

	w = newWorld(t)
	slow(w, 1<<30)
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		err := w.proof(func(c *Config) { c.Converge = 20 * time.Second }).Prove(t.Context(), w.named("b1"))
		var unsealed *orchestrator.UnsealedError
		if !errors.As(err, &unsealed) || len(unsealed.Failed) != 4 {
			t.Errorf("got %v", err)
		}
		if took := time.Since(begin); took > 21*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// F112: a network that dies before the last round does not pass for sealed.
func TestDeadNetworkIsNotSealed(t *testing.T) {
	w := newWorld(t)
	w.answer = func(_, _ orchestrator.Sandbox, p orchestrator.Probe) orchestrator.ProbeAnswer {
		if w.listened > 0 {
			return orchestrator.ProbeSilent
		}
		return ""
	}
	if err := mustFail(t, w, "b1"); !errors.Is(err, orchestrator.ErrDenied) {
		t.Errorf("got %v", err)
	}
}

// What was reached once is reachable, whatever a later round shows.
func TestReachedOnce(t *testing.T) {
	w := newWorld(t)
	w.answer = func(from, to orchestrator.Sandbox, p orchestrator.Probe) orchestrator.ProbeAnswer {
		switch {
		case w.listened == 1 && p.Address == addr("198.51.100.9") && p.Kind == orchestrator.ProbeEcho && from.Name == "b2":
			return orchestrator.ProbeAnswered
		case w.listened == 1 && from.Name == "b1" && to.Name == "b2": // makes another round necessary
			return orchestrator.ProbeSilent
		}
		return ""
	}
	res := mustVerify(t, w, nil)
	if got := failed(res); !slices.Contains(got, "guest b2 to outside web 198.51.100.9 over icmp is reachable, expected unreachable") {
		t.Errorf("failed %q", got)
	}
}

// F112: what could not be tried is not sealed, and that is another error than a
// leak.
func TestNotMeasured(t *testing.T) {
	w := newWorld(t)
	w.answer = func(from, _ orchestrator.Sandbox, p orchestrator.Probe) orchestrator.ProbeAnswer {
		if from.Name == "b1" && p.Kind == orchestrator.ProbeClaim {
			return orchestrator.ProbeFailed
		}
		return ""
	}
	err := mustFail(t, w, "b1")
	if errors.Is(err, orchestrator.ErrDenied) || !errors.Is(err, orchestrator.ErrUnavailable) || !strings.Contains(err.Error(), "as the test says") {
		t.Errorf("got %v", err)
	}
	w = newWorld(t)
	w.routes = func(string, string, []orchestrator.ZoneRoute) ([]orchestrator.ZoneRoute, error) {
		return nil, errors.New("no way to ask")
	}
	if err := mustFail(t, w, "b1"); errors.Is(err, orchestrator.ErrDenied) || !strings.Contains(err.Error(), "no way to ask") {
		t.Errorf("got %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		err := w.proof(func(c *Config) { c.Router = nil }).Prove(t.Context(), w.named("b1"))
		if err == nil || errors.Is(err, orchestrator.ErrDenied) {
			t.Errorf("without anything that reads routes: %v", err)
		}
	})
}

// A peer that does not answer is replaced, and in the end left out; one's own
// silence is not.
func TestSilentPeers(t *testing.T) {
	gone := fmt.Errorf("no sshd: %w", orchestrator.ErrUnavailable)
	w := newWorld(t)
	w.add("r0", "red", "work", "pve1", "10.21.0.10") // would stand for its network
	w.dead["r0"], w.dead["r2"] = gone, gone
	synctest.Test(t, func(t *testing.T) {
		res, err := w.proof(nil).Measure(t.Context(), w.named("b1"))
		if err != nil || !res.Sealed {
			t.Fatalf("%v, failed %q", err, failed(res))
		}
		tried := map[string]bool{}
		for _, c := range res.Checks {
			tried[strings.Join(strings.Fields(c.To)[:2], " ")] = true
		}
		if !tried["guest r1"] || tried["guest r0"] || tried["guest r2"] {
			t.Errorf("tried %v", tried)
		}
		if len(res.Notes) != 3 || !strings.Contains(strings.Join(res.Notes, " "), "sandbox r0 did not take part") {
			t.Errorf("notes %q", res.Notes)
		}
	})
	for i := range 5 { // a network of silent guests does not hold anybody up
		name := fmt.Sprintf("s%d", i)
		w.add(name, "red", "aside", "pve2", fmt.Sprintf("10.21.1.%d", 20+i))
		w.dead[name] = gone
	}
	synctest.Test(t, func(t *testing.T) {
		if err := w.proof(nil).Prove(t.Context(), w.named("b1")); err != nil {
			t.Error(err)
		}
	})
	if n := w.asked["s0"] + w.asked["s1"] + w.asked["s2"] + w.asked["s3"] + w.asked["s4"]; n != maxSilent {
		t.Errorf("%d of the silent ones were asked", n)
	}
	w.dead["b1"] = gone
	if err := mustFail(t, w, "b1"); errors.Is(err, orchestrator.ErrDenied) || !errors.Is(err, orchestrator.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// A guest that does not begin is given up, and the others wait no longer.
func TestHangingPeer(t *testing.T) {
	w := newWorld(t)
	prober := hanging{w, "r1"}
	synctest.Test(t, func(t *testing.T) {
		res, err := w.proof(func(c *Config) { c.Prober = prober }).Measure(t.Context(), w.named("b1"))
		if err != nil || !res.Sealed || len(res.Notes) != 2 {
			t.Errorf("%v, failed %q, notes %q", err, failed(res), res.Notes)
		}
	})
}

type hanging struct {
	*fakeWorld
	who string
}

func (h hanging) Probe(ctx context.Context, sb orchestrator.Sandbox, o orchestrator.ProbeOrder, meet func(context.Context) error) (orchestrator.ProbeReport, error) {
	if sb.Name == h.who {
		<-ctx.Done()
		return orchestrator.ProbeReport{}, context.Cause(ctx)
	}
	return h.fakeWorld.Probe(ctx, sb, o, meet)
}

// Where all are verified a silent guest is no sealed one, and the others are
// measured.
func TestVerifySilentGuest(t *testing.T) {
	w := newWorld(t)
	w.dead["r1"] = fmt.Errorf("no sshd: %w", orchestrator.ErrUnavailable)
	res := mustVerify(t, w, nil)
	want := "orchestrator to guest r1 10.21.0.11 over tcp is unreachable, expected reachable"
	if res.Sealed || !slices.Contains(failed(res), want) {
		t.Errorf("sealed %v, failed %q", res.Sealed, failed(res))
	}
	for _, c := range res.Checks {
		others := !strings.Contains(c.From+c.To, "guest r1")
		if others != c.OK && c.Protocol != network.Route {
			t.Errorf("%s: ok %v", Line(c), c.OK)
		}
	}
	if w.stored["id-b1"].Sealed || w.stored["id-r1"].Sealed || len(w.stored["id-r1"].Checks) == 0 {
		t.Error("those who had to do with it are stored as sealed")
	}
}

// Nodes that are out of reach are noted, and nobody waits for their guests.
func TestNodeAway(t *testing.T) {
	w := newWorld(t)
	w.away = []string{"pve2"}
	w.routes = func(node, _ string, table []orchestrator.ZoneRoute) ([]orchestrator.ZoneRoute, error) {
		if node == "pve2" {
			t.Error("a node that is away is asked")
		}
		return table, nil
	}
	synctest.Test(t, func(t *testing.T) {
		res, err := w.proof(nil).Measure(t.Context(), w.named("b1"))
		if err != nil || !res.Sealed || len(res.Notes) != 3 {
			t.Errorf("%v, failed %q, notes %q", err, failed(res), res.Notes)
		}
	})
	if w.asked["b2"]+w.asked["r2"] > 0 {
		t.Error("a guest of a node that is away is asked")
	}
}

// A single guest of a single tenant is proved alone, also before it is recorded
// as ready.
func TestAlone(t *testing.T) {
	w := newWorld(t)
	w.sandboxes = w.sandboxes[:1]
	w.sandboxes[0].State = orchestrator.SandboxCreating
	w.wanted.Tenants = w.wanted.Tenants[:1]
	synctest.Test(t, func(t *testing.T) {
		res, err := w.proof(nil).Measure(t.Context(), w.named("b1"))
		if err != nil || !res.Sealed {
			t.Errorf("%v, failed %q", err, failed(res))
		}
	})
}

// F112: a guest that hears nobody, not even its gateway, shows nothing by its
// silence, also where it has no peers; one that is only slow is asked again.
func TestDeafGuest(t *testing.T) {
	for name, patience := range map[string]int{"slow": 3, "deaf": 1 << 30} {
		w := newWorld(t)
		w.sandboxes = w.sandboxes[:1]
		w.answer = func(_, _ orchestrator.Sandbox, p orchestrator.Probe) orchestrator.ProbeAnswer {
			if w.listened <= patience {
				return orchestrator.ProbeSilent
			}
			return ""
		}
		synctest.Test(t, func(t *testing.T) {
			err := w.proof(nil).Prove(t.Context(), w.named("b1"))
			switch {
			case name == "slow" && err != nil:
				t.Error(err)
			case name == "deaf" && (err == nil || errors.Is(err, orchestrator.ErrDenied) || !strings.Contains(err.Error(), "got no answer from anybody")):
				t.Errorf("got %v", err)
			}
		})
	}
}

// Without tenants isolation is not provided, and nobody says that it is.
func TestNothingToProve(t *testing.T) {
	w := newWorld(t)
	loose := w.add("x1", "", "", "pve1", "192.168.60.50")
	synctest.Test(t, func(t *testing.T) {
		if err := w.proof(nil).Prove(t.Context(), loose); err != nil {
			t.Errorf("a sandbox in no zone: %v", err)
		}
		res, err := w.proof(nil).Verify(t.Context())
		if err != nil || !res.Sealed || len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "sandbox x1 has no tenant") {
			t.Errorf("%v, notes %q", err, res.Notes)
		}
		var none *UnprovidedError
		w.sandboxes = []orchestrator.Sandbox{loose}
		if _, err := w.proof(nil).Verify(t.Context()); !errors.As(err, &none) || !strings.Contains(err.Error(), "isolation is not provided") {
			t.Errorf("got %v", err)
		}
		w.wanted.Tenants = nil
		if _, err := w.proof(nil).Verify(t.Context()); !errors.As(err, &none) || !strings.Contains(err.Error(), "user-mode") {
			t.Errorf("got %v", err)
		}
	})
}

// Only sandboxes that are handed out measure; the others are noted.
func TestVerifyNotReady(t *testing.T) {
	w := newWorld(t)
	w.sandboxes[1].State, w.sandboxes[3].State = orchestrator.SandboxQuarantined, orchestrator.SandboxDestroyed
	res := mustVerify(t, w, nil)
	if !res.Sealed || len(res.Notes) != 1 || res.Notes[0] != "sandbox b2 is quarantined and took no part" || w.asked["b2"]+w.asked["r1"] > 0 {
		t.Errorf("failed %q, notes %q", failed(res), res.Notes)
	}
}

// A scene from which no proof can come is an error with its reason.
func TestNoScene(t *testing.T) {
	w := newWorld(t)
	w.places = slices.DeleteFunc(w.places, func(p network.Place) bool { return p.Role == network.RoleOutside })
	err := mustFail(t, w, "b1")
	var unsupported *orchestrator.UnsupportedError
	if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "no place of role outside is given") {
		t.Errorf("got %v", err)
	}
}

// A proof that cannot be stored is none.
func TestStoreFails(t *testing.T) {
	w := newWorld(t)
	w.storeErr = errors.New("disk full")
	err := mustFail(t, w, "b1")
	var journal *orchestrator.JournalError
	if !errors.As(err, &journal) {
		t.Errorf("got %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		if _, err := w.proof(nil).Verify(t.Context()); !errors.As(err, &journal) {
			t.Errorf("got %v", err)
		}
	})
}

// A caller that gives up is obeyed, and gets no verdict.
func TestCancelled(t *testing.T) {
	w := newWorld(t)
	w.answer = func(from, to orchestrator.Sandbox, p orchestrator.Probe) orchestrator.ProbeAnswer {
		return orchestrator.ProbeSilent
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := w.proof(nil).Prove(ctx, w.named("b1")); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, orchestrator.ErrDenied) {
			t.Errorf("got %v", err)
		}
	})
	if len(w.stored) > 0 {
		t.Error("something is stored")
	}
}
