package networks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"savepoint/network"
	"savepoint/orchestrator"
)

// unlockTime is how long giving the lock back may take after the caller's end.
const unlockTime = 30 * time.Second

// Release gives a lock back that an earlier process left, if it recorded one,
// and says whether there was one. Without a record the cluster is not asked.
func (m *Manager) Release(ctx context.Context) (bool, error) {
	r, err := m.cfg.Store.Networks(ctx)
	if err != nil || r.Lock.Token == "" {
		return false, err
	}
	m.step("unlock", "an earlier run left the cluster's networks locked")
	if err := m.cfg.Fabric.Unlock(ctx, r.Lock.Token); err != nil {
		return true, fmt.Errorf("the lock that savepoint took at %s: %w", when(r.Lock.Asked), err)
	}
	return true, m.putLock(ctx, network.Lock{})
}

// lock takes the cluster's lock. The token is "" where there is none to take.
func (m *Manager) lock(ctx context.Context, pending bool) (string, error) {
	m.step("lock", "the cluster's networks")
	r, err := m.cfg.Store.Networks(ctx)
	if err != nil {
		return "", err
	}
	asked := network.Lock{Asked: time.Now().UTC()}
	if err := m.putLock(ctx, asked); err != nil {
		return "", err
	}
	token, err := m.cfg.Fabric.Lock(ctx, pending)
	if err != nil {
		// An answer that was lost leaves the record, for the next call to explain.
		if errors.Is(err, orchestrator.ErrUnknownOutcome) {
			return "", fmt.Errorf("%w; if the next apply finds the networks locked, it says how to free them", err)
		}
		if errors.Is(err, orchestrator.ErrBusy) && !r.Lock.Asked.IsZero() {
			err = fmt.Errorf("%w; savepoint asked for it at %s and did not learn the answer, so it may be its own: "+
				"if nobody else works on the cluster's networks, run pvesh delete /cluster/sdn/lock --force 1 on a node and try again", err, when(r.Lock.Asked))
		}
		return "", errors.Join(err, m.putLock(context.WithoutCancel(ctx), r.Lock))
	}
	if token == "" {
		return "", m.putLock(ctx, network.Lock{})
	}
	asked.Token = token
	if err := m.putLock(ctx, asked); err != nil {
		return "", errors.Join(err, m.free(ctx, token))
	}
	return token, nil
}

// unlock gives the lock back, also after the end of ctx.
func (m *Manager) unlock(ctx context.Context, token string) error {
	if token == "" {
		return nil
	}
	if err := m.free(ctx, token); err != nil {
		return fmt.Errorf("%w; the cluster's networks may still be locked, the next savepoint network apply frees them", err)
	}
	return m.putLock(context.WithoutCancel(ctx), network.Lock{})
}

func (m *Manager) free(ctx context.Context, token string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTime)
	defer cancel()
	return m.cfg.Fabric.Unlock(ctx, token)
}

func (m *Manager) putLock(ctx context.Context, l network.Lock) error {
	r, err := m.cfg.Store.Networks(ctx)
	if err != nil || r.Lock == l {
		return err
	}
	r.Lock = l
	return m.cfg.Store.PutNetworks(ctx, r)
}

func when(t time.Time) string { return t.Local().Format(time.DateTime) }
