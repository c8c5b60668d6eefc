package qemu

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"savepoint/orchestrator"
	"savepoint/testbed/notes"
	"savepoint/testbed/pve"
)

// Config says how to run machines. Dir and Images are required.
type Config struct {
	// Dir holds records, sockets and logs, one directory per VM. One Machines
	// at a time owns it.
	Dir string
	// QEMU is the program; "" means qemu-system-x86_64 in PATH.
	QEMU string
	// Accel is what Accel returned; the zero value is emulation.
	Accel Accelerator
	// Images makes the files that memory is saved to.
	Images *Images
	// Volumes takes the snapshots of disks that are no qcow2 files; nil: there are
	// none but qcow2's own.
	Volumes Volumes
	// Tap gives a network card a tap device, which Start hands to QEMU and
	// closes. A card without one (nil) gets a user-mode network; so does every
	// card when Tap is nil. MachineStatus.SSH stays empty while the first card is
	// on a tap: that network is somebody else's.
	Tap func(ctx context.Context, m pve.Machine, nic pve.NIC) (*os.File, error)
	// AgentPatience is how long a guest agent may take to show that it is
	// there; 0 means 5 seconds.
	AgentPatience time.Duration
	// Notice is told what New found and did, and what no caller would learn
	// otherwise; nil is allowed.
	Notice func(text string)
}

// Machines runs VMs; it implements pve.Machines.
type Machines struct {
	cfg  Config
	qemu string
	lock *os.File

	mu     sync.Mutex
	vms    map[int]*vm
	closed bool
}

var _ pve.Machines = (*Machines)(nil)

