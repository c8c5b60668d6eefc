package jump

import (
	"context"
	"io"

	"golang.org/x/crypto/ssh"
)

// Command is an account that can do one thing only, as one with "restrict" and
// "command=" in sshd's authorized_keys: whatever its client asks to execute, Run
// runs. It gets no forwarding, terminal, environment or subsystem.
type Command struct {
	// Authorized are authorized_keys lines of the account alone.
	Authorized []string
	// Run reads what the client sends, and returns the exit code. Its context
	// ends with the connection and with the server. It must be safe for
	// concurrent use.
	Run func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) (exit int)
}

// serve plays a session of the account; anything else is refused.
func (c Command) serve(ctx context.Context, nc ssh.NewChannel) {
	if nc.ChannelType() != "session" {
		nc.Reject(ssh.Prohibited, "this account runs one command and nothing else") //nolint:errcheck // the connection is gone then
		return
	}
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	started := false
	for reqs != nil {
		select {
		case r, ok := <-reqs:
			if !ok { // the client closed the session: it wants no more of it
				cancel()
				reqs = nil
				break
			}
			run := !started && (r.Type == "exec" || r.Type == "shell")
			if r.WantReply {
				r.Reply(run, nil) //nolint:errcheck // as above
			}
			if run {
				started = true
				go func() { defer close(ended); c.run(ctx, ch) }()
			}
		case <-ended:
			ch.Close()
			for r := range reqs {
				if r.WantReply {
					r.Reply(false, nil) //nolint:errcheck // as above
				}
			}
			return
		}
	}
	if started {
		<-ended
	}
}

// run runs the command and tells the client how it ended.
func (c Command) run(ctx context.Context, ch ssh.Channel) {
	stop := context.AfterFunc(ctx, func() { ch.Close() }) // ends what Run reads and writes
	defer stop()
	exit := c.Run(ctx, ch, ch, ch.Stderr())
	ch.CloseWrite()                                                                                 //nolint:errcheck // as above
	ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(exit & 0xff)})) //nolint:errcheck // as above
}
