package world

import (
	"fmt"
	"sync"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// Policy is the real policy, which alone can issue permits. It judges each
// command once: the explorations ask hundreds of thousands of times.
func Policy() (orchestrator.Decider, error) { return loadPolicy() }

var loadPolicy = sync.OnceValues(func() (*once, error) {
	p, err := policy.New(policy.Options{})
	return &once{policy: p}, err
})

type once struct {
	policy *policy.Engine
	known  sync.Map // question → policy.Verdict
}

type question struct {
	command, profile, dir, env string
	user                       policy.User
}

// Decide judges a command.
func (o *once) Decide(r policy.Request) policy.Verdict {
	if len(r.Grants) > 0 {
		return o.policy.Decide(r)
	}
	key := question{command: r.Command, profile: r.Profile, user: r.User, dir: r.Dir}
	if len(r.Env) > 0 {
		key.env = fmt.Sprintf("%q", r.Env)
	}
	if v, ok := o.known.Load(key); ok {
		return v.(policy.Verdict)
	}
	v := o.policy.Decide(r)
	o.known.Store(key, v)
	return v
}

// Grantable says whether the rule may be granted.
func (o *once) Grantable(rule string) error { return o.policy.Grantable(rule) }
