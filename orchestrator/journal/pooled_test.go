package journal

import (
	"errors"
	"testing"
	"time"

	"savepoint/network"
	"savepoint/orchestrator"
)

// The write that makes a sandbox nobody's takes from it what its user left: the
// next one's requests are not answered with the last one's results, nor let
// through by grants for them. The chain and its lists still verify.
func TestPooledSandboxIsVacated(t *testing.T) {
	t.Parallel()
	j, c, reopen := registry(t)
	c.t = noon
	ctx := t.Context()
	sb := box("box", "dev", orchestrator.SandboxReady, 9001)
	if err := j.PutSandbox(ctx, sb); err != nil {
		t.Fatal(err)
	}
	left := keyed("tx2", "box", "two")
	left.Session = []byte(`{"dir":"/root"}`)
	appendAll(t, j, keyed("tx1", "box", "one"), left, keyed("tx3", "other", "one"))
	put(t, j, grant("gr-1"), grant("gr-2"))
	spending := keyed("tx4", "box", "four")
	spending.Spends = []orchestrator.GrantID{"gr-2"}
	appendAll(t, j, spending)

	pooled := sb
	pooled.Name, pooled.State = "sp-box", orchestrator.SandboxPooled
	if err := j.PutSandbox(ctx, pooled); err != nil {
		t.Fatal(err)
	}
	j = reopen()
	if data, err := j.Session(ctx, "box"); err != nil || data != nil {
		t.Errorf("session %s, %v", data, err)
	}
	if open := openIDs(t, j, noon); len(open) != 0 {
		t.Errorf("grants %v are open", open)
	}
	for _, key := range []string{"one", "two", "four"} {
		if id, found, err := j.ByKey(ctx, "box", key); err != nil || found {
			t.Errorf("key %s: %s, %v, %v", key, id, found, err)
		}
	}
	if id, found, err := j.ByKey(ctx, "other", "one"); err != nil || !found || id != "tx3" {
		t.Errorf("the key of another sandbox: %s, %v, %v", id, found, err)
	}
	// The name is free, and the next user can take the same keys, and again.
	if err := j.PutSandbox(ctx, box("new", "dev", orchestrator.SandboxReady, 9002)); err != nil {
		t.Error(err)
	}
	for _, tx := range []string{"tx5", "tx6"} {
		sb.Name = "of-" + tx
		if err := j.PutSandbox(ctx, sb); err != nil {
			t.Fatal(err)
		}
		appendAll(t, j, keyed(tx, "box", "one"))
		if id, found, err := j.ByKey(ctx, "box", "one"); err != nil || !found || string(id) != tx {
			t.Errorf("key of the next user: %s, %v, %v", id, found, err)
		}
		if err := j.Append(ctx, keyed("tx9", "box", "one")); !errors.Is(err, orchestrator.ErrExists) {
			t.Errorf("the key twice: %v", err)
		}
		if err := j.PutSandbox(ctx, pooled); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.Verify(ctx); err != nil {
		t.Errorf("verify: %v", err)
	}
}

// When the networks were changed last, for who judges the age of proofs.
func TestNetworksChanged(t *testing.T) {
	t.Parallel()
	j, c, reopen := registry(t)
	ctx := t.Context()
	if at, err := j.NetworksChanged(ctx); err != nil || !at.IsZero() {
		t.Errorf("at first: %v, %v", at, err)
	}
	own := network.Allocation{Instance: j.Instance()}
	for range 2 {
		c.add(time.Minute)
		if err := j.PutNetworks(ctx, network.Record{Allocation: own, Applied: own}); err != nil {
			t.Fatal(err)
		}
		j = reopen()
		if at, err := j.NetworksChanged(ctx); err != nil || !at.Equal(c.now()) {
			t.Errorf("%v, %v, want %v", at, err, c.now())
		}
	}
}
