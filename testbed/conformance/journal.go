package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// JournalSubject is one empty journal, open for writing. What is nil is not
// tested.
type JournalSubject struct {
	Journal orchestrator.Journal
	// Reopen closes what is open and opens the contents again, as the next
	// process would.
	Reopen func(t *testing.T) orchestrator.Journal
	// Overtake opens the contents while the present holder has not let go.
	Overtake func(t *testing.T) orchestrator.Journal
	// Unknown makes the next write's outcome unknown; kept says whether it is
	// there after Reopen.
	Unknown func(kept bool)
	// PutGrant records a grant in a journal that is a GrantKeeper.
	PutGrant func(ctx context.Context, g orchestrator.Grant) error
}

// JournalFactory makes a fresh subject and registers its clean-up.
type JournalFactory func(t *testing.T) *JournalSubject

// Journal runs the suite. Optional ports are tested when the journal has them.
func Journal(t *testing.T, factory JournalFactory) {
	t.Helper()
	for name, test := range map[string]func(*journalSuite, *testing.T){
		"what was appended is read":       (*journalSuite).reads,
		"order is that of appending":      (*journalSuite).order,
		"contents outlive the holder":     (*journalSuite).durable,
		"a context that has ended":        (*journalSuite).context,
		"appending while reading":         (*journalSuite).whileReading,
		"appending at once":               (*journalSuite).concurrent,
		"closed":                          (*journalSuite).closed,
		"batch":                           (*journalSuite).batch,
		"unsettled":                       (*journalSuite).unsettled,
		"lists":                           (*journalSuite).lists,
		"keys":                            (*journalSuite).keys,
		"sessions":                        (*journalSuite).sessions,
		"grants":                          (*journalSuite).grants,
		"unknown outcome":                 (*journalSuite).unknown,
		"overtaken":                       (*journalSuite).overtaken,
		"what is refused leaves no trace": (*journalSuite).refused,
	} {
		t.Run(name, func(t *testing.T) {
			test(&journalSuite{JournalSubject: factory(t), ctx: t.Context()}, t)
		})
	}
}

type journalSuite struct {
	*JournalSubject
	ctx context.Context
}

var journalDay = time.Date(2026, 3, 4, 5, 6, 7, 89, time.UTC)

// note is the n-th record of a test, of the transaction.
func note(n int, tx string) orchestrator.Record {
	return orchestrator.Record{
		At: journalDay.Add(time.Duration(n) * time.Second), Tx: orchestrator.TxID(tx), Sandbox: "box", State: orchestrator.StateRunning,
		Event: "run", Data: []byte(fmt.Sprintf(`{"n":%d}`, n)),
	}
}

func (s *journalSuite) append(t *testing.T, rs ...orchestrator.Record) {
	t.Helper()
	for _, r := range rs {
		if err := s.Journal.Append(s.ctx, r); err != nil {
			t.Fatalf("append: %v", err)
		}
	}
}

func (s *journalSuite) read(t *testing.T, tx orchestrator.TxID) []orchestrator.Record {
	t.Helper()
	var all []orchestrator.Record
	for r, err := range s.Journal.Records(s.ctx, tx) {
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		all = append(all, r)
	}
	return all
}

// data is what tells the records of a test apart.
func data(rs []orchestrator.Record) (texts []string) {
	for _, r := range rs {
		texts = append(texts, string(r.Data))
	}
	return texts
}

func (s *journalSuite) want(t *testing.T, when string, got []orchestrator.Record, want ...orchestrator.Record) {
	t.Helper()
	if !slices.Equal(data(got), data(want)) {
		t.Errorf("%s: got %q, want %q", when, data(got), data(want))
	}
}

func (s *journalSuite) reads(t *testing.T) {
	full, bare := note(1, "tx1"), note(2, "tx2")
	full.Settled = true
	full.Data = []byte(`{"text":"\u0000 ünï","deep":{"a":[1,2,3]}}`)
	bare.Data, bare.Sandbox = nil, ""
	sent := full
	sent.Data = slices.Clone(full.Data)
	s.append(t, sent, bare)
	sent.Data[0] = 'X' // it is the caller's again
	got := s.read(t, "")
	if len(got) != 2 {
		t.Fatalf("got %d records", len(got))
	}
	for i, want := range []orchestrator.Record{full, bare} {
		g := got[i]
		if g.Tx != want.Tx || g.Sandbox != want.Sandbox || !g.At.Equal(want.At) || g.State != want.State || g.Event != want.Event || g.Settled != want.Settled || !bytes.Equal(g.Data, want.Data) {
			t.Errorf("got %+v, want %+v", g, want)
		}
		if g.Seq == 0 || g.Owner == "" || g.Owner != got[0].Owner || g.Fence != got[0].Fence {
			t.Errorf("record %d has number %d, owner %q, fence %d", i, g.Seq, g.Owner, g.Fence)
		}
		if f, ok := s.Journal.(orchestrator.Fencer); ok && g.Fence != f.Fence() {
			t.Errorf("fence %d in the record, %d of the hold", g.Fence, f.Fence())
		}
	}
	if got := s.read(t, "none"); len(got) != 0 {
		t.Errorf("of an unknown transaction: %+v", got)
	}
	for _, err := range s.Journal.Records(s.ctx, "") {
		if err != nil {
			t.Errorf("the first record: %v", err)
		}
		break // and nothing is left waiting
	}
	s.append(t, note(3, "tx1"))
}

