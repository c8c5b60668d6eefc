package sshexec

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec/wire"
)

// Health implements orchestrator.Examiner.
func (c *Client) Health(ctx context.Context, sb orchestrator.Sandbox) (orchestrator.GuestHealth, error) {
	a, err := c.ask(ctx, "examine sandbox", sb, wire.Health, func() []byte { return nil }, true)
	return *a.health(), err
}

// health is what an answer to wire.Health says.
func (a *answer) health() *orchestrator.GuestHealth {
	return &orchestrator.GuestHealth{GuestFacts: a.facts, Free: a.free, Services: a.services}
}

// more reads what an answer holds beyond the facts.
func (a *answer) more(fields []string) error {
	for len(fields) > 0 {
		switch {
		case fields[0] == "space" && len(fields) >= 6:
			s := orchestrator.Space{Mount: fields[1]}
			for i, n := range []*int64{&s.Bytes, &s.TotalBytes, &s.Inodes, &s.TotalInodes} {
				var err error
				if *n, err = strconv.ParseInt(fields[2+i], 10, 64); err != nil {
					return err
				}
			}
			a.free, fields = append(a.free, s), fields[6:]
		case fields[0] == "writes" && len(fields) >= 2:
			a.writes, fields = fields[1], fields[2:]
		case fields[0] == "service" && len(fields) >= 3:
			if a.services == nil {
				a.services = map[string]bool{}
			}
			a.services[fields[1]], fields = fields[2] == "1", fields[3:]
		default:
			var err error
			if fields, err = a.volume.read(fields); err != nil {
				return err
			}
		}
	}
	return nil
}

// Manifest implements orchestrator.Examiner. A root that is no absolute path,
// or none at all, is ErrDenied; so are *orchestrator.TooManyError and names that
// are longer than 1 KiB each on average at the limit. A tree that cannot be read
// is ErrUnavailable with the guest's reason.
func (c *Client) Manifest(ctx context.Context, sb orchestrator.Sandbox, r orchestrator.ManifestRequest) (orchestrator.Manifest, error) {
	order, limit, err := listOrder(r)
	if err != nil {
		return orchestrator.Manifest{}, fmt.Errorf("list files of sandbox %s: %w: %w", sb.Name, orchestrator.ErrDenied, err)
	}
	var m orchestrator.Manifest
	err = c.converse(ctx, "list files of sandbox", sb, true, func(s *session) (err error) {
		m, err = s.list(ctx, c.cfg.KillTimeout, order, limit)
		return err
	})
	if err != nil {
		return orchestrator.Manifest{}, err
	}
	m.Hash = r.Hash
	m.Sort()
	return m, nil
}

func listOrder(r orchestrator.ManifestRequest) (order []byte, limit int, err error) {
	limit = r.Limit
	if limit == 0 {
		limit = orchestrator.DefaultManifestLimit
	}
	if limit < 0 {
		return nil, 0, fmt.Errorf("a limit of %d", limit)
	}
	if len(r.Roots) == 0 {
		return nil, 0, errors.New("no root")
	}
	hash := ""
	if r.Hash {
		hash = "1"
	}
	var roots []string
	for _, root := range r.Roots {
		if !path.IsAbs(root) || strings.ContainsRune(root, 0) {
			return nil, 0, fmt.Errorf("root %q is not an absolute path", root)
		}
		roots = append(roots, path.Clean(root))
	}
	slices.Sort(roots)
	return wire.EncodeFields(append([]string{strconv.Itoa(limit), hash}, slices.Compact(roots)...)...), limit, nil
}

// list asks for a manifest and collects it. After ctx ended it orders the end
// and waits for it, so that the session is of use again. A guest that lists more
// than it may is not listened to any longer: the session is closed.
func (s *session) list(ctx context.Context, patience time.Duration, order []byte, limit int) (m orchestrator.Manifest, err error) {
	room := limit << 10 // bytes of text
	if err := s.send(wire.List, order); err != nil {
		return m, err
	}
	over := ctx.Done()
	var giveUp <-chan time.Time
	var ordered chan struct{} // closed after the order to end was sent
	for {
		var f wire.Frame
		ok := false
		select {
		case f, ok = <-s.in:
		case <-s.dead:
		case <-s.link.done:
			return m, fmt.Errorf("connection lost: %w", s.link.err)
		case <-over:
			over = nil
			timer := time.NewTimer(patience)
			defer timer.Stop()
			giveUp = timer.C
			ordered = make(chan struct{})
			go func() {
				defer close(ordered)
				s.send(wire.Kill, nil) //nolint:errcheck // a loss is noticed here
			}()
			continue
		case <-giveUp:
			return m, ctx.Err()
		}
		switch {
		case !ok:
			return m, errors.New("the helper in the guest ended: " + s.stderr.String())
		case f.Kind == wire.Entries && ctx.Err() == nil:
			had := len(m.Entries)
			if m.Entries, err = entries(m.Entries, f.Payload); err != nil {
				return m, err
			}
			for _, e := range m.Entries[had:] {
				room -= len(e.Path) + len(e.Target) + len(e.SHA256) + len(e.Problem)
			}
			if no := overlong(len(m.Entries), limit, room); no != nil {
				s.close()
				return orchestrator.Manifest{}, no
			}
		case f.Kind == wire.Done:
			n, err := wire.DecodeFields(f.Payload)
			if err != nil || len(n) != 1 || ctx.Err() == nil && n[0] != strconv.Itoa(len(m.Entries)) {
				return m, errors.New("the helper's manifest is not whole")
			}
			return m, severed(ctx, ordered)
		case f.Kind == wire.Refusal:
			if err := severed(ctx, ordered); err != nil {
				return m, err
			}
			return m, refused(f.Payload)
		}
	}
}

