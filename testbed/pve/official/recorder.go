package official

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"savepoint/testbed/pve/schema"
)

// Recorder checks the requests that a server is told of. It is safe for
// concurrent use.
type Recorder struct {
	// Agent limits it to requests of one client; "" are all.
	Agent string

	mu    sync.Mutex
	calls map[string]int
	bad   map[string]bool
	rel   *Release
}

// NewRecorder makes one for the requests of a release's client.
func NewRecorder(r *Release, agent string) *Recorder {
	return &Recorder{Agent: agent, calls: map[string]int{}, bad: map[string]bool{}, rel: r}
}

// Seen takes one request; it is what a server's configuration wants.
func (r *Recorder) Seen(q schema.Request) {
	if r.Agent != "" && q.Agent != r.Agent {
		return
	}
	wrong := r.rel.Check(q)
	name := q.Method + " " + q.Path
	if c := r.rel.Find(q.Method, q.Path); c != nil {
		name = c.Name()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[name]++
	for _, w := range wrong {
		r.bad[fmt.Sprintf("%s (sent %v)", w, q.Params)] = true
	}
}

// Calls are the different calls that were made, in order.
func (r *Recorder) Calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.calls))
}

// Deviations tells what was wrong, each once, in order.
func (r *Recorder) Deviations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.bad))
}
