package qemu

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"savepoint/orchestrator"
)

// The sockets of a VM, in its directory.
const (
	sockQMP    = "qmp.sock"
	sockSerial = "serial.sock"
	sockAgent  = "agent.sock"
)

// quitPatience is how long QEMU may take to write its caches and end.
const quitPatience = 5 * time.Second

// vm is one running VM and the connections to it.
type vm struct {
	starting bool // a place holder: nothing else is set
	dir      string
	record   record
	images   *Images
	volumes  Volumes // nil: none
	notice   func(string)

	process *process
	qmp     *qmp
	agent   *agentChannel
	console net.Conn
	logging sync.WaitGroup
	paused  atomic.Bool
	watched chan struct{} // closed when everything about the VM is cleaned up

	once sync.Once
}

func (m *Machines) newVM(r record, dir string, p *process) *vm {
	v := &vm{dir: dir, record: r, images: m.cfg.Images, volumes: m.cfg.Volumes, notice: m.cfg.Notice, process: p, watched: make(chan struct{})}
	v.agent = newAgentChannel(func(ctx context.Context) (net.Conn, error) { return dialSocket(ctx, dir, sockAgent) }, m.cfg.AgentPatience)
	return v
}

// listen makes a listening socket for QEMU. Its path goes through the open
// directory, because a socket's path is limited to 107 bytes and a state
// directory's is not.
func listen(dir, name string) (*os.File, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name)})
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", filepath.Join(dir, name), err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	return l.File()
}

// dialSocket connects to one of the VM's sockets.
func dialSocket(ctx context.Context, dir, name string) (net.Conn, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name))
}

// connect opens QMP and the console.
func (v *vm) connect(ctx context.Context) error {
	conn, err := dialSocket(ctx, v.dir, sockQMP)
	if err != nil {
		return fmt.Errorf("%w: qmp: %w", orchestrator.ErrUnavailable, cause(ctx, err))
	}
	if v.qmp, err = openQMP(ctx, conn); err != nil {
		return fmt.Errorf("%w: %w", orchestrator.ErrUnavailable, err)
	}
	if v.console, err = dialSocket(ctx, v.dir, sockSerial); err != nil {
		return fmt.Errorf("%w: console: %w", orchestrator.ErrUnavailable, cause(ctx, err))
	}
	v.logging.Go(func() {
		if err := logConsole(v.console, filepath.Join(v.dir, "console.log")); err != nil {
			v.notice(fmt.Sprintf("vm %d: its console is not logged any more: %v", v.record.Machine.VMID, err))
		}
	})
	return nil
}

// prepare does what must be done before the guest's first instruction: load a
// saved state, learn the forwarded port.
func (v *vm) prepare(ctx context.Context) error {
	m := v.record.Machine
	if m.Resume != "" {
		if err := v.loadState(ctx, m.ResumeTag, m.Resume); err != nil {
			return err
		}
	}
	if !m.Address.IsValid() || len(m.NICs) == 0 || slices.Contains(v.record.Taps, m.NICs[0].Slot) {
		return nil
	}
	text, err := v.qmp.human(ctx, "info usernet")
	if err != nil {
		return err
	}
	ssh, ok := forwardedPort(text)
	if !ok {
		return fmt.Errorf("%w: qemu does not say which port it forwards: %q", orchestrator.ErrUnavailable, text)
	}
	v.record.SSH = ssh
	return nil
}

// watch follows the VM from now on: whether it is paused, and its end, after
// which its record is removed.
func (v *vm) watch() {
	events, stop := v.qmp.watch(func(e qmpEvent) bool { return e.Name == "STOP" || e.Name == "RESUME" })
	go func() {
		defer stop()
		for {
			select {
			case e := <-events:
				v.paused.Store(e.Name == "STOP")
			case <-v.qmp.done:
				// The process is about to end, or we were told to let go.
				return
			}
		}
	}()
	go func() {
		<-v.process.gone
		v.cleanup()
	}()
}

// disconnect closes the connections and leaves the process alone.
func (v *vm) disconnect() {
	if v.qmp != nil {
		v.qmp.close()
	}
	if v.console != nil {
		_ = v.console.Close()
	}
	v.agent.close()
	v.logging.Wait()
}

// cleanup removes what belonged to a process that is gone.
func (v *vm) cleanup() {
	v.once.Do(func() {
		v.disconnect()
		// Another process may have this VM already, when we were abandoned.
		if r, err := loadRecord(v.dir); err == nil && r.Token == v.record.Token {
			if err := forget(v.dir); err != nil {
				v.notice(fmt.Sprintf("vm %d: %v", v.record.Machine.VMID, err))
			}
		}
		close(v.watched)
	})
}

// end ends the process and returns when it is gone and cleaned up: first by
// QMP, so that QEMU writes its caches, then by a kill.
func (v *vm) end() {
	if v.qmp != nil {
		ctx, cancel := context.WithTimeout(context.Background(), quitPatience)
		if v.qmp.execute(ctx, "quit", nil, nil) == nil {
			select {
			case <-v.process.gone:
			case <-ctx.Done():
			}
		}
		cancel()
	}
	if v.process.running() {
		_ = v.process.kill()
	}
	<-v.process.gone
	v.cleanup()
	<-v.watched
}

// askToPowerDown asks by the guest agent when it answers, else by the power
// button. The agent does not answer a shutdown that it carries out.
func (v *vm) askToPowerDown(ctx context.Context) {
	if v.record.Machine.Agent {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := v.agent.call(short, "guest-ping", nil)
		if err == nil {
			_, err = v.agent.call(short, "guest-shutdown", map[string]string{"mode": "powerdown"})
		}
		cancel()
		if err == nil || !v.process.running() {
			return
		}
	}
	if err := v.qmp.execute(ctx, "system_powerdown", nil, nil); err != nil {
		v.notice(fmt.Sprintf("vm %d: power button: %v", v.record.Machine.VMID, err))
	}
}
