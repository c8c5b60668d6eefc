package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"runtime"
	"strings"
	"sync"
	"time"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/policy"
)

// replayBatch is how many questions of the journal are in memory at once.
const replayBatch = 512

// change is a verdict that would be another one now.
type change struct {
	Transaction string          `json:"transaction"`
	At          time.Time       `json:"at"`
	Sandbox     string          `json:"sandbox"`
	Validation  int             `json:"validation,omitempty"` // which one, from 1; 0 = the command itself
	As          policy.User     `json:"as"`
	Profile     string          `json:"profile,omitempty"`
	Command     string          `json:"command"`
	Old         verdictView     `json:"old"`
	New         verdictView     `json:"new"`
	Direction   replayDirection `json:"change"`
}

type verdictView struct {
	Decision string `json:"decision"`
	Rule     string `json:"rule"`
}

// replayDirection says how a verdict changed.
type replayDirection string

const (
	stricter replayDirection = "stricter"
	weaker   replayDirection = "weaker"
	sameElse replayDirection = "rule" // the same decision by another rule
)

// replaySummary counts.
type replaySummary struct {
	Transactions int `json:"transactions"`
	Judged       int `json:"judged"`
	Stricter     int `json:"stricter"`
	Weaker       int `json:"weaker"`
	Rule         int `json:"rule"`
}

func (a *app) checkJournal(ctx context.Context, e *policy.Engine, cfg configs.Config) error {
	j, err := a.readJournalOf(cfg)
	if err != nil {
		return err
	}
	asked := func(func(orchestrator.Judgment, error) bool) {} // no journal yet: nothing was asked
	if j != nil {
		asked = orchestrator.Judged(ctx, j)
	}
	p := newProgress(a.err, nil)
	defer p.stop()
	p.say("judging the journal again")
	out := newReplayPrinter(a, p)
	sum, err := replay(ctx, e, asked, out.change)
	if err != nil {
		return fmt.Errorf("judge the journal again: %w", err)
	}
	p.stop()
	return out.end(sum)
}

// aside writes where a progress line may stand, which goes away for it.
type aside struct {
	p *progress
	w io.Writer
}

func (s aside) Write(text []byte) (int, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.erase()
	return s.w.Write(text)
}

// replay judges every question again, in parallel but told in order, and keeps
// no more than a batch of them.
func replay(ctx context.Context, e *policy.Engine, asked iter.Seq2[orchestrator.Judgment, error], tell func(change) error) (sum replaySummary, err error) {
	batch := make([]orchestrator.Judgment, 0, replayBatch)
	verdicts := make([]policy.Verdict, replayBatch)
	flush := func() error {
		judgeAll(e, batch, verdicts)
		for i, q := range batch {
			sum.count(q)
			if c, ok := compare(q, verdicts[i]); ok {
				sum.add(c.Direction)
				if err := tell(c); err != nil {
					return err
				}
			}
		}
		batch = batch[:0]
		return ctx.Err()
	}
	for q, err := range asked {
		if err != nil {
			return sum, err
		}
		if batch = append(batch, q); len(batch) == replayBatch {
			if err := flush(); err != nil {
				return sum, err
			}
		}
	}
	return sum, flush()
}

func judgeAll(e *policy.Engine, batch []orchestrator.Judgment, verdicts []policy.Verdict) {
	var wg sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for n := range workers {
		wg.Go(func() {
			for i := n; i < len(batch); i += workers {
				q := batch[i]
				verdicts[i] = e.Decide(policy.Request{Command: q.Command, User: q.As, Dir: q.Dir, Profile: q.Profile, Grants: q.Grants, Now: q.At})
			}
		})
	}
	wg.Wait()
}

func (s *replaySummary) count(q orchestrator.Judgment) {
	s.Judged++
	if q.Validation == 0 {
		s.Transactions++
	}
}

