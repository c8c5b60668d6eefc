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
	known  sync.Map // policy.Request → policy.Verdict
}

func (o *once) Decide(r policy.Request) policy.Verdict {
	if v, ok := o.known.Load(r); ok {
		return v.(policy.Verdict)
	}
	v := o.policy.Decide(r)
	o.known.Store(r, v)
	return v
}
