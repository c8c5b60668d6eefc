package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// record is what the state directory knows of a fabric. Each entry is written
// before the thing is made and removed after it is gone. Links have no entries:
// each is made inside a recorded namespace and ends with it.
type record struct {
	Instance   string    `json:"instance"`
	Run        string    `json:"run"`        // directory of the daemons' sockets and configurations
	Namespaces []string  `json:"namespaces"` // in the order they were made
	Processes  []process `json:"processes"`
	Parked     string    `json:"parked,omitempty"` // namespace with what an earlier fabric's machines hold
}

// process is a daemon. Token is one of its arguments and holds the random
// instance, so that it alone finds a process whose id was not noted any more.
type process struct {
	Token   string `json:"token"`
	PID     int    `json:"pid,omitempty"`
	Started uint64 `json:"started,omitempty"` // clock ticks after boot
}

// ledger keeps the record on disk.
type ledger struct {
	dir string
	mu  sync.Mutex
	r   record
}

func recordFile(dir string) string { return filepath.Join(dir, "fabric.json") }

func loadRecord(dir string) (record, error) {
	raw, err := os.ReadFile(recordFile(dir))
	if err != nil {
		return record{}, err
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("read %s: %w", recordFile(dir), err)
	}
	return r, r.check()
}

// check refuses a record that could make Sweep remove what is not ours.
func (r record) check() error {
	if len(r.Instance) < 8 || !regexpInstance(r.Instance) || r.Run != runDir(r.Instance) {
		return fmt.Errorf("the record of fabric %q is damaged: %q is not its directory", r.Instance, r.Run)
	}
	for _, n := range r.Namespaces {
		if !strings.HasPrefix(n, nsPrefix(r.Instance)) || strings.Contains(n, "/") {
			return fmt.Errorf("the record of fabric %q is damaged: namespace %q is not its own", r.Instance, n)
		}
	}
	if r.Parked != "" && !parkedName.MatchString(r.Parked) {
		return fmt.Errorf("the record of fabric %q is damaged: namespace %q is not its own", r.Instance, r.Parked)
	}
	for _, p := range r.Processes {
		if !strings.HasPrefix(p.Token, r.Run+"/") {
			return fmt.Errorf("the record of fabric %q is damaged: process %q is not its own", r.Instance, p.Token)
		}
	}
	return nil
}

func regexpInstance(s string) bool {
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

func runDir(instance string) string   { return "/run/savepoint-fabric-" + instance }
func nsPrefix(instance string) string { return "sp-" + instance + "-" }

// change alters the record and returns once it is on disk.
func (l *ledger) change(f func(*record)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.r)
	if err := writeFile(recordFile(l.dir), l.r); err != nil {
		return fmt.Errorf("record the fabric in %s: %w", l.dir, err)
	}
	return nil
}

func (l *ledger) addNamespace(name string) error {
	return l.change(func(r *record) { r.Namespaces = append(r.Namespaces, name) })
}

func (l *ledger) dropNamespace(name string) error {
	return l.change(func(r *record) {
		r.Namespaces = slices.DeleteFunc(r.Namespaces, func(n string) bool { return n == name })
	})
}

// setProcess replaces the entry with the same token or adds one.
func (l *ledger) setProcess(p process) error {
	return l.change(func(r *record) {
		r.Processes = slices.DeleteFunc(r.Processes, func(q process) bool { return q.Token == p.Token })
		r.Processes = append(r.Processes, p)
	})
}

// writeFile replaces a file as a whole, durably.
func writeFile(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	tmp := path + ".part"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// procRoot is where the kernel shows processes; tests give another one.
type procRoot string

// started is field 22 of /proc/PID/stat (proc(5)). A process that has ended
// and is not yet waited for counts as gone.
func (p procRoot) started(pid int) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(string(p), strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	// The program's name in field 2 may hold spaces and parentheses.
	i := strings.LastIndexByte(string(data), ')')
	f := strings.Fields(string(data[i+1:]))
	if i < 0 || len(f) < 20 {
		return 0, fmt.Errorf("stat of process %d not understood", pid)
	}
	if f[0] == "Z" || f[0] == "X" {
		return 0, os.ErrProcessDone
	}
	return strconv.ParseUint(f[19], 10, 64)
}

func (p procRoot) has(pid int, arg string) bool {
	data, err := os.ReadFile(filepath.Join(string(p), strconv.Itoa(pid), "cmdline"))
	return err == nil && slices.Contains(strings.Split(string(data), "\x00"), arg)
}

// is reports whether a process id is the recorded process now.
func (p procRoot) is(pid int, q process) bool {
	at, err := p.started(pid)
	return err == nil && p.has(pid, q.Token) && (q.PID == 0 || pid == q.PID && at == q.Started)
}

// find returns the ids of a recorded process: one or none when its id was
// noted, else every process with its token.
func (p procRoot) find(q process) ([]int, error) {
	if q.PID != 0 {
		if p.is(q.PID, q) {
			return []int{q.PID}, nil
		}
		return nil, nil
	}
	entries, err := os.ReadDir(string(p))
	if err != nil {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && p.is(pid, q) {
			out = append(out, pid)
		}
	}
	return out, nil
}

// sweepTime bounds a clean-up, which goes on when its caller was cancelled.
const sweepTime = 60 * time.Second

// Sweep removes everything that the record in dir names, as a killed owner left
// it, and then the record: processes by id, start time and argument, namespaces
// by name. It does nothing when there is no record. Machines that use a tap of
// the fabric lose their network; end them before. It can be repeated.
func Sweep(ctx context.Context, dir string) error { return sweep(ctx, dir, "") }

// sweep is Sweep but for one namespace, which stays recorded.
func sweep(ctx context.Context, dir, keep string) error {
	r, err := loadRecord(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove what a fabric left: %w", err)
	}
	return r.sweep(ctx, dir, keep)
}

func (r record) sweep(ctx context.Context, dir, keep string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTime)
	defer cancel()
	var errs []error
	for _, p := range slices.Backward(r.Processes) {
		errs = append(errs, endProcess(ctx, "/proc", p))
	}
	for _, n := range slices.Backward(append(slices.Clone(r.Namespaces), r.Parked)) {
		if n != "" && n != keep {
			errs = append(errs, removeNamespace(ctx, n))
		}
	}
	errs = append(errs, os.RemoveAll(r.Run))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what fabric %s left: %w; its record stays in %s, try again", r.Instance, err, dir)
	}
	if keep != "" {
		r.Namespaces, r.Processes = nil, nil
		return writeFile(recordFile(dir), r)
	}
	return os.Remove(recordFile(dir))
}

// endProcess kills a recorded process and waits until it has ended.
func endProcess(ctx context.Context, proc procRoot, p process) error {
	pids, err := proc.find(p)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		// Asked again once the pidfd is open: from then on the id is fixed.
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return fmt.Errorf("end process %d: %w", pid, err)
		}
		err = killAndWait(ctx, fd, func() bool { return proc.is(pid, p) })
		_ = unix.Close(fd)
		if err != nil {
			return fmt.Errorf("end process %d: %w", pid, err)
		}
	}
	return nil
}

func killAndWait(ctx context.Context, fd int, still func() bool) error {
	if !still() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	for ctx.Err() == nil {
		// A pidfd becomes readable when its process ends.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return context.Cause(ctx)
}
