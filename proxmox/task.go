package proxmox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	pve "github.com/luthermonson/go-proxmox"

	"savepoint/orchestrator"
)

// upid is the cluster's name of a task, taken apart:
//
//	UPID:node:pid:pstart:starttime:type:id:user:
//
// pid, pstart and starttime are hexadecimal; id may be empty; the user of a
// token is user@realm!name.
type upid struct {
	text    orchestrator.UPID
	node    string
	started time.Time
	kind    string
	id      string
	user    string
}

var upidRE = regexp.MustCompile(`\AUPID:([a-zA-Z0-9](?:[a-zA-Z0-9\-]*[a-zA-Z0-9])?):([0-9A-Fa-f]{8}):([0-9A-Fa-f]{8,9}):([0-9A-Fa-f]{8}):([^:\s/]+):([^:\s/]*):([^:\s/]+):\z`)

func parseUPID(s string) (upid, error) {
	f := upidRE.FindStringSubmatch(s)
	if f == nil {
		return upid{}, fmt.Errorf("the cluster answered %.120q where a task id was expected", s)
	}
	sec, err := strconv.ParseInt(f[4], 16, 64)
	if err != nil {
		return upid{}, fmt.Errorf("task id %s: start time: %w", s, err)
	}
	return upid{text: orchestrator.UPID(s), node: f[1], started: time.Unix(sec, 0), kind: f[5], id: f[6], user: f[7]}, nil
}

func (u upid) vm() orchestrator.VMRef {
	n, err := strconv.Atoi(u.id)
	if err != nil {
		return orchestrator.VMRef{Node: u.node}
	}
	return orchestrator.VMRef{Node: u.node, ID: orchestrator.VMID(n)}
}

// seenTasks remembers the tasks whose names reached us, so that a task found
// in a list can be told to be one whose name was lost.
type seenTasks struct {
	mu    sync.Mutex
	ring  [1024]orchestrator.UPID
	next  int
	known map[orchestrator.UPID]struct{}
}

func (s *seenTasks) add(id orchestrator.UPID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = make(map[orchestrator.UPID]struct{}, len(s.ring))
	}
	if _, dup := s.known[id]; dup {
		return
	}
	delete(s.known, s.ring[s.next])
	s.ring[s.next] = id
	s.known[id] = struct{}{}
	s.next = (s.next + 1) % len(s.ring)
}

func (s *seenTasks) has(id orchestrator.UPID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.known[id]
	return ok
}

// follow waits for the end of a task. It returns the raw *pve.TaskFailedError
// of one that failed, and a failure in every other case: the end of ctx and of
// timeout leave the task running and are ErrUnknownOutcome; polls that fail
// are borne until then.
func (c *Cluster) follow(ctx context.Context, op, subject string, u upid, timeout time.Duration) error {
	task := pve.NewTask(pve.UPID(u.text), c.api)
	wait, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last error
	for n := 0; ; n++ {
		err := task.Ping(wait)
		switch {
		case err == nil && task.IsSuccessful:
			if task.Warnings > 0 {
				c.log.Warn().Str("upid", string(u.text)).Int("warnings", task.Warnings).Msg("task ended with warnings")
			}
			return nil
		case err == nil && task.IsFailed:
			return &pve.TaskFailedError{UPID: task.UPID, Node: u.node, Type: u.kind, ID: u.id, User: u.user, ExitStatus: task.ExitStatus}
		case err != nil && wait.Err() == nil:
			if !passing(err) {
				return c.pollEnded(ctx, op, subject, u, err)
			}
			last = err
			c.log.Debug().Err(err).Str("upid", string(u.text)).Msg("task poll failed, asking again")
		}
		if pause(wait, c.pollPause(n)) != nil {
			return c.stillRunning(ctx, op, subject, u, timeout, last)
		}
	}
}

// pollPause begins short, because many tasks take less than the interval, and
// grows slowly: what a poll comes late is about a tenth of what the task took.
func (c *Cluster) pollPause(n int) time.Duration {
	first, growth := float64(20*time.Millisecond), 1.1
	return time.Duration(min(first*math.Pow(growth, float64(n)), float64(c.cfg.PollInterval)))
}

// passing reports whether a failed poll says nothing about the task: the
// network, the entry node or the node's daemon had a bad moment.
func passing(err error) bool {
	var api *pve.APIError
	if errors.As(err, &api) {
		return api.StatusCode >= 500 && api.StatusCode != 501 || api.StatusCode == 429
	}
	return !isIdentityError(err)
}

