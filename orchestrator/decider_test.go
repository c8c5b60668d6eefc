package orchestrator_test

import (
	"sync"
	"testing"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// newDecider returns the real policy: nothing else can issue permits. It
// judges each command once; the explorations ask thousands of times.
func newDecider(t testing.TB) orchestrator.Decider {
	t.Helper()
	d, err := loadPolicy()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var loadPolicy = sync.OnceValues(func() (*once, error) {
	p, err := policy.New(policy.Options{})
	return &once{policy: p}, err
})

type once struct {
	policy *policy.Engine
	known  sync.Map // command, account, profile and directory → policy.Verdict
}

func (o *once) Grantable(rule string) error { return o.policy.Grantable(rule) }

func (o *once) Decide(r policy.Request) policy.Verdict {
	if len(r.Grants) > 0 || len(r.Env) > 0 {
		return o.policy.Decide(r)
	}
	key := [4]string{r.Command, string(r.User), r.Profile, r.Dir}
	if v, ok := o.known.Load(key); ok {
		return v.(policy.Verdict)
	}
	v := o.policy.Decide(r)
	o.known.Store(key, v)
	return v
}
