package journal

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/oklog/ulid/v2"
	sqlite3 "modernc.org/sqlite/lib"
)

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

// shrinkable rebuilds a file of an earlier savepoint once, so that Compact can
// give its free pages back. Without room for the copy it stays as it is.
func (j *Journal) shrinkable() error {
	var mode int
	if err := j.write.QueryRow("PRAGMA auto_vacuum").Scan(&mode); err != nil {
		return j.explain(err)
	}
	const incremental = 2
	if mode == incremental {
		return nil
	}
	_, err := j.write.Exec("PRAGMA auto_vacuum = INCREMENTAL; VACUUM")
	if code(err) == sqlite3.SQLITE_FULL {
		return nil
	}
	return j.explain(err)
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
