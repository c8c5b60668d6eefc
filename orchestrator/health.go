package orchestrator

import (
	"context"
	"fmt"
	"time"
)

// Least is a lower limit of something that there is Total of: a number, or a
// part of the total. The zero value is no limit.
type Least struct {
	Count   int64
	Percent float64
}

func (l Least) of(total int64) int64 {
	return max(l.Count, int64(l.Percent/100*float64(total)))
}

func (l Least) or(def Least) Least {
	if l == (Least{}) {
		return def
	}
	return l
}

// healthData is how the guest was before the first command, as it is recorded:
// what was wrong with it already is no command's fault.
type healthData struct {
	Free     []Space         `json:"free,omitempty"`
	Services map[string]bool `json:"services,omitempty"`
	Skew     time.Duration   `json:"clock_skew_ns"`
}

// skewOf is how far the guest's clock was ahead of ours when it answered, and
// how sure that is.
func skewOf(f GuestFacts, answered time.Time) (skew, doubt time.Duration) {
	return f.Clock.Add(f.RoundTrip / 2).Sub(answered), f.RoundTrip / 2
}

// baseline asks how the guest is before the first command, after its snapshot;
// nil where it cannot be asked. A guest is paused while its memory is saved and
// its clock with it (F96), so the clock is set before anything runs.
func (t *tx) baseline(ctx context.Context) (*healthData, error) {
	x := t.examiner()
	if x == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.e.c.Deadlines.Validate)
	defer cancel()
	sb := t.view.Sandbox
	for try := 0; ; try++ {
		h, err := t.askHealth(ctx, x)
		if err != nil {
			return nil, fmt.Errorf("ask sandbox %s for its health: %w", sb.Name, classed(err))
		}
		skew, doubt := skewOf(h.GuestFacts, t.e.c.Now())
		if skew.Abs() <= t.e.c.Guards.MaxSkew+doubt || try == attempts {
			return &healthData{Free: h.Free, Services: h.Services, Skew: skew}, nil
		}
		if err := t.e.c.Guest.SetClock(ctx, sb, t.e.c.Now()); err != nil {
			return nil, fmt.Errorf("set the clock of sandbox %s: %w", sb.Name, classed(err))
		}
	}
}

// asksAtEnd reports whether how the guest is at the command's end is all that is
// to be known of it then: nothing that validates comes between.
func (t *tx) asksAtEnd() bool {
	return t.examiner() != nil && t.boundary != BoundaryNone && !t.view.Several && len(t.probes) == 0 && t.was == nil
}

// healthNow is how the guest is after the command, and when it said so. What it
// said with the command's end is as good as an answer to a question of its own,
// but for its clock, which is in doubt by half of the time that the exchange took.
func (t *tx) healthNow(ctx context.Context, x Examiner) (GuestHealth, time.Time, error) {
	if r := t.result; r != nil && r.Health != nil && t.asksAtEnd() && r.Health.RoundTrip <= t.e.c.Guards.MaxSkew/2 {
		return *r.Health, t.told, nil
	}
	h, err := t.askHealth(ctx, x)
	return h, t.e.c.Now(), err
}

// healthy asks the guest whether it is still ours, still the same, and as well
// as it was at begin.
func (t *tx) healthy(ctx context.Context) *bad {
	ctx, cancel := context.WithTimeout(ctx, t.e.c.Deadlines.Validate)
	defer cancel()
	x := t.examiner()
	if x == nil {
		return t.same(ctx)
	}
	h, answered, err := t.healthNow(ctx, x)
	if err != nil {
		return &bad{reason: fmt.Sprintf("the guest does not answer after the command: %v", err), unknown: true}
	}
	if b := t.still(h.GuestFacts); b != nil {
		return b
	}
	was := t.view.health
	if was == nil {
		was = &healthData{}
	}
	for _, s := range []string{ServiceSSH, ServiceAgent} {
		// Without them the next transaction has no hold of the guest: it is not
		// kept for any wish.
		if was.Services[s] && !h.Services[s] {
			return &bad{reason: fmt.Sprintf("%s in the guest is gone", s), unknown: true}
		}
	}
	if b := t.e.c.Guards.room(was.Free, h.Free); b != nil {
		return b
	}
	most := t.e.c.Guards.MaxSkew
	skew, doubt := skewOf(h.GuestFacts, answered)
	if !t.view.Began.IsZero() { // a clock without a reference runs wrong by up to a thousandth
		doubt += max(0, answered.Sub(t.view.Began)/1000)
	}
	if skew.Abs() > most+doubt && (was.Skew.Abs() <= most || (skew-was.Skew).Abs() > most+doubt) {
		return &bad{reason: fmt.Sprintf("the guest's clock is %s off, more than %s", skew.Round(time.Millisecond), most)}
	}
	return nil
}

// same asks the guest only whether it is still ours and the same.
func (t *tx) same(ctx context.Context) *bad {
	facts, err := t.factsNow(ctx)
	if err != nil {
		return &bad{reason: fmt.Sprintf("the guest does not answer after the command: %v", err), unknown: true}
	}
	return t.still(facts)
}

// still compares what a guest can only have from us. A marker or boot id that
// changed leaves the same doubt as no answer.
func (t *tx) still(facts GuestFacts) *bad {
	if want := string(t.view.top().Snapshot); facts.Generation != want {
		return &bad{reason: fmt.Sprintf("the guest's generation is %q instead of %q", facts.Generation, want), unknown: true}
	}
	if facts.BootID != t.view.boot {
		return &bad{reason: "the guest was rebooted", unknown: true}
	}
	return nil
}

// room compares what is left of the file systems with the limits. What was
// below a limit at begin is no command's fault.
func (g Guards) room(was, now []Space) *bad {
	before := map[string]Space{}
	for _, s := range was {
		before[s.Mount] = s
	}
	for _, s := range now {
		b, known := before[s.Mount]
		delete(before, s.Mount)
		for _, r := range []struct {
			what                          string
			left, least, before, leastWas int64
		}{
			{"bytes", s.Bytes, g.MinFree.of(s.TotalBytes), b.Bytes, g.MinFree.of(b.TotalBytes)},
			{"inodes", s.Inodes, g.MinInodes.of(s.TotalInodes), b.Inodes, g.MinInodes.of(b.TotalInodes)},
		} {
			if r.left < r.least && (!known || r.before >= r.leastWas) {
				return &bad{reason: fmt.Sprintf("%d %s are left on %s, fewer than %d", r.left, r.what, s.Mount, r.least)}
			}
		}
	}
	for _, s := range was {
		if _, gone := before[s.Mount]; gone {
			return &bad{reason: fmt.Sprintf("%s is not mounted any more", s.Mount)}
		}
	}
	return nil
}
