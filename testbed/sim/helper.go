package sim

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"savepoint/orchestrator/sshexec"
	"savepoint/orchestrator/sshexec/wire"
)

// helper is the guest's side of savepoint's session: what helper.pl is to a
// real guest.
type helper struct {
	g  *guest
	ch ssh.Channel
	in chan wire.Frame

	mu sync.Mutex // one frame at a time
}

func (g *guest) helper(ch ssh.Channel) {
	h := &helper{g: g, ch: ch, in: make(chan wire.Frame)}
	r := bufio.NewReader(ch)
	if _, err := io.CopyN(io.Discard, r, int64(sshexec.HelperLength())); err != nil {
		return
	}
	if _, err := io.WriteString(ch, wire.Greeting); err != nil {
		return
	}
	h.fields(wire.Hello, "cgroup")
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(h.in)
		for {
			f, err := wire.Read(r)
			if err != nil {
				return
			}
			select {
			case h.in <- f:
			case <-done:
				return
			}
		}
	})
	for f := range h.in {
		h.answer(f)
	}
	close(done)
	wg.Wait()
}

func (h *helper) send(kind byte, payload []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := h.ch.Write(wire.Encode(kind, payload))
	return err
}

func (h *helper) fields(kind byte, fields ...string) { h.send(kind, wire.EncodeFields(fields...)) } //nolint:errcheck // the reader notices

func (h *helper) refuse(class, text string) { h.fields(wire.Refusal, class, text) }

func (h *helper) facts(err error, more ...string) {
	if err != nil {
		h.refuse("unavailable", err.Error())
		return
	}
	g := h.g
	gen, _ := g.tree.read(rootUser, generation)
	g.mu.Lock()
	boot := g.bootID
	g.mu.Unlock()
	now := g.now()
	h.fields(wire.Answer, append([]string{boot, gen, strconv.FormatInt(now.Unix(), 10), strconv.Itoa(now.Nanosecond()), "cgroup"}, more...)...)
}

func (h *helper) answer(f wire.Frame) {
	g := h.g
	g.gate.pass(g.ctx.Done())
	switch f.Kind {
	case wire.Run:
		h.run(f.Payload)
	case wire.Facts:
		h.facts(nil, "writes", g.tree.written())
	case wire.Health:
		h.facts(nil, g.health()...)
	case wire.List:
		h.list(f.Payload)
	case wire.Mark:
		err := g.tree.mkdir(rootUser, generationDir, 0o755, g.now())
		if err == nil || isExist(err) {
			err = g.tree.write(rootUser, generation, string(f.Payload), false, 0o644, g.now())
		}
		h.facts(err)
	case wire.Clock:
		var sec, nano int64
		_, err := fmt.Sscan(string(f.Payload), &sec, &nano)
		if err == nil {
			g.setClock(time.Unix(sec, nano))
		}
		h.facts(err)
	case wire.Tend:
		h.refuse("unavailable", "a simulated guest has no workspace volume")
	case wire.Prepare:
		keys, err := wire.DecodeFields(f.Payload)
		if err == nil {
			err = g.prepare(keys)
		}
		h.facts(err)
	}
}

func (h *helper) ack(n int) {
	h.send(wire.Ack, binary.BigEndian.AppendUint32(nil, uint32(n))) //nolint:errcheck // the reader notices
}

// prepare does what helper.pl does to a fresh guest.
func (g *guest) prepare(keys []string) error {
	now := g.now()
	for _, d := range []struct {
		name string
		who  who
	}{{"/workspace", agentUser}, {"/home/agent", agentUser}, {generationDir, rootUser}} {
		if err := g.tree.mkdir(rootUser, d.name, 0o755, now); err != nil && !isExist(err) {
			return err
		}
		if err := g.tree.change(rootUser, d.name, func(n *node) { n.uid = d.who.uid }); err != nil {
			return err
		}
	}
	if len(keys) == 0 {
		return nil
	}
	if err := g.tree.mkdir(agentUser, "/home/agent/.ssh", 0o700, now); err != nil && !isExist(err) {
		return err
	}
	return g.tree.write(agentUser, "/home/agent/.ssh/authorized_keys", strings.Join(keys, "\n")+"\n", false, 0o600, now)
}

// maxArgument is Linux's limit for one argument of a program, with its end.
const maxArgument = 128 << 10

