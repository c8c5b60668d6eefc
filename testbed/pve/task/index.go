package task

import (
	"os"
	"slices"
	"strings"
)

// Info is one task as it is now.
type Info struct {
	Name    string // the UPID as text
	UPID    UPID
	Running bool
	Status  string // exit status; "" while it runs
	Ended   int64  // Unix seconds; 0 while it runs
}

func (e *entry) info() Info {
	return Info{Name: e.name, UPID: e.upid, Running: e.running, Status: e.status, Ended: e.ended}
}

// Lookup returns one task.
func (r *Registry) Lookup(name string) (Info, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.tasks[name]
	if e == nil {
		return Info{}, false
	}
	return e.info(), true
}

// Running lists the tasks that run, the newest first.
func (r *Registry) Running() []Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Info
	for i := len(r.started) - 1; i >= 0; i-- {
		if e := r.started[i]; e.running {
			out = append(out, e.info())
		}
	}
	return out
}

// Finished lists the tasks that have ended, the one that ended last first.
func (r *Registry) Finished() []Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Info, 0, len(r.ended))
	for _, e := range slices.Backward(r.ended) {
		out = append(out, e.info())
	}
	return out
}

// Recent lists up to n tasks, running or not, the newest first.
func (r *Registry) Recent(n int) []Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Info
	for i := len(r.started) - 1; i >= 0 && len(out) < n; i-- {
		out = append(out, r.started[i].info())
	}
	return out
}

// Log returns the lines of a task's log; ok is false when there is none.
func (r *Registry) Log(name string) (lines []string, ok bool) {
	u, valid := Parse(name)
	if !valid {
		return nil, false
	}
	b, err := os.ReadFile(r.logPath(&entry{upid: u, name: u.String()}))
	if err != nil {
		return nil, false
	}
	text := strings.TrimRight(string(b), "\n")
	if text == "" {
		return nil, true
	}
	return strings.Split(text, "\n"), true
}
