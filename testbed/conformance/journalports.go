package conformance

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"savepoint/orchestrator"
)

// grouped reads a stream in which each transaction's records stand in a row,
// and returns the ids in the order they came.
func grouped(t *testing.T, records iter.Seq2[orchestrator.Record, error]) (ids []string, rs []orchestrator.Record) {
	t.Helper()
	for r, err := range records {
		if err != nil {
			t.Fatal(err)
		}
		if len(ids) == 0 || ids[len(ids)-1] != string(r.Tx) {
			ids = append(ids, string(r.Tx))
		}
		rs = append(rs, r)
	}
	return ids, rs
}

func (s *journalSuite) unsettled(t *testing.T) {
	u := optional[orchestrator.Unsettler](t, s.Journal)
	settled := func(r orchestrator.Record) orchestrator.Record { r.Settled = true; return r }
	s.append(t, note(1, "tx1"), note(2, "tx2"), settled(note(3, "tx1")), note(4, "tx3"), note(5, "tx2"),
		settled(note(6, "tx4")), note(7, "tx4")) // taken up again
	check := func(when string) {
		t.Helper()
		of := map[orchestrator.TxID][]orchestrator.Record{}
		for r, err := range u.Unsettled(s.ctx) {
			if err != nil {
				t.Fatal(err)
			}
			of[r.Tx] = append(of[r.Tx], r)
		}
		if len(of) != 3 {
			t.Errorf("%s: %d transactions, want 3", when, len(of))
		}
		s.want(t, when, of["tx2"], note(2, ""), note(5, ""))
		s.want(t, when, of["tx3"], note(4, ""))
		s.want(t, when, of["tx4"], note(6, ""), note(7, ""))
	}
	check("at once")
	if s.Reopen != nil {
		s.reopen(t)
		u = optional[orchestrator.Unsettler](t, s.Journal)
		check("after opening again")
	}
}

func (s *journalSuite) lists(t *testing.T) {
	begin := func(n int, tx, event string) orchestrator.Record {
		r := note(n, tx)
		r.Event, r.Sandbox = event, orchestrator.SandboxID("box-"+tx)
		return r
	}
	// tx1 begins last, though its id and its time say otherwise.
	s.append(t, begin(50, "tx2", "begin"), begin(40, "tx3", "deny"), note(45, "tx2"), begin(1, "tx1", "begin"), begin(51, "tx3", "ran"))
	if x, ok := s.Journal.(orchestrator.Indexer); ok {
		var ids []string
		for id, err := range x.Transactions(s.ctx) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, string(id))
		}
		slices.Sort(ids) // which is the newest, the port leaves open when ids and order disagree
		if got := strings.Join(ids, " "); got != "tx1 tx2 tx3" {
			t.Errorf("transactions: %s", got)
		}
	}
	if b, ok := s.Journal.(orchestrator.Beginner); ok {
		_, rs := grouped(t, b.Beginnings(s.ctx))
		s.want(t, "beginnings", rs, note(50, ""), note(40, ""), note(45, ""), note(1, "")) // 45 is a "run" with data, 51 is no beginning
	}
	if f, ok := s.Journal.(orchestrator.Finder); ok {
		ids, rs := grouped(t, f.Find(s.ctx, orchestrator.Filter{}))
		if got := strings.Join(ids, " "); got != "tx1 tx3 tx2" {
			t.Errorf("found: %s", got)
		}
		s.want(t, "found", rs, note(1, ""), note(40, ""), note(51, ""), note(50, ""), note(45, ""))
		for _, filter := range []orchestrator.Filter{
			{Sandbox: "box-tx2"}, {States: []orchestrator.State{orchestrator.StateRunning}}, {Since: journalDay.Add(50 * time.Second)}, {Open: true}, {Sandbox: "box-tx2", Limit: 1},
		} {
			if ids, _ := grouped(t, f.Find(s.ctx, filter)); !slices.Contains(ids, "tx2") {
				t.Errorf("%+v: got %q, tx2 matches", filter, ids)
			}
		}
	}
}

func withKey(n int, tx string, sb orchestrator.SandboxID, key string) orchestrator.Record {
	r := note(n, tx)
	r.Sandbox, r.Key = sb, key
	return r
}

