package proxmox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	pve "github.com/luthermonson/go-proxmox"

	"savepoint/orchestrator"
)

func nodePath(node string) string { return "/nodes/" + url.PathEscape(node) }

func vmPath(vm orchestrator.VMRef) string {
	return nodePath(vm.Node) + "/qemu/" + strconv.Itoa(int(vm.ID))
}

func withQuery(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// request makes one call; a refused ticket is renewed once, which is safe for
// every method because a 401 was not carried out.
func (c *Cluster) request(ctx context.Context, call func() error) error {
	begun := c.cfg.Now()
	err := call()
	var api *pve.APIError
	if errors.As(err, &api) && api.StatusCode == http.StatusUnauthorized && c.auth.renew(begun) {
		err = call()
	}
	return err
}

func (c *Cluster) get(ctx context.Context, path string, q url.Values, out any) error {
	return c.request(ctx, func() error { return c.api.Get(ctx, withQuery(path, q), out) })
}

func (c *Cluster) put(ctx context.Context, path string, params map[string]any) error {
	return c.request(ctx, func() error { return c.api.Put(ctx, path, params, nil) })
}

// postTask and deleteTask return the task id that the cluster answered.
func (c *Cluster) postTask(ctx context.Context, path string, params map[string]any) (id string, err error) {
	var body any
	if len(params) > 0 {
		body = params
	}
	err = c.request(ctx, func() error { return c.api.Post(ctx, path, body, &id) })
	return id, err
}

func (c *Cluster) deleteTask(ctx context.Context, path string, q url.Values) (id string, err error) {
	err = c.request(ctx, func() error { return c.api.Delete(ctx, withQuery(path, q), &id) })
	return id, err
}

// order is one change that the cluster carries out in a task.
type order struct {
	op, subject string
	node        string            // where the task runs
	kind        string            // type of the task
	id          orchestrator.VMID // the task's id: the VM it is listed under
	task        string            // the task's id where it is not a VM's
	timeout     time.Duration
	started     orchestrator.Started
	send        func(ctx context.Context) (string, error)
}

// carryOut sends the order once, follows its task and returns nil when the
// task ended well. Every error is a failure. What the task did is for the
// caller to verify.
func (c *Cluster) carryOut(ctx context.Context, o order) error {
	if err := ctx.Err(); err != nil {
		return &failure{op: o.op, subject: o.subject, class: orchestrator.ErrUnavailable, cause: "not begun: " + err.Error(), err: err}
	}
	since := c.cfg.Now()
	text, err := o.send(ctx)
	var u upid
	switch {
	case err == nil:
		if u, err = parseUPID(text); err != nil {
			return &failure{op: o.op, subject: o.subject, class: orchestrator.ErrUnknownOutcome, cause: err.Error(), mend: "look at the vm's tasks"}
		}
	case maybeDone(err) && !refused(err):
		if u, err = c.findLost(ctx, o, since, err); err != nil {
			return err
		}
	default:
		return explain(o.op, o.subject, err, true)
	}
	c.seen.add(u.text)
	if o.started != nil {
		if err := o.started(u.text); err != nil {
			return &failure{op: o.op, subject: o.subject, class: orchestrator.ErrUnknownOutcome, err: err,
				cause: fmt.Sprintf("task %s runs but could not be recorded: %v", u.text, err), mend: "look at the task before acting"}
		}
	}
	timeout := o.timeout
	if timeout == 0 {
		timeout = c.cfg.TaskTimeout
	}
	err = explain(o.op, o.subject, c.follow(ctx, o.op, o.subject, u, timeout), true)
	var f *failure
	if errors.As(err, &f) && f.forgotten {
		// It was begun, so that nobody knows it any more tells nothing.
		err = f.with(orchestrator.ErrUnknownOutcome, f.mend)
	}
	c.log.Debug().Err(err).Str("op", o.op).Int("vm", int(o.id)).Str("node", o.node).Str("upid", string(u.text)).
		Dur("took", c.cfg.Now().Sub(since)).Msg("task followed")
	return err
}

// names reports whether a task has the id of the order's.
func (o order) names(u upid) bool {
	if o.task != "" {
		return u.id == o.task
	}
	return u.vm().ID == o.id
}

// findLost looks for the task of an order whose answer was lost: ours, of that
// kind, on that VM, begun since, and not one whose name reached us. It returns
// ErrUnknownOutcome when there is none within the reconcile time, because the
// order may still be on its way.
func (c *Cluster) findLost(ctx context.Context, o order, since time.Time, cause error) (upid, error) {
	lost := explain(o.op, o.subject, cause, true)
	look, cancel := context.WithTimeout(ctx, c.cfg.ReconcileTimeout)
	defer cancel()
	// The list has whole seconds, and the VM's node may be a little behind.
	from := c.clock.at(since).Add(-5 * time.Second)
	for n := 0; ; n++ {
		entries, err := c.listTasks(look, o.node, o.kind, o.id, from)
		if err == nil {
			for _, e := range entries {
				u, err := parseUPID(e.UPID)
				if err == nil && u.user == c.principal() && u.kind == o.kind && o.names(u) && !u.started.Before(from) && !c.seen.has(u.text) {
					c.log.Info().Str("upid", e.UPID).Str("op", o.op).Msg("the answer was lost, the task was found")
					return u, nil
				}
			}
		}
		if pause(look, backoff(n, 50*time.Millisecond, time.Second)) != nil {
			return upid{}, lost
		}
	}
}

// verify reads until ok says that the result is there, for a bounded time: the
// cluster's view can be a moment behind the end of a task. The last reason
// that ok gave becomes the error.
func (c *Cluster) verify(ctx context.Context, op, subject string, ok func(ctx context.Context) (reason string, err error)) error {
	return c.verifyWithin(ctx, c.cfg.VerifyTimeout, op, subject, ok)
}

func (c *Cluster) verifyWithin(ctx context.Context, timeout time.Duration, op, subject string, ok func(ctx context.Context) (reason string, err error)) error {
	look, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reason := "not looked at"
	for n := 0; ; n++ {
		why, err := ok(look)
		if err == nil && why == "" {
			return nil
		}
		if err != nil {
			var f *failure
			if errors.As(err, &f) && !errors.Is(err, orchestrator.ErrUnavailable) && !errors.Is(err, orchestrator.ErrNotFound) {
				return err
			}
			if look.Err() == nil {
				reason = err.Error()
			}
		} else {
			reason = why
		}
		if pause(look, c.pollPause(n)) != nil {
			return &failure{op: op, subject: subject, class: orchestrator.ErrUnknownOutcome, err: ctx.Err(),
				cause: "the task ended well but the result is not there: " + reason, mend: "look at the vm before acting"}
		}
	}
}
