package orchestrator

import (
	"crypto/rand"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// NewTxID makes a transaction id of the given time.
func NewTxID(now time.Time) TxID {
	return TxID(strings.ToLower(ulid.MustNew(ulid.Timestamp(now), rand.Reader).String()))
}

const snapshotPrefix = "sp-"

// SnapshotOf returns the name of the snapshot that a transaction takes when it
// begins: 29 characters, within the cluster's limit of 40.
func SnapshotOf(tx TxID) SnapshotName { return pointName(tx, 0) }

// SnapshotText is the description of a transaction's snapshots. With the name it
// tells whose a snapshot is.
func SnapshotText(tx TxID, sb SandboxID) string {
	return fmt.Sprintf("savepoint transaction %s of sandbox %s", tx, sb)
}

// maxPoints is how many savepoints a transaction can take in its life: their
// numbers are not used again, and a name has room for so many.
const maxPoints = 9999

// pointName is the name of the snapshot of a transaction's n-th savepoint; the
// 0th is the state at begin.
func pointName(tx TxID, n int) SnapshotName {
	if n == 0 {
		return SnapshotName(snapshotPrefix + string(tx))
	}
	return SnapshotName(fmt.Sprintf("%s%s-%d", snapshotPrefix, tx, n))
}

// TxOf returns the transaction that took a snapshot of that name, at its begin
// or for a savepoint. A name that this package did not make is refused, near
// misses included; a name it accepts is still no proof of ownership.
func TxOf(name SnapshotName) (TxID, bool) {
	m := snapshotPattern().FindStringSubmatch(string(name))
	if m == nil {
		return "", false
	}
	return TxID(m[1]), true
}

// snapshotPattern matches what pointName makes and nothing else.
var snapshotPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^sp-([0-7][0-9a-hjkmnp-tv-z]{25})(?:-[1-9][0-9]{0,3})?\z`)
})

// savepointPattern is what a savepoint may be called.
var savepointPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\z`)
})

// PointBegin is the name of the state at begin among the savepoints.
const PointBegin = "begin"

// pointNamed checks the name of a new savepoint.
func pointNamed(name string) error {
	switch {
	case !savepointPattern().MatchString(name):
		return &UsageError{What: fmt.Sprintf("savepoint %q: not a name", name), Mend: "use up to 64 letters, digits, dots, dashes and underscores, a letter or digit first"}
	case name == PointBegin:
		return &UsageError{What: "savepoint begin: that is the state at begin", Mend: "use another name"}
	}
	return nil
}