func (s *journalSuite) keys(t *testing.T) {
	optional[orchestrator.Keyed](t, s.Journal)
	s.append(t, withKey(1, "tx1", "box", "one"), withKey(2, "tx1", "box", "two"), withKey(3, "tx2", "other", "one"), withKey(4, "tx3", "box", ""), withKey(5, "tx3", "box", ""))
	for _, tx := range []string{"tx1", "tx9"} {
		if err := s.Journal.Append(s.ctx, withKey(6, tx, "box", "one")); !errors.Is(err, orchestrator.ErrExists) {
			t.Errorf("a key that is taken, by %s: got %v, want ErrExists", tx, err)
		}
	}
	if s.Reopen != nil {
		s.reopen(t)
	}
	k := optional[orchestrator.Keyed](t, s.Journal)
	for _, c := range []struct{ sb, key, want string }{{"box", "one", "tx1"}, {"box", "two", "tx1"}, {"other", "one", "tx2"}, {"other", "two", ""}, {"box", "", ""}, {"box", "on", ""}} {
		id, ok, err := k.ByKey(s.ctx, orchestrator.SandboxID(c.sb), c.key)
		if err != nil || string(id) != c.want || ok != (c.want != "") {
			t.Errorf("by key %q of %s: got %q, %t, %v, want %q", c.key, c.sb, id, ok, err, c.want)
		}
	}
	if got := s.read(t, "tx1"); len(got) != 2 || got[0].Key != "one" || got[1].Key != "two" {
		t.Errorf("the records' keys: %+v", got)
	}
}

func (s *journalSuite) sessions(t *testing.T) {
	optional[orchestrator.SessionKeeper](t, s.Journal)
	with := func(n int, sb orchestrator.SandboxID, session string) orchestrator.Record {
		r := note(n, "tx1")
		r.Sandbox, r.Session = sb, []byte(session)
		return r
	}
	s.append(t, with(1, "box", `{"a":1}`), with(2, "other", `{"b":1}`), with(3, "box", `{"a":2}`), note(4, "tx1"))
	if s.Reopen != nil {
		s.reopen(t)
	}
	k := optional[orchestrator.SessionKeeper](t, s.Journal)
	for sb, want := range map[orchestrator.SandboxID]string{"box": `{"a":2}`, "other": `{"b":1}`, "none": ""} {
		if got, err := k.Session(s.ctx, sb); err != nil || string(got) != want || (got == nil) != (want == "") {
			t.Errorf("session of %s: got %q, %v, want %q", sb, got, err, want)
		}
	}
	if got := s.read(t, ""); len(got) == 0 || got[0].Session != nil {
		t.Errorf("records yield the session: %+v", got)
	}
}

func leave(id string) orchestrator.Grant {
	return orchestrator.Grant{
		ID: orchestrator.GrantID(id), Sandbox: "box", Name: "dev", Rules: []string{"a.rule"}, As: "root",
		Made: journalDay, Expires: journalDay.Add(time.Hour),
	}.For("make install", nil)
}

func spending(n int, tx string, ids ...orchestrator.GrantID) orchestrator.Record {
	r := note(n, tx)
	r.Spends = ids
	return r
}

func (s *journalSuite) grants(t *testing.T) {
	k := optional[orchestrator.GrantKeeper](t, s.Journal)
	if s.PutGrant == nil {
		t.Skip("nobody can put a grant")
	}
	for _, id := range []string{"gr-1", "gr-2"} {
		if err := s.PutGrant(s.ctx, leave(id)); err != nil {
			t.Fatal(err)
		}
	}
	s.append(t, spending(1, "tx1", "gr-1"))
	late := spending(2, "tx2", "gr-2")
	late.At = journalDay.Add(time.Hour)
	for name, r := range map[string]orchestrator.Record{"used": spending(2, "tx2", "gr-1"), "unknown": spending(2, "tx2", "gr-9"), "expired": late} {
		var gone *orchestrator.GrantError
		if err := s.Journal.Append(s.ctx, r); !errors.As(err, &gone) || gone.State != name {
			t.Errorf("%s: got %v, want a *GrantError", name, err)
		}
	}
	s.want(t, "afterwards", s.read(t, ""), note(1, ""))
	open, err := k.OpenGrants(s.ctx, "box", journalDay.Add(time.Minute))
	if err != nil || len(open) != 1 {
		t.Fatalf("open: %+v, %v", open, err)
	}
	if diff := cmp.Diff(leave("gr-2"), open[0]); diff != "" {
		t.Errorf("open (-want +got):\n%s", diff)
	}
}

