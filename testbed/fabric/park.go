package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
)

// parkedName is the namespace in which the taps of guests wait that outlived
// their fabric.
var parkedName = regexp.MustCompile(`^sp-[a-z0-9]{8,20}-parked$`)

// park saves the taps of running machines from what a killed fabric left, and
// removes the rest. It returns the namespace that they are in, "" when there are
// none. Until Adopt they are down and lead nowhere. It can be repeated.
func park(ctx context.Context, dir string) (string, error) {
	r, err := loadRecord(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	l := &ledger{dir: dir, r: r}
	for _, ns := range r.Namespaces {
		taps, err := tapsIn(ctx, ns)
		if err != nil {
			return "", err
		}
		for _, tap := range taps {
			if err := l.parkTap(ctx, ns, tap); err != nil {
				return "", err
			}
		}
	}
	r.Parked = l.r.Parked
	return r.Parked, r.sweep(ctx, dir, r.Parked)
}

// tapsIn lists the taps of a namespace; one that is gone has none.
func tapsIn(ctx context.Context, ns string) ([]string, error) {
	links, err := observe(ctx, ns)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil { // it was recorded and not made, or half removed
		return nil, nil
	}
	maps.DeleteFunc(links, func(_ string, l link) bool { return l.Kind != "tun" })
	return slices.Sorted(maps.Keys(links)), nil
}

// parkTap moves one tap. A machine holds it by its descriptor and notices nothing.
func (l *ledger) parkTap(ctx context.Context, ns, tap string) error {
	if l.r.Parked == "" {
		name := nsPrefix(l.r.Instance) + "parked"
		if err := l.change(func(r *record) { r.Parked = name }); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(nsPath(l.r.Parked)); errors.Is(err, fs.ErrNotExist) { // also when we were killed right here
		if err := addNamespace(ctx, l.r.Parked); err != nil {
			return err
		}
	}
	// One of that name that is there already is older, and nobody's.
	_ = ip(ctx, l.r.Parked, "link del %s", tap)
	return ip(ctx, ns, "link set %s netns %s", tap, l.r.Parked)
}

// Adopt puts a tap that a machine has held since before New on a vnet, as Tap
// does with a new one. The error wraps fs.ErrNotExist when there is none of that
// name: the machine has to be started anew.
func (f *Fabric) Adopt(ctx context.Context, node, vnet string, p Port) error {
	parked := f.ledger.parked()
	err := fs.ErrNotExist
	if parked != "" {
		err = f.attach(ctx, node, vnet, p, func(s *zoneState) error {
			if have, err := observe(ctx, parked); err != nil {
				return err
			} else if _, there := have[p.Name]; !there {
				return fs.ErrNotExist
			}
			return ip(ctx, parked, "link set %s netns %s", p.Name, s.ns)
		})
	}
	if err != nil {
		return fmt.Errorf("take over tap %s for vnet %s on node %s: %w", p.Name, vnet, node, err)
	}
	return nil
}

// Settle removes the taps that nobody adopted. Their machines have no network
// any more.
func (f *Fabric) Settle(ctx context.Context) error {
	parked := f.ledger.parked()
	if parked == "" {
		return nil
	}
	if err := removeNamespace(ctx, parked); err != nil {
		return err
	}
	return f.ledger.change(func(r *record) { r.Parked = "" })
}

func (l *ledger) parked() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Parked
}
