package sshexec

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec/wire"
)

// ending is what the helper says of a command that is over.
type ending struct {
	code   int    // -1 when a signal ended it
	signal string // without SIG
	gone   bool   // every process of the command is gone
	reason string // why the helper ended it: "", "kill", "deadline"

	session *orchestrator.Session
	health  *orchestrator.GuestHealth
}

// endOf reads an exit frame. Its fields are the signal's number or 0, the exit
// code, "1" if all is gone, the reason, and "1" if something was left over and
// had to be ended.
func endOf(payload []byte) (ending, error) {
	bad := fmt.Errorf("%w: the helper's report of the end is not readable", orchestrator.ErrUnknownOutcome)
	f, err := wire.DecodeFields(payload)
	if err != nil || len(f) != 5 {
		return ending{code: -1}, bad
	}
	sig, err1 := strconv.Atoi(f[0])
	code, err2 := strconv.Atoi(f[1])
	if err1 != nil || err2 != nil {
		return ending{code: -1}, bad
	}
	e := ending{code: code, gone: f[2] == "1", reason: f[3]}
	if sig != 0 {
		e.code, e.signal = -1, signalName(sig)
	}
	return e, nil
}

// refusal is the helper's word that it did not do what it was asked.
type refusal struct {
	class error
	text  string
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.class }

func refused(payload []byte) error {
	f, err := wire.DecodeFields(payload)
	if err != nil || len(f) != 2 {
		return fmt.Errorf("%w: the helper's refusal is not readable", orchestrator.ErrUnknownOutcome)
	}
	r := &refusal{class: orchestrator.ErrUnavailable, text: f[1]}
	switch f[0] {
	case "missing":
		r.class = orchestrator.ErrNotFound
	case "denied":
		r.class = orchestrator.ErrDenied
	case "unmounted":
		r.class = orchestrator.ErrUnmounted
	case "exists":
		r.class = orchestrator.ErrExists
	case "newer":
		newer := &orchestrator.NotLatestError{}
		for name := range strings.FieldsSeq(f[1]) {
			newer.Newer = append(newer.Newer, orchestrator.SnapshotName(name))
		}
		r.class, r.text = newer, "newer than it are "+strings.Join(strings.Fields(f[1]), ", ")
	case "full":
		full := &orchestrator.FullError{Place: "the workspace volume", Text: f[1]}
		r.class, r.text = full, full.Error()
	case "busy":
		r.class = orchestrator.ErrBusy
	case "unknown":
		r.class = orchestrator.ErrUnknownOutcome
	case "limit":
		n, _ := strconv.Atoi(f[1])
		r.class, r.text = &orchestrator.TooManyError{Limit: n}, (&orchestrator.TooManyError{Limit: n}).Error()
	}
	return r
}

// isRefusal reports whether the guest answered, with a no.
func isRefusal(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// signalName names Linux signals by number; the numbers are those of every
// architecture the helper runs on.
func signalName(n int) string {
	names := [...]string{1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL",
		10: "USR1", 11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 16: "STKFLT", 17: "CHLD", 18: "CONT",
		19: "STOP", 20: "TSTP", 21: "TTIN", 22: "TTOU", 23: "URG", 24: "XCPU", 25: "XFSZ", 26: "VTALRM", 27: "PROF",
		28: "WINCH", 29: "IO", 30: "PWR", 31: "SYS"}
	if n > 0 && n < len(names) {
		return names[n]
	}
	return strconv.Itoa(n)
}