// pollEnded is a poll that was refused for good. A task the cluster does not
// know any more is looked for in its node's list of ended tasks.
func (c *Cluster) pollEnded(ctx context.Context, op, subject string, u upid, err error) error {
	if strings.Contains(textOf(err), "no such task") {
		entries, lerr := c.listTasks(ctx, u.node, u.kind, u.vm().ID, u.started)
		if lerr == nil {
			for _, e := range entries {
				if e.UPID == string(u.text) && e.ended() {
					if e.failure() == "" {
						return nil
					}
					return &pve.TaskFailedError{UPID: pve.UPID(u.text), Node: u.node, Type: u.kind, ID: u.id, User: u.user, ExitStatus: e.Status}
				}
			}
			gone := refuse(op, subject, orchestrator.ErrNotFound, "the cluster does not know task "+string(u.text)+" any more", "look at the vm's state")
			gone.forgotten = true
			return gone
		}
	}
	f := &failure{op: op, subject: subject, class: orchestrator.ErrUnknownOutcome, err: err, cause: err.Error()}
	var inner *failure
	if errors.As(explain(op, subject, err, false), &inner) {
		f.cause, f.mend = inner.cause, inner.mend
	}
	f.cause = fmt.Sprintf("task %s cannot be asked for: %s", u.text, f.cause)
	f.mend = strings.TrimPrefix(f.mend+"; the task may go on, look at it on the node", "; ")
	return f
}

func (c *Cluster) stillRunning(ctx context.Context, op, subject string, u upid, timeout time.Duration, last error) error {
	f := &failure{op: op, subject: subject, class: orchestrator.ErrUnknownOutcome, err: ctx.Err(),
		mend: "the task was not stopped and may still do its work; look at it and at the vm before acting"}
	if ctx.Err() != nil {
		f.cause = fmt.Sprintf("stopped waiting for task %s (%v)", u.text, ctx.Err())
	} else {
		f.cause = fmt.Sprintf("task %s did not end within %s", u.text, timeout)
	}
	if last != nil {
		f.cause += fmt.Sprintf(" (last failed question: %v)", last)
	}
	return f
}

// taskEntry is one line of a node's task list.
type taskEntry struct {
	UPID    string  `json:"upid"`
	Type    string  `json:"type"`
	Status  string  `json:"status"`
	EndTime flexInt `json:"endtime"`
}

func (e taskEntry) ended() bool {
	return e.Status != "" && !strings.EqualFold(e.Status, "running")
}

// failure is the exit status of an entry that failed, "" otherwise.
func (e taskEntry) failure() string {
	if !e.ended() || e.Status == pve.TaskExitOK || strings.HasPrefix(e.Status, "WARNINGS:") {
		return ""
	}
	return e.Status
}

// listTasks reads a node's tasks, active and ended, newest first. since is in
// the server's time.
func (c *Cluster) listTasks(ctx context.Context, node, kind string, id orchestrator.VMID, since time.Time) ([]taskEntry, error) {
	q := url.Values{"source": {"all"}, "limit": {"100"}, "since": {strconv.FormatInt(max(since.Unix(), 0), 10)}}
	if kind != "" {
		q.Set("typefilter", kind)
	}
	if id > 0 {
		q.Set("vmid", strconv.Itoa(int(id)))
	}
	var out []taskEntry
	if err := c.get(ctx, nodePath(node)+"/tasks", q, &out); err != nil {
		return nil, err
	}
	return out, nil
}

// Tasks returns the adapter for tasks that an earlier process started.
func (c *Cluster) Tasks() *Tasks { return &Tasks{c: c} }

// Tasks implements orchestrator.Tasks.
type Tasks struct{ c *Cluster }

var _ orchestrator.Tasks = (*Tasks)(nil)

// Await waits for the task's end, for at most the clone timeout. A failed task
// is the error class of its text; the end of ctx leaves the task running.
func (t *Tasks) Await(ctx context.Context, id orchestrator.UPID) error {
	const op = "await task"
	u, err := parseUPID(string(id))
	if err != nil {
		return refuse(op, fmt.Sprintf("%.120q", string(id)), orchestrator.ErrNotFound, "that is no task id", "")
	}
	t.c.seen.add(u.text)
	return explain(op, string(id), t.c.follow(ctx, op, string(id), u, t.c.cfg.CloneTimeout), true)
}

// Find lists tasks of one kind on one VM that began at or after since, newest
// first. A clone's tasks are listed under the template. Start times have whole
// seconds, so since is taken back to its second.
func (t *Tasks) Find(ctx context.Context, vm orchestrator.VMRef, kind string, since time.Time) ([]orchestrator.Task, error) {
	from := t.c.clock.at(since).Truncate(time.Second)
	entries, err := t.c.listTasks(ctx, vm.Node, kind, vm.ID, from)
	if err != nil {
		return nil, explain("find "+kind+" tasks of", vm.String(), err, false)
	}
	var out []orchestrator.Task
	for _, e := range entries {
		u, err := parseUPID(e.UPID)
		if err != nil || u.started.Before(from) || u.vm() != vm || (kind != "" && u.kind != kind) {
			continue
		}
		out = append(out, orchestrator.Task{
			UPID: u.text, Type: u.kind, VM: u.vm(), Started: u.started, Running: !e.ended(), Failure: e.failure(),
		})
	}
	return out, nil
}
