package journal

import (
	"crypto/rand"
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

	"github.com/oklog/ulid/v2"
	"golang.org/x/sys/unix"

	"savepoint/orchestrator"
)

// Options are the optional settings of Open.
type Options struct {
	// Now is the clock for reservations and ids; nil = time.Now.
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
	if err := j.openReader(); err != nil {
		return nil, errors.Join(err, j.release())
	}
	have, err := version(j.read)
	if err == nil && have != len(migrations()) {
		err = &VersionError{Path: path, Have: have, Max: len(migrations())}
	} else if err != nil {
		err = j.explain(err)
	} else {
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

// dsn names the file to SQLite with the settings of every connection.
func (j *Journal) dsn(mode string, pragmas ...string) string {
	q := url.Values{"mode": {mode}, "_txlock": {"immediate"}, "_pragma": append([]string{"busy_timeout(5000)"}, pragmas...)}
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
	j.write, err = sql.Open("sqlite", j.dsn("rw", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(ON)"))
	if err != nil {
		return j.explain(err)
	}
	j.write.SetMaxOpenConns(1)
	if err := migrate(j.write, len(migrations())); err != nil {
		return j.explain(err)
	}
	if err := j.limit(o.MaxBytes); err != nil {
		return err
	}
	if err := j.claim(); err != nil {
		return err
	}
	if created {
		if err := syncDir(filepath.Dir(j.path)); err != nil {
			return fmt.Errorf("create journal %s: %w: %w", j.path, orchestrator.ErrUnavailable, err)
		}
	}
	return j.openReader()
}

func (j *Journal) openReader() (err error) {
	if j.read, err = sql.Open("sqlite", j.dsn("ro", "query_only(1)")); err != nil {
		return j.explain(err)
	}
	j.read.SetMaxOpenConns(4)
	return j.explain(j.read.Ping())
}

// probe looks at an existing file without changing a byte of it: is it ours,
// of a schema we know, and undamaged from end to end? An empty file is what a
// crash in the middle of the creation leaves.
func (j *Journal) probe() error {
	db, err := sql.Open("sqlite", j.dsn("ro"))
	if err != nil {
		return j.explain(err)
	}
	defer db.Close()
	have, err := version(db)
	if err != nil {
		return j.explain(err)
	}
	if have > len(migrations()) {
		return &VersionError{Path: j.path, Have: have, Max: len(migrations())}
	}
	var answer string
	if err := db.QueryRow("PRAGMA quick_check(1)").Scan(&answer); err != nil {
		return j.explain(err)
	}
	if answer != "ok" {
		return &CorruptError{Path: j.path, Detail: answer}
	}
	if have == 0 {
		var tables int
		if err := db.QueryRow("SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
			return j.explain(err)
		}
		if tables > 0 {
			return &CorruptError{Path: j.path, Detail: "it is a database, but not a journal"}
		}
	}
	return nil
}

func (j *Journal) limit(most int64) error {
	if most <= 0 {
		return nil
	}
	var page int64
	if err := j.write.QueryRow("PRAGMA page_size").Scan(&page); err != nil {
		return j.explain(err)
	}
	_, err := j.write.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", max(most/page, 1)))
	return j.explain(err)
}

// claim makes the instance id once, and this hold's fence.
func (j *Journal) claim() error {
	id := strings.ToLower(ulid.MustNew(ulid.Timestamp(j.now()), rand.Reader).String())
	tx, err := j.write.Begin()
	if err != nil {
		return j.explain(err)
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it does nothing
	for _, q := range []string{
		"INSERT INTO meta VALUES ('instance', '" + id + "') ON CONFLICT DO NOTHING",
		"INSERT INTO meta VALUES ('fence', '1') ON CONFLICT DO UPDATE SET value = CAST(value AS INTEGER) + 1",
	} {
		if _, err := tx.Exec(q); err != nil {
			return j.explain(err)
		}
	}
	if err := tx.Commit(); err != nil {
		return j.explain(err)
	}
	return j.readMeta()
}

func (j *Journal) readMeta() error {
	db := j.write
	if db == nil {
		db = j.read
	}
	get := func(key string, into any) error {
		return db.QueryRow("SELECT value FROM meta WHERE key = ?", key).Scan(into)
	}
	if err := get("instance", &j.instance); err != nil {
		return &CorruptError{Path: j.path, Detail: "it has no instance id"}
	}
	if err := get("fence", &j.fence); err != nil {
		return &CorruptError{Path: j.path, Detail: "it has no fence"}
	}
	return nil
}

// syncDir makes the file's name durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
