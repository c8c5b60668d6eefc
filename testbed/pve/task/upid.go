package task

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// UPID is the parsed name of a task:
//
//	UPID:node:pid:pstart:starttime:type:id:user:
//
// with pid, pstart and starttime in hexadecimal.
type UPID struct {
	Node   string
	PID    int64
	PStart int64
	Start  int64 // Unix seconds
	Type   string
	ID     string // of what it works on; may be empty
	User   string // user@realm or user@realm!token
}

var reUPID = regexp.MustCompile(`^UPID:([a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?):([0-9A-Fa-f]{8}):([0-9A-Fa-f]{8,9}):([0-9A-Fa-f]{8}):([^:\s/]+):([^:\s/]*):([^:\s/]+):$`)

// Parse reads a UPID.
func Parse(s string) (UPID, bool) {
	m := reUPID.FindStringSubmatch(s)
	if m == nil {
		return UPID{}, false
	}
	n := func(h string) int64 { v, _ := strconv.ParseInt(h, 16, 64); return v }
	return UPID{m[1], n(m[2]), n(m[3]), n(m[4]), m[5], m[6], m[7]}, true
}

func (u UPID) String() string {
	return fmt.Sprintf("UPID:%s:%08X:%08X:%08X:%s:%s:%s:", u.Node, u.PID, u.PStart, u.Start, u.Type, u.ID, u.User)
}

// Owner splits the user from the name of its token.
func (u UPID) Owner() (user, token string) {
	user, token, _ = strings.Cut(u.User, "!")
	return user, token
}
