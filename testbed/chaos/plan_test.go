package chaos

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// plan is a transaction that can be played again and again, each time with
// other contents.
type plan struct {
	name     string
	as       string
	boundary string
	flags    []string
	tail     string // the command's last line
	commits  bool   // what it comes to when it is not disturbed
	several  bool   // several commands, with a savepoint in between
}

var plans = []plan{
	{name: "agent-machine", as: "agent", boundary: "machine", commits: true},
	{name: "root-disk", as: "root", boundary: "disk", commits: true},
	{name: "agent-fails-machine", as: "agent", boundary: "machine", tail: "exit 9"},
	{name: "root-fails-disk", as: "root", boundary: "disk", tail: "exit 9"},
	{name: "root-machine", as: "root", boundary: "machine", flags: []string{"--validate", "test -s /etc/passwd"}, commits: true},
	{name: "root-refused-machine", as: "root", boundary: "machine", flags: []string{"--validate", "test -e /does/not/exist"}},
	{name: "agent-keeps-disk", as: "agent", boundary: "disk", flags: []string{"--on-failure", "keep"}, tail: "exit 9", commits: true},
	{name: "agent-workspace", as: "agent", boundary: "workspace", commits: true},
	{name: "agent-fails-workspace", as: "agent", boundary: "workspace", tail: "exit 9"},
	{name: "agent-several-workspace", as: "agent", boundary: "workspace", several: true, commits: true},
	{name: "root-several-machine", as: "root", boundary: "machine", several: true, commits: true},
	{name: "root-several-disk", as: "root", boundary: "disk", several: true, commits: true},
}

// zfsPlans are those where the agent's files are on a volume of their own. A
// snapshot of the whole VM has a part on that volume: they are one stack.
var zfsPlans = []plan{
	{name: "agent-workspace", as: "agent", boundary: "workspace", commits: true},
	{name: "agent-fails-workspace", as: "agent", boundary: "workspace", tail: "exit 9"},
	{name: "root-machine", as: "root", boundary: "machine", commits: true},
	{name: "root-fails-disk", as: "root", boundary: "disk", tail: "exit 9"},
	{name: "agent-several-workspace", as: "agent", boundary: "workspace", several: true, commits: true},
	{name: "agent-refused-workspace", as: "agent", boundary: "workspace", flags: []string{"--validate", "test -e /does/not/exist"}},
	{name: "root-fails-machine", as: "root", boundary: "machine", tail: "exit 9"},
	{name: "root-several-machine", as: "root", boundary: "machine", several: true, commits: true},
}

// changes is what the transaction does when it commits.
func (p plan) changes(n uint64, agent user) []change {
	if p.as == "agent" {
		return append(agentFirst(n), agentSecond(n)...)
	}
	return append(rootFirst(n, agent), rootSecond(n)...)
}

func (p plan) user(agent user) user {
	if p.as == "agent" {
		return agent
	}
	return user{"root", "0:0"}
}

// placeholder stands for the id that tx begin prints.
const placeholder = "TX"

// orders are the arguments of the savepoint processes, one after the other.
func (p plan) orders(n uint64, agent user) [][]string {
	if !p.several {
		args := append([]string{"run", box, "--as", p.as, "--boundary", p.boundary, "--output", "json"}, p.flags...)
		text := strings.TrimSpace(shellOf(p.changes(n, agent)) + "\n" + p.tail)
		return [][]string{append(args, "--", text)}
	}
	first, second := rootFirst(n, agent), rootSecond(n)
	lost := []change{
		write("/etc/chaos.d/lost.conf", fmt.Sprintf("lost %d", n)), write("/etc/chaos.d/x.conf", "lost"), linger(),
		remove("/root/.chaosrc"), write("/opt/chaos/lost", "lost"),
	}
	if p.as == "agent" {
		first, second = agentFirst(n), agentSecond(n)
		lost = []change{write("/workspace/chaos/lost", fmt.Sprintf("lost %d", n)), write("/workspace/chaos/a", "lost"), linger()}
	}
	return [][]string{
		{"tx", "begin", box, "--as", p.as, "--boundary", p.boundary},
		{"tx", "exec", placeholder, "--", shellOf(first)},
		{"tx", "savepoint", placeholder, "middle"},
		{"tx", "exec", placeholder, "--", shellOf(lost)},
		{"tx", "rollback", placeholder, "--to", "middle"},
		{"tx", "exec", placeholder, "--", shellOf(second)},
		{"tx", "commit", placeholder},
	}
}

