package networks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"savepoint/network"
	"savepoint/orchestrator"
)

// LagError says that the configuration is applied and that nodes which are
// online do not have it.
type LagError struct {
	Lags   []network.Lag
	Failed map[string]string // what is known to have gone wrong, by node
	Cause  error             // why it was not waited for any longer
}

func (e *LagError) Error() string {
	var parts []string
	for _, l := range e.Lags {
		status := l.Status
		if status == "" {
			status = "not there"
		}
		part := fmt.Sprintf("zone %s is %s on node %s", l.Zone, status, l.Node)
		if why := e.Failed[l.Node]; why != "" {
			part += " (its reload: " + why + ")"
		}
		parts = append(parts, part)
	}
	if e.Cause != nil {
		parts = append(parts, e.Cause.Error())
	}
	return "apply networks: the configuration is applied, but " + strings.Join(parts, "; ") +
		"; look at the node's task srvreload and at its ifupdown2 and FRR, then run savepoint network apply again"
}

// Is makes it a case of unavailable for callers that only know classes.
func (e *LagError) Is(target error) bool { return target == orchestrator.ErrUnavailable }

// Unwrap gives the end of the context where that was the cause.
func (e *LagError) Unwrap() error { return e.Cause }

// follow waits until the nodes that are online have every zone of ours, and
// records then what sandboxes can be plugged into.
func (m *Manager) follow(ctx context.Context, failed map[string]string, res *Result) error {
	look, cancel := context.WithTimeoutCause(ctx, m.cfg.Wait, fmt.Errorf("not done within %s", m.cfg.Wait))
	defer cancel()
	last := &LagError{Failed: failed}
	for pause := 25 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		r, err := m.cfg.Store.Networks(ctx)
		if err != nil {
			return err
		}
		o, err := m.cfg.Fabric.Observe(look, nil)
		if err == nil {
			lags := network.Lagging(o, r.Allocation)
			online := slices.DeleteFunc(slices.Clone(lags), func(l network.Lag) bool { return !l.Online })
			res.Offline = slices.DeleteFunc(lags, func(l network.Lag) bool { return l.Online })
			if len(online) == 0 {
				return m.record(ctx, r.Allocation, r.Allocation)
			}
			last.Lags = online
			m.step("wait", waitingFor(online))
			if !slices.ContainsFunc(online, func(l network.Lag) bool { return failed[l.Node] == "" }) {
				return last // nothing is under way that could change it
			}
		} else if look.Err() == nil && !lookAgain(err) {
			return err
		}
		if wait(look, pause) != nil {
			last.Cause = context.Cause(look)
			if len(last.Lags) == 0 && err != nil {
				return err
			}
			return last
		}
	}
}

func waitingFor(lags []network.Lag) string {
	var nodes []string
	for _, l := range lags {
		if !slices.Contains(nodes, l.Node) {
			nodes = append(nodes, l.Node)
		}
	}
	return "for " + strings.Join(nodes, ", ")
}

// Pools returns the networks that sandboxes of the tenant can be plugged into,
// as they run.
func Pools(ctx context.Context, s Store, w network.Wanted, tenant string) ([]network.Pool, error) {
	r, err := s.Networks(ctx)
	if err != nil {
		return nil, err
	}
	return network.Pools(w, r.Applied, tenant)
}