func (s *journalSuite) order(t *testing.T) {
	// The clock goes back, and ids come in any order.
	a, b, c, d := note(50, "tx9"), note(10, "tx1"), note(30, "tx9"), note(20, "tx5")
	s.append(t, a, b, c, d)
	all := s.read(t, "")
	s.want(t, "all", all, a, b, c, d)
	s.want(t, "one", s.read(t, "tx9"), a, c)
	for i := 1; i < len(all); i++ {
		if all[i].Seq <= all[i-1].Seq {
			t.Errorf("number %d after %d", all[i].Seq, all[i-1].Seq)
		}
	}
}

func (s *journalSuite) reopen(t *testing.T) {
	t.Helper()
	if s.Reopen == nil {
		t.Skip("this journal cannot be opened again")
	}
	s.Journal = s.Reopen(t)
}

func (s *journalSuite) durable(t *testing.T) {
	a, b, c := note(1, "tx1"), note(2, "tx2"), note(3, "tx1")
	s.append(t, a, b)
	first := s.read(t, "")
	s.reopen(t)
	s.append(t, c)
	all := s.read(t, "")
	s.want(t, "after opening again", all, a, b, c)
	if len(all) != 3 {
		return
	}
	if all[0].Seq != first[0].Seq || all[2].Seq <= all[1].Seq || all[0].Owner != all[2].Owner || all[0].Fence != first[0].Fence || all[2].Fence <= all[1].Fence {
		t.Errorf("numbers, owners or fences: %+v, before %+v", all, first)
	}
}

func (s *journalSuite) context(t *testing.T) {
	a := note(1, "tx1")
	s.append(t, a)
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if err := s.Journal.Append(ctx, note(2, "tx1")); err == nil || errors.Is(err, orchestrator.ErrUnknownOutcome) {
		t.Errorf("append: got %v, want a refusal that is certain", err)
	}
	failed := 0
	for _, err := range s.Journal.Records(ctx, "") {
		if err != nil {
			failed++
		}
	}
	if failed != 1 {
		t.Errorf("read: %d errors, want one at the end", failed)
	}
	b := note(3, "tx1")
	s.append(t, b)
	s.want(t, "afterwards", s.read(t, ""), a, b)
}

func (s *journalSuite) whileReading(t *testing.T) {
	s.append(t, note(1, "tx1"), note(2, "tx1"))
	n := 0
	for _, err := range s.Journal.Records(s.ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n > 100 {
			t.Fatal("reading has no end")
		}
		if n <= 2 {
			s.append(t, note(10+n, "tx2"))
		}
	}
	if got := s.read(t, ""); len(got) != 4 {
		t.Errorf("%d records, want 4", len(got))
	}
}

func (s *journalSuite) concurrent(t *testing.T) {
	const writers, each = 8, 10
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := s.Journal.Append(s.ctx, note(i, fmt.Sprint("tx", w))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(s.read(t, "")); n != writers*each {
		t.Errorf("%d records, want %d", n, writers*each)
	}
	for w := range writers {
		var want []orchestrator.Record
		for i := range each {
			want = append(want, note(i, ""))
		}
		s.want(t, fmt.Sprint("writer ", w), s.read(t, orchestrator.TxID(fmt.Sprint("tx", w))), want...)
	}
}

func (s *journalSuite) closed(t *testing.T) {
	s.append(t, note(1, "tx1"))
	for range 2 {
		if err := s.Journal.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if err := s.Journal.Append(s.ctx, note(2, "tx1")); err == nil || errors.Is(err, orchestrator.ErrUnknownOutcome) {
		t.Errorf("append to a closed journal: got %v, want a refusal that is certain", err)
	}
}

// optional returns the journal as an optional port, or skips the test.
func optional[P any](t *testing.T, j orchestrator.Journal) P {
	t.Helper()
	p, ok := j.(P)
	if !ok {
		t.Skipf("this journal is no %T", (*P)(nil))
	}
	return p
}

func (s *journalSuite) batch(t *testing.T) {
	b := optional[orchestrator.Batcher](t, s.Journal)
	if err := b.AppendAll(s.ctx, nil); err != nil {
		t.Errorf("nothing: %v", err)
	}
	rs := []orchestrator.Record{note(1, "tx1"), note(2, "tx2"), note(3, "tx1")}
	if err := b.AppendAll(s.ctx, rs); err != nil {
		t.Fatal(err)
	}
	s.want(t, "three", s.read(t, ""), rs...)
}