func agentFirst(n uint64) []change {
	return []change{
		mkdir("/workspace/chaos/d"),
		write("/workspace/chaos/a", fmt.Sprintf("agent %d", n)),
		symlink("/workspace/chaos/link", fmt.Sprintf("a-%d", n)),
		write(fmt.Sprintf("/workspace/chaos/d/file-%d", n%3), fmt.Sprint(n)),
		remove(fmt.Sprintf("/workspace/chaos/d/file-%d", (n+1)%3)),
		linger(),
	}
}

func agentSecond(n uint64) []change {
	return []change{
		writeMany("/workspace/chaos/big", fmt.Sprintf("line %d", n), 20000),
		write("/workspace/chaos/d/new", fmt.Sprint(n)),
		rename("/workspace/chaos/d/new", "/workspace/chaos/d/kept"),
		chmod("/workspace/chaos/a", []string{"600", "640"}[n%2]),
		xattr("/workspace/chaos/a", fmt.Sprintf("agent-%d", n)),
		mkdir("/home/agent/.config/chaos"),
		write("/home/agent/.config/chaos/settings", fmt.Sprintf("value = %d", n)),
	}
}

func rootFirst(n uint64, agent user) []change {
	return []change{
		mkdir("/etc/chaos.d"),
		write("/etc/chaos.d/x.conf", fmt.Sprintf("value = %d", n)),
		chmod("/etc/chaos.d/x.conf", []string{"600", "640"}[n%2]),
		write("/usr/local/bin/chaos", fmt.Sprintf("#!/bin/sh # %d", n)),
		chmod("/usr/local/bin/chaos", []string{"2755", "755"}[n%2]),
		mkdir("/opt/chaos"),
		write("/opt/chaos/owned", fmt.Sprint(n)),
		chown("/opt/chaos/owned", []string{"0:0", agent.owner}[n%2]),
		linger(),
	}
}

func rootSecond(n uint64) []change {
	return []change{
		writeMany("/opt/chaos/big", fmt.Sprintf("line %d", n), 20000),
		symlink("/usr/local/chaos", fmt.Sprintf("bin/chaos-%d", n)),
		write("/root/.chaosrc", fmt.Sprint(n)),
		write(fmt.Sprintf("/var/spool/chaos-%d", n%3), fmt.Sprint(n)),
		remove(fmt.Sprintf("/var/spool/chaos-%d", (n+1)%3)),
		xattr("/etc/chaos.d/x.conf", fmt.Sprintf("root-%d", n)),
		write("/workspace/by-root", fmt.Sprint(n)),
	}
}

// driver plays a transaction's orders as a script would, until one fails.
type driver struct {
	w    *world
	over chan struct{} // closed at the end

	mu   sync.Mutex
	now  *proc
	dead bool

	results []result // complete once over is closed
}

func (w *world) drive(orders [][]string) *driver {
	d := &driver{w: w, over: make(chan struct{})}
	go func() {
		defer close(d.over)
		id := ""
		for _, args := range orders {
			args = slices.Clone(args)
			if i := slices.Index(args, placeholder); i >= 0 {
				args[i] = id
			}
			p := d.next(args)
			if p == nil {
				return
			}
			r := p.wait(patience)
			d.results = append(d.results, r)
			if r.code != 0 {
				return
			}
			if id == "" {
				id = strings.TrimSpace(r.stdout)
			}
		}
	}()
	return d
}

func (d *driver) next(args []string) *proc {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return nil
	}
	d.now = d.w.start(nil, args...)
	return d.now
}

// kill ends the script and the process that runs. It reports whether one did.
func (d *driver) kill() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.over:
		return false
	default:
	}
	d.dead = true
	if d.now != nil {
		d.now.kill()
	}
	return true
}

// last is how the last process ended; a script that was killed before its
// first one has none.
func (d *driver) last() result {
	if len(d.results) == 0 {
		return result{code: -1}
	}
	return d.results[len(d.results)-1]
}
