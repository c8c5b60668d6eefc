package proof

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"savepoint/network"
	"savepoint/orchestrator"
)

// seen is what is known of one check.
type seen struct {
	reach network.Reach // "": nothing
	why   string        // for people
	// witness is the guest at which arrived what must not.
	witness string
}

// measured is what became of a number of checks.
type measured struct {
	seen   map[string]seen  // by key
	failed map[string]error // guests that did not measure, by name
}

// add takes over what became of other checks.
func (m measured) add(o measured) {
	maps.Copy(m.seen, o.seen)
	maps.Copy(m.failed, o.failed)
}

// learn keeps what was reached once.
func (m measured) learn(k string, s seen) {
	if m.seen[k].reach != network.Reachable {
		m.seen[k] = s
	}
}

// settle replaces what is known of something that must be reachable: there the
// last word counts, so that a network that dies is not taken for alive.
func (m measured) settle(checks []network.Check, o measured) {
	for _, c := range checks {
		if s, found := o.seen[key(c)]; found {
			if c.Expected == network.Reachable {
				m.seen[key(c)] = s
			} else {
				m.learn(key(c), s)
			}
		}
	}
}

// measure lets the guests measure until what must be reachable is, and then
// everything at once. A guest that does not take part ends it where all have to;
// else it goes on without.
func (w *world) measure(ctx context.Context, checks []network.Check, names []string, all bool) measured {
	m := measured{seen: map[string]seen{}, failed: map[string]error{}}
	deadline := w.p.c.Now().Add(w.p.c.Converge)
	var facts map[string]orchestrator.ProbeReport
	for last := false; ; {
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return m.failed[n] != nil })
		must := slices.DeleteFunc(slices.Clone(checks), func(c network.Check) bool {
			return c.Expected != network.Reachable || m.failed[c.Source] != nil || m.failed[c.Target] != nil
		})
		now := checks
		if !last {
			now = slices.DeleteFunc(must, func(c network.Check) bool { return m.seen[key(c)].reach == network.Reachable })
			must = slices.Clone(now)
		}
		w.p.c.Observe(fmt.Sprintf("%d measurements by %d guests", len(now), len(names)))
		routes := w.routes(ctx, now) // before anybody claims an address
		r := w.rounds(ctx, now, names, facts, last)
		maps.Copy(m.failed, r.failed)
		m.settle(now, r.measured)
		m.settle(now, routes)
		late := !w.p.c.Now().Before(deadline)
		switch {
		case ctx.Err() != nil, len(names) == 0, all && len(m.failed) > 0:
			return m
		case len(r.failed) > 0: // once more, with those who are left
			continue
		case !last && (late || m.shows(must)):
			last, facts = true, r.reports
			continue
		case last && (late || m.shows(must) && !m.doubtful(checks) || m.leaks(checks)):
			return m
		}
		w.pause(ctx)
	}
}

func (w *world) pause(ctx context.Context) {
	timer := time.NewTimer(w.p.c.Pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// shows says whether all checks are as expected.
func (m measured) shows(checks []network.Check) bool {
	return !slices.ContainsFunc(checks, func(c network.Check) bool { return m.seen[key(c)].reach != c.Expected })
}

// doubtful says whether something could not be measured by those who took part.
func (m measured) doubtful(checks []network.Check) bool {
	return slices.ContainsFunc(checks, func(c network.Check) bool {
		return m.seen[key(c)].reach == "" && m.failed[c.Source] == nil && m.failed[c.Target] == nil
	})
}

// leaks says whether something was reached that must not be.
func (m measured) leaks(checks []network.Check) bool {
	return slices.ContainsFunc(checks, func(c network.Check) bool {
		return c.Expected == network.Unreachable && m.seen[key(c)].reach == network.Reachable
	})
}

// round is what the guests measured at one time.
type round struct {
	measured
	reports map[string]orchestrator.ProbeReport
}

// rounds is round for any number of checks, as many at a time as guests accept.
func (w *world) rounds(ctx context.Context, checks []network.Check, names []string, facts map[string]orchestrator.ProbeReport, listen bool) round {
	parts := w.parts(checks, facts)
	all := w.round(ctx, parts[0], names, facts, listen)
	for _, part := range parts[1:] {
		if len(all.failed) > 0 || ctx.Err() != nil {
			break // those who are left begin anew
		}
		r := w.round(ctx, part, names, facts, listen)
		all.settle(part, r.measured)
		maps.Copy(all.failed, r.failed)
	}
	return all
}

// round has every named guest measure its part of the checks, all at once.
func (w *world) round(ctx context.Context, checks []network.Check, names []string, facts map[string]orchestrator.ProbeReport, listen bool) round {
	r := round{measured: measured{seen: map[string]seen{}, failed: map[string]error{}}, reports: map[string]orchestrator.ProbeReport{}}
	plan := w.plan(checks, names, facts)
	nonce := strings.ToLower(rand.Text()[:12])
	meeting := newMeeting(len(names), w.p.c.Answer)
	defer meeting.open()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, name := range names {
		wg.Go(func() {
			report, err := w.take(ctx, name, w.order(name, nonce, plan.orders[name], listen), meeting)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				r.failed[name] = err
				return
			}
			r.reports[name] = report
		})
	}
	wg.Wait()
	for i, c := range checks {
		s, known := w.judge(c, plan.probes[i], r)
		if known && (s.reach == network.Unreachable || s.reach == network.NoRoute) && c.Expected != network.Reachable && c.Source != "" && !plan.alive(c.Source, r.reports[c.Source]) {
			s = seen{why: "the guest got no answer from anybody, its gateway neither"}
		}
		if known {
			r.seen[key(c)] = s
		}
	}
	return r
}

// take has one guest measure. One that has not begun when the others no longer
// wait takes no part, and one that does not come to an end has not measured.
func (w *world) take(ctx context.Context, name string, order orchestrator.ProbeOrder, m *meeting) (orchestrator.ProbeReport, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(w.p.c.Answer, func() {
		cancel(fmt.Errorf("it did not answer in time: %w", orchestrator.ErrUnavailable))
	})
	defer late.Stop()
	arrived := false
	defer func() {
		if !arrived {
			m.arrive() // nobody waits for it
		}
	}()
	return w.p.c.Prober.Probe(ctx, w.sandboxes[name], order, func(ctx context.Context) error {
		arrived = true
		if !m.arrive() {
			return fmt.Errorf("it began too late: %w", orchestrator.ErrUnavailable)
		}
		select {
		case <-m.begun:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		late.Reset(2*w.p.c.Wait + w.p.c.Answer)
		return nil
	})
}

// meeting lets those who measure begin together.
type meeting struct {
	mu      sync.Mutex
	missing int
	opened  bool
	begun   chan struct{} // closed when nobody is missing, or nobody waits any longer
	timer   *time.Timer
}

func newMeeting(n int, patience time.Duration) *meeting {
	m := &meeting{missing: n, begun: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	// A little before those who are missing are given up.
	m.timer = time.AfterFunc(patience-patience/20, m.open)
	return m
}

// arrive is called once for everybody, also for those who will not come. It says
// whether the measurement has not begun without.
func (m *meeting) arrive() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	early := !m.opened
	if m.missing--; m.missing == 0 {
		m.begin()
	}
	return early
}

func (m *meeting) open() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begin()
}

func (m *meeting) begin() {
	if !m.opened {
		m.opened = true
		m.timer.Stop()
		close(m.begun)
	}
}
