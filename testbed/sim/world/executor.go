package world

import (
	"context"
	"fmt"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// process is a command at work in a guest. It needs nobody who listens.
type process struct {
	id    int
	root  bool
	shell Shell
	steps []string
	over  bool
	exit  int
	out   []byte
	cut   bool // its connection is lost
}

func (q *process) copy() *process {
	c := *q
	c.steps, c.shell = append([]string(nil), q.steps...), q.shell.copy()
	return &c
}

// goOn puts a process into the guest, or back into it with its memory, and
// lets it take its next step in time. The caller holds mu.
func (c *Cluster) goOn(v *vm, q *process) {
	v.guest.procs = append(v.guest.procs, q)
	if c.Step == 0 {
		for !q.over {
			c.walk(v, q)
		}
		return
	}
	c.later(c.now().Add(c.Step), func() { c.walk(v, q) })
}

// walk takes one step of a process and puts the next one off. The caller holds mu.
func (c *Cluster) walk(v *vm, q *process) {
	if q.over || !v.running || v.guest.dead {
		return
	}
	if len(q.steps) == 0 {
		c.ended(v, q, 0)
		return
	}
	exit, out, took, how := step(v.files, &q.shell, q.steps[0], q.root)
	if writes(q.steps[0]) {
		v.writes++
	}
	q.out, q.steps = append(q.out, out...), q.steps[1:]
	switch how {
	case kills:
		v.guest.dead = true
		return
	case cuts:
		q.cut = true
	case ends:
	}
	if exit != 0 || len(q.steps) == 0 && took == 0 {
		c.ended(v, q, exit)
		return
	}
	if c.Step > 0 {
		c.later(c.now().Add(c.Step+took), func() { c.walk(v, q) })
	}
}

// ended takes a process out of the guest.
func (c *Cluster) ended(v *vm, q *process, exit int) {
	q.over, q.exit = true, exit
	for i, o := range v.guest.procs {
		if o == q {
			v.guest.procs = append(v.guest.procs[:i:i], v.guest.procs[i+1:]...)
			return
		}
	}
}

// Run runs a command in the guest.
func (p *Process) Run(ctx context.Context, sb orchestrator.Sandbox, permit policy.Permit, r orchestrator.ExecRequest) (res orchestrator.ExecResult, err error) {
	if !permit.Valid() {
		return res, fmt.Errorf("no permit: %w", orchestrator.ErrDenied)
	}
	var q *process
	began := time.Now()
	err = p.talk(ctx, sb, "run", func(v *vm) error {
		v.runs[permit.Command()]++
		q = &process{id: p.C.next(), root: permit.User() == policy.Root, steps: steps(permit.Command())}
		q.shell = Shell{Dir: r.Dir, Env: r.Env}.copy()
		p.C.goOn(v, q)
		return nil
	})
	if err != nil {
		return res, err // what was started goes on without us
	}
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		outer := ctx
		ctx, cancel = context.WithTimeout(ctx, r.Timeout)
		defer cancel()
		defer func() {
			if res.TimedOut && outer.Err() != nil {
				err = fmt.Errorf("interrupted: %w: %w", orchestrator.ErrUnknownOutcome, outer.Err())
			}
		}()
	}
	res, err = p.listen(ctx, sb, q)
	res.Duration = time.Since(began)
	res.StdoutBytes = int64(len(res.Stdout))
	if err == nil && r.Capture && !res.TimedOut { // the shell ended by itself and could report
		left := q.shell.copy()
		res.Session = &orchestrator.Session{Dir: left.Dir, Env: left.Env}
	}
	if err == nil && r.Health && !res.TimedOut {
		_ = p.C.at(sb.VM, func(v *vm) error {
			if v.answers() && v.guest.key == sb.HostKey {
				h := v.health()
				h.RoundTrip = res.Duration
				res.Health = &h
			}
			return nil
		})
	}
	if r.Stdout != nil {
		_, _ = r.Stdout.Write(res.Stdout)
	}
	return res, err
}

// listen waits for the end of the command, or ends it with ctx.
func (p *Process) listen(ctx context.Context, sb orchestrator.Sandbox, q *process) (res orchestrator.ExecResult, err error) {
	lost := fmt.Errorf("connection to %s lost: %w", sb.Name, orchestrator.ErrUnknownOutcome)
	for {
		if _, perr := p.point(sb.ID, "listen", true); perr != nil {
			return res, perr
		}
		over := false
		err := p.C.at(sb.VM, func(v *vm) error {
			res.Stdout = append([]byte(nil), q.out...)
			over = q.over
			switch {
			case q.cut, !over && !v.answers():
				return lost
			case over && !v.running:
				return lost
			}
			res.ExitCode = q.exit
			return nil
		})
		if err != nil || over {
			return res, err
		}
		if p.wait(ctx, max(p.C.Step, time.Millisecond)) == nil {
			continue
		}
		if p.Gone() {
			return res, ErrCrash
		}
		err = p.C.at(sb.VM, func(v *vm) error {
			if !v.answers() {
				return lost
			}
			p.C.ended(v, q, -1)
			return nil
		})
		res.TimedOut, res.ExitCode, res.Signal = true, -1, "KILL"
		return res, err
	}
}

// Disconnect closes the sandbox's connections.
func (p *Process) Disconnect(sb orchestrator.SandboxID) {
	p.C.mu.Lock()
	defer p.C.mu.Unlock()
	delete(p.conns, sb)
}

// dialled uses the connection that there is, or dials. One from before a
// restore that this process ordered leads into a guest that does not know it:
// whoever uses it hangs. The caller holds mu.
func (p *Process) dialled(sb orchestrator.SandboxID) {
	if p.conns == nil {
		p.conns = map[orchestrator.SandboxID]bool{}
	}
	if p.conns[sb] {
		p.C.crime(Fenced, "sandbox %s: a connection from before a restore was used after it", sb)
	}
	p.conns[sb] = false
}

// restores says that a restore was ordered. The caller holds mu.
func (p *Process) restores(sb orchestrator.SandboxID) {
	if _, ok := p.conns[sb]; ok {
		p.conns[sb] = true
	}
}
