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

		// 4: grants. A used one stays used: nothing but the use itself is written
		// into it, and nothing takes it away.
		`CREATE TABLE grants (
			id      TEXT PRIMARY KEY,
			sandbox TEXT NOT NULL,
			made    INTEGER NOT NULL,
			expires INTEGER NOT NULL,
			revoked INTEGER NOT NULL,
			used    TEXT NOT NULL,
			data    BLOB NOT NULL
		) STRICT, WITHOUT ROWID;
		CREATE INDEX grants_open ON grants (sandbox, expires) WHERE used = '' AND revoked = 0;
		CREATE TRIGGER grants_once BEFORE UPDATE ON grants WHEN OLD.used <> '' OR OLD.revoked <> 0
			BEGIN SELECT RAISE(ABORT, 'a grant is used or revoked once'); END;
		CREATE TRIGGER grants_bound BEFORE UPDATE OF id, sandbox, made, expires, data ON grants
			BEGIN SELECT RAISE(ABORT, 'a grant is not changed'); END;
		CREATE TRIGGER grants_no_delete BEFORE DELETE ON grants
			BEGIN SELECT RAISE(ABORT, 'grants are kept'); END;`,

		// 5: the chain of hashes, keys, sessions, what a list needs of each
		// transaction, and the removal of old ones. chainAll completes it.
		`ALTER TABLE records ADD COLUMN key TEXT NOT NULL DEFAULT '';
		ALTER TABLE records ADD COLUMN session BLOB;
		ALTER TABLE records ADD COLUMN hash BLOB NOT NULL DEFAULT x'';
		DROP TRIGGER records_no_update;
		DROP TRIGGER records_no_delete;
		CREATE TABLE txs (
			tx       TEXT PRIMARY KEY,
			sandbox  TEXT NOT NULL,
			name     TEXT NOT NULL,
			began    INTEGER NOT NULL,
			began_at INTEGER NOT NULL,
			last     INTEGER NOT NULL,
			last_at  INTEGER NOT NULL,
			state    TEXT NOT NULL,
			settled  INTEGER NOT NULL
		) STRICT, WITHOUT ROWID;
		INSERT INTO txs SELECT g.tx, f.sandbox,
				coalesce(CASE WHEN json_valid(CAST(f.data AS TEXT)) THEN json_extract(CAST(f.data AS TEXT), '$.sandbox.name') END, ''),
				f.seq, f.at, l.seq, l.at, l.state, l.settled
			FROM (SELECT tx, min(seq) AS a, max(seq) AS b FROM records GROUP BY tx) g
			JOIN records f ON f.seq = g.a JOIN records l ON l.seq = g.b;
		CREATE UNIQUE INDEX txs_began ON txs (began);
		CREATE INDEX txs_sandbox ON txs (sandbox, began);
		CREATE INDEX txs_name ON txs (name, began);
		CREATE INDEX txs_open ON txs (began) WHERE settled = 0;
		CREATE TABLE keys (
			sandbox TEXT NOT NULL,
			key     TEXT NOT NULL,
			tx      TEXT NOT NULL,
			PRIMARY KEY (sandbox, key)
		) STRICT, WITHOUT ROWID;
		CREATE INDEX keys_tx ON keys (tx);
		CREATE TABLE sessions (
			sandbox TEXT PRIMARY KEY,
			seq     INTEGER NOT NULL,
			data    BLOB NOT NULL
		) STRICT, WITHOUT ROWID;
		CREATE TABLE anchors (
			id      INTEGER PRIMARY KEY,
			seq     INTEGER NOT NULL,
			hash    BLOB NOT NULL,
			at      INTEGER NOT NULL,
			removed INTEGER NOT NULL,
			txs     INTEGER NOT NULL,
			hidden  INTEGER NOT NULL
		) STRICT;
		CREATE TRIGGER anchors_no_delete BEFORE DELETE ON anchors
			BEGIN SELECT RAISE(ABORT, 'anchors are kept'); END;
		CREATE TRIGGER records_no_delete BEFORE DELETE ON records WHEN NOT EXISTS
				(SELECT 1 FROM meta WHERE key = 'compacting' AND OLD.seq <= CAST(value AS INTEGER) AND OLD.seq <= (SELECT max(seq) FROM anchors))
			BEGIN SELECT RAISE(ABORT, 'records are append-only'); END;`,

		// 6: which networks are ours, and the proofs of isolation.
		`CREATE TABLE networks (
			id   INTEGER PRIMARY KEY CHECK (id = 1),
			at   INTEGER NOT NULL,
			data BLOB NOT NULL
		) STRICT;
		CREATE TABLE proofs (
			sandbox TEXT PRIMARY KEY,
			at      INTEGER NOT NULL,
			data    BLOB NOT NULL
		) STRICT, WITHOUT ROWID;`,
	}
}

// completions are what a migration needs besides its script, by the schema it
// leads to. They run in the same SQL transaction.
func completions() map[int]func(*sql.Tx) error {
	return map[int]func(*sql.Tx) error{5: chainAll}
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
		_, err = tx.Exec(script)
		if complete := completions()[v+1]; err == nil && complete != nil {
			err = complete(tx)
		}
		if err == nil {
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
