package sim

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"savepoint/orchestrator"
)

// JournalFault is what becomes of one write.
type JournalFault int

// The faults. After those whose outcome is unknown the journal refuses
// everything until Reopen, as the port demands.
const (
	JournalWorks   JournalFault = iota
	JournalRefuses              // nothing is written: ErrUnavailable
	JournalLoses                // all is written, the answer is lost: ErrUnknownOutcome
	JournalTears                // the write is cut in the middle, so nothing of it is kept: ErrUnknownOutcome
)

// Journal is a journal in memory for simulated clusters, with the faults and
// the durability of a real one. What was written outlives the handle: Reopen
// is the restart of the process. It is safe for concurrent use, it never
// waits, and equal calls give equal contents.
type Journal struct {
	store *journalStore
	fence int64
	fault func(rs []orchestrator.Record) JournalFault

	broken error // guarded by store.mu; set for good
}

// journalStore is the file.
type journalStore struct {
	mu       sync.Mutex
	instance string
	fence    int64
	records  []orchestrator.Record
	byTx     map[orchestrator.TxID][]int
	order    []orchestrator.TxID // as they began
	keys     map[string]orchestrator.TxID
	sessions map[orchestrator.SandboxID][]byte
	grants   map[orchestrator.GrantID]orchestrator.Grant
}

// NewJournal returns an empty journal of that instance. fault is asked before
// every write, with its records; nil means that all of them work. It must not
// call the journal.
func NewJournal(instance string, fault func(rs []orchestrator.Record) JournalFault) *Journal {
	return (&Journal{store: &journalStore{
		instance: instance, byTx: map[orchestrator.TxID][]int{}, keys: map[string]orchestrator.TxID{},
		sessions: map[orchestrator.SandboxID][]byte{}, grants: map[orchestrator.GrantID]orchestrator.Grant{},
	}}).Reopen(fault)
}

// Reopen is another hold of the same contents, with a higher fence. Writes of
// the earlier holds are refused from now on, so it is also how another process
// takes over.
func (j *Journal) Reopen(fault func(rs []orchestrator.Record) JournalFault) *Journal {
	j.store.mu.Lock()
	defer j.store.mu.Unlock()
	j.store.fence++
	return &Journal{store: j.store, fence: j.store.fence, fault: fault}
}

// Fence is the number of this hold.
func (j *Journal) Fence() int64 { return j.fence }

// Instance is the name that records carry as their owner.
func (j *Journal) Instance() string { return j.store.instance }

// Close ends this hold. It may be called twice.
func (j *Journal) Close() error {
	j.store.mu.Lock()
	defer j.store.mu.Unlock()
	if j.broken == nil {
		j.broken = fmt.Errorf("change simulated journal: it is closed: %w", orchestrator.ErrUnavailable)
	}
	return nil
}

// Append writes one record.
func (j *Journal) Append(ctx context.Context, r orchestrator.Record) error {
	return j.AppendAll(ctx, []orchestrator.Record{r})
}

// AppendAll writes all of the records with what comes with them, or nothing.
func (j *Journal) AppendAll(ctx context.Context, rs []orchestrator.Record) error {
	for _, r := range rs {
		if r.Tx == "" || r.State == "" || r.Event == "" || r.Sandbox == "" && (r.Key != "" || len(r.Session) > 0) {
			return fmt.Errorf("append to simulated journal: a record needs a transaction, a state and an event, and a key or a session needs a sandbox: %w", orchestrator.ErrDenied)
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("append to simulated journal: %w: %w", orchestrator.ErrUnavailable, err)
	}
	s := j.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := j.holds(); err != nil {
		return err
	}
	if err := s.refuse(rs); err != nil {
		return err
	}
	fault := JournalWorks
	if j.fault != nil {
		fault = j.fault(slices.Clone(rs))
	}
	switch fault {
	case JournalRefuses:
		return fmt.Errorf("append to simulated journal: no room: %w", orchestrator.ErrUnavailable)
	case JournalLoses, JournalTears:
		if fault == JournalLoses {
			s.write(rs, j.fence)
		}
		j.broken = fmt.Errorf("simulated journal was lost to an earlier error, open it again: %w", orchestrator.ErrUnavailable)
		return fmt.Errorf("append to simulated journal: the answer was lost: %w", orchestrator.ErrUnknownOutcome)
	default:
		s.write(rs, j.fence)
		return nil
	}
}

// holds refuses writes of a hold that was lost or taken over.
func (j *Journal) holds() error {
	switch {
	case j.broken != nil:
		return j.broken
	case j.fence != j.store.fence:
		return fmt.Errorf("write to simulated journal: another holder took it over, its fence is %d and ours was %d: %w", j.store.fence, j.fence, orchestrator.ErrDenied)
	}
	return nil
}

func keyOf(sb orchestrator.SandboxID, key string) string { return string(sb) + "\x00" + key }

// refuse looks whether keys are free and grants are open.
func (s *journalStore) refuse(rs []orchestrator.Record) error {
	keys := map[string]orchestrator.TxID{}
	spent := map[orchestrator.GrantID]orchestrator.TxID{}
	for _, r := range rs {
		if r.Key != "" {
			k := keyOf(r.Sandbox, r.Key)
			by, taken := s.keys[k]
			if first, twice := keys[k]; twice {
				by, taken = first, true
			}
			if taken {
				return fmt.Errorf("append with key %q: transaction %s has that key: %w", r.Key, by, orchestrator.ErrExists)
			}
			keys[k] = r.Tx
		}
		for _, id := range r.Spends {
			g, ok := s.grants[id]
			switch by, twice := spent[id]; {
			case twice:
				return &orchestrator.GrantError{ID: id, State: orchestrator.GrantUsed, Used: by}
			case !ok || g.Sandbox != r.Sandbox:
				return &orchestrator.GrantError{ID: id, State: "unknown"}
			case g.State(r.At) != orchestrator.GrantOpen:
				return &orchestrator.GrantError{ID: id, State: g.State(r.At), Used: g.Used}
			}
			spent[id] = r.Tx
		}
	}
	return nil
}

// write keeps copies: the caller may go on with his.
func (s *journalStore) write(rs []orchestrator.Record, fence int64) {
	for _, r := range rs {
		for _, id := range r.Spends {
			g := s.grants[id]
			g.Used = r.Tx
			s.grants[id] = g
		}
		if r.Key != "" {
			s.keys[keyOf(r.Sandbox, r.Key)] = r.Tx
		}
		if len(r.Session) > 0 {
			s.sessions[r.Sandbox] = slices.Clone(r.Session)
		}
		r.Seq, r.Owner, r.Fence = int64(len(s.records)+1), s.instance, fence
		r.Spends, r.Session, r.Data, r.At = nil, nil, slices.Clone(r.Data), r.At.UTC()
		if s.byTx[r.Tx] == nil {
			s.order = append(s.order, r.Tx)
		}
		s.byTx[r.Tx] = append(s.byTx[r.Tx], len(s.records))
		s.records = append(s.records, r)
	}
}
