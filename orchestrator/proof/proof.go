package proof

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"savepoint/network"
	"savepoint/orchestrator"
)

// Prober measures from inside a guest.
type Prober interface {
	// Probe has one guest measure. meet is called when it listens and has sent
	// nothing yet, and it begins when meet returns. An error of class
	// ErrUnavailable says that the guest does not answer.
	Probe(ctx context.Context, sb orchestrator.Sandbox, order orchestrator.ProbeOrder, meet func(context.Context) error) (orchestrator.ProbeReport, error)
}

// Router reads routing tables of zones.
type Router interface {
	// Routes returns the table of a zone on a node, without those to the node's
	// own guests.
	Routes(ctx context.Context, node, zone string) ([]orchestrator.ZoneRoute, error)
}

// Surroundings are what is around the zones.
type Surroundings interface {
	// Places returns what no sandbox may reach, the nodes among them, and the
	// names of the nodes that are out of reach at the moment.
	Places(ctx context.Context) (places []network.Place, away []string, err error)
}

// Records are what is known durably.
type Records interface {
	// Sandboxes returns all that were ever made.
	Sandboxes(ctx context.Context) ([]orchestrator.Sandbox, error)
	// Networks returns which networks are ours.
	Networks(ctx context.Context) (network.Record, error)
	// PutProof keeps a sandbox's proof in the place of the one before, durably.
	PutProof(ctx context.Context, sb orchestrator.SandboxID, data json.RawMessage, at time.Time) error
}

// Config is what a Proof needs. Zero durations take the default.
type Config struct {
	Wanted       network.Wanted
	Prober       Prober
	Router       Router // nil: routes are not measured, which no EVPN zone passes
	Surroundings Surroundings
	Records      Records

	// Wait is how long an answer is waited for. Default 1.5 s.
	Wait time.Duration
	// Converge is how long what must be reachable may take until it is. Default
	// 60 s.
	Converge time.Duration
	// Pause is between two attempts. Default 500 ms.
	Pause time.Duration
	// Answer is how long a guest may take to begin. Default 30 s, at most 50 s:
	// those who are ready wait for the others no longer than a minute.
	Answer time.Duration
	// Batch is how many guests measure at a time. Default 32.
	Batch int

	Now     func() time.Time // default time.Now
	Observe func(string)     // what is being done, for people; may be nil
}

// Proof proves isolation. It is safe for concurrent use.
type Proof struct{ c Config }

// New returns a Proof.
func New(c Config) *Proof {
	for _, d := range []struct {
		p    *time.Duration
		deft time.Duration
	}{{&c.Wait, 1500 * time.Millisecond}, {&c.Converge, time.Minute}, {&c.Pause, 500 * time.Millisecond}, {&c.Answer, 30 * time.Second}} {
		if *d.p <= 0 {
			*d.p = d.deft
		}
	}
	c.Answer = min(c.Answer, 50*time.Second)
	if c.Batch <= 0 {
		c.Batch = 32
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Observe == nil {
		c.Observe = func(string) {}
	}
	return &Proof{c}
}

// Result is a report with what a person wants to know besides.
type Result struct {
	network.Report
	// Notes say what took no part, and why something was not measured.
	Notes []string `json:"notes,omitempty"`
}

// Open says which sandboxes reach, or are reached by, what they must not be, with
// the lines that show it.
func (r Result) Open() map[string][]string {
	out := map[string][]string{}
	for _, c := range r.Failed() {
		if c.Observed != network.Reachable {
			continue
		}
		for _, end := range []string{c.From, c.To} {
			if rest, ok := strings.CutPrefix(end, "guest "); ok {
				name, _, _ := strings.Cut(rest, " ")
				out[name] = append(out[name], Line(c))
			}
		}
	}
	return out
}

// UnprovidedError says that there is nothing whose isolation could be proved. A
// caller treats it as not sealed.
type UnprovidedError struct{ Reason, Mend string }

func (e *UnprovidedError) Error() string {
	return "isolation is not provided: " + e.Reason + "; " + e.Mend
}

// Is makes it a case of unavailable for callers that only know classes.
func (e *UnprovidedError) Is(target error) bool { return target == orchestrator.ErrUnavailable }

// Prove measures one sandbox that is in a zone, and stores the report. It
// returns nil if the sandbox is sealed, *orchestrator.UnsealedError if it is
// not, and another error if that could not be measured. A sandbox without a
// tenant has no isolation to be proved.
func (p *Proof) Prove(ctx context.Context, sb orchestrator.Sandbox) error {
	if sb.Tenant == "" {
		return nil
	}
	res, err := p.Measure(ctx, sb)
	if err != nil {
		return err
	}
	return res.Verdict(sb.Name)
}

// Measure is Prove that returns the report.
func (p *Proof) Measure(ctx context.Context, sb orchestrator.Sandbox) (Result, error) {
	res, err := p.focused(ctx, sb)
	if err != nil {
		return res, fmt.Errorf("prove the network of sandbox %s: %w", sb.Name, err)
	}
	return res, p.store(ctx, sb, res)
}

// Verify measures all sandboxes that are in a zone. What it finds of each is
// stored with it.
func (p *Proof) Verify(ctx context.Context) (Result, error) {
	res, err := p.all(ctx)
	if err != nil {
		var none *UnprovidedError
		if errors.As(err, &none) {
			return res, err
		}
		return res, fmt.Errorf("verify the networks: %w", err)
	}
	return res, nil
}

func (p *Proof) store(ctx context.Context, sb orchestrator.Sandbox, res Result) error {
	data, err := json.Marshal(res)
	if err == nil {
		// A proof that was made is kept, also when the caller has given up.
		err = p.c.Records.PutProof(context.WithoutCancel(ctx), sb.ID, data, p.c.Now())
	}
	if err != nil {
		return &orchestrator.JournalError{Cause: fmt.Errorf("store the proof of sandbox %s: %w", sb.Name, err)}
	}
	return nil
}

// Verdict is what Prove makes of a report: nil for one that is sealed.
func (r Result) Verdict(name string) error {
	if r.Sealed {
		return nil
	}
	failed := r.Failed()
	var lines []string
	for _, c := range failed {
		lines = append(lines, Line(c))
	}
	known := slices.ContainsFunc(failed, func(c network.Result) bool { return c.Observed != network.NotMeasured })
	if known {
		return &orchestrator.UnsealedError{Sandbox: name, Failed: lines}
	}
	if len(lines) == 0 {
		lines = []string{"nothing shows that its network is alive"}
	}
	return fmt.Errorf("prove the network of sandbox %s: %w: %d things could not be measured, %s first (%s); run savepoint network verify --sandbox %s",
		name, orchestrator.ErrUnavailable, len(lines), lines[0], firstOf(r.Notes), name)
}

func firstOf(notes []string) string {
	if len(notes) == 0 {
		return "no reason is known"
	}
	return notes[0]
}

// Line is one line of a report for people.
func Line(c network.Result) string {
	return fmt.Sprintf("%s to %s over %s is %s, expected %s", c.From, c.To, c.Protocol, c.Observed, c.Expected)
}
