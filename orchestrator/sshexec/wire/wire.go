package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// What the client sends.
const (
	// Run starts a command. Fields: account, directory ("" = home), the
	// guest's own deadline in ms ("0" = none), "1" for a stdin, letters of how
	// it ends (HowCapture, HowSync, HowHealth), the command's text, then NAME=VALUE for
	// each added variable.
	Run = 'R'
	// Stdin is bytes for the command; EOF ends them.
	Stdin = 'I'
	EOF   = 'Z'
	// Kill ends the command and all it started, or the listing; without one it
	// means nothing.
	Kill = 'K'
	// Mark writes the generation marker: its text.
	Mark = 'M'
	// Facts asks.
	Facts = 'F'
	// Clock sets the clock: "SECONDS NANOSECONDS".
	Clock = 'C'
	// Prepare makes a fresh guest fit. Fields: authorized_keys lines of agent.
	Prepare = 'P'
	// Health asks for Facts and more.
	Health = 'V'
	// Volume says, first and without an answer, that the sandbox has a workspace
	// volume: the generation marker is on it, and what agent runs can write
	// nowhere else. While it is not mounted the guest refuses both.
	Volume = 'W'
	// Tend is an order about that volume. Fields: "mount", "unmount", "freeze"
	// or "thaw"; milliseconds (how long to wait for its disk, how long to be
	// frozen); the text of the shell program that mounts and unmounts. Or, on a
	// btrfs: "snapshots", "0", that text, "list", "take", "restore" or "delete",
	// the owner, the snapshot's name, and a text to note with it.
	Tend = 'Y'
	// List asks for a manifest. Fields: the most entries, "1" for digests of
	// content, then the roots.
	List = 'L'
)

// How a Run ends.
const (
	HowCapture = "c" // the session is reported
	HowSync    = "s" // what was written is on the guest's disk before Exit
	HowHealth  = "h" // before Exit comes the Answer to Health, of when all was gone
)

// What the helper sends.
const (
	// Hello: the first holds one field, how commands are held together
	// ("cgroup", "freeze", "tree"). Empty ones are signs of life.
	Hello = 'H'
	// Started: one field, the process id.
	Started = 'S'
	// Stdout and Stderr are bytes of the command.
	Stdout = 'O'
	Stderr = 'E'
	// Ack: uint32, bytes of stdin that were taken.
	Ack = 'A'
	// Exit ends a Run after every process is gone. Fields: number of the
	// signal or "0", exit code, "1" if all is gone, the reason ("", "kill",
	// "deadline"), "1" if something was left over and had to be ended.
	Exit = 'X'
	// Session comes before Exit if the command's shell reported one. Fields:
	// directory, then NAME=VALUE for each exported variable that is other than
	// at a command's begin.
	Session = 'N'
	// Answer: fields boot id, generation, seconds and nanoseconds of the clock,
	// how commands are held together. The first two are empty in answers to other
	// than Facts, Mark, Health and HowHealth. For the last two then, in any order:
	// "space", directory, free and all bytes, free and all inodes; "service", name,
	// "1" if it runs. For Facts "writes" and how much was written to each disk. For
	// a Tend of snapshots "volume", its owner; for each snapshot, the oldest first,
	// "taken", name, owner, number, time in seconds, text.
	Answer = 'G'
	// Entries are part of a manifest. Six fields each: path; numbers; target of
	// a link; sha256 in hexadecimal or ""; "", "absent", "vanished" or a
	// problem; extended attributes. The numbers are mode, uid, gid, size, mtime
	// in seconds, its nanoseconds, inode, ctime, its nanoseconds, flags,
	// MAJOR:MINOR of a device, "1" for another file system; "" if unknown.
	Entries = 'T'
	// Done ends a List: one field, how many entries there were.
	Done = 'D'
	// Refusal: nothing was done. Fields: class ("missing", "denied",
	// "unavailable", "unmounted", "busy", "limit"), text. Of snapshots also
	// "exists", "full", and "newer" with the names of those that are. Of a Tend that
	// does not end, class "unknown".
	Refusal = '!'
)

const (
	// Greeting is what the helper begins with.
	Greeting = "\x00savepoint-1\x00"
	// MaxPayload is the longest payload a helper may send.
	MaxPayload = 1 << 20
	// StdinAway is how much stdin may be on its way unacknowledged.
	StdinAway = 256 << 10

	noise = 64 << 10 // bytes accepted before the greeting
)

// Frame is one message.
type Frame struct {
	Kind    byte
	Payload []byte
}

// Encode returns the bytes of a frame.
func Encode(kind byte, payload []byte) []byte {
	b := make([]byte, 5, 5+len(payload))
	b[0] = kind
	binary.BigEndian.PutUint32(b[1:], uint32(len(payload)))
	return append(b, payload...)
}

// EncodeFields returns a payload of fields.
func EncodeFields(fields ...string) []byte {
	var b []byte
	for _, f := range fields {
		b = binary.BigEndian.AppendUint32(b, uint32(len(f)))
		b = append(b, f...)
	}
	return b
}

// DecodeFields reads a payload of fields.
func DecodeFields(b []byte) ([]string, error) {
	var out []string
	for len(b) > 0 {
		if len(b) < 4 {
			return nil, errors.New("field cut short")
		}
		n := binary.BigEndian.Uint32(b)
		b = b[4:]
		if uint64(n) > uint64(len(b)) {
			return nil, errors.New("field cut short")
		}
		out = append(out, string(b[:n]))
		b = b[n:]
	}
	return out, nil
}

// ReadGreeting skips what came before the greeting.
func ReadGreeting(r *bufio.Reader) error {
	matched := 0
	for range noise {
		c, err := r.ReadByte()
		if err != nil {
			return err
		}
		switch {
		case c == Greeting[matched]:
			matched++
		case c == Greeting[0]:
			matched = 1
		default:
			matched = 0
		}
		if matched == len(Greeting) {
			return nil
		}
	}
	return errors.New("no greeting from the helper")
}

// Read returns the next frame; its payload is the caller's to keep.
func Read(r *bufio.Reader) (Frame, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Frame{}, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxPayload {
		return Frame{}, fmt.Errorf("frame %q of %d bytes", head[0], n)
	}
	f := Frame{Kind: head[0], Payload: make([]byte, n)}
	_, err := io.ReadFull(r, f.Payload)
	return f, err
}
