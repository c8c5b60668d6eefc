package pve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"savepoint/testbed/pve/task"
)

// vmEntry is what the server holds of one VM id, whether or not there is a VM.
type vmEntry struct {
	file    *flock     // the lock file
	migrate *flock     // the lock against migration and replication
	backend sync.Mutex // one call to the backend at a time

	conf    *vmConf   // nil when there is no VM; guarded by cluster.mu
	node    *Server   // that holds the configuration, while there is one
	made    time.Time // when the configuration appeared
	started time.Time // of the present run
}

// entry returns the entry of an id. s.mu must not be held.
func (s *Server) entry(vmid int) *vmEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entryLocked(vmid)
}

func (s *Server) entryLocked(vmid int) *vmEntry {
	e := s.vms[vmid]
	if e == nil {
		e = &vmEntry{file: newFlock(), migrate: newFlock()}
		s.vms[vmid] = e
	}
	return e
}

func (s *Server) confPath(vmid int) string {
	return filepath.Join(s.cfg.Dir, "qemu-server", strconv.Itoa(vmid)+".conf")
}

// loadVMs reads all configurations.
func (s *Server) loadVMs() error {
	dir := filepath.Join(s.cfg.Dir, "qemu-server")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("open vm configurations: %w", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("open vm configurations: %w", err)
	}
	for _, f := range files {
		vmid, err := strconv.Atoi(strings.TrimSuffix(f.Name(), ".conf"))
		if err != nil || !strings.HasSuffix(f.Name(), ".conf") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return fmt.Errorf("read vm %d: %w", vmid, err)
		}
		c, err := parseVMConf(text)
		if err != nil {
			return fmt.Errorf("read vm %d: %w", vmid, err)
		}
		e := s.entry(vmid)
		if e.conf != nil {
			return fmt.Errorf("read vm %d: nodes %s and %s both have it; remove one of the files", vmid, e.node.cfg.Node, s.cfg.Node)
		}
		e.conf, e.node = c, s
	}
	return nil
}

// conf returns a copy of a VM's configuration.
func (s *Server) conf(vmid int) (*vmConf, error) {
	c, err := s.peek(vmid)
	if err != nil {
		return nil, err
	}
	return c.clone(), nil
}

// peek returns a VM's configuration to read only: a change never alters it,
// but puts another in its place.
func (s *Server) peek(vmid int) (*vmConf, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.vms[vmid]; s.holds(e) {
		return e.conf, nil
	}
	return nil, s.noConf(vmid)
}

// holds reports whether there is a VM and this node has its configuration.
// s.mu must be held.
func (s *Server) holds(e *vmEntry) bool { return e != nil && e.conf != nil && e.node == s }

// exists reports whether any node has a VM of that id.
func (s *Server) exists(vmid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.vms[vmid]
	return e != nil && e.conf != nil
}

// noConf is the complaint about a VM that does not exist.
func (s *Server) noConf(vmid int) error {
	return fail("Configuration file 'nodes/%s/qemu-server/%d.conf' does not exist", s.cfg.Node, vmid)
}

// update changes a VM's configuration with f. On an error of f nothing has
// changed. A worker (nil outside tasks) that was killed changes nothing.
func (s *Server) update(w *task.Worker, vmid int, f func(*vmConf) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.vms[vmid]
	if !s.holds(e) {
		return s.noConf(vmid)
	}
	c := e.conf.clone()
	if err := f(c); err != nil {
		return err
	}
	return s.storeLocked(w, vmid, e, c)
}

// create makes a new VM's configuration; taken is returned when there is one.
func (s *Server) create(w *task.Worker, vmid int, c *vmConf, taken error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entryLocked(vmid)
	if e.conf != nil {
		return taken
	}
	if err := s.storeLocked(w, vmid, e, c); err != nil {
		return err
	}
	e.made, e.node = s.cfg.Now(), s
	return nil
}

func (s *Server) storeLocked(w *task.Worker, vmid int, e *vmEntry, c *vmConf) error {
	if w != nil && !w.Alive() {
		return task.ErrKilled
	}
	if !s.quorateLocked() {
		return s.readOnly(vmid, w)
	}
	if err := writeFile(s.confPath(vmid), c.encode(), 0o600); err != nil {
		return err
	}
	e.conf = c
	return nil
}

// forget removes a VM's configuration and its firewall.
func (s *Server) forget(w *task.Worker, vmid int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w != nil && !w.Alive() {
		return task.ErrKilled
	}
	if !s.quorateLocked() {
		return s.readOnly(vmid, w)
	}
	if err := os.Remove(s.confPath(vmid)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove vm %d: %w", vmid, err)
	}
	if e := s.vms[vmid]; e != nil {
		e.conf = nil
	}
	return s.changeFirewallLocked(vmWall(vmid), func(f *firewall) error { *f = firewall{}; return nil })
}

// vmids lists the node's VMs, sorted.
func (s *Server) vmids() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []int
	for id, e := range s.vms {
		if s.holds(e) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// holdFile takes a VM's lock file for a call; w is nil outside tasks.
func (s *Server) holdFile(ctx context.Context, w *task.Worker, vmid int, exclusive bool, timeout time.Duration) (func(), error) {
	waited := false
	release, err := s.entry(vmid).file.acquire(ctx, exclusive, timeout, func() {
		waited = true
		if w != nil {
			w.Log("trying to acquire lock...")
		}
	})
	if errors.Is(err, errLockTimeout) {
		return nil, fail("can't lock file '%s' - got timeout", lockFile(vmid))
	}
	if err != nil {
		return nil, err
	}
	if waited && w != nil {
		w.Log(" OK")
	}
	return release, nil
}

// withFile runs f while a task holds a VM's lock file alone.
func (s *Server) withFile(w *task.Worker, vmid int, f func() error) error {
	release, err := s.holdFile(w.Context(), w, vmid, true, s.cfg.LockTimeout)
	if err != nil {
		return err
	}
	defer release()
	return f()
}

// withMigration runs f while a task holds the lock against migration.
func (s *Server) withMigration(w *task.Worker, vmid int, f func() error) error {
	release, err := s.entry(vmid).migrate.acquire(w.Context(), true, s.cfg.LockTimeout, nil)
	if errors.Is(err, errLockTimeout) {
		return fail("can't lock file '/var/lock/pve-manager/pve-migrate-%d' - got timeout", vmid)
	}
	if err != nil {
		return err
	}
	defer release()
	return f()
}
