package notes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Process is what is noted of a process. Token is one of its arguments; when the
// id was not noted any more it alone finds the process, so it has to be random.
type Process struct {
	Token   string `json:"token"`
	PID     int    `json:"pid,omitempty"`
	Started uint64 `json:"started,omitempty"` // clock ticks after boot
}

// Proc is where the kernel shows processes; tests give another place.
type Proc string

// System is the machine's own.
const System Proc = "/proc"

// Started is when a process began, in clock ticks after boot: field 22 of
// /proc/PID/stat (proc(5)). One that has ended and is not yet waited for counts
// as gone.
func (p Proc) Started(pid int) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(string(p), strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	// The program's name in field 2 may hold spaces and parentheses.
	i := strings.LastIndexByte(string(data), ')')
	f := strings.Fields(string(data[i+1:]))
	if i < 0 || len(f) < 20 {
		return 0, fmt.Errorf("stat of process %d not understood", pid)
	}
	if f[0] == "Z" || f[0] == "X" {
		return 0, os.ErrProcessDone
	}
	return strconv.ParseUint(f[19], 10, 64)
}

// Args are a process's program and arguments; none when it has ended.
func (p Proc) Args(pid int) []string {
	data, err := os.ReadFile(filepath.Join(string(p), strconv.Itoa(pid), "cmdline"))
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}

// PIDs are the ids of all processes.
func (p Proc) PIDs() ([]int, error) {
	entries, err := os.ReadDir(string(p))
	if err != nil {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, pid)
		}
	}
	return out, nil
}

// Is reports whether a process id is the noted process now.
func (p Proc) Is(pid int, q Process) bool {
	at, err := p.Started(pid)
	return err == nil && slices.Contains(p.Args(pid), q.Token) && (q.PID == 0 || pid == q.PID && at == q.Started)
}

// Find returns the ids of a noted process: one or none when its id was noted,
// else every process with its token.
func (p Proc) Find(q Process) ([]int, error) {
	pids := []int{q.PID}
	if q.PID == 0 {
		var err error
		if pids, err = p.PIDs(); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(pids, func(pid int) bool { return !p.Is(pid, q) }), nil
}
