package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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

// tapsIn lists the taps of a recorded namespace; one that was recorded and not
// made, or is removed already, has none.
func tapsIn(ctx context.Context, ns string) ([]string, error) {
	if there, err := namespaceAt(nsPath(ns)); !there {
		return nil, err
	}
	links, err := observe(ctx, ns)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(links, func(_ string, l link) bool { return l.Kind != "tun" })
	return slices.Sorted(maps.Keys(links)), nil
}

// parkTap moves one tap. A machine holds it by its descriptor and notices nothing.
// It gets the mark of the namespace first: there, only what has it is ours.
func (l *ledger) parkTap(ctx context.Context, ns, tap string) error {
	if err := l.makeParking(ctx); err != nil {
		return err
	}
	parked := l.r.Parked
	have, err := observe(ctx, parked)
	if err != nil {
		return err
	}
	if old, there := have[tap]; there {
		if !old.parkedIn(parked) {
			return fmt.Errorf("keep tap %s of namespace %s: namespace %s has an interface of that name that was not put there by this fabric; move it away or remove it, then start again", tap, ns, parked)
		}
		// It is older, and nobody's.
		if err := unlessGone(ctx, parked, tap, ip(ctx, parked, "link del %s", tap)); err != nil {
			return err
		}
	}
	err = ip(ctx, ns, "link set %s alias %s", tap, parked)
	if err == nil {
		err = ip(ctx, ns, "link set %s netns %s", tap, parked)
	}
	return unlessGone(ctx, ns, tap, err)
}

// unlessGone is no error when the tap has gone meanwhile with the machine that
// held it.
func unlessGone(ctx context.Context, ns, tap string, err error) error {
	if err == nil {
		return nil
	}
	have, lerr := observe(ctx, ns)
	if lerr != nil {
		return errors.Join(err, lerr)
	}
	if _, there := have[tap]; !there {
		return nil
	}
	return err
}

// makeParking makes the namespace for taps, if it is not there. It is recorded
// first, under a name that is random.
func (l *ledger) makeParking(ctx context.Context) error {
	if l.r.Parked == "" {
		name := nsPrefix(l.r.Instance) + "parked"
		if err := l.change(func(r *record) { r.Parked = name }); err != nil {
			return err
		}
	}
	there, err := namespaceAt(nsPath(l.r.Parked))
	if err != nil || there {
		return err
	}
	// A name without a namespace is left when we were killed right here.
	if err := removeNamespace(ctx, l.r.Parked); err != nil {
		return err
	}
	return addNamespace(ctx, l.r.Parked)
}

// parkedIn reports whether it is a tap that was put into that namespace by park:
// the mark has a fabric's random instance in it.
func (l link) parkedIn(ns string) bool { return ns != "" && l.Kind == "tun" && l.Alias == ns }

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
			} else if !have[p.Name].parkedIn(parked) {
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
