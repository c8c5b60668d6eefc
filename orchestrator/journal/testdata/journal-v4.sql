-- A journal as schema 4 wrote it. Kept for good: it must always open.

CREATE TABLE meta (
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
CREATE INDEX records_tx ON records (tx, seq);

CREATE TABLE open_tx (tx TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
INSERT INTO open_tx SELECT tx FROM records r
	WHERE seq = (SELECT max(seq) FROM records WHERE tx = r.tx) AND settled = 0;
CREATE TRIGGER records_open AFTER INSERT ON records WHEN NEW.settled = 0
	BEGIN INSERT OR IGNORE INTO open_tx VALUES (NEW.tx); END;
CREATE TRIGGER records_settled AFTER INSERT ON records WHEN NEW.settled = 1
	BEGIN DELETE FROM open_tx WHERE tx = NEW.tx; END;
CREATE TRIGGER records_no_update BEFORE UPDATE ON records
	BEGIN SELECT RAISE(ABORT, 'records are append-only'); END;
CREATE TRIGGER records_no_delete BEFORE DELETE ON records
	BEGIN SELECT RAISE(ABORT, 'records are append-only'); END;

CREATE TABLE sandboxes (
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
CREATE INDEX addresses_owner ON addresses (owner);
CREATE TABLE grants (
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
	BEGIN SELECT RAISE(ABORT, 'grants are kept'); END;
PRAGMA user_version = 4;

INSERT INTO meta VALUES ('fence', '7'), ('instance', '01kbcx3r00examp1einstance04'), ('cursor:vmid', '9002'), ('cursor:address:10.10.0.0/24', '10.10.0.10');
INSERT INTO records VALUES
(1,'01kbd0000000000000000000d1','01jx0000000000000000000box',1764700000250000000,'denied','deny',1,'01kbcx3r00examp1einstance04',7,
	CAST('{"sandbox":{"id":"01jx0000000000000000000box","name":"dev","state":"ready","vm":{"node":"pve1","vmid":9001},"template":{"node":"","vmid":0},"address":"","host_key":"ssh-ed25519 AAAA","workspace":"tank/dev","created":"0001-01-01T00:00:00Z"},"by":"cli","command":"cm0gLXJmIC8=","command_sha256":"5c7923bd67b06c93279d49c466301c57023822eec29c49e269063e47aecd973c","as":"agent","timeout_ns":600000000000,"on_failure":"rollback","verdict":{"decision":"deny","rule":"fs.delete-root","reason":"Recorded by an earlier version.","recoverable":true},"running_at_begin":true,"policy_ns":268203}' AS BLOB)),
(2,'01kbd0000000000000000000d2','01jx0000000000000000000box',1764700000500000000,'begun','begin',0,'01kbcx3r00examp1einstance04',7,
	CAST('{"sandbox":{"id":"01jx0000000000000000000box","name":"dev","state":"ready","vm":{"node":"pve1","vmid":9001},"template":{"node":"","vmid":0},"address":"","host_key":"ssh-ed25519 AAAA","workspace":"tank/dev","created":"0001-01-01T00:00:00Z"},"by":"cli","command":"Y2F0IC93b3Jrc3BhY2UvYQ==","command_sha256":"5ac5d6df002d93e195aa57add6ab33004579fbc69a190aaf5937ac64757906ff","as":"agent","timeout_ns":600000000000,"on_failure":"rollback","verdict":{"decision":"allow","rule":"read-only","reason":"Recorded by an earlier version.","recoverable":true},"boundary":"none","running_at_begin":true,"policy_ns":268203}' AS BLOB)),
(3,'01kbd0000000000000000000d2','01jx0000000000000000000box',1764700000750000000,'running','run',0,'01kbcx3r00examp1einstance04',7,
	NULL),
(4,'01kbd0000000000000000000d2','01jx0000000000000000000box',1764700001000000000,'ran','ran',0,'01kbcx3r00examp1einstance04',7,
	CAST('{"exit":0,"stdout_bytes":0,"stderr_bytes":0,"stdout_sha256":"e3b0","stderr_sha256":"e3b0","took_ns":1000}' AS BLOB)),
(5,'01kbd0000000000000000000d2','01jx0000000000000000000box',1764700001250000000,'committing','commit',0,'01kbcx3r00examp1einstance04',7,
	CAST('{"checks":[{"name":"exit","ok":true}],"validate_ns":0}' AS BLOB)),
(6,'01kbd0000000000000000000d2','01jx0000000000000000000box',1764700001500000000,'committed','committed',1,'01kbcx3r00examp1einstance04',7,
	NULL),
(9,'01kbd0000000000000000000d3','01jx0000000000000000000box',1764700001750000000,'begun','begin',0,'01kbcx3r00examp1einstance04',7,
	CAST('{"sandbox":{"id":"01jx0000000000000000000box","name":"dev","state":"ready","vm":{"node":"pve1","vmid":9001},"template":{"node":"","vmid":0},"address":"","host_key":"ssh-ed25519 AAAA","workspace":"tank/dev","created":"0001-01-01T00:00:00Z"},"by":"cli","command":"bWFrZSBpbnN0YWxs","command_sha256":"d731793e684e47e90ce49cd6fbeacbeb29aaa02b65089288f96583563c15084f","as":"agent","timeout_ns":600000000000,"on_failure":"rollback","verdict":{"decision":"snapshot","rule":"local-change","reason":"Recorded by an earlier version.","recoverable":true},"boundary":"machine","snapshot":"sp-01kbd0000000000000000000d3","running_at_begin":true,"policy_ns":268203}' AS BLOB));
INSERT INTO sandboxes VALUES ('01jx0000000000000000000box','dev','ready',9001,1764600000000000000,CAST('{"id":"01jx0000000000000000000box","name":"dev","state":"ready","vm":{"node":"pve1","vmid":9001},"template":{"node":"","vmid":0},"address":"","host_key":"ssh-ed25519 AAAA","workspace":"tank/dev","created":"0001-01-01T00:00:00Z"}' AS BLOB));
INSERT INTO vmids VALUES (9001,'01jx0000000000000000000box',1764600000000000000,1);
INSERT INTO addresses VALUES ('10.10.0.10','10.10.0.0/24','01jx0000000000000000000box',1764600000000000000,0);
INSERT INTO grants VALUES
('gr-01kbd0000000000000000000g1','01jx0000000000000000000box',1764700000000000000,1764700600000000000,0,'01kbd0000000000000000000d3',CAST('{"sandbox":"dev","rules":["host.packages"],"command":"bWFrZSBpbnN0YWxs","as":"agent","by":"cli"}' AS BLOB)),
('gr-01kbd0000000000000000000g2','01jx0000000000000000000box',1764700000000000000,1764700600000000000,0,'',CAST('{"sandbox":"dev","rules":["host.packages"],"command":"bHM=","as":"agent","by":"cli"}' AS BLOB));
