package gemini

import (
	"slices"
	"strings"
	"sync"
)

// book keeps what the tables are made of.
type book struct {
	mu        sync.Mutex
	outcomes  map[string][]Outcome
	protected map[string][]Protected
	within    map[string][]Within
	left      [][]string // arms that a quick look leaves out: task and sandbox
}

func (b *book) add(o Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outcomes[o.Arm] = append(b.outcomes[o.Arm], o)
}

func (b *book) addProtected(p Protected) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.protected[p.Arm] = append(b.protected[p.Arm], p)
}

func (b *book) addWithin(w Within) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.within[w.Arm] = append(b.within[w.Arm], w)
}

// sandboxes are the names of those in which an arm's task was made.
func (b *book) sandboxes(a Arm) []string {
	var out []string
	for _, p := range b.protected[a.Name] {
		if !slices.Contains(out, p.Sandbox) {
			out = append(out, p.Sandbox)
		}
	}
	return out
}

func (b *book) of(a Arm, sandbox string) []Protected {
	return slices.DeleteFunc(slices.Clone(b.protected[a.Name]), func(p Protected) bool { return p.Sandbox != sandbox })
}

// isolations are what held the runs, each once.
func (b *book) isolations() []Isolation {
	var out []Isolation
	for _, i := range []Isolation{Namespace, ClosedProxy} {
		for _, list := range b.outcomes {
			if !slices.Contains(out, i) && slices.ContainsFunc(list, func(o Outcome) bool { return o.Isolation == i }) {
				out = append(out, i)
			}
		}
	}
	return out
}

// every lists the different values of something, in the order they came.
func every[T any](list []T, text func(T) string) string {
	var out []string
	for _, v := range list {
		if s := text(v); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return strings.Join(out, "; ")
}
