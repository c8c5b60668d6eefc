package journal

import (
	"database/sql"
	"fmt"
)

// migrations[i] brings a file from schema i to i+1. Append-only: files of
// every version exist.
func migrations() []string {
	return []string{
		// 1: records.
		`CREATE TABLE meta (
			key   TEXT PRIMARY KEY,
			value TEXT NOT NULL
		) STRICT, WITHOUT ROWID;
		CREATE TABLE records (
			seq     INTEGER PRIMARY KEY AUTOINCREMENT,
			tx      TEXT NOT NULL,
			sandbox TEXT NOT NULL,
			at      INTEGER NOT NULL,
			state   TEXT NOT NULL,
			event   TEXT NOT NULL,
			settled INTEGER NOT NULL,
			owner   TEXT NOT NULL,
			fence   INTEGER NOT NULL,
			data    BLOB
		) STRICT;
		CREATE INDEX records_tx ON records (tx, seq);`,

		// 2: what is open, without reading everything; nothing rewrites history.
		`CREATE TABLE open_tx (tx TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
		INSERT INTO open_tx SELECT tx FROM records r
			WHERE seq = (SELECT max(seq) FROM records WHERE tx = r.tx) AND settled = 0;
		CREATE TRIGGER records_open AFTER INSERT ON records WHEN NEW.settled = 0
			BEGIN INSERT OR IGNORE INTO open_tx VALUES (NEW.tx); END;
		CREATE TRIGGER records_settled AFTER INSERT ON records WHEN NEW.settled = 1
			BEGIN DELETE FROM open_tx WHERE tx = NEW.tx; END;
		CREATE TRIGGER records_no_update BEFORE UPDATE ON records
			BEGIN SELECT RAISE(ABORT, 'records are append-only'); END;
		CREATE TRIGGER records_no_delete BEFORE DELETE ON records
			BEGIN SELECT RAISE(ABORT, 'records are append-only'); END;`,

		// 3: the registry of sandboxes.
		`CREATE TABLE sandboxes (
			id      TEXT PRIMARY KEY,
			name    TEXT NOT NULL,
			state   TEXT NOT NULL,
			vmid    INTEGER NOT NULL,
			changed INTEGER NOT NULL,
			data    BLOB NOT NULL
		) STRICT, WITHOUT ROWID;
		CREATE INDEX sandboxes_vmid ON sandboxes (vmid);
		CREATE UNIQUE INDEX sandboxes_name ON sandboxes (name) WHERE state <> 'destroyed';
		CREATE TABLE vmids (
			vmid  INTEGER PRIMARY KEY,
			owner TEXT NOT NULL,
			at    INTEGER NOT NULL,
			taken INTEGER NOT NULL
		) STRICT;
		CREATE TABLE addresses (
			address  TEXT PRIMARY KEY,
			subnet   TEXT NOT NULL,
			owner    TEXT NOT NULL,
			at       INTEGER NOT NULL,
			released INTEGER NOT NULL
		) STRICT, WITHOUT ROWID;
		CREATE INDEX addresses_owner ON addresses (owner);`,
	}
}

func version(db *sql.DB) (v int, err error) {
	err = db.QueryRow("PRAGMA user_version").Scan(&v)
	return v, err
}

// migrate brings the file to the newest schema, or to upTo when that is lower.
func migrate(db *sql.DB, upTo int) error {
	have, err := version(db)
	if err != nil {
		return err
	}
	for v, script := range migrations() {
		if v < have || v >= upTo {
			continue
		}
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		if _, err = tx.Exec(script); err == nil {
			_, err = tx.Exec(fmt.Sprintf("PRAGMA user_version = %d", v+1))
		}
		if err != nil {
			_ = tx.Rollback()
			return fmt.Errorf("migrate to schema %d: %w", v+1, err)
		}
		if err := tx.Commit(); err != nil {
			return fmt.Errorf("migrate to schema %d: %w", v+1, err)
		}
	}
	return nil
}
