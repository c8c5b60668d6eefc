package journal

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"savepoint/orchestrator"
)

// Options are the optional settings of Open.
type Options struct {
	// Now is the clock for the notes on reservations, sandboxes and grants, for
	// ids, and for what is old enough to be removed; nil = time.Now.
	Now func() time.Time
	// MaxBytes bounds the file, for tests of a full disk and for quotas;
	// 0 = no bound.
	MaxBytes int64
}

// Journal is an open journal. It is safe for concurrent use.
type Journal struct {
	path     string
	now      func() time.Time
	instance string
	fence    int64
	lock     *os.File // nil when read-only
	write    *sql.DB  // one connection; nil when read-only
	read     *sql.DB
	prepared prepared
	head     Head // the writer's goroutine only: the end of the chain
	work     chan job
	done     chan struct{} // closed when the writer has ended
	closing  chan struct{}
	close    sync.Once
	closeErr error
}

// Open opens the journal at path for writing and creates it, readable by its
// owner only, when it does not exist. The directory must exist. Errors:
// *HeldError, *CorruptError, *VersionError, or one wrapping a class. A crash
// leaves a journal that opens again; the lock goes with the process.
func Open(path string, o Options) (*Journal, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w: %w", path, orchestrator.ErrUnavailable, err)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	lock, err := acquire(path)
	if err != nil {
		return nil, err
	}
	j := &Journal{path: path, now: o.Now, lock: lock, work: make(chan job), done: make(chan struct{}), closing: make(chan struct{})}
	if err := j.open(o); err != nil {
		if errors.Is(err, orchestrator.ErrUnknownOutcome) { // there is no record yet whose outcome could be unknown
			cause := strings.TrimPrefix(err.Error(), orchestrator.ErrUnknownOutcome.Error()+": ")
			err = fmt.Errorf("%w: %s; see that its directory has room and can be written", orchestrator.ErrUnavailable, cause)
		}
		return nil, errors.Join(err, j.release())
	}
	go j.writer()
	return j, nil
}

// OpenReadOnly opens an existing journal beside its holder. Everything that
// would change it returns ErrDenied. ErrNotFound when there is none.
func OpenReadOnly(path string) (*Journal, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w: %w", path, orchestrator.ErrUnavailable, err)
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("open journal %s: %w: %w", path, orchestrator.ErrNotFound, err)
	}
	j := &Journal{path: path, now: time.Now, closing: make(chan struct{}), done: make(chan struct{})}
	close(j.done)
	have, err := j.openReader("ro")
	if (errors.Is(err, orchestrator.ErrDenied) || errors.Is(err, orchestrator.ErrUnavailable)) && j.atRest() {
		// A copy where nothing can be written: its log, which SQLite would want
		// to make beside it, is empty.
		if cerr := j.read.Close(); cerr != nil {
			return nil, errors.Join(err, cerr)
		}
		have, err = j.openReader(atRest)
	}
	if err == nil && have != len(migrations()) {
		err = &VersionError{Path: path, Have: have, Max: len(migrations())}
	}
	if err == nil {
		err = j.readMeta()
	}
	if err != nil {
		return nil, errors.Join(err, j.release())
	}
	return j, nil
}

// Instance returns the id of this installation: made once, with the file.
func (j *Journal) Instance() string { return j.instance }

// Fence returns the number of this hold of the journal; every Open for
// writing gets a higher one.
func (j *Journal) Fence() int64 { return j.fence }

// Close ends the journal after what is being written. It may be called twice.
func (j *Journal) Close() error {
	j.close.Do(func() {
		close(j.closing)
		<-j.done
		j.closeErr = j.release()
	})
	return j.closeErr
}

func (j *Journal) release() error {
	var errs []error
	for _, db := range []*sql.DB{j.read, j.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if j.lock != nil {
		// Unlocked by word: a child that is just being started may still have
		// a copy of the descriptor, with which closing alone frees nothing.
		errs = append(errs, unix.Flock(int(j.lock.Fd()), unix.LOCK_UN), j.lock.Close())
	}
	return errors.Join(errs...)
}

// acquire takes the lock beside the file and writes our process id in it.
func acquire(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w: %w", path, orchestrator.ErrUnavailable, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock journal %s: %w: %w", path, orchestrator.ErrUnavailable, err)
		}
		held := &HeldError{Path: path}
		text := make([]byte, 32)
		if n, _ := f.ReadAt(text, 0); n > 0 {
			held.PID, _ = strconv.Atoi(strings.TrimSpace(string(text[:n])))
		}
		return nil, held
	}
	// Who holds it is for the error text only; the lock does not depend on it.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return f, nil
}

// atRest is the mode for a file that nobody can be writing.
const atRest = "immutable"

// atRest reports whether the file has no log beside it: it is complete, and no
// process has it open for writing.
func (j *Journal) atRest() bool {
	fi, err := os.Stat(j.path + "-wal")
	return errors.Is(err, os.ErrNotExist) || err == nil && fi.Size() == 0
}

// dsn names the file to SQLite with the settings of every connection.
func (j *Journal) dsn(mode string, pragmas ...string) string {
	q := url.Values{"mode": {mode}, "_txlock": {"immediate"}, "_pragma": append([]string{"busy_timeout(5000)"}, pragmas...)}
	if mode == atRest {
		q.Set("mode", "ro")
		q.Set("immutable", "1")
	}
	return "file:" + (&url.URL{Path: j.path}).EscapedPath() + "?" + q.Encode()
}

func (j *Journal) open(o Options) error {
	created := false
	if f, err := os.OpenFile(j.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		created = true
		if err := f.Close(); err != nil {
			return fmt.Errorf("create journal %s: %w: %w", j.path, orchestrator.ErrUnavailable, err)
		}
	}
	if !created {
		if err := j.probe(); err != nil {
			return err
		}
	}
	var err error
	j.write, err = sql.Open("sqlite", j.dsn("rw", "auto_vacuum(INCREMENTAL)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(ON)"))
	if err != nil {
		return j.explain(err)
	}
	j.write.SetMaxOpenConns(1)
	if err := migrate(j.write, len(migrations())); err != nil {
		return j.explain(err)
	}
	if err := j.checkHead(); err != nil { // before anything else: a file that is refused is not touched
		return err
	}
	if err := j.shrinkable(); err != nil {
		return err
	}
	if err := j.limit(o.MaxBytes); err != nil {
		return err
	}
	if err := j.claim(); err != nil {
		return err
	}
	if err := j.prepare(); err != nil {
		return err
	}
	if created {
		if err := syncDir(filepath.Dir(j.path)); err != nil {
			return fmt.Errorf("create journal %s: %w: %w", j.path, orchestrator.ErrUnavailable, err)
		}
	}
	_, err = j.openReader("ro")
	return err
}

// openReader opens the connections that questions use and returns the schema.
func (j *Journal) openReader(mode string) (have int, err error) {
	if j.read, err = sql.Open("sqlite", j.dsn(mode, "query_only(1)")); err != nil {
		return 0, j.explain(err)
	}
	// The body of a loop over records has its connection until it ends, and may
	// ask again: a small limit would let readers wait for one another for ever.
	// This one is far above what loops nest, and bounds the open files.
	j.read.SetMaxOpenConns(128)
	j.read.SetMaxIdleConns(4)
	have, err = version(j.read)
	return have, j.explain(err)
}