func (s *replaySummary) add(d replayDirection) {
	switch d {
	case stricter:
		s.Stricter++
	case weaker:
		s.Weaker++
	case sameElse:
		s.Rule++
	}
}

// compare says what is different now, if anything is.
func compare(q orchestrator.Judgment, v policy.Verdict) (change, bool) {
	c := change{
		Transaction: string(q.Tx), At: q.At, Sandbox: q.Sandbox, Validation: q.Validation, As: q.As, Profile: q.Profile, Command: q.Command,
		Old: verdictView{q.Decision, q.Rule}, New: verdictView{v.Decision.String(), v.Rule}, Direction: sameElse,
	}
	if c.Old == c.New {
		return c, false
	}
	old, err := policy.ParseDecision(q.Decision)
	switch {
	case err != nil || v.Decision < old: // an unknown word is no decision to rely on
		c.Direction = stricter
	case v.Decision > old:
		c.Direction = weaker
	}
	return c, true
}

// replayPrinter writes each change as it is found: there may be many.
type replayPrinter struct {
	a     *app
	w     *bufio.Writer
	st    style
	width int
	live  bool // somebody looks on: whole changes, each at once
	n     int
}

func newReplayPrinter(a *app, p *progress) *replayPrinter {
	return &replayPrinter{
		a: a, w: bufio.NewWriterSize(aside{p, a.out}, 64<<10), st: a.style(a.out), width: a.width(a.out), live: terminal(a.out) > 0,
	}
}

func (p *replayPrinter) change(c change) error {
	p.n++
	err := p.write(c)
	if err == nil && p.live {
		err = p.w.Flush()
	}
	return err
}

func (p *replayPrinter) write(c change) error {
	switch p.a.format {
	case formatNDJSON:
		return encoder(p.w).Encode(c)
	case formatJSON: // an object that grows: nothing is kept
		lead := ",\n    "
		if p.n == 1 {
			lead = "{\n  \"changes\": [\n    "
		}
		if _, err := p.w.WriteString(lead); err != nil {
			return err
		}
		text, err := marshal(c)
		if err != nil {
			return err
		}
		_, err = p.w.Write(text)
		return err
	case formatText:
	}
	what := ""
	if c.Validation > 0 {
		what = fmt.Sprintf(" validation %d", c.Validation)
	}
	_, err := fmt.Fprintf(p.w, "%s%s  %s [%s] → %s [%s]\n    %s\n", c.Transaction, what,
		paintDecision(p.st, c.Old.Decision), printable(c.Old.Rule), paintDecision(p.st, c.New.Decision), c.New.Rule, cut(c.Command, max(p.width-4, 20)))
	return err
}

func (p *replayPrinter) end(s replaySummary) error {
	var err error
	switch p.a.format {
	case formatNDJSON:
		err = encoder(p.w).Encode(struct {
			Summary replaySummary `json:"summary"`
		}{s})
	case formatJSON:
		lead := "\n  ],\n  \"summary\": "
		if p.n == 0 {
			lead = "{\n  \"changes\": [],\n  \"summary\": "
		}
		var text []byte
		if text, err = marshal(s); err == nil {
			_, err = fmt.Fprintf(p.w, "%s%s\n}\n", lead, text)
		}
	case formatText:
		if p.n > 0 {
			fmt.Fprintln(p.w)
		}
		_, err = fmt.Fprintf(p.w, "%s in %s judged again: %d stricter, %d weaker, %d by another rule, %d as before\n",
			plural(s.Judged, "command", "commands"), plural(s.Transactions, "transaction", "transactions"),
			s.Stricter, s.Weaker, s.Rule, s.Judged-s.Stricter-s.Weaker-s.Rule)
	}
	if err != nil {
		return err
	}
	return p.w.Flush()
}

func marshal(v any) ([]byte, error) {
	var b strings.Builder
	err := encoder(&b).Encode(v)
	return []byte(strings.TrimSuffix(b.String(), "\n")), err
}