// refused: a batch whose last record is refused leaves nothing of the others,
// nor of what they would have used up.
func (s *journalSuite) refused(t *testing.T) {
	b := optional[orchestrator.Batcher](t, s.Journal)
	k := optional[orchestrator.Keyed](t, s.Journal)
	s.append(t, withKey(1, "tx1", "box", "one"))
	first := withKey(2, "tx2", "box", "new")
	first.Session = []byte(`{"a":1}`)
	if s.PutGrant != nil {
		if err := s.PutGrant(s.ctx, leave("gr-1")); err != nil {
			t.Fatal(err)
		}
		first.Spends = []orchestrator.GrantID{"gr-1"}
	}
	for name, last := range map[string]orchestrator.Record{"another's key": withKey(3, "tx2", "box", "one"), "the same key twice": withKey(3, "tx2", "box", "new")} {
		if err := b.AppendAll(s.ctx, []orchestrator.Record{first, last}); !errors.Is(err, orchestrator.ErrExists) {
			t.Errorf("%s: got %v, want ErrExists", name, err)
		}
	}
	s.want(t, "afterwards", s.read(t, ""), note(1, ""))
	if _, ok, err := k.ByKey(s.ctx, "box", "new"); ok || err != nil {
		t.Errorf("its key is taken: %v", err)
	}
	if sk, ok := s.Journal.(orchestrator.SessionKeeper); ok {
		if got, err := sk.Session(s.ctx, "box"); got != nil || err != nil {
			t.Errorf("its session is kept: %s, %v", got, err)
		}
	}
	if err := s.Journal.Append(s.ctx, first); err != nil {
		t.Errorf("by itself: %v", err)
	}
}

func (s *journalSuite) unknown(t *testing.T) {
	if s.Unknown == nil || s.Reopen == nil {
		t.Skip("no write of this journal can be lost")
	}
	optional[orchestrator.Batcher](t, s.Journal)
	for n, kept := range []bool{true, false} {
		before := s.read(t, "")
		rs := []orchestrator.Record{note(10*n, "tx1"), note(10*n+1, "tx2")}
		s.Unknown(kept)
		if err := optional[orchestrator.Batcher](t, s.Journal).AppendAll(s.ctx, rs); !errors.Is(err, orchestrator.ErrUnknownOutcome) {
			t.Fatalf("append: got %v, want an unknown outcome", err)
		}
		for range 2 {
			if err := s.Journal.Append(s.ctx, note(99, "tx3")); err == nil || errors.Is(err, orchestrator.ErrUnknownOutcome) {
				t.Errorf("append after it: got %v, want a refusal that is certain", err)
			}
		}
		s.reopen(t)
		want := before
		if kept {
			want = append(want, rs...)
		}
		s.want(t, "after opening again", s.read(t, ""), want...)
		s.append(t, note(50+n, "tx4"))
	}
}

func (s *journalSuite) overtaken(t *testing.T) {
	if s.Overtake == nil {
		t.Skip("this journal cannot be overtaken")
	}
	a, b := note(1, "tx1"), note(3, "tx1")
	s.append(t, a)
	old := s.Journal
	s.Journal = s.Overtake(t)
	for range 2 {
		if err := old.Append(context.WithoutCancel(s.ctx), note(2, "tx1")); !errors.Is(err, orchestrator.ErrDenied) {
			t.Errorf("append by the old holder: got %v, want ErrDenied", err)
		}
	}
	if s.PutGrant != nil { // of the old holder
		if err := s.PutGrant(context.WithoutCancel(s.ctx), leave("gr-late")); !errors.Is(err, orchestrator.ErrDenied) {
			t.Errorf("grant by the old holder: got %v, want ErrDenied", err)
		}
	}
	if c, ok := old.(interface {
		ClearSession(ctx context.Context, sb orchestrator.SandboxID) error
	}); ok {
		if err := c.ClearSession(context.WithoutCancel(s.ctx), "box"); !errors.Is(err, orchestrator.ErrDenied) {
			t.Errorf("session forgotten by the old holder: got %v, want ErrDenied", err)
		}
	}
	s.append(t, b)
	got := s.read(t, "")
	s.want(t, "afterwards", got, a, b)
	if len(got) == 2 && got[1].Fence <= got[0].Fence {
		t.Errorf("fence %d after %d", got[1].Fence, got[0].Fence)
	}
}
