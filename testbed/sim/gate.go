package sim

import (
	"net"
	"sync"
)

// gate holds a machine's world: its connections while it is frozen, its
// effects while it is snapshotted.
type gate struct {
	world sync.RWMutex // held for reading by every effect

	mu   sync.Mutex
	open chan struct{} // closed while not frozen; nil means the same
	shut bool
}

func (g *gate) set(frozen bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case frozen && !g.shut:
		g.open, g.shut = make(chan struct{}), true
	case !frozen && g.shut:
		close(g.open)
		g.open, g.shut = nil, false
	}
}

func (g *gate) frozen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// pass waits until the world is not frozen, or done.
func (g *gate) pass(done <-chan struct{}) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open == nil {
		return
	}
	select {
	case <-open:
	case <-done:
	}
}

func (g *gate) pause()  { g.world.Lock() }
func (g *gate) resume() { g.world.Unlock() }

// gated is a connection that stalls while its machine is frozen.
type gated struct {
	net.Conn
	gate *gate
	done chan struct{}
	once sync.Once
}

func (c *gated) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.gate.pass(c.done)
	return n, err
}

func (c *gated) Write(p []byte) (int, error) {
	c.gate.pass(c.done)
	return c.Conn.Write(p)
}

func (c *gated) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}
