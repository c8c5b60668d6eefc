package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// qmpError is QEMU's refusal of a command, in its own words.
type qmpError struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

func (e *qmpError) Error() string { return e.Desc }

// qmpEvent is something QEMU reports by itself.
type qmpEvent struct {
	Name string
	Data json.RawMessage
}

// qmpMessage is any line QEMU sends: greeting, answer or event.
//
//	{"QMP": {…}} · {"return": …, "id": n} · {"error": {…}, "id": n}
//	{"event": "…", "data": {…}, "timestamp": {…}}
type qmpMessage struct {
	QMP    json.RawMessage `json:"QMP"`
	Return json.RawMessage `json:"return"`
	Error  *qmpError       `json:"error"`
	ID     *uint64         `json:"id"`
	Event  string          `json:"event"`
	Data   json.RawMessage `json:"data"`
}

// errGone is what every call gets once the connection has ended, which for a
// socket of our own means that QEMU has.
var errGone = errors.New("qemu is gone")

// qmp is one QMP connection. Calls may be made from several goroutines.
type qmp struct {
	conn net.Conn
	done chan struct{} // closed when the reader has ended

	write sync.Mutex // one command line at a time

	mu       sync.Mutex
	next     uint64
	pending  map[uint64]chan qmpMessage
	watchers map[*watcher]bool
}

// watcher gets the events that match; the channel has room for a few and
// further ones are dropped, so that a slow reader cannot block the connection.
type watcher struct {
	match func(qmpEvent) bool
	ch    chan qmpEvent
}

// openQMP reads the greeting and leaves negotiation mode. It owns conn from
// here on, also when it fails.
func openQMP(ctx context.Context, conn net.Conn) (*qmp, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	dec := json.NewDecoder(conn)
	var hello qmpMessage
	if err := dec.Decode(&hello); err != nil {
		stop()
		_ = conn.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("qmp greeting: %w", gone(err))
	}
	c := &qmp{conn: conn, done: make(chan struct{}), pending: make(map[uint64]chan qmpMessage), watchers: make(map[*watcher]bool)}
	go c.read(dec)
	err := c.execute(ctx, "qmp_capabilities", nil, nil)
	if !stop() { // closed for ctx, whatever the call made of that
		err = ctx.Err()
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("qmp capabilities: %w", err)
	}
	return c, nil
}

func gone(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return errGone
	}
	return fmt.Errorf("%w: %v", errGone, err)
}

// read delivers answers and events until the connection ends.
func (c *qmp) read(dec *json.Decoder) {
	defer close(c.done)
	for {
		var m qmpMessage
		if err := dec.Decode(&m); err != nil {
			return
		}
		c.mu.Lock()
		switch {
		case m.Event != "":
			ev := qmpEvent{Name: m.Event, Data: m.Data}
			for w := range c.watchers {
				if w.match(ev) {
					select {
					case w.ch <- ev:
					default:
					}
				}
			}
		case m.ID != nil:
			if ch := c.pending[*m.ID]; ch != nil {
				delete(c.pending, *m.ID)
				ch <- m
			}
		}
		c.mu.Unlock()
	}
}

// close ends the connection and waits for the reader.
func (c *qmp) close() {
	_ = c.conn.Close()
	<-c.done
}

// execute runs one command. When ctx ends first the command may still take
// effect; its answer is then dropped.
func (c *qmp) execute(ctx context.Context, command string, args, result any) error {
	c.mu.Lock()
	c.next++
	id := c.next
	ch := make(chan qmpMessage, 1)
	c.pending[id] = ch
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pending, id)
		c.mu.Unlock()
	}()

	line, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
		ID        uint64 `json:"id"`
	}{command, args, id})
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	c.write.Lock()
	_, err = c.conn.Write(append(line, '\n'))
	c.write.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", command, gone(err))
	}
	var m qmpMessage
	select {
	case m = <-ch:
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", command, ctx.Err())
	case <-c.done:
		// The answer to "quit" comes right before the end.
		select {
		case m = <-ch:
		default:
			return fmt.Errorf("%s: %w", command, errGone)
		}
	}
	if m.Error != nil {
		return fmt.Errorf("%s: %w", command, m.Error)
	}
	if result != nil {
		if err := json.Unmarshal(m.Return, result); err != nil {
			return fmt.Errorf("%s: answer not understood: %w", command, err)
		}
	}
	return nil
}

// watch subscribes to events; the returned function ends that.
func (c *qmp) watch(match func(qmpEvent) bool) (<-chan qmpEvent, func()) {
	w := &watcher{match: match, ch: make(chan qmpEvent, 16)}
	c.mu.Lock()
	c.watchers[w] = true
	c.mu.Unlock()
	return w.ch, func() {
		c.mu.Lock()
		delete(c.watchers, w)
		c.mu.Unlock()
	}
}

// human runs one command of the human monitor, for the few things that have
// no QMP form.
func (c *qmp) human(ctx context.Context, line string) (string, error) {
	var out string
	err := c.execute(ctx, "human-monitor-command", map[string]string{"command-line": line}, &out)
	return out, err
}

// endJobs waits for the end of the jobs with the prefix and dismisses them: a
// job stays known until somebody does, and who started these is gone.
func (c *qmp) endJobs(ctx context.Context, prefix string) error {
	changed, stop := c.watch(func(e qmpEvent) bool { return e.Name == "JOB_STATUS_CHANGE" })
	defer stop()
	for {
		var jobs []struct{ ID, Status string }
		if err := c.execute(ctx, "query-jobs", nil, &jobs); err != nil {
			return err
		}
		live := false
		for _, j := range jobs {
			switch {
			case !strings.HasPrefix(j.ID, prefix):
			case j.Status == "concluded":
				if err := c.execute(ctx, "job-dismiss", map[string]string{"id": j.ID}, nil); err != nil {
					return err
				}
			default:
				live = true
			}
		}
		if !live {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.done:
			return errGone
		}
	}
}

// job starts a background job and waits for its end. The job's own error comes
// back as an error with QEMU's text. When ctx ends first the job goes on.
func (c *qmp) job(ctx context.Context, command, id string, args map[string]any) error {
	events, stop := c.watch(func(e qmpEvent) bool {
		if e.Name != "JOB_STATUS_CHANGE" {
			return false
		}
		var d struct{ ID, Status string }
		return json.Unmarshal(e.Data, &d) == nil && d.ID == id && d.Status == "concluded"
	})
	defer stop()
	args["job-id"] = id
	if err := c.execute(ctx, command, args, nil); err != nil {
		return err
	}
	select {
	case <-events:
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", command, ctx.Err())
	case <-c.done:
		return fmt.Errorf("%s: %w", command, errGone)
	}
	var jobs []struct {
		ID    string `json:"id"`
		Error string `json:"error"`
	}
	if err := c.execute(ctx, "query-jobs", nil, &jobs); err != nil {
		return err
	}
	if err := c.execute(ctx, "job-dismiss", map[string]string{"id": id}, nil); err != nil {
		return err
	}
	for _, j := range jobs {
		if j.ID == id && j.Error != "" {
			return fmt.Errorf("%s: %w", command, &qmpError{Class: "GenericError", Desc: j.Error})
		}
	}
	return nil
}
