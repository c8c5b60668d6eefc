package qemu

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"savepoint/testbed/notes"
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

func (r record) save(dir string) error { return notes.WriteJSON(filepath.Join(dir, recordName), r) }

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

// find returns the process of a record, 0 when it is gone. Without an id in it
// (the owner was killed between starting the process and noting its id) the
// token alone finds it: it is random and in no other process's arguments.
func (r record) find(proc notes.Proc) int {
	pids, err := proc.Find(notes.Process{Token: processName(r.Machine.VMID, r.Token), PID: r.PID, Started: r.Started})
	if err != nil || len(pids) == 0 {
		return 0
	}
	return pids[0]
}