// overlong refuses a listing that is longer than it may be: an agent can give its
// files names of a hundred thousand bytes, and root make the guest say anything.
func overlong(entries, limit, room int) error {
	switch {
	case entries > limit:
		many := &orchestrator.TooManyError{Limit: limit}
		return &refusal{class: many, text: many.Error()}
	case room < 0:
		return &refusal{class: orchestrator.ErrDenied, text: fmt.Sprintf("the names of these files are longer than %d KiB together; name smaller trees", limit)}
	}
	return nil
}

// cut is the end of a listing that its context ended; the session goes on.
type cut struct{ cause error }

func (c *cut) Error() string { return "ended: " + c.cause.Error() }
func (c *cut) Unwrap() error { return c.cause }

// severed returns a cut if ctx has ended. An order to end that is on its way is
// waited for: later it would end the next order.
func severed(ctx context.Context, ordered <-chan struct{}) error {
	if ordered != nil {
		<-ordered
	}
	if ctx.Err() == nil {
		return nil
	}
	return &cut{context.Cause(ctx)}
}

const entryFields = 6

var entryTypes = map[uint32]orchestrator.EntryType{
	0o100000: orchestrator.EntryFile, 0o040000: orchestrator.EntryDir, 0o120000: orchestrator.EntryLink, 0o020000: orchestrator.EntryChar,
	0o060000: orchestrator.EntryBlock, 0o010000: orchestrator.EntryFIFO, 0o140000: orchestrator.EntrySocket,
}

// entries reads a frame of a manifest.
func entries(to []orchestrator.ManifestEntry, payload []byte) ([]orchestrator.ManifestEntry, error) {
	f, err := wire.DecodeFields(payload)
	if err != nil || len(f)%entryFields != 0 {
		return to, errors.New("the helper's manifest is not readable")
	}
	for e := range slices.Chunk(f, entryFields) {
		entry := orchestrator.ManifestEntry{Path: e[0], Target: e[2], SHA256: e[3], Type: orchestrator.EntryUnknown}
		switch e[4] {
		case "absent":
			entry.Type = orchestrator.EntryAbsent
		default:
			entry.Problem = e[4]
		}
		if e[5] != "" {
			sum := sha256.Sum256([]byte(e[5]))
			entry.XAttrs = hex.EncodeToString(sum[:])
		}
		if e[1] != "" {
			if err := numbers(&entry, e[1]); err != nil {
				return to, fmt.Errorf("the helper's manifest is not readable: %s: %w", entry.Path, err)
			}
		}
		to = append(to, entry)
	}
	return to, nil
}

func numbers(e *orchestrator.ManifestEntry, text string) error {
	f := strings.Fields(text)
	if len(f) != 12 {
		return errors.New("numbers are missing")
	}
	device := f[10]
	f[10] = "0"
	var n [12]int64
	for i := range f {
		v, err := strconv.ParseUint(f[i], 10, 64)
		if signed, err2 := strconv.ParseInt(f[i], 10, 64); err != nil && err2 == nil { // a time before 1970
			v, err = uint64(signed), nil
		}
		if err != nil {
			return err
		}
		n[i] = int64(v)
	}
	mode := uint32(n[0])
	t, ok := entryTypes[mode&0o170000]
	if !ok {
		return fmt.Errorf("mode %o", mode)
	}
	e.Type, e.Mode, e.UID, e.GID, e.Size = t, mode&0o7777, uint32(n[1]), uint32(n[2]), n[3]
	e.MTime, e.CTime = time.Unix(n[4], n[5]).UTC(), time.Unix(n[7], n[8]).UTC()
	e.Inode, e.Flags, e.Mount = uint64(n[6]), uint64(n[9]), n[11] == 1
	if t == orchestrator.EntryChar || t == orchestrator.EntryBlock {
		e.Device = device
	}
	return nil
}
