package sim

import (
	"os"
	"sync"
)

// feeder carries stdin to a command without ever making the helper wait.
type feeder struct {
	h   *helper
	end *os.File // nil when the command has no stdin

	mu     sync.Mutex
	wake   *sync.Cond
	queue  [][]byte
	over   bool // nothing more comes
	closed bool
}

func newFeeder(h *helper, end *os.File) *feeder {
	f := &feeder{h: h, end: end}
	f.wake = sync.NewCond(&f.mu)
	if end != nil {
		h.g.wg.Go(f.pump)
	}
	return f
}

func (f *feeder) write(p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.end == nil || f.closed {
		f.h.ack(len(p))
		return
	}
	f.queue = append(f.queue, p)
	f.wake.Signal()
}

func (f *feeder) eof() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	f.wake.Signal()
}

// close stops the pump, also in the middle of a write that nobody reads.
func (f *feeder) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed, f.over = true, true
	if f.end != nil {
		f.end.Close()
	}
	f.wake.Signal()
}

func (f *feeder) pump() {
	broken := false
	for {
		f.mu.Lock()
		for len(f.queue) == 0 && !f.over {
			f.wake.Wait()
		}
		if len(f.queue) == 0 || f.closed {
			f.mu.Unlock()
			f.end.Close()
			return
		}
		p := f.queue[0]
		f.queue = f.queue[1:]
		f.mu.Unlock()
		if !broken {
			if _, err := f.end.Write(p); err != nil {
				broken = true // the command reads no more
			}
		}
		f.mu.Lock()
		if !f.closed { // acknowledgements must not follow the end of the command
			f.h.ack(len(p))
		}
		f.mu.Unlock()
	}
}
