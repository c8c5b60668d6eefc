package pve

import (
	"fmt"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"savepoint/testbed/pve/httpd"
	"savepoint/testbed/pve/task"
)

// Fault makes matching requests go wrong.
type Fault struct {
	Method string // "" = any
	// Path is a pattern of the path below /api2/json, as path.Match has them:
	// "/nodes/*/qemu/*/snapshot". "" = any.
	Path string
	// Nth counts matching requests from 1; 0 = every one.
	Nth int
	// Delay holds the request up before anything else.
	Delay time.Duration
	// AfterEffect lets the call do its work first; otherwise nothing is done.
	AfterEffect bool
	// Drop closes the connection instead of answering.
	Drop bool
	// Status answers with this instead, 595, 596 and 597 included; Message is
	// the reason and, for other codes, the body's message.
	Status  int
	Message string
}

// TaskFault makes a task of a type go wrong at one of its steps. Every task
// has "begin", before anything was done. Beyond that:
//
//	qmcreate       created (a locked configuration exists)
//	qmclone        created, disk (before each), finish (all disks are made)
//	qmstart        start
//	qmshutdown     shutdown
//	qmstop         stop
//	qmsnapshot     allocated (memory's volume, which nothing refers to yet), prepared (lock,
//	               section), disks, commit (all is taken)
//	qmdelsnapshot  marked (lock and state are set), disk (after each)
//	qmrollback     stop, locked, disk (after each), restored (the configuration is), start
//	qmsuspend      saving
//	qmtemplate     template
//	qmdestroy      destroy
//	qmigrate       disk (before each that is copied), move (before the configuration goes)
//	resize         resize
//	srvreload      written (the node's files are; nothing is built yet)
//	imgcopy        copy
//	download       download, downloaded (the file has not its name yet)
//	imgdel         remove
type TaskFault struct {
	Type   string // "qmsnapshot"
	Step   string // "" = "begin"
	Nth    int    // counts tasks of the type that reach the step; 0 = every one
	Action task.Action
	// Struck is told when it strikes, before it does; nil = nobody. Until it
	// returns the task is held up.
	Struck func(task.UPID)
}

// Faults is the set of things that go wrong. The zero value is none; it is
// safe for use at any time.
type Faults struct {
	mu    sync.Mutex
	https []*armed[Fault]
	tasks []*armed[TaskFault]
}

type armed[T any] struct {
	fault T
	seen  int
}

// Add arms a fault; the function disarms it.
func (f *Faults) Add(fault Fault) (remove func()) {
	return add(&f.mu, &f.https, fault)
}

// AddTask arms a fault of tasks; the function disarms it.
func (f *Faults) AddTask(fault TaskFault) (remove func()) {
	if fault.Step == "" {
		fault.Step = "begin"
	}
	return add(&f.mu, &f.tasks, fault)
}

func add[T any](mu *sync.Mutex, list *[]*armed[T], fault T) func() {
	mu.Lock()
	defer mu.Unlock()
	a := &armed[T]{fault: fault}
	*list = append(*list, a)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		for i, b := range *list {
			if b == a {
				*list = append((*list)[:i:i], (*list)[i+1:]...)
				return
			}
		}
	}
}

// Clear disarms everything.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.https, f.tasks = nil, nil
}

// due counts a match and reports whether the fault strikes now.
func (a *armed[T]) due(nth int) bool {
	a.seen++
	return nth == 0 || a.seen == nth
}

// before delays the request, and answers it if it must not be done at all.
func (f *Faults) before(r *httpd.Request) *httpd.Response { return f.strike(r, false) }

// after replaces the answer of what was done.
func (f *Faults) after(r *httpd.Request) *httpd.Response { return f.strike(r, true) }

func (f *Faults) strike(r *httpd.Request, after bool) *httpd.Response {
	f.mu.Lock()
	var hit *Fault
	for _, a := range f.https { // every match counts, the first due one strikes
		if a.fault.AfterEffect == after && a.fault.matches(r) && a.due(a.fault.Nth) && hit == nil {
			hit = &a.fault
		}
	}
	f.mu.Unlock()
	if hit == nil {
		return nil
	}
	if hit.Delay > 0 {
		t := time.NewTimer(hit.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done():
		}
	}
	switch {
	case hit.Drop:
		return &httpd.Response{Drop: true}
	case hit.Status >= 595:
		return httpd.Text(hit.Status, hit.Message, "")
	case hit.Status > 0:
		body, err := encodeJSON(map[string]any{"data": nil, "message": hit.Message + "\n"})
		if err != nil {
			return httpd.Text(hit.Status, hit.Message, "")
		}
		return &httpd.Response{Status: hit.Status, Reason: hit.Message, ContentType: jsonType, Body: body}
	}
	return nil
}

func (f Fault) matches(r *httpd.Request) bool {
	if f.Method != "" && f.Method != r.Method {
		return false
	}
	if f.Path == "" {
		return true
	}
	p, err := url.PathUnescape(r.Path())
	if err != nil {
		return false
	}
	p = strings.TrimSuffix(strings.TrimPrefix(p, "/api2/json"), "/")
	ok, err := path.Match(f.Path, p)
	return err == nil && ok
}

// step is the task registry's hook.
func (f *Faults) step(u task.UPID, step string) task.Action {
	f.mu.Lock()
	var hit TaskFault
	found := false
	for _, a := range f.tasks {
		if a.fault.Type == u.Type && a.fault.Step == step && a.due(a.fault.Nth) && !found {
			hit, found = a.fault, true
		}
	}
	f.mu.Unlock()
	if hit.Struck != nil {
		hit.Struck(u)
	}
	return hit.Action
}

// SetLock puts a lock ("backup", "migrate", …) into a VM's configuration, as
// another operation would, or takes it off when lock is "".
func (s *Server) SetLock(vmid int, lock string) error {
	err := s.owner(vmid).update(nil, vmid, func(c *vmConf) error {
		if lock == "" {
			delete(c.main, "lock")
		} else {
			c.main["lock"] = lock
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("lock vm %d: %w", vmid, err)
	}
	return nil
}

// SetSnapState puts a state ("prepare", "delete") on a snapshot, as an
// interrupted operation would, or takes it off when state is "".
func (s *Server) SetSnapState(vmid int, snap, state string) error {
	err := s.owner(vmid).update(nil, vmid, func(c *vmConf) error {
		o, err := c.snapshot(snap)
		if err != nil {
			return err
		}
		if state == "" {
			delete(o, "snapstate")
		} else {
			o["snapstate"] = state
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("mark snapshot %s of vm %d: %w", snap, vmid, err)
	}
	return nil
}

// HoldFile holds a VM's lock file, as a process on the node would, until
// release is called.
func (s *Server) HoldFile(vmid int) (release func(), err error) {
	ok, _ := s.entry(vmid).file.try(true)
	if !ok {
		return nil, fmt.Errorf("hold lock file of vm %d: it is held", vmid)
	}
	return sync.OnceFunc(func() { s.entry(vmid).file.release(true) }), nil
}

// KillTask ends a task's worker as SIGKILL would.
func (s *Server) KillTask(upid string) {
	for _, m := range s.members {
		m.tasks.Kill(upid)
	}
}
