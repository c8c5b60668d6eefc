package proxmox

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"savepoint/orchestrator"
)

const (
	testToken  = "sp@pve!t1"
	testSecret = "5f8e3c1a-not-a-real-secret"
)

var testVM = orchestrator.VMRef{Node: "pve1", ID: 100}

// answer is one scripted HTTP answer.
type answer struct {
	status  int // 0 = 200
	data    any
	message string
	errors  map[string]string
	hang    <-chan struct{} // do not answer before it is closed
	drop    bool            // close the connection without an answer
}

// scripted is a TLS server that answers as a test tells it to, and counts.
type scripted struct {
	*httptest.Server
	mu       sync.Mutex
	handlers map[string]func(r *http.Request, body []byte) answer // by "METHOD /path" below /api2/json
	calls    map[string]int
	conns    int
}

func newScripted(t *testing.T) *scripted {
	t.Helper()
	s := &scripted{handlers: map[string]func(*http.Request, []byte) answer{}, calls: map[string]int{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			s.mu.Lock()
			s.conns++
			s.mu.Unlock()
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *scripted) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	key := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/api2/json")
	s.mu.Lock()
	s.calls[key]++
	h := s.handlers[key]
	s.mu.Unlock()
	a := answer{status: 501, message: "Method '" + key + "' not implemented"}
	if h != nil {
		a = h(r, body)
	}
	if a.hang != nil {
		select {
		case <-a.hang:
		case <-r.Context().Done():
		}
	}
	if a.drop {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
		return
	}
	out := map[string]any{"data": a.data}
	if a.message != "" {
		out["message"] = a.message + "\n"
	}
	if a.errors != nil {
		out["errors"] = a.errors
	}
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
	_ = json.NewEncoder(w).Encode(out)
}

// on sets the answer to a call.
func (s *scripted) on(key string, h func(r *http.Request, body []byte) answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[key] = h
}

// always sets the same answer to a call.
func (s *scripted) always(key string, a answer) {
	s.on(key, func(*http.Request, []byte) answer { return a })
}

// inTurn answers with one after the other, then on with the last.
func (s *scripted) inTurn(key string, as ...answer) {
	n := 0
	s.on(key, func(*http.Request, []byte) answer {
		s.mu.Lock()
		defer s.mu.Unlock()
		a := as[min(n, len(as)-1)]
		n++
		return a
	})
}

func (s *scripted) count(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[key]
}

func (s *scripted) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

// caPool trusts the server.
func (s *scripted) caPool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return pool
}

func (s *scripted) caFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func testConfig(url string, pool *x509.CertPool) Config {
	return Config{
		URL: url, CAs: pool, TokenID: testToken, TokenSecret: testSecret,
		Pool: "savepoint", Instance: "lab", Bridge: "vmbr0",
		PollInterval: 5 * time.Millisecond, TaskTimeout: 20 * time.Second, CloneTimeout: 20 * time.Second,
		RequestTimeout: 10 * time.Second, VerifyTimeout: 10 * time.Second, ReconcileTimeout: 300 * time.Millisecond,
		LockWait: -1, AgentTimeout: 5 * time.Second, Logger: zerolog.Nop(),
	}
}

// open connects to a scripted server; change adjusts the configuration.
func (s *scripted) open(t *testing.T, change ...func(*Config)) *Cluster {
	t.Helper()
	cfg := testConfig(s.URL, s.caPool())
	for _, f := range change {
		f(&cfg)
	}
	c, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

const testUPID = "UPID:pve1:0000008C:00098F82:6B0EFD04:qmsnapshot:100:sp@pve!t1:"

const statusKey = "GET /nodes/pve1/tasks/" + testUPID + "/status"

func stopped(exit string) answer {
	return answer{data: map[string]any{"upid": testUPID, "node": "pve1", "pid": 140, "pstart": 626562, "starttime": 1796144388,
		"type": "qmsnapshot", "id": "100", "user": "sp@pve", "tokenid": "t1", "status": "stopped", "exitstatus": exit}}
}

func running() answer {
	return answer{data: map[string]any{"upid": testUPID, "node": "pve1", "pid": 140, "pstart": 626562, "starttime": 1796144388,
		"type": "qmsnapshot", "id": "100", "user": "sp@pve", "tokenid": "t1", "status": "running"}}
}
