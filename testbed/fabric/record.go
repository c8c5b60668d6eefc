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
	"strings"
	"sync"
	"time"

	"savepoint/testbed/notes"
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

// process is a daemon. Its token holds the random instance.
type process = notes.Process

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
	if err := notes.WriteJSON(recordFile(l.dir), l.r); err != nil {
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
		errs = append(errs, endProcess(ctx, p))
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
		return notes.WriteJSON(recordFile(dir), r)
	}
	return os.Remove(recordFile(dir))
}

// endProcess kills a recorded process and waits until it has ended.
func endProcess(ctx context.Context, p process) error {
	pids, err := notes.System.Find(p)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		h, err := notes.Open(pid, func() bool { return notes.System.Is(pid, p) })
		if errors.Is(err, os.ErrProcessDone) {
			continue
		}
		if err != nil {
			return err
		}
		err = h.End(ctx, 0)
		_ = h.Close()
		if err != nil {
			return fmt.Errorf("end process %d: %w", pid, err)
		}
	}
	return nil
}
