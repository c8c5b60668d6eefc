package sshexec

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
)

// forwarded is one connection of a Forward.
type forwarded struct {
	f  *Forward
	id uint32

	mu     sync.Mutex
	cond   sync.Cond
	in     []byte // from the guest, not yet written
	ended  bool   // no more of it comes
	credit int    // bytes that the guest still takes
	gone   bool
	conn   net.Conn // nil until it was dialled
}

// accept carries a connection of the guest until both sides of it have ended.
func (f *Forward) accept(ctx context.Context, id uint32, dial func(context.Context) (net.Conn, error)) {
	c := &forwarded{f: f, id: id, credit: forwardWindow}
	c.cond.L = &c.mu
	f.mu.Lock()
	f.open[id] = c
	f.mu.Unlock()
	f.all.Go(func() {
		err := c.carry(ctx, dial)
		c.drop()
		f.mu.Lock()
		delete(f.open, id)
		f.mu.Unlock()
		if err != nil {
			_ = f.send(forwardReset, id, nil) // without a stream there is nobody to tell
		}
	})
}

func (c *forwarded) carry(ctx context.Context, dial func(context.Context) (net.Conn, error)) error {
	conn, err := dial(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.conn = conn
	gone := c.gone
	c.mu.Unlock()
	if gone {
		return conn.Close()
	}
	out := make(chan error, 1)
	go func() {
		err := c.outward()
		if err != nil {
			c.drop()
		}
		out <- err
	}()
	err = c.inward()
	if err != nil {
		c.drop()
	}
	return errors.Join(err, <-out)
}

// inward writes what came from the guest to the connection.
func (c *forwarded) inward() error {
	for {
		c.mu.Lock()
		for len(c.in) == 0 && !c.ended && !c.gone {
			c.cond.Wait()
		}
		piece, gone := c.in, c.gone
		c.in = nil
		c.mu.Unlock()
		switch {
		case gone:
			return net.ErrClosed
		case len(piece) == 0:
			if half, ok := c.conn.(interface{ CloseWrite() error }); ok {
				return half.CloseWrite()
			}
			return nil
		}
		if _, err := c.conn.Write(piece); err != nil {
			return err
		}
		if err := c.f.send(forwardAck, c.id, binary.BigEndian.AppendUint32(nil, uint32(len(piece)))); err != nil { //nolint:gosec // at most the window
			return err
		}
	}
}

// outward sends the guest what the connection says, no faster than it takes it.
func (c *forwarded) outward() error {
	piece := make([]byte, forwardPiece)
	for {
		c.mu.Lock()
		for c.credit == 0 && !c.gone {
			c.cond.Wait()
		}
		room, gone := min(c.credit, len(piece)), c.gone
		c.mu.Unlock()
		if gone {
			return net.ErrClosed
		}
		n, err := c.conn.Read(piece[:room])
		if n > 0 {
			c.mu.Lock()
			c.credit -= n
			c.mu.Unlock()
			if err := c.f.send(forwardData, c.id, piece[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return c.f.send(forwardEnd, c.id, nil)
		}
		if err != nil {
			return err
		}
	}
}

// given takes a frame of the guest. An error says that the guest does not keep to
// the window.
func (c *forwarded) given(kind byte, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.cond.Broadcast()
	switch kind {
	case forwardData:
		if len(c.in)+len(data) > forwardWindow {
			return errors.New("the program in the guest sent more than it may")
		}
		c.in = append(c.in, data...)
	case forwardAck:
		if len(data) != 4 || int64(binary.BigEndian.Uint32(data))+int64(c.credit) > forwardWindow {
			return errors.New("the program in the guest acknowledged what was not sent")
		}
		c.credit += int(binary.BigEndian.Uint32(data))
	case forwardEnd:
		c.ended = true
	default:
		c.cut()
	}
	return nil
}

// drop ends the connection at once.
func (c *forwarded) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut()
	c.cond.Broadcast()
}

// cut is drop for a caller that holds mu.
func (c *forwarded) cut() {
	if !c.gone && c.conn != nil {
		c.conn.Close()
	}
	c.gone = true
}
