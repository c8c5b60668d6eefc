package pve

import (
	"slices"
	"strings"
	"time"

	"savepoint/testbed/pve/schema"
	"savepoint/testbed/pve/task"
)

// stopWait is how long stopping a task waits to see it end.
const stopWait = time.Second

// taskOf returns the task that the path names. what is needed to touch other
// people's tasks.
func (c *call) taskOf(priv string) (task.Info, error) {
	u, ok := task.Parse(c.p.Str("upid"))
	if !ok {
		return task.Info{}, badParam("upid", "unable to parse worker upid")
	}
	info, ok := c.s.tasks.Lookup(u.String())
	if !ok {
		return task.Info{}, badParam("upid", "no such task")
	}
	return info, c.owns(u, priv)
}

// owns refuses other people's tasks, unless the caller has the privilege.
func (c *call) owns(u task.UPID, priv string) error {
	if c.own(u) {
		return nil
	}
	return c.need("/nodes/"+c.s.cfg.Node, priv)
}

// own reports whether a task is the caller's; a user's tasks are those of all
// his tokens, a token's only its own.
func (c *call) own(u task.UPID) bool {
	user, _ := u.Owner()
	return c.who.name == u.User || c.who.name == user
}

// taskItem is what all answers about a task hold.
func taskItem(t task.Info) map[string]any {
	user, token := t.UPID.Owner()
	out := map[string]any{
		"upid": t.Name, "node": t.UPID.Node, "pid": t.UPID.PID, "pstart": t.UPID.PStart,
		"starttime": t.UPID.Start, "type": t.UPID.Type, "id": t.UPID.ID, "user": user,
	}
	if token != "" {
		out["tokenid"] = token
	}
	return out
}

// taskStatus is GET …/tasks/{upid}/status.
func taskStatus(c *call) (any, error) {
	t, err := c.taskOf("Sys.Audit")
	if err != nil {
		return nil, err
	}
	out := taskItem(t)
	out["status"] = "running"
	if !t.Running {
		out["status"], out["exitstatus"] = "stopped", t.Status
	}
	return out, nil
}

// stopTask is DELETE …/tasks/{upid}; a task that has ended is no error.
func stopTask(c *call) (any, error) {
	t, err := c.taskOf("Sys.Modify")
	if err != nil {
		return nil, err
	}
	c.s.tasks.Stop(t.Name, stopWait)
	return nil, nil
}

// taskLog is GET …/tasks/{upid}/log.
func taskLog(c *call) (any, error) {
	u, ok := task.Parse(c.p.Str("upid"))
	if !ok {
		return nil, badParam("upid", "unable to parse worker upid")
	}
	if err := c.owns(u, "Sys.Audit"); err != nil {
		return nil, err
	}
	line := func(n int, text string) map[string]any { return map[string]any{"n": n, "t": text} }
	lines, ok := c.s.tasks.Log(u.String())
	if !ok {
		c.total(1)
		missing := line(1, "unable to open file - No such file or directory")
		if c.s.cfg.major() == "8" {
			return missing, nil
		}
		return []map[string]any{missing}, nil
	}
	if c.p.Bool("download") {
		c.raw("text/plain", []byte(strings.Join(lines, "\n")+"\n"))
		return nil, nil
	}
	if len(lines) == 0 {
		lines = []string{"no content"}
	}
	c.total(len(lines))
	start, limit := c.p.Int("start", 0), c.p.Int("limit", 50)
	out := []map[string]any{}
	for n := start; n < len(lines) && (limit == 0 || n < start+limit); n++ {
		out = append(out, line(n+1, lines[n]))
	}
	return out, nil
}

// taskFilter is which tasks a list wants.
type taskFilter struct {
	vmid, kind, user string
	since, until     int
	errors           bool
	statuses         []string
}

func (f taskFilter) wants(t task.Info) bool {
	switch {
	case f.vmid != "" && t.UPID.ID != f.vmid,
		f.kind != "" && t.UPID.Type != f.kind,
		f.user != "" && !strings.Contains(t.UPID.User, f.user),
		f.since > 0 && t.UPID.Start < int64(f.since),
		f.until > 0 && t.UPID.Start > int64(f.until),
		f.errors && t.Status == "OK":
		return false
	}
	return len(f.statuses) == 0 || t.Running || slices.Contains(f.statuses, statusType(t.Status))
}

// statusType sorts an exit status into the four types that can be filtered for.
func statusType(status string) string {
	switch {
	case status == "OK":
		return "ok"
	case strings.HasPrefix(status, "WARNINGS: "):
		return "warning"
	case status == "unexpected status":
		return "unknown"
	}
	return "error"
}

// listTasks is GET /nodes/{node}/tasks. Tasks that run show their user whole
// and the status RUNNING, those that have ended show user and token apart.
func listTasks(c *call) (any, error) {
	f := taskFilter{
		vmid: c.p.Str("vmid"), kind: c.p.Str("typefilter"), user: c.p.Str("userfilter"),
		since: c.p.Int("since", 0), until: c.p.Int("until", 0), errors: c.p.Bool("errors"),
		statuses: schema.SplitList(c.p.Str("statusfilter")),
	}
	source := c.p.Str("source")
	all := c.may("/nodes/"+c.s.cfg.Node, "Sys.Audit")
	var found []map[string]any
	add := func(tasks []task.Info) {
		for _, t := range tasks {
			if !f.wants(t) || !all && !c.own(t.UPID) {
				continue
			}
			item := taskItem(t)
			if t.Running {
				delete(item, "tokenid")
				item["user"], item["saved"], item["status"] = t.UPID.User, "0", "RUNNING"
			} else {
				item["endtime"], item["status"] = t.Ended, t.Status
			}
			found = append(found, item)
		}
	}
	if source == "active" || source == "all" {
		add(c.s.tasks.Running())
	}
	if source != "active" {
		add(c.s.tasks.Finished())
	}
	if len(found) > 0 {
		c.total(len(found))
	}
	start := min(c.p.Int("start", 0), len(found))
	end := min(start+c.p.Int("limit", 50), len(found))
	return append([]map[string]any{}, found[start:end]...), nil
}

// clusterTaskCount is how many tasks /cluster/tasks shows of a node.
const clusterTaskCount = 25

// clusterTasks is GET /cluster/tasks.
func clusterTasks(c *call) (any, error) {
	all := c.may("/", "Sys.Audit")
	out := []map[string]any{}
	for _, m := range c.s.members {
		if !m.up() { // what a node told is forgotten when it goes
			continue
		}
		for _, t := range m.tasks.Recent(clusterTaskCount) {
			if !all && !c.own(t.UPID) {
				continue
			}
			item := taskItem(t)
			delete(item, "pstart")
			item["saved"] = "0"
			if !t.Running {
				delete(item, "pid")
				item["saved"], item["endtime"], item["status"] = "1", t.Ended, t.Status
			}
			out = append(out, item)
		}
	}
	return out, nil
}
