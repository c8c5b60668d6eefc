package pve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/httpd"
	"savepoint/testbed/pve/task"
)

// Server is one node's API. Make it with New, end it with Close.
type Server struct {
	// Faults makes things go wrong on purpose.
	Faults *Faults

	cfg      Config
	storages []Storage
	users    []access.User
	access   *access.Directory
	tasks    *task.Registry
	routes   *routeTree
	vmOpts   *vmOptions
	http     *httpd.Server
	tls      *tls.Config
	print    string // fingerprint of the server's certificate
	lock     *os.File
	sdnKinds map[string]sdnKind
	sdn      sdnState

	mu      sync.Mutex
	vms     map[int]*vmEntry
	volumes map[string]volume
	pools   map[string]*pool
	walls   map[string]*firewall
	stats   resourceStats
	guards  guards
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
	s := &Server{
		cfg: cfg, Faults: &Faults{},
		vms: map[int]*vmEntry{}, volumes: map[string]volume{}, pools: map[string]*pool{},
	}
	if s.lock, err = lockDir(cfg.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.lock.Close()
		}
	}()
	// Uploads that the last server did not come to the end of.
	if err := os.RemoveAll(uploadDir(cfg.Dir)); err != nil {
		return nil, fmt.Errorf("open api state: %w", err)
	}
	for _, st := range cfg.Storages {
		if st, err = st.prepared(cfg.Dir, cfg.major()); err != nil {
			return nil, err
		}
		s.storages = append(s.storages, st)
	}
	users, key, err := loadSecrets(cfg.Dir, cfg.Users)
	if err != nil {
		return nil, err
	}
	s.users = users
	if s.access, err = access.New(cfg.major(), users, cfg.Roles, cfg.ACL, key, s.poolOfPath); err != nil {
		return nil, err
	}
	// clients judge certificates by the real clock, whatever the server's is
	if s.tls, s.print, err = loadTLS(cfg.Dir, cfg.Node, time.Now()); err != nil {
		return nil, err
	}
	for _, load := range []func() error{s.loadVMs, s.loadVolumes, s.loadPools, s.loadSDN, s.loadFirewalls} {
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
	s.vmOpts, s.sdnKinds = newVMOptions(cfg.major()), sdnKindsOf(cfg.major())
	s.routes = newRoutes(cfg.major(), table())
	s.http = httpd.New(s.serve, cfg.IdleTimeout, cfg.Now)
	if s.tasks, err = task.Open(filepath.Join(cfg.Dir, "tasks"), cfg.Node, cfg.Now, s.Faults.step); err != nil {
		return nil, err
	}
	return s, nil
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
	s.tasks.Close()
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