// run runs one command and returns after its group has ended.
func (h *helper) run(payload []byte) {
	f, err := wire.DecodeFields(payload)
	if err != nil || len(f) < 6 {
		h.refuse("unavailable", "malformed order")
		return
	}
	w, ok := account(f[0])
	dir := f[1]
	if dir == "" {
		dir = w.home
		if n, err := h.g.tree.stat(w, dir, true); err != nil || !n.mode.IsDir() {
			dir = "/"
		}
	}
	if !ok {
		h.refuse("missing", "account "+f[0]+": no such user")
		return
	}
	if err := h.g.enter(w, dir); err != nil {
		class := "denied"
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
			class = "missing"
		}
		h.refuse(class, "working directory "+dir+": "+errno(err))
		return
	}
	if _, err := h.g.tree.stat(w, "/bin/bash", true); err != nil {
		h.refuse("unavailable", "exec: "+errno(err))
		return
	}
	command := f[5]
	if len(command) >= maxArgument {
		h.refuse("denied", "exec: Argument list too long")
		return
	}
	grp := h.g.newGroup()
	defer grp.end()
	in, feed, err := pipe()
	if err != nil {
		h.refuse("unavailable", err.Error())
		return
	}
	defer in.Close()
	if f[3] == "" {
		feed.Close()
		feed = nil
	}
	h.fields(wire.Started, "1")
	end := make(chan int, 1)
	p := &proc{g: h.g, grp: grp, who: w, dir: dir, in: in, out: &output{h, grp, wire.Stdout}, err: &output{h, grp, wire.Stderr}}
	if strings.Contains(f[4], wire.HowCapture) {
		p.report = &report{}
	}
	go func() { end <- p.shell(grp.ctx, environment(w, f[6:]), command, nil) }()
	stdin := newFeeder(h, feed)
	code, reason := h.wait(grp, stdin, end, f[2])
	stdin.close()
	left := "0"
	if grp.busy.Load() > 0 {
		left = "1"
	}
	if reason == "" && strings.Contains(f[4], wire.HowHealth) {
		h.facts(nil, h.g.health()...)
	}
	if reason != "" {
		h.fields(wire.Exit, "9", "0", "1", reason, left)
	} else {
		if s := p.report.fields(environment(w, nil)); s != nil {
			h.fields(wire.Session, s...)
		}
		h.fields(wire.Exit, "0", strconv.Itoa(code), "1", "", left)
	}
}

// enter is what chdir answers.
func (g *guest) enter(w who, dir string) error {
	n, err := g.tree.stat(w, dir, true)
	switch {
	case err != nil:
		return err
	case !n.mode.IsDir():
		return syscall.ENOTDIR
	case !w.may(n, mayEnter):
		return syscall.EACCES
	}
	return nil
}

// wait passes frames to the command until it ends or is ended.
func (h *helper) wait(grp *group, stdin *feeder, end <-chan int, millis string) (code int, reason string) {
	ms, _ := strconv.Atoi(millis)
	var deadline <-chan time.Time
	if ms > 0 {
		timer := time.NewTimer(time.Duration(ms) * time.Millisecond)
		defer timer.Stop()
		deadline = timer.C
	}
	kill := func(why string) {
		if reason == "" {
			reason = why
			grp.end()
			stdin.close()
		}
	}
	in := h.in
	for {
		select {
		case code = <-end:
			grp.end()
			return code, reason
		case <-deadline:
			kill("deadline")
		case f, ok := <-in:
			switch {
			case !ok: // the orchestrator is gone: nothing of the command may stay
				kill("lost")
				in = nil
			case f.Kind == wire.Kill:
				kill("kill")
			case f.Kind == wire.Stdin:
				stdin.write(f.Payload)
			case f.Kind == wire.EOF:
				stdin.eof()
			}
		}
	}
}

// output is a command's stdout or stderr.
type output struct {
	h    *helper
	grp  *group
	kind byte
}

func (o *output) Write(p []byte) (int, error) {
	for at := 0; at < len(p); at += 64 << 10 {
		o.grp.g.gate.pass(o.grp.ctx.Done())
		if o.grp.ctx.Err() != nil {
			return at, errKilled
		}
		if err := o.h.send(o.kind, p[at:min(at+64<<10, len(p))]); err != nil {
			return at, err
		}
	}
	return len(p), nil
}
