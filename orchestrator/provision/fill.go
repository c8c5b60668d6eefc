package provision

import (
	"context"
	"errors"
	"fmt"

	"savepoint/orchestrator"
)

// Removed is a pooled sandbox that was removed.
type Removed struct {
	Sandbox orchestrator.Sandbox `json:"sandbox"`
	Why     string               `json:"why"`
}

// Filled is what a Fill did.
type Filled struct {
	Made    []orchestrator.Sandbox `json:"made"`
	Removed []Removed              `json:"removed"`
}

// Fill removes the pooled sandboxes that are outdated, too many or not all right
// any more, repeats proofs before their age makes a hand-out wait for it, and
// makes what is missing. What it cannot do now is joined in the error; the rest
// is done all the same.
func (l *Pool) Fill(ctx context.Context) (Filled, error) {
	l.filling.Lock()
	defer l.filling.Unlock()
	p := l.p
	now, err := p.look(ctx)
	if err != nil {
		return Filled{}, fmt.Errorf("fill the pool: %w", err)
	}
	removed, errs := l.tidy(ctx, now)
	done := Filled{Removed: removed}
	for _, w := range p.c.Warm.Wishes {
		made, err := l.supply(ctx, w, now)
		done.Made = append(done.Made, made...)
		if err != nil {
			errs = append(errs, fmt.Errorf("fill the pool: %w", err))
		}
	}
	return done, errors.Join(errs...)
}

// tidy removes what is not to be handed out any more.
func (l *Pool) tidy(ctx context.Context, now present) (removed []Removed, errs []error) {
	p := l.p
	pooled, err := p.pooled(ctx)
	if err != nil {
		return nil, []error{err}
	}
	counts, bad := map[string]int{}, 0
	for _, sb := range pooled {
		if ctx.Err() != nil {
			return removed, append(errs, context.Cause(ctx))
		}
		v, why := p.stands(sb, now)
		if v == fits && counts[sb.Tenant] >= p.c.Warm.Size {
			v, why = spoilt, "the pool has enough (pool.size)"
		}
		var gone bool
		switch v {
		case waits:
			continue
		case spoilt:
			gone, err = l.remove(ctx, sb.ID, func(orchestrator.Sandbox) error { return &unfitError{what: why} })
		case fits:
			if bad >= spoiltAtOnce {
				continue // left for the next look
			}
			gone, err = l.remove(ctx, sb.ID, func(sb orchestrator.Sandbox) error { return p.check(ctx, sb, p.c.Warm.ProofAge/2) })
			if gone {
				bad++
			} else {
				counts[sb.Tenant]++
			}
		}
		var unfit *unfitError
		if errors.As(err, &unfit) && gone {
			removed = append(removed, Removed{sb, err.Error()})
		} else if err != nil {
			errs = append(errs, fmt.Errorf("look at sandbox %s: %w", sb.Name, err))
		}
	}
	return removed, errs
}

// remove removes a pooled sandbox that look finds unfit. gone with that error: it
// was. Otherwise it is still in the pool, or another call has it.
func (l *Pool) remove(ctx context.Context, id orchestrator.SandboxID, look func(orchestrator.Sandbox) error) (gone bool, err error) {
	sb, ok, err := l.p.hold(ctx, id)
	if err != nil || !ok {
		return false, err
	}
	defer l.p.letGo(id)
	err = look(sb)
	var unfit *unfitError
	if !errors.As(err, &unfit) {
		return false, err
	}
	if derr := l.p.Destroy(ctx, sb); derr != nil {
		return false, fmt.Errorf("%w; it could not be removed: %w", err, derr)
	}
	return true, err
}

// supply makes what is missing for a wish.
func (l *Pool) supply(ctx context.Context, w Wish, now present) (made []orchestrator.Sandbox, err error) {
	for {
		missing, full, err := l.p.missing(ctx, w, now)
		if err != nil || missing <= 0 {
			return made, err
		}
		if ctx.Err() != nil {
			return made, context.Cause(ctx)
		}
		if err := now.none[w.Tenant]; err != nil {
			return made, err
		}
		w.Avoid = full
		sb, err := l.p.make(ctx, "", w, now.nodes, now.pools[w.Tenant])
		if err != nil {
			return made, err
		}
		made = append(made, sb)
	}
}

// missing says how many more a wish needs, and which nodes have all they may.
func (p *Provisioner) missing(ctx context.Context, w Wish, now present) (n int, full []string, err error) {
	pooled, err := p.pooled(ctx)
	if err != nil {
		return 0, nil, err
	}
	n = p.c.Warm.Size
	perNode := map[string]int{}
	for _, sb := range pooled {
		if perNode[sb.VM.Node]++; p.c.Warm.PerNode > 0 && perNode[sb.VM.Node] == p.c.Warm.PerNode {
			full = append(full, sb.VM.Node)
		}
		if sb.Tenant != w.Tenant {
			continue
		}
		if v, _ := p.stands(sb, now); v == fits {
			n--
		}
	}
	return n, full, nil
}

// Drain removes every pooled sandbox, also when others cannot be removed.
func (l *Pool) Drain(ctx context.Context) ([]Removed, error) {
	l.filling.Lock()
	defer l.filling.Unlock()
	pooled, err := l.p.pooled(ctx)
	if err != nil {
		return nil, err
	}
	var removed []Removed
	var errs []error
	for _, sb := range pooled {
		if ctx.Err() != nil {
			errs = append(errs, context.Cause(ctx))
			break
		}
		drained := &unfitError{what: "the pool was drained"}
		gone, err := l.remove(ctx, sb.ID, func(orchestrator.Sandbox) error { return drained })
		if gone {
			removed = append(removed, Removed{sb, drained.what})
		} else if err != nil {
			errs = append(errs, err)
		}
	}
	return removed, errors.Join(errs...)
}