// New takes over the state directory: what a killed owner left running is
// adopted, what it left half-started is ended. It fails with
// orchestrator.ErrBusy while another owner lives.
func New(ctx context.Context, cfg Config) (*Machines, error) {
	if cfg.Dir == "" || cfg.Images == nil {
		return nil, errors.New("run machines: no state directory or no disk images given")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("run machines: %w", err)
	}
	cfg.Dir = dir
	if cfg.QEMU == "" {
		cfg.QEMU = "qemu-system-x86_64"
	}
	if cfg.AgentPatience == 0 {
		cfg.AgentPatience = 5 * time.Second
	}
	if cfg.Notice == nil {
		cfg.Notice = func(string) {}
	}
	path, err := exec.LookPath(cfg.QEMU)
	if err != nil {
		return nil, fmt.Errorf("find qemu: %w (%v); install qemu-system-x86", orchestrator.ErrUnavailable, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("run machines: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("run machines: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("run machines in %s: %w: another process runs machines there (%v)", dir, orchestrator.ErrBusy, err)
	}
	m := &Machines{cfg: cfg, qemu: path, lock: lock, vms: make(map[int]*vm)}
	if err := m.adoptAll(ctx); err != nil {
		m.abandon()
		return nil, fmt.Errorf("take over machines in %s: %w", dir, err)
	}
	return m, nil
}

// adoptAll goes through the records of the state directory.
func (m *Machines) adoptAll(ctx context.Context) error {
	entries, err := os.ReadDir(m.cfg.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		num, ok := strings.CutPrefix(e.Name(), "vm-")
		vmid, err := strconv.Atoi(num)
		if !ok || err != nil || !e.IsDir() {
			continue
		}
		if err := m.adopt(ctx, vmid); err != nil {
			return fmt.Errorf("vm %d: %w", vmid, err)
		}
	}
	return nil
}

// adopt takes over one VM, or ends and forgets it.
func (m *Machines) adopt(ctx context.Context, vmid int) error {
	dir := machineDir(m.cfg.Dir, vmid)
	r, err := loadRecord(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	pid := r.find(notes.System)
	if pid == 0 {
		m.cfg.Notice(fmt.Sprintf("vm %d: its process is gone", vmid))
		return forget(dir)
	}
	p, err := adoptProcess(pid, func() bool { return r.find(notes.System) == pid })
	if err != nil {
		if errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) {
			return forget(dir)
		}
		return err
	}
	v := m.newVM(r, dir, p)
	if r.Ready {
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		err = v.connect(short)
		if err == nil {
			if serr := v.endSaving(short); serr != nil { // the next save tries again
				m.cfg.Notice(fmt.Sprintf("vm %d: %v", vmid, serr))
			}
			err = v.qmp.execute(short, "cont", nil, nil)
		}
		cancel()
		if err == nil {
			v.watch()
			m.vms[vmid] = v
			m.cfg.Notice(fmt.Sprintf("vm %d: took over process %d", vmid, pid))
			return nil
		}
		m.cfg.Notice(fmt.Sprintf("vm %d: process %d does not answer (%v): ending it", vmid, pid, err))
	} else {
		m.cfg.Notice(fmt.Sprintf("vm %d: process %d was not fully started: ending it", vmid, pid))
	}
	v.end()
	return nil
}

// forget removes the sockets and, last, the record: without a record nothing is
// left. Logs stay for people.
func forget(dir string) error {
	var errs []error
	for _, name := range []string{sockQMP, sockSerial, sockAgent, recordName + ".part", recordName} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Start starts the VM, or continues it from m.Resume. It fails with
// orchestrator.ErrExists when the VM runs. When it fails or ctx ends, nothing
// of the VM runs any more.
func (m *Machines) Start(ctx context.Context, mc pve.Machine) error {
	if err := m.start(ctx, mc); err != nil {
		return fmt.Errorf("start vm %d: %w", mc.VMID, err)
	}
	return nil
}

func (m *Machines) start(ctx context.Context, mc pve.Machine) error {
	v := &vm{starting: true}
	m.mu.Lock()
	old := m.vms[mc.VMID]
	switch {
	case m.closed:
		m.mu.Unlock()
		return fmt.Errorf("%w: the backend is closed", orchestrator.ErrUnavailable)
	case old != nil && (old.starting || old.process.running()):
		m.mu.Unlock()
		return fmt.Errorf("%w: it runs", orchestrator.ErrExists)
	}
	m.vms[mc.VMID] = v
	m.mu.Unlock()
	if old != nil {
		<-old.watched // its record is gone before ours is written
	}

	started, err := m.launch(ctx, mc)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		delete(m.vms, mc.VMID)
		return err
	}
	if m.closed {
		// Close did not see it.
		delete(m.vms, mc.VMID)
		m.mu.Unlock()
		started.end()
		m.mu.Lock()
		return fmt.Errorf("%w: the backend is closed", orchestrator.ErrUnavailable)
	}
	m.vms[mc.VMID] = started
	return nil
}

// launch writes the record, starts the process and brings it to life.
func (m *Machines) launch(ctx context.Context, mc pve.Machine) (_ *vm, err error) {
	token, err := newToken()
	if err != nil {
		return nil, err
	}
	taps, slots, err := m.taps(ctx, mc)
	defer closeAll(taps)
	if err != nil {
		return nil, err
	}
	l := launch{Machine: mc, Accel: m.cfg.Accel, Token: token, Taps: slots}
	if m.cfg.Volumes != nil {
		l.Direct = m.cfg.Volumes.Has
	}
	args, err := arguments(l)
	if err != nil {
		return nil, err
	}
	dir := machineDir(m.cfg.Dir, mc.VMID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := forget(dir); err != nil {
		return nil, err
	}
	r := record{Token: token, Machine: mc, Taps: slots}
	if err := r.save(dir); err != nil {
		return nil, err
	}
	cmd, err := m.spawn(ctx, dir, args, taps)
	if err != nil {
		return nil, errors.Join(err, forget(dir))
	}
	v := m.newVM(r, dir, ownProcess(cmd))
	defer func() {
		if err != nil {
			v.end()
			if text := logTail(dir, "stderr.log"); text != "" {
				err = fmt.Errorf("%w (qemu said: %s)", err, text)
			}
		}
	}()
	v.record.PID = v.process.pid
	if v.record.Started, err = notes.System.Started(v.record.PID); err != nil {
		return nil, fmt.Errorf("%w: qemu ended at once", orchestrator.ErrUnavailable)
	}
	if err := v.record.save(dir); err != nil {
		return nil, err
	}
	if err := v.connect(ctx); err != nil {
		return nil, err
	}
	if err := v.prepare(ctx); err != nil {
		return nil, err
	}
	v.record.Ready = true
	if err := v.record.save(dir); err != nil {
		return nil, err
	}
	if err := v.qmp.execute(ctx, "cont", nil, nil); err != nil {
		return nil, err
	}
	v.watch()
	return v, nil
}

func newToken() (string, error) {
	return strings.ToLower(rand.Text()), nil
}

// spawn starts QEMU in a session of its own, so that nothing that ends us ends
// it by accident.
func (m *Machines) spawn(ctx context.Context, dir string, args []string, taps []*os.File) (*exec.Cmd, error) {
	files, err := sockets(dir)
	defer closeAll(files)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, "stderr.log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	cmd := exec.Command(m.qemu, args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = append(slices.Clone(files), taps...) // in the order of the fd constants
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: %v", orchestrator.ErrUnavailable, err)
	}
	return cmd, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// sockets makes those that QEMU listens on.
func sockets(dir string) ([]*os.File, error) {
	var files []*os.File
	for _, name := range []string{sockQMP, sockSerial, sockAgent} {
		f, err := listen(dir, name)
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	return files, nil
}

// taps opens the taps of a VM's network cards and tells which cards they are for.
func (m *Machines) taps(ctx context.Context, mc pve.Machine) (files []*os.File, slots []string, err error) {
	if m.cfg.Tap == nil {
		return nil, nil, nil
	}
	for _, nic := range mc.NICs {
		f, err := m.cfg.Tap(ctx, mc, nic)
		if err != nil {
			return files, nil, fmt.Errorf("network card %s: %w", nic.Slot, err)
		}
		if f != nil {
			files, slots = append(files, f), append(slots, nic.Slot)
		}
	}
	return files, slots, nil
}

// OnTaps lists the running VMs that have network cards on taps, each with those
// cards only. After New they are those that were taken over: QEMU holds their
// taps, whatever became of the network that these were in.
func (m *Machines) OnTaps() []pve.Machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []pve.Machine
	for _, v := range m.vms {
		if v.starting || !v.process.running() {
			continue
		}
		mc := v.record.Machine
		mc.NICs = slices.DeleteFunc(slices.Clone(mc.NICs), func(n pve.NIC) bool { return !slices.Contains(v.record.Taps, n.Slot) })
		if len(mc.NICs) > 0 {
			out = append(out, mc)
		}
	}
	slices.SortFunc(out, func(a, b pve.Machine) int { return a.VMID - b.VMID })
	return out
}

// find returns the VM when it runs.
func (m *Machines) find(vmid int) (*vm, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.vms[vmid]
	if v == nil || v.starting || !v.process.running() {
		return nil, fmt.Errorf("vm %d does not run: %w", vmid, orchestrator.ErrNotFound)
	}
	return v, nil
}

// Stop ends the VM; one that does not run is no error. Without graceful it
// takes a few seconds at most. With graceful the guest is asked, and when ctx
// ends first the VM runs on and the error wraps orchestrator.ErrUnknownOutcome:
// the guest may still power off.
func (m *Machines) Stop(ctx context.Context, vmid int, graceful bool) error {
	v, err := m.find(vmid)
	if err != nil {
		return nil
	}
	if !graceful {
		v.end()
		return nil
	}
	v.askToPowerDown(ctx)
	select {
	case <-v.process.gone:
		<-v.watched
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop vm %d: %w: the guest has not powered down (%w)", vmid, orchestrator.ErrUnknownOutcome, ctx.Err())
	}
}

// Status tells what is known of the VM; it does not ask QEMU and never waits.
func (m *Machines) Status(vmid int) pve.MachineStatus {
	v, err := m.find(vmid)
	if err != nil {
		return pve.MachineStatus{}
	}
	return pve.MachineStatus{Running: true, PID: v.process.pid, Paused: v.paused.Load(), SSH: v.record.SSH}
}

// Agent sends one command to the guest agent. *pve.AgentError is the agent's
// own refusal; orchestrator.ErrUnavailable means that no agent answers and
// nothing was asked of it; orchestrator.ErrUnknownOutcome means that it was
// asked and the answer did not come.
func (m *Machines) Agent(ctx context.Context, vmid int, command string, args any) (json.RawMessage, error) {
	v, err := m.find(vmid)
	if err != nil {
		return nil, err
	}
	if !v.record.Machine.Agent {
		return nil, fmt.Errorf("vm %d has no guest agent channel: %w", vmid, orchestrator.ErrUnavailable)
	}
	return v.agent.call(ctx, command, args)
}

// Console returns the end of what the VM, running or not, has printed on its
// serial console.
func (m *Machines) Console(vmid int) string {
	return logTail(machineDir(m.cfg.Dir, vmid), "console.log")
}

// Close ends every VM and gives the directory up. It is safe to call twice.
func (m *Machines) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	var running []*vm
	for _, v := range m.vms {
		if !v.starting {
			running = append(running, v)
		}
	}
	m.mu.Unlock()
	var wg sync.WaitGroup
	for _, v := range running {
		wg.Go(v.end)
	}
	wg.Wait()
	return m.lock.Close()
}

// abandon gives the directory up and leaves the VMs running, as the death of
// this process would.
func (m *Machines) abandon() {
	m.mu.Lock()
	m.closed = true
	vms := m.vms
	m.vms = make(map[int]*vm)
	m.mu.Unlock()
	for _, v := range vms {
		if !v.starting {
			v.disconnect()
		}
	}
	_ = m.lock.Close()
}
