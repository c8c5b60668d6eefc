package proxmox_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"savepoint/network"
	"savepoint/orchestrator"
	"savepoint/orchestrator/networks"
	"savepoint/proxmox"
)

// mishap is what happens to one request.
type mishap struct {
	name   string
	kill   bool // the process: nothing of it gets out any more
	after  bool // the effect
	status int  // instead of an answer; 0 = the connection is closed
	nine   bool // on PVE 9 alone, to keep it short: 8.4 has nothing that differs
}

var mishaps = []mishap{
	{name: "killed before", kill: true, nine: true},
	{name: "killed after", kill: true, after: true},
	{name: "dropped after", after: true, nine: true},
	{name: "596 before", status: 596},
	{name: "596 after", after: true, status: 596},
}

// gate lets requests through to the lab, but for one.
type gate struct {
	m     mishap
	at    int // which request it strikes
	proxy *httputil.ReverseProxy

	mu     sync.Mutex
	n      int
	struck string
	dead   bool
}

func (f *fabric) gate(m mishap, at int) (*gate, *proxmox.Cluster) {
	target, err := url.Parse(f.cfg.URL)
	if err != nil {
		f.t.Fatal(err)
	}
	g := &gate{m: m, at: at, proxy: httputil.NewSingleHostReverseProxy(target)}
	g.proxy.Transport, g.proxy.ErrorLog = f.client.Transport, log.New(io.Discard, "", 0)
	front := httptest.NewTLSServer(g)
	f.t.Cleanup(front.Close)
	pool := x509.NewCertPool()
	pool.AddCert(front.Certificate())
	return g, f.open(func(c *proxmox.Config) { c.URL, c.CAFile, c.CAs = front.URL, "", pool })
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	g.mu.Lock()
	dead, strikes := g.dead, false
	if !dead && r.Method != http.MethodGet { // reads are repeated, and change nothing
		if g.n++; g.n == g.at {
			strikes, g.dead, g.struck = true, g.m.kill, r.Method+" "+r.URL.Path
		}
	}
	g.mu.Unlock()
	switch {
	case !dead && !strikes:
		g.proxy.ServeHTTP(w, r)
		return
	case strikes && g.m.after:
		g.proxy.ServeHTTP(httptest.NewRecorder(), r)
	}
	if strikes && g.m.status != 0 {
		w.WriteHeader(g.m.status)
		return
	}
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

func (g *gate) hit() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.struck
}

// journalOf is the store as a process sees it: dead, it writes nothing more.
type journalOf struct {
	*store
	g *gate
}

func (j journalOf) PutNetworks(ctx context.Context, r network.Record) error {
	j.g.mu.Lock()
	defer j.g.mu.Unlock()
	if j.g.dead {
		return errors.New("the process is dead")
	}
	return j.store.PutNetworks(ctx, r)
}

// F39 F101: an apply is interrupted at every write, by the death of the
// process or by an answer that does not come. The next one does the rest:
// nothing is there twice, nothing is locked, and nothing of somebody else's has
// changed. A lost answer alone does not end the apply.
func TestNetworksInterruptedAnywhere(t *testing.T) {
	for _, release := range releases {
		for _, m := range mishaps {
			if m.nine && release != "9" {
				continue
			}
			t.Run(release+"/"+m.name, func(t *testing.T) {
				t.Parallel()
				f := startFabric(t, release, 2)
				f.call("POST", "/cluster/sdn/zones", map[string]any{"zone": "dmz", "type": "simple"})
				f.call("PUT", "/cluster/sdn", nil)
				var late sync.WaitGroup
				defer late.Wait()
				few := tenants()
				few.Tenants = few.Tenants[:1]
				few.Tenants[0].VNets = few.Tenants[0].VNets[1:]
				hits := 0
				for at := 1; ; at++ { // made, and taken away again
					made := f.interrupted(t, m, at, few, &late)
					must2(t, f, few)
					gone := f.interrupted(t, m, at, network.Wanted{}, &late)
					must2(t, f, network.Wanted{})
					if made == "" && gone == "" {
						break
					}
					hits++
				}
				if hits < 5 {
					t.Errorf("only %d requests were struck", hits)
				}
				if run := f.server.RunningSDN(); len(run.Zones) != 1 || run.Zones[0].ID != "dmz" || len(run.Controllers)+len(run.VNets)+len(run.Subnets) != 0 {
					t.Errorf("left: %+v", run)
				}
			})
		}
	}
}

// must2 brings the networks to a state, and fails the test unless that is all.
func must2(t *testing.T, f *fabric, w network.Wanted) {
	t.Helper()
	_, err := f.manager(f.cluster).Apply(t.Context(), w)
	must(t, err)
	f.quiet(w)
}

// interrupted makes one apply of w with a mishap, and what an operator has to
// do where nobody else can. It returns what was struck, "" for nothing.
func (f *fabric) interrupted(t *testing.T, m mishap, at int, w network.Wanted, late *sync.WaitGroup) string {
	t.Helper()
	g, c := f.gate(m, at)
	mgr := networks.New(networks.Config{Fabric: c.SDN(), Store: journalOf{f.store, g}})
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // of a dead process: nothing of it gets out anyway
	late.Go(func() {
		_, err := mgr.Apply(ctx, w)
		ended <- err
	})
	for {
		select {
		case err := <-ended:
			hit := g.hit()
			if hit != "" && !m.kill && err != nil && !strings.HasSuffix(hit, "/sdn/lock") {
				t.Errorf("%s: %v", hit, err)
			}
			f.mend(t, hit, m, err)
			return hit
		case <-time.After(time.Millisecond):
			// A dead process is not waited for: it tries for a while to give the lock back.
			if hit := g.hit(); m.kill && hit != "" {
				f.mend(t, hit, m, nil)
				return hit
			}
		}
	}
}

// mend frees the one lock that nobody can tell whose it is: its token was lost.
func (f *fabric) mend(t *testing.T, hit string, m mishap, err error) {
	t.Helper()
	if !strings.HasPrefix(hit, "POST ") || !strings.HasSuffix(hit, "/sdn/lock") {
		return
	}
	if !m.kill {
		wantClass(t, err, orchestrator.ErrUnknownOutcome)
	}
	if !m.after {
		return
	}
	deadline := time.After(time.Minute)
	for !f.locked() { // it is on its way; looking all the time would keep it from getting there
		select {
		case <-deadline:
			t.Fatal("the lock was not taken")
		case <-time.After(10 * time.Millisecond):
		}
	}
	_, err = f.manager(f.cluster).Apply(t.Context(), tenants())
	if f.store.now().Lock.Token != "" || !errors.Is(err, orchestrator.ErrBusy) {
		t.Fatalf("a lock of which nobody knows: %v", err)
	}
	wantText(t, err, "it may be its own", "--force 1")
	f.call("DELETE", "/cluster/sdn/lock?force=1", nil)
}
