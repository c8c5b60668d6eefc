package provision

import (
	"context"
	"slices"
	"sync"
	"time"

	"savepoint/network"
	"savepoint/orchestrator"
)

// Pool keeps sandboxes warm. Create hands them out, Return takes them back.
type Pool struct {
	p       *Provisioner
	filling sync.Mutex // one Fill or Drain at a time
}

// NewPool returns the pool of a Provisioner.
func NewPool(p *Provisioner) *Pool { return &Pool{p: p} }

// Standing is a pooled sandbox and how it stands.
type Standing struct {
	orchestrator.Sandbox
	// Proved is when it was last proved to be sealed; zero: never, or it has no
	// tenant. Current: the proof need not be repeated when it is handed out.
	Proved  time.Time `json:"proved,omitzero"`
	Current bool      `json:"proof_current"`
	// Outdated says why it will be removed, Waiting why it is not handed out now.
	Outdated string `json:"outdated,omitempty"`
	Waiting  string `json:"waiting,omitempty"`
}

// Status returns the pooled sandboxes, oldest first. With an error that counts
// as ErrUnavailable they are returned as the registry has them, not compared with
// what new ones would be. It changes nothing.
func (l *Pool) Status(ctx context.Context) ([]Standing, error) {
	p := l.p
	pooled, err := p.pooled(ctx)
	if err != nil || len(pooled) == 0 {
		return nil, err
	}
	now, unseen := p.look(ctx)
	out := make([]Standing, len(pooled))
	for i, sb := range pooled {
		out[i].Sandbox = sb
		if out[i].Current, err = p.proved(ctx, sb, p.c.Warm.ProofAge); err != nil {
			return nil, err
		}
		if sb.Tenant != "" && p.c.Warm.Proofs != nil {
			if out[i].Proved, err = p.c.Warm.Proofs.Proved(ctx, sb.ID); err != nil {
				return nil, err
			}
		}
		if unseen == nil {
			v, why := p.stands(sb, now)
			switch v {
			case spoilt:
				out[i].Outdated = why
			case waits:
				out[i].Waiting = why
			case fits:
			}
		}
	}
	return out, unseen
}

// present is what a new sandbox would be made from.
type present struct {
	nodes []Node
	pools map[string][]network.Pool // by the tenants of the wishes
	none  map[string]error          // why there are none
}

func (p *Provisioner) look(ctx context.Context) (present, error) {
	now := present{pools: map[string][]network.Pool{}, none: map[string]error{}}
	var err error
	if now.nodes, err = p.c.Fleet.Nodes(ctx, p.c.Template); err != nil {
		return now, err
	}
	for _, w := range p.c.Warm.Wishes {
		now.pools[w.Tenant], now.none[w.Tenant] = p.pools(ctx, w.Tenant)
	}
	return now, nil
}

// wish is what a pooled sandbox was made for.
func (p *Provisioner) wish(sb orchestrator.Sandbox) (Wish, bool) {
	i := slices.IndexFunc(p.c.Warm.Wishes, func(w Wish) bool { return w.Tenant == sb.Tenant })
	if i < 0 || p.c.Warm.Size <= 0 {
		return Wish{}, false
	}
	return p.c.Warm.Wishes[i], true
}

// stands is judge with what the pool is for.
func (p *Provisioner) stands(sb orchestrator.Sandbox, now present) (verdict, string) {
	w, wanted := p.wish(sb)
	if !wanted {
		return spoilt, "the pool is not for such sandboxes any more (pool.size, pool.tenants)"
	}
	if err := now.none[sb.Tenant]; err != nil {
		return waits, err.Error()
	}
	return p.judge(sb, now.nodes, w, now.pools[sb.Tenant])
}

// longestPause is between two looks of Run when nothing works.
const longestPause = 10 * time.Minute

// Run fills the pool, again whenever one was taken and in intervals, until ctx
// ends; then it returns nil. Each look is told to the function, which may be nil.
// After errors it waits longer and longer.
func (l *Pool) Run(ctx context.Context, told func(Filled, error)) error {
	pause := l.p.c.Warm.Interval
	for {
		done, err := l.Fill(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if told != nil {
			told(done, err)
		}
		if pause = min(2*pause, max(longestPause, l.p.c.Warm.Interval)); err == nil {
			pause = l.p.c.Warm.Interval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.p.taken:
		case <-l.p.c.Warm.After(pause):
		}
	}
}
