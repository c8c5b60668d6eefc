package pve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/httpd"
	"savepoint/testbed/pve/task"
)

// Server is one node of a cluster; the first one serves the API for all of
// them. Make it with New, end it with Close.
type Server struct {
	// Faults makes things go wrong on purpose.
	Faults *Faults

	*cluster
	cfg      Config // of this node
	storages []Storage
	tasks    *task.Registry
	volumes  map[string]volume // of its own storages; guarded by mu
	stats    resourceStats

	online bool          // guarded by mu, as is the next
	down   chan struct{} // closed when the node dies
}

// New makes a server from what its directory holds. Tasks that ran when the
// last server ended are finished now; what they left stays as it is.
func New(cfg Config) (_ *Server, err error) {
	if cfg, err = cfg.withDefaults(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open api state: %w", err)
	}
	s := &Server{cluster: &cluster{
		root: cfg.Dir, vms: map[int]*vmEntry{}, shared: map[string]volume{}, pools: map[string]*pool{},
		vmOpts: newVMOptions(cfg.major()), sdnKinds: sdnKindsOf(cfg.major()), routes: newRoutes(cfg.major(), table()),
	}, Faults: &Faults{}}
	if s.lock, err = lockDir(cfg.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.lock.Close()
		}
	}()
	for _, node := range cfg.Nodes {
		m, err := s.newMember(cfg.of(node))
		if err != nil {
			return nil, err
		}
		s.members = append(s.members, m)
	}
	s = s.members[0]
	made, key, err := loadSecrets(cfg.Dir, cfg.Users)
	if err != nil {
		return nil, err
	}
	s.access, err = access.New(access.Settings{
		Major: cfg.major(), Users: cfg.Users, Roles: cfg.Roles, ACL: cfg.ACL, Made: made, Key: key, Pool: s.poolOfPath,
		File: filepath.Join(cfg.Dir, "access.json"), Now: cfg.Now,
	})
	if err != nil {
		return nil, err
	}
	// clients judge certificates by the real clock, whatever the server's is
	if s.tls, s.print, err = loadTLS(cfg.Dir, cfg.Node, time.Now()); err != nil {
		return nil, err
	}
	for _, load := range []func() error{s.loadNodes, s.loadPools, s.loadSDN, s.loadFirewalls} {
		if err = load(); err != nil {
			return nil, err
		}
	}
	for _, id := range cfg.Pools {
		if s.pool(id) != nil {
			continue
		}
		if err := s.changePools(func(pools map[string]*pool) error { pools[id] = &pool{}; return nil }); err != nil {
			return nil, err
		}
	}
	s.http = httpd.New(s.serve, cfg.IdleTimeout, cfg.Now)
	return s, s.openTasks()
}

// loadNodes reads every node's VMs and volumes, and those that they share.
func (s *Server) loadNodes() error {
	for _, m := range s.members {
		if err := m.loadVMs(); err != nil {
			return err
		}
		if err := m.loadVolumes(); err != nil {
			return err
		}
	}
	return nil
}

// openTasks opens every node's tasks, or none.
func (s *Server) openTasks() error {
	for i, m := range s.members {
		var err error
		if m.tasks, err = task.Open(filepath.Join(m.cfg.Dir, "tasks"), m.cfg.Node, m.cfg.Now, s.Faults.step); err != nil {
			for _, opened := range s.members[:i] {
				opened.tasks.Close()
			}
			return err
		}
	}
	return nil
}

// Version is the release that the server behaves like, as GET /version tells it.
func (s *Server) Version() string { _, v := s.cfg.release(); return v }

// Serve answers HTTPS connections of l until Close, and then returns nil. It
// closes l.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(tls.NewListener(l, s.tls)); !errors.Is(err, httpd.ErrClosed) {
		return err
	}
	return nil
}

// Listen opens a loopback port, "127.0.0.1:0" for any, to hand to Serve.
func Listen(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	if a, ok := l.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		l.Close()
		return nil, fmt.Errorf("listen on %s: the api is for loopback only", addr)
	}
	return l, nil
}

// ListenAndServe serves on a loopback address.
func (s *Server) ListenAndServe(addr string) error {
	l, err := Listen(addr)
	if err != nil {
		return err
	}
	return s.Serve(l)
}

// Close ends the server as a crash of the node's daemons would: running tasks
// lose their workers. It waits for every goroutine. The backends stay open.
func (s *Server) Close() {
	s.http.Close()
	for _, m := range s.members {
		m.tasks.Close()
	}
	s.lock.Close()
}

// lockDir makes sure that only one server uses the directory. The lock goes
// with the process that holds it.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open api state: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("open api state %s: another server uses it", dir)
	}
	return f, nil
}
