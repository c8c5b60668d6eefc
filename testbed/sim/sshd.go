package sim

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"savepoint/orchestrator/sshexec"
)

func fileMode(bits uint32) fs.FileMode { return fs.FileMode(bits) }

func isExist(err error) bool { return errors.Is(err, fs.ErrExist) }

// accept serves connections. Before the guest has booted it drops them, as
// nobody listens yet.
func (g *guest) accept() {
	for {
		conn, err := g.listen.Accept()
		if err != nil {
			return
		}
		if !g.isBooted() {
			conn.Close()
			continue
		}
		c := &gated{Conn: conn, gate: &g.gate, done: make(chan struct{})}
		g.mu.Lock()
		dead := g.ctx.Err() != nil
		if !dead {
			g.conns[c] = true
		}
		g.mu.Unlock()
		if dead {
			c.Close()
			return
		}
		g.wg.Go(func() { g.serve(c) })
	}
}

func (g *guest) serve(c *gated) {
	defer func() {
		c.Close()
		g.mu.Lock()
		delete(g.conns, c)
		g.mu.Unlock()
	}()
	g.mu.Lock()
	sc := g.server
	g.mu.Unlock()
	c.Conn.SetDeadline(time.Now().Add(20 * time.Second)) //nolint:errcheck // a dead connection fails below
	conn, chans, reqs, err := ssh.NewServerConn(c, sc)
	if err != nil {
		return
	}
	c.Conn.SetDeadline(time.Time{}) //nolint:errcheck // as above
	w, _ := account(conn.User())
	var wg sync.WaitGroup
	wg.Go(func() { ssh.DiscardRequests(reqs) })
	for nc := range chans {
		if nc.ChannelType() != "session" {
			nc.Reject(ssh.UnknownChannelType, "only sessions") //nolint:errcheck // the connection is gone then
			continue
		}
		ch, reqs, err := nc.Accept()
		if err != nil {
			continue
		}
		wg.Go(func() { g.session(w, ch, reqs) })
	}
	wg.Wait()
}

// session serves one exec request: the helper for savepoint, else one command.
func (g *guest) session(w who, ch ssh.Channel, reqs <-chan *ssh.Request) {
	defer ch.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer ch.Close()
	for r := range reqs {
		var exec struct{ Command string }
		if r.Type != "exec" || ssh.Unmarshal(r.Payload, &exec) != nil {
			if r.WantReply {
				r.Reply(r.Type == "env", nil) //nolint:errcheck // the channel is gone then
			}
			continue
		}
		r.Reply(true, nil) //nolint:errcheck // as above
		wg.Go(func() { ssh.DiscardRequests(reqs) })
		code := 0
		step, workspace, isStep := templateStep(exec.Command)
		switch {
		case w.uid == 0 && exec.Command == sshexec.HelperCommand():
			g.helper(ch)
		case w.uid == 0 && isStep:
			code = g.template(step, workspace, ch)
		default:
			code = g.bare(w, exec.Command, ch)
		}
		ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(code)})) //nolint:errcheck // as above
		return
	}
}

// bare runs a command the way sshd does: until it ends, with everything it
// left running left running, until the channel is closed.
func (g *guest) bare(w who, command string, ch ssh.Channel) int {
	grp := g.newGroup()
	defer grp.end()
	in, feed, err := pipe()
	if err != nil {
		return 255
	}
	defer in.Close()
	go func() {
		io.Copy(feed, ch) //nolint:errcheck // ends with either side
		feed.Close()
	}()
	p := &proc{g: g, grp: grp, who: w, dir: w.home, in: in, out: ch, err: ch.Stderr()}
	return p.shell(grp.ctx, environment(w, nil), command, nil)
}

var _ net.Conn = (*gated)(nil)
