package world_test

import (
	"testing"

	"savepoint/policy"
	"savepoint/testbed/sim/world"
)

// What is remembered of a question is never the answer to another one.
func TestPolicyTellsQuestionsApart(t *testing.T) {
	t.Parallel()
	p, err := world.Policy()
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := policy.New(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[policy.Decision]bool{}
	for _, r := range []policy.Request{
		{Command: `rm -rf "$D"`},
		{Command: `rm -rf "$D"`, Env: map[string]string{"D": "/workspace/x"}},
		{Command: `rm -rf "$D"`, Env: map[string]string{"D": "/"}},
		{Command: `rm -rf "$D"`, User: policy.Root},
		{Command: "rm -rf .", Dir: "/workspace/x"},
		{Command: "rm -rf .", Dir: "/"},
	} {
		for range 2 {
			v, want := p.Decide(r), fresh.Decide(r)
			if v.Decision != want.Decision || v.Rule != want.Rule {
				t.Errorf("%+v: got %s %s, want %s %s", r, v.Decision, v.Rule, want.Decision, want.Rule)
			}
			got[v.Decision] = true
		}
	}
	if len(got) < 2 {
		t.Error("all questions have one answer")
	}
}

// An engine on it refuses grants that nobody can give, as on the real policy.
func TestPolicyIsAskedForGrants(t *testing.T) {
	t.Parallel()
	p, err := world.Policy()
	if err != nil {
		t.Fatal(err)
	}
	g, ok := p.(interface{ Grantable(rule string) error })
	if !ok || g.Grantable("no.such.rule") == nil {
		t.Errorf("it can be asked: %t, and allows everything", ok)
	}
}
