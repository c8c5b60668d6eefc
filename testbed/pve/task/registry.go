package task

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// keep is how many finished tasks the index remembers.
const keep = 20000

// entry is one task. Fields are guarded by Registry.mu, the log by logMu.
type entry struct {
	upid    UPID
	name    string // upid as text
	running bool
	ended   int64 // Unix seconds
	status  string
	worker  *Worker
	done    chan struct{} // closed at the end

	logMu sync.Mutex
	log   *os.File
}

// Registry runs and remembers the tasks of one node.
type Registry struct {
	dir  string
	node string
	now  func() time.Time
	hook Hook

	mu      sync.Mutex
	tasks   map[string]*entry
	started []*entry // by start
	ended   []*entry // by end
	pid     int64
	index   *os.File
	closed  bool
	wg      sync.WaitGroup
}

// Open reads what earlier processes left below dir. Tasks that ran when the
// last one ended are finished now, with the status their log tells.
func Open(dir, node string, now func() time.Time, hook Hook) (*Registry, error) {
	if err := os.MkdirAll(filepath.Join(dir, "log"), 0o700); err != nil {
		return nil, fmt.Errorf("open task registry %s: %w", dir, err)
	}
	r := &Registry{dir: dir, node: node, now: now, hook: hook, tasks: map[string]*entry{}, pid: 1000}
	if err := r.load(); err != nil {
		return nil, err
	}
	if err := r.compact(); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(r.indexPath(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open task index: %w", err)
	}
	r.index = f
	for _, e := range r.started {
		if e.running {
			r.end(e, "", false)
		}
	}
	return r, nil
}

func (r *Registry) indexPath() string { return filepath.Join(r.dir, "index") }

// logPath spreads the logs over 256 directories, as their number grows.
func (r *Registry) logPath(e *entry) string {
	return filepath.Join(r.dir, "log", fmt.Sprintf("%02X", byte(e.upid.PStart)), e.name)
}

// load reads the index, whose lines are "start UPID" and "end UPID time status".
func (r *Registry) load() error {
	f, err := os.Open(r.indexPath())
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read task index: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		what, rest, _ := strings.Cut(lines.Text(), " ")
		name, rest, _ := strings.Cut(rest, " ")
		u, ok := Parse(name)
		if !ok {
			continue // the last line of a process that died while it wrote
		}
		switch what {
		case "start":
			e := &entry{upid: u, name: name, running: true, done: make(chan struct{})}
			r.tasks[name] = e
			r.started = append(r.started, e)
			r.pid = max(r.pid, u.PID+1)
		case "end":
			if e := r.tasks[name]; e != nil {
				at, status, _ := strings.Cut(rest, " ")
				e.running, e.status = false, status
				e.ended, _ = strconv.ParseInt(at, 10, 64)
				r.ended = append(r.ended, e)
				close(e.done)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read task index: %w", err)
	}
	r.trim()
	return nil
}

// compact rewrites the index without the tasks that were forgotten.
func (r *Registry) compact() error {
	var b strings.Builder
	for _, e := range r.started {
		fmt.Fprintf(&b, "start %s\n", e.name)
	}
	for _, e := range r.ended {
		fmt.Fprintf(&b, "end %s %d %s\n", e.name, e.ended, e.status)
	}
	tmp := r.indexPath() + ".new"
	if err := os.WriteFile(tmp, []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("write task index: %w", err)
	}
	if err := os.Rename(tmp, r.indexPath()); err != nil {
		return fmt.Errorf("write task index: %w", err)
	}
	return nil
}

// trim forgets the tasks that ended first beyond the number kept.
func (r *Registry) trim() {
	if len(r.ended) <= keep {
		return
	}
	for _, e := range r.ended[:len(r.ended)-keep] {
		delete(r.tasks, e.name)
		_ = os.Remove(r.logPath(e))
	}
	r.ended = append([]*entry(nil), r.ended[len(r.ended)-keep:]...)
	r.started = slices.DeleteFunc(r.started, func(e *entry) bool { return r.tasks[e.name] != e })
}

// Run starts fn as a task of the user and returns the task's name. The error
// means that nothing was started.
func (r *Registry) Run(kind, id, user string, fn func(*Worker) error) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return "", fmt.Errorf("starting worker failed: server is closing")
	}
	now := r.now()
	r.pid++
	u := UPID{
		Node: r.node, PID: r.pid, PStart: now.UnixMilli() / 10 & 0x7fffffff, Start: now.Unix(),
		Type: kind, ID: id, User: user,
	}
	e := &entry{upid: u, name: u.String(), running: true, done: make(chan struct{})}
	path := r.logPath(e)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("starting worker failed: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return "", fmt.Errorf("starting worker failed: %w", err)
	}
	if _, err := fmt.Fprintf(r.index, "start %s\n", e.name); err != nil {
		f.Close()
		return "", fmt.Errorf("starting worker failed: %w", err)
	}
	e.log = f
	r.tasks[e.name] = e
	r.started = append(r.started, e)
	if len(r.ended) > keep+keep/10 { // seldom, as it takes time
		r.trim()
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	w := &Worker{UPID: u, ctx: ctx, cancel: cancel, reg: r, task: e}
	e.worker = w
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		defer cancel(context.Canceled)
		err := w.Step("begin")
		if err == nil {
			err = fn(w)
		}
		if w.Alive() {
			r.end(e, w.outcome(err), true)
		} else {
			r.end(e, "", false)
		}
	}()
	return e.name, nil
}

