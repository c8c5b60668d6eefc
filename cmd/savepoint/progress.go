package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"
)

// progress keeps one line on a terminal up to date while something takes
// longer than a second. On anything but a terminal it writes nothing.
type progress struct {
	w     io.Writer
	width int

	mu    sync.Mutex
	clean func(string) string
	text  string
	since time.Time
	shown bool

	quit chan struct{}
	done chan struct{}
}

// newProgress begins the line; own are the configured forms of secrets, which it
// must not show.
func newProgress(w io.Writer, own []*regexp.Regexp) *progress {
	p := &progress{w: w, width: terminal(w), clean: cleaner(own)}
	if p.width == 0 {
		return p
	}
	p.quit, p.done = make(chan struct{}), make(chan struct{})
	go p.loop()
	return p
}

// redact sets the configured forms of secrets, where they are known late.
func (p *progress) redact(own []*regexp.Regexp) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clean = cleaner(own)
}

// say sets what is being done now. It may quote what a guest or the cluster
// said: secrets are taken out, and what would steer the terminal. A nil progress
// accepts it.
func (p *progress) say(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	text := p.clean(fmt.Sprintf(format, args...))
	p.text, p.since = strings.Join(strings.Fields(printable(text)), " "), time.Now()
}

func (p *progress) loop() {
	defer close(p.done)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.quit:
			return
		case <-tick.C:
			p.draw()
		}
	}
}

func (p *progress) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	elapsed := time.Since(p.since)
	if p.text == "" || elapsed < time.Second {
		return
	}
	line := fmt.Sprintf("%s … %s", p.text, short(elapsed.Round(100*time.Millisecond)))
	if r := []rune(line); len(r) >= p.width {
		line = string(r[:p.width-1])
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", line)
	p.shown = true
}

// note writes a line that stays, on anything.
func (p *progress) note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	fmt.Fprintln(p.w, text)
}

// erase takes the line away. The caller holds mu.
func (p *progress) erase() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// clear takes the line away, so that other output can be written.
func (p *progress) clear() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = ""
	p.erase()
}

// stop ends the line for good. It may be called twice.
func (p *progress) stop() {
	if p == nil {
		return
	}
	if p.quit != nil {
		close(p.quit)
		<-p.done
		p.quit = nil
	}
	p.clear()
}
