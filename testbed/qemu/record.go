package qemu

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"savepoint/testbed/pve"
)

// record is what the state directory knows of one VM's process. It is written
// before the process is started (PID 0), again once it is known, and a third
// time (Ready) right before the guest's first instruction. It is removed after
// the process is gone.
type record struct {
	Token   string         `json:"token"`
	Machine pve.Machine    `json:"machine"`
	PID     int            `json:"pid,omitempty"`
	Started uint64         `json:"started,omitempty"` // start time, clock ticks since boot
	SSH     netip.AddrPort `json:"ssh"`
	Taps    []string       `json:"taps,omitempty"` // slots of the network cards on inherited taps
	Ready   bool           `json:"ready,omitempty"`
}

const recordName = "record.json"

// machineDir is a VM's directory below the state directory.
func machineDir(state string, vmid int) string {
	return filepath.Join(state, "vm-"+strconv.Itoa(vmid))
}

func (r record) save(dir string) error { return writeFile(filepath.Join(dir, recordName), r) }

func loadRecord(dir string) (record, error) {
	data, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return record{}, err
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}, fmt.Errorf("%s: %w", filepath.Join(dir, recordName), err)
	}
	if len(r.Token) < 16 {
		return record{}, fmt.Errorf("%s: no token in it", filepath.Join(dir, recordName))
	}
	return r, nil
}

// writeFile replaces a JSON file as a whole, durably.
func writeFile(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	tmp := path + ".part"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if serr := f.Sync(); err == nil {
		err = serr
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// procRoot is where the kernel shows processes; tests give another one.
type procRoot string

// started is a process's start time in clock ticks since boot, field 22 of
// stat. The program's name in field 2 may contain anything, so fields are
// counted from its closing parenthesis.
func (p procRoot) started(pid int) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(string(p), strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	s := string(data)
	i := strings.LastIndexByte(s, ')')
	if i < 0 {
		return 0, fmt.Errorf("stat of process %d not understood", pid)
	}
	f := strings.Fields(s[i+1:])
	if len(f) < 20 {
		return 0, fmt.Errorf("stat of process %d not understood", pid)
	}
	if f[0] == "Z" || f[0] == "X" {
		return 0, os.ErrProcessDone
	}
	return strconv.ParseUint(f[19], 10, 64)
}

// has reports whether the process was started with exactly this argument.
func (p procRoot) has(pid int, arg string) bool {
	data, err := os.ReadFile(filepath.Join(string(p), strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return false
	}
	for a := range strings.SplitSeq(string(data), "\x00") {
		if a == arg {
			return true
		}
	}
	return false
}

// find returns the process of a record, 0 when it is gone. With a process id in
// the record, id, start time and token must agree. Without one (the owner was
// killed between starting it and noting its id) the token alone finds it: it
// is random and appears in no other process's arguments.
func (p procRoot) find(r record) int {
	name := processName(r.Machine.VMID, r.Token)
	if r.PID != 0 {
		at, err := p.started(r.PID)
		if err == nil && at == r.Started && p.has(r.PID, name) {
			return r.PID
		}
		return 0
	}
	entries, err := os.ReadDir(string(p))
	if err != nil {
		return 0
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !p.has(pid, name) {
			continue
		}
		if _, err := p.started(pid); err == nil {
			return pid
		}
	}
	return 0
}
