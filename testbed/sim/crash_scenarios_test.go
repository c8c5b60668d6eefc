package sim_test

import (
	"context"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// scenario is a piece of work whose every moment is explored.
type scenario struct {
	name        string
	boxes       int // 0 = 1
	seed        int
	single      bool          // a journal that cannot write several records at once
	ahead       bool          // snapshots are taken ahead
	anySnapshot bool          // the storage restores any snapshot
	pause       time.Duration // after a crash, before the next process starts
	do          func(ctx context.Context, l *lab)
	each        func(ctx context.Context, l *lab, sb orchestrator.Sandbox, i int) // in every sandbox at once
	wrap        func(l *lab, c *orchestrator.Config)
	prepare     func(l *lab)                      // before the first process
	again       func(ctx context.Context, l *lab) // what the caller does when he comes back after the recovery
	next        func(ctx context.Context, l *lab) // what a process does that follows one that died; nil: recover and collect
	ends        []orchestrator.State              // what run is told, one after the other, when nothing goes wrong
}

func (s scenario) callers(l *lab) (all []func()) {
	ctx := context.Background()
	if s.each == nil {
		return []func(){func() { s.do(ctx, l) }}
	}
	for i, sb := range l.boxes {
		all = append(all, func() { s.each(ctx, l, sb, i) })
	}
	return all
}

// single is one transaction of every kind of end.
func single(b orchestrator.Boundary) map[string]orchestrator.Spec {
	return map[string]orchestrator.Spec{
		"commit":   {Command: "echo new > /workspace/a && echo more > /workspace/b", Boundary: b},
		"fail":     {Command: "echo bad > /workspace/a && rm /workspace/none", Boundary: b},
		"keep":     {Command: "echo kept > /workspace/a && rm /workspace/none", Boundary: b, OnFailure: orchestrator.OnFailureKeep},
		"timeout":  {Command: "echo bad > /workspace/a && sleep 3600", Boundary: b, Timeout: 2 * time.Second},
		"panic":    {Command: "echo bad > /workspace/a && mkdir /panic", Boundary: b},
		"cut":      {Command: "echo bad > /workspace/a && mkdir /cut && sleep 3 && echo late > /workspace/late", Boundary: b},
		"validate": {Command: "echo bad > /workspace/a", Boundary: b, Validate: []orchestrator.Validation{{Command: "cat /workspace/none"}}},
	}
}

var boundaries = []orchestrator.Boundary{"workspace", "disk", "machine"}

func scenarios() (all []scenario) {
	for _, b := range boundaries {
		for _, kind := range []string{"commit", "fail", "keep", "timeout", "panic", "cut", "validate"} {
			spec := single(b)[kind]
			all = append(all, scenario{name: string(b) + "-" + kind, do: func(ctx context.Context, l *lab) { l.run(ctx, spec) }})
		}
		all = append(all, scenario{name: string(b) + "-interrupt", do: func(ctx context.Context, l *lab) {
			ctx, cancel := context.WithTimeout(ctx, 3500*time.Millisecond)
			defer cancel()
			l.run(ctx, orchestrator.Spec{Command: "echo bad > /workspace/a && sleep 60", Boundary: b})
		}})
		commit, fail := single(b)["commit"], single(b)["fail"]
		all = append(all,
			scenario{name: string(b) + "-one-by-one", single: true, do: func(ctx context.Context, l *lab) { l.run(ctx, fail) }},
			scenario{name: string(b) + "-late-recovery", pause: time.Minute, do: func(ctx context.Context, l *lab) { l.run(ctx, fail) }},
			scenario{name: string(b) + "-any-snapshot", anySnapshot: true, do: func(ctx context.Context, l *lab) { l.run(ctx, fail) }},
			scenario{name: string(b) + "-collect", do: func(ctx context.Context, l *lab) {
				l.run(ctx, fail)
				l.run(ctx, commit)
				_, _ = l.e.Collect(ctx)
			}},
		)
		all = append(all, several(b)...)
	}
	root := orchestrator.Spec{Command: "echo bad > /etc/conf && rm /workspace/none", As: policy.Root}
	all = append(all,
		scenario{name: "root-disk-fail", do: func(ctx context.Context, l *lab) { s := root; s.Boundary = "disk"; l.run(ctx, s) }},
		scenario{name: "read-only", do: func(ctx context.Context, l *lab) {
			l.run(ctx, orchestrator.Spec{Command: "cat /workspace/a"})
		}},
		mixed(),
		scenario{name: "side-by-side", boxes: 3, each: func(ctx context.Context, l *lab, sb orchestrator.Sandbox, i int) {
			kinds := []string{"fail", "commit", "cut"}
			s := single(boundaries[i])[kinds[i]]
			s.Sandbox = sb
			l.run(ctx, s)
		}},
	)
	return append(append(append(all, promises()...), resets("disk"), resets("machine"), destroys()), aheads()...)
}

// several are transactions of several commands.
func several(b orchestrator.Boundary) []scenario {
	begin := func(bound bool) orchestrator.BeginSpec {
		return orchestrator.BeginSpec{Boundary: b, Bound: bound}
	}
	name := string(b) + "-several"
	return []scenario{
		{name: name + "-commit", do: func(ctx context.Context, l *lab) {
			s := begin(true)
			s.Sandbox = l.boxes[0]
			l.tell(l.e.Do(ctx, s, func(x *orchestrator.Tx) error {
				return orders(ctx, x, "exec echo one > /workspace/one", "save s1", "exec echo two > /workspace/a",
					"back s1", "exec echo three > /workspace/three")
			}))
		}},
		{name: name + "-do-error", do: func(ctx context.Context, l *lab) {
			s := begin(true)
			s.Sandbox = l.boxes[0]
			l.tell(l.e.Do(ctx, s, func(x *orchestrator.Tx) error {
				if err := orders(ctx, x, "exec echo one > /workspace/one", "save s1", "exec echo two > /workspace/a"); err != nil {
					return err
				}
				return errStop
			}))
		}},
		{name: name + "-detached", do: func(ctx context.Context, l *lab) {
			s := begin(false)
			s.Sandbox = l.boxes[0]
			x, err := l.e.Begin(ctx, s)
			if err != nil {
				return
			}
			id := x.View().ID
			err = orders(ctx, x, "exec echo one > /workspace/one", "save s1")
			if err = joined(err, x.Close(ctx)); err != nil {
				return
			}
			if x, err = l.e.Resume(ctx, id); err != nil {
				return
			}
			if orders(ctx, x, "exec echo two > /workspace/two") == nil {
				l.tell(x.Commit(ctx))
			}
		}},
		{name: name + "-fails", do: func(ctx context.Context, l *lab) {
			s := begin(false)
			s.Sandbox = l.boxes[0]
			if x, err := l.e.Begin(ctx, s); err == nil {
				_ = orders(ctx, x, "exec echo one > /workspace/one", "save s1", "exec echo bad > /workspace/a && rm /workspace/none")
			}
		}},
	}
}

// mixed nests boundaries: savepoints of the workspace inside of the disk's.
func mixed() scenario {
	return scenario{name: "mixed-several", do: func(ctx context.Context, l *lab) {
		x, err := l.e.Begin(ctx, orchestrator.BeginSpec{Sandbox: l.boxes[0], Boundary: "machine", As: policy.Root, OnFailure: orchestrator.OnFailureKeep})
		if err != nil {
			return
		}
		err = orders(ctx, x, "exec echo one > /etc/conf", "save s1 disk", "exec echo two > /workspace/two", "save s2 workspace",
			"agent echo three > /workspace/a", "save s3 workspace", "agent echo four > /workspace/b", "back s2", "agent echo five > /workspace/five",
			"back s1", "exec echo six > /workspace/six && rm /workspace/none")
		if err == nil {
			l.tell(x.Commit(ctx))
		}
	}}
}
