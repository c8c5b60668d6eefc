package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/testbed/bench/trials"
)

// A run does not destroy the sandbox of what it left unfinished: that could not be
// settled any more. What is stuck in it is there to be looked at, until the next run
// needs the name.
func TestBenchKeepsUnfinished(t *testing.T) {
	dir := t.TempDir()
	c := tankCluster(t, dir)
	c.config.Cluster.Storage = "local"
	if err := configs.WriteWithSecrets(c.file, c.config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a := &app{out: io.Discard, err: io.Discard, getenv: func(string) string { return "" }, format: formatText, stateDir: dir + "/state", configFile: c.file}
	b := &benchmark{app: a, flags: benchFlags{sandbox: "bench"}}
	var rig trials.Rig
	if err := b.open(ctx, &rig); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
	}()
	sb, err := b.sandbox(ctx)
	if err != nil {
		t.Fatal(err)
	}
	begin := func(e *orchestrator.Engine) *orchestrator.Tx {
		t.Helper()
		x, err := e.Begin(ctx, orchestrator.BeginSpec{Sandbox: sb, Boundary: orchestrator.BoundaryMachine})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for name, e := range map[string]*orchestrator.Engine{"engine": b.s.engine, "eager": b.eager} {
		x := begin(e)
		if err := b.drop(ctx); !errors.Is(err, orchestrator.ErrBusy) || !strings.Contains(err.Error(), "sandbox bench is kept") {
			t.Fatalf("%s: with an open transaction: %v", name, err)
		}
		if out, err := x.Commit(ctx); err != nil || out.State != orchestrator.StateCommitted {
			t.Fatalf("%s: the transaction afterwards: %s, %v", name, out.State, err)
		}
	}

	x := begin(b.eager)
	if err := c.disown(int(sb.VM.ID)); err != nil {
		t.Fatal(err)
	}
	if out, err := x.Rollback(ctx, ""); out.State != orchestrator.StateStuck {
		t.Fatalf("of a VM that is not ours: %s, %v", out.State, err)
	}
	if err := c.own(int(sb.VM.ID)); err != nil {
		t.Fatal(err)
	}
	var stuck *orchestrator.StuckError
	if err := b.drop(ctx); !errors.As(err, &stuck) {
		t.Fatalf("with a stuck transaction: %v", err)
	}
	if _, err := b.s.prov.Lookup(ctx, sb.Name); err != nil {
		t.Fatalf("it is not kept: %v", err)
	}
	b.box = nil
	if sb, err = b.sandbox(ctx); err != nil {
		t.Fatalf("the next run: %v", err)
	}
	if err := b.drop(ctx); err != nil {
		t.Error(err)
	}
	if _, err := b.s.prov.Lookup(ctx, sb.Name); !errors.Is(err, orchestrator.ErrNotFound) {
		t.Errorf("at the end: %v", err)
	}
}
