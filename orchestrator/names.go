package orchestrator

import (
	"crypto/rand"
	"regexp"
	"strings"
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
func SnapshotOf(tx TxID) SnapshotName { return SnapshotName(snapshotPrefix + string(tx)) }

// TxOf is the inverse of SnapshotOf. A name that this package did not make is
// refused, near misses included; a name it accepts is still no proof of
// ownership.
func TxOf(name SnapshotName) (TxID, bool) {
	id, ok := strings.CutPrefix(string(name), snapshotPrefix)
	if !ok || !ulidPattern().MatchString(id) {
		return "", false
	}
	return TxID(id), true
}

func ulidPattern() *regexp.Regexp { return regexp.MustCompile(`^[0-7][0-9a-hjkmnp-tv-z]{25}$`) }
