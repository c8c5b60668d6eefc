package main

import (
	"errors"
	"io"
	"sync/atomic"
	"syscall"
)

// pipe is standard output or standard error. When its reader goes away, as head
// does, what is written is dropped from then on: nobody reads it, so it is no
// error, and what savepoint is doing comes to its end.
type pipe struct {
	to     io.Writer
	unread atomic.Bool
}

func (p *pipe) Write(b []byte) (int, error) {
	if p.unread.Load() {
		return len(b), nil
	}
	n, err := p.to.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		p.unread.Store(true)
		return len(b), nil
	}
	return n, err
}
