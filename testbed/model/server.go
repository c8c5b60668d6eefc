package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// MaxBody is the largest body of a request, in bytes.
const MaxBody = 16 << 20

// Server is the stand-in model server. It is an http.Handler, and Serve makes it
// a server.
type Server struct {
	answer Answer
	wait   func(context.Context, time.Duration) error

	mu       sync.Mutex
	requests []Request
	given    []Call        // in answers to other than side questions, in order
	turns    sync.Mutex    // held while answer runs: one request at a time
	closed   chan struct{} // closed under mu
	http     *http.Server
	serving  sync.WaitGroup
}

// Option changes a server that New makes.
type Option func(*Server)

// WithWait replaces how the server waits for think times and between tokens.
func WithWait(wait func(context.Context, time.Duration) error) Option {
	return func(s *Server) { s.wait = wait }
}

// New makes a server that answers with answer. Close ends it.
func New(answer Answer, options ...Option) *Server {
	s := &Server{answer: answer, wait: pause, closed: make(chan struct{})}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	for _, o := range options {
		o(s)
	}
	return s
}

// Serve answers what comes to the listener, in the background, until Close, and
// returns the server's base URL. The listener belongs to the server from then on.
func (s *Server) Serve(l net.Listener) string {
	s.serving.Go(func() { _ = s.http.Serve(l) }) // always an error, after Close
	return "http://" + l.Addr().String()
}

// Close ends every connection and waits until none is answered any more.
func (s *Server) Close() error {
	s.mu.Lock()
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	s.mu.Unlock()
	err := s.http.Close()
	s.serving.Wait()
	return err
}

// Count returns how many requests came, with those that were not understood
// left out.
func (s *Server) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

// Requests returns the requests that came, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Server", Name)
	if !s.enter() {
		panic(http.ErrAbortHandler) // net/http's way to end without an answer
	}
	defer s.serving.Done()
	r, status, err := read(w, q)
	if err != nil {
		refuse(w, apiOf(q.URL.Path), status, err.Error())
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, r)
	r.N = len(s.requests)
	s.requests[r.N-1].N = r.N
	s.mu.Unlock()

	t := s.turn(r)
	ctx, cancel := context.WithCancel(q.Context())
	defer cancel()
	go func() {
		select {
		case <-s.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	if t.Fault == Hang {
		<-ctx.Done()
		panic(http.ErrAbortHandler)
	}
	if t.Think > 0 && s.wait(ctx, t.Think) != nil {
		panic(http.ErrAbortHandler)
	}
	s.write(ctx, w, r, t)
}

// enter counts a request that Close has to wait for. After Close there is none.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
		return false
	default:
		s.serving.Add(1)
		return true
	}
}

func (s *Server) turn(r Request) Turn {
	if r.Side() {
		return Turn{Text: plainest(r.Schema)}
	}
	s.turns.Lock()
	defer s.turns.Unlock()
	t := s.answer(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given = append(s.given, t.Calls...)
	return t
}

func apiOf(path string) API {
	if strings.HasPrefix(path, "/v1beta/") {
		return Gemini
	}
	return OpenAI
}

// read takes a request apart; with an error comes the status to refuse it with.
func read(w http.ResponseWriter, q *http.Request) (Request, int, error) {
	target, isGemini := strings.CutPrefix(q.URL.Path, "/v1beta/models/")
	switch {
	case !isGemini && q.URL.Path != "/v1/chat/completions":
		return Request{}, http.StatusNotFound, fmt.Errorf("the %s has no %s", Name, q.URL.Path)
	case q.Method != http.MethodPost:
		return Request{}, http.StatusMethodNotAllowed, errors.New("want POST")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, MaxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return Request{}, http.StatusRequestEntityTooLarge, fmt.Errorf("the body has more than %d bytes", MaxBody)
	} else if err != nil {
		return Request{}, http.StatusBadRequest, fmt.Errorf("read the body: %w", err)
	}
	var r Request
	if isGemini {
		r, err = parseGemini(target, body)
	} else {
		r, err = parseChat(body)
	}
	return r, http.StatusBadRequest, err
}

// write sends a turn in the form that the request asks for.
func (s *Server) write(ctx context.Context, w http.ResponseWriter, r Request, t Turn) {
	switch t.Fault {
	case Status429:
		w.Header().Set("Retry-After", "1")
		refuse(w, r.API, http.StatusTooManyRequests, "the script says so")
		return
	case Status500:
		refuse(w, r.API, http.StatusInternalServerError, "the script says so")
		return
	default: // the others are in what is answered
	}
	form := chatForm
	if r.API == Gemini {
		form = geminiForm
	}
	if !r.Stream {
		raw, _ := json.Marshal(form.whole(r, t)) // of plain maps: cannot fail
		w.Header().Set("Content-Type", "application/json")
		if t.Fault == CutStream {
			w.Header().Set("Content-Length", fmt.Sprint(len(raw)))
			_, _ = w.Write(raw[:len(raw)/2])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(raw) // a client that is gone does not read it
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	events := form.events(r, t)
	for i, e := range events {
		if t.Fault == CutStream && i == len(events)/2 {
			_, _ = fmt.Fprintf(w, "data: %s", e[:len(e)/2])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		if t.Fault == SlowTokens && i > 0 && s.wait(ctx, TokenPause) != nil {
			panic(http.ErrAbortHandler)
		}
		if _, err := fmt.Fprintf(w, "data: %s\r\n\r\n", e); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
	}
}

// refuse sends an error in the form of the protocol.
func refuse(w http.ResponseWriter, api API, status int, why string) {
	e := map[string]any{"message": why, "type": http.StatusText(status), "code": status}
	if api == Gemini {
		e = map[string]any{"message": why, "status": http.StatusText(status), "code": status}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": e})
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