// end finishes a task. With tell it writes the log's last line; without, the
// status is what the log tells.
func (r *Registry) end(e *entry, status string, tell bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !e.running {
		return
	}
	e.logMu.Lock()
	if tell && e.log != nil {
		line := "TASK ERROR: " + status
		if status == "OK" || strings.HasPrefix(status, "WARNINGS: ") {
			line = "TASK " + status
		}
		fmt.Fprintln(e.log, line)
	}
	if e.log != nil {
		e.log.Close()
		e.log = nil
	}
	e.logMu.Unlock()
	if !tell {
		status = r.told(e)
	}
	e.running, e.status, e.ended, e.worker = false, status, r.now().Unix(), nil
	r.ended = append(r.ended, e)
	if r.index != nil {
		fmt.Fprintf(r.index, "end %s %d %s\n", e.name, e.ended, status)
	}
	close(e.done)
}

// told reads the exit status off the log's last line.
func (r *Registry) told(e *entry) string {
	b, err := os.ReadFile(r.logPath(e))
	if err != nil || len(b) == 0 {
		return "unable to read tail (got 0 bytes)"
	}
	text := strings.TrimRight(string(b), "\n")
	last := text[strings.LastIndexByte(text, '\n')+1:]
	switch {
	case last == "TASK OK":
		return "OK"
	case strings.HasPrefix(last, "TASK ERROR: "):
		return strings.TrimPrefix(last, "TASK ERROR: ")
	case strings.HasPrefix(last, "TASK WARNINGS: "):
		return strings.TrimPrefix(last, "TASK ")
	}
	return "unexpected status"
}

func (r *Registry) appendLog(e *entry, line string) {
	e.logMu.Lock()
	defer e.logMu.Unlock()
	if e.log != nil {
		fmt.Fprintln(e.log, line)
	}
}

// Stop interrupts a running task and waits up to wait for its end. It is no
// error when the task has ended.
func (r *Registry) Stop(name string, wait time.Duration) {
	if e, w := r.find(name); w != nil {
		w.cancel(ErrInterrupted)
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-e.done:
		case <-t.C:
		}
	}
}

// Kill ends a running task's worker as a SIGKILL would.
func (r *Registry) Kill(name string) {
	if e, w := r.find(name); w != nil {
		r.end(e, "", false)
		w.cancel(ErrKilled)
	}
}

// Wait waits until the task has ended or ctx ends.
func (r *Registry) Wait(ctx context.Context, name string) error {
	e, _ := r.find(name)
	if e == nil {
		return fmt.Errorf("wait for task %s: no such task", name)
	}
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Registry) find(name string) (*entry, *Worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.tasks[name]
	if e == nil {
		return nil, nil
	}
	return e, e.worker
}

// Close kills every worker and waits for all of them.
func (r *Registry) Close() {
	r.mu.Lock()
	r.closed = true
	var names []string
	for _, e := range r.started {
		if e.running {
			names = append(names, e.name)
		}
	}
	r.mu.Unlock()
	for _, n := range names {
		r.Kill(n)
	}
	r.wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.index != nil {
		r.index.Close()
		r.index = nil
	}
}
