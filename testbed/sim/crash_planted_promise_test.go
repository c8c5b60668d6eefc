package sim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"savepoint/orchestrator"
)

// Journals and guests that break what callers rely on.

// batching is a journal with all that the engine asks of the simulated one.
type batching struct{ orchestrator.Journal }

func (j batching) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	return j.Journal.(orchestrator.Batcher).AppendAll(ctx, rs)
}

func (j batching) ByKey(ctx context.Context, sb orchestrator.SandboxID, key string) (orchestrator.TxID, bool, error) {
	return j.Journal.(orchestrator.Keyed).ByKey(ctx, sb, key)
}

func (j batching) Session(ctx context.Context, sb orchestrator.SandboxID) ([]byte, error) {
	return j.Journal.(orchestrator.SessionKeeper).Session(ctx, sb)
}

func (j batching) OpenGrants(ctx context.Context, sb orchestrator.SandboxID, now time.Time) ([]orchestrator.Grant, error) {
	return j.Journal.(orchestrator.GrantKeeper).OpenGrants(ctx, sb, now)
}

// forgetful finds the keys that it wrote itself.
type forgetful struct {
	batching
	keys map[string]orchestrator.TxID
}

func (j *forgetful) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	err := j.batching.AppendAll(ctx, rs)
	for _, r := range rs {
		if r.Key != "" && err == nil {
			j.keys[r.Key] = r.Tx
		}
	}
	return err
}

func (j *forgetful) ByKey(_ context.Context, _ orchestrator.SandboxID, key string) (orchestrator.TxID, bool, error) {
	id, ok := j.keys[key]
	return id, ok, nil
}

type keyless struct{ batching }

func (j keyless) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	rs = slices.Clone(rs)
	for i := range rs {
		rs[i].Key = ""
	}
	return j.batching.AppendAll(ctx, rs)
}

// resigned gives up for good when there was no room once.
type resigned struct {
	batching
	err error
}

func (j *resigned) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	if j.err == nil {
		j.err = j.batching.AppendAll(ctx, rs)
	}
	return j.err
}

// boastful says that it wrote what it has no room for.
type boastful struct{ batching }

func (j boastful) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	if err := j.batching.AppendAll(ctx, rs); !errors.Is(err, orchestrator.ErrUnavailable) {
		return err
	}
	return nil
}

// lateSession writes a session with whatever is written next.
type lateSession struct {
	batching
	held json.RawMessage
}

func (j *lateSession) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	rs = slices.Clone(rs)
	late := j.held
	j.held = nil
	for i := range rs {
		if rs[i].Event == "commit" {
			j.held = rs[i].Session
		}
		rs[i].Session = late
		late = nil
	}
	return j.batching.AppendAll(ctx, rs)
}

// lateSpending spends what a begin uses up when it is committed.
type lateSpending struct {
	batching
	held []orchestrator.GrantID
}

func (j *lateSpending) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	rs = slices.Clone(rs)
	for i := range rs {
		switch rs[i].Event {
		case "begin":
			j.held, rs[i].Spends = rs[i].Spends, nil
		case "commit":
			rs[i].Spends, j.held = j.held, nil
		}
	}
	return j.batching.AppendAll(ctx, rs)
}

// trusting answers with the list from before when there is none.
type trusting struct {
	orchestrator.Guest
	known map[string]orchestrator.Manifest
}

func (g *trusting) Health(ctx context.Context, sb orchestrator.Sandbox) (orchestrator.GuestHealth, error) {
	return g.Guest.(orchestrator.Examiner).Health(ctx, sb)
}

func (g *trusting) Manifest(ctx context.Context, sb orchestrator.Sandbox, r orchestrator.ManifestRequest) (orchestrator.Manifest, error) {
	m, err := g.Guest.(orchestrator.Examiner).Manifest(ctx, sb, r)
	if g.known == nil {
		g.known = map[string]orchestrator.Manifest{}
	}
	what := fmt.Sprint(r)
	if was, ok := g.known[what]; err != nil && ok {
		return was, nil
	}
	g.known[what] = m
	return m, err
}
