package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Node is one node of the lab.
type Node struct {
	Name   string `json:"name"`
	Online bool   `json:"online"`
	// Address is the node's in the network between the nodes; "" in a user-mode lab.
	Address string `json:"address,omitempty"`
	SSH     string `json:"ssh,omitempty"` // where its sshd listens, if it has accounts
}

// Status is where a lab is and how to get in. Its JSON form is a contract.
type Status struct {
	Running     bool   `json:"running"`
	APIURL      string `json:"api_url"`
	CAFile      string `json:"ca_file"`
	TokenID     string `json:"token_id"` // may do everything; savepoint.yaml has one with the least rights
	TokenSecret string `json:"token_secret"`
	User        string `json:"user"`
	Password    string `json:"password"`
	PVEVersion  string `json:"pve_version"`
	Network     string `json:"network"`
	// Isolation tells whether guests are in zones that are kept apart, and
	// IsolationReason why not.
	Isolation       bool   `json:"isolation"`
	IsolationReason string `json:"isolation_reason,omitempty"`

	Storage     string `json:"storage"`
	Nodes       []Node `json:"nodes"`
	StateDir    string `json:"state_dir"`
	Accelerator string `json:"accelerator"` // "kvm" or "tcg", software emulation
	// AcceleratorReason says why it is that one.
	AcceleratorReason string `json:"accelerator_reason"`
	Config            string `json:"config"`
	JumpAddress       string `json:"jump_address"`
	// Faults is the file of what goes wrong on purpose, and FaultsDigest what it held.
	Faults       string `json:"faults,omitempty"`
	FaultsDigest string `json:"faults_digest,omitempty"`
	PID          int    `json:"pid"`
}

func statusFile(dir string) string { return filepath.Join(dir, "status.json") }

// Read returns the state of the lab in dir. A lab that does not run, or never
// did, is a Status with Running false.
func Read(dir string) (Status, error) {
	st := Status{StateDir: dir, Nodes: []Node{}}
	running, err := held(dir)
	if err != nil {
		return st, err
	}
	raw, err := os.ReadFile(statusFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return st, nil
	}
	if err != nil {
		return st, fmt.Errorf("read lab status: %w", err)
	}
	if err := json.Unmarshal(raw, &st); err != nil {
		return st, fmt.Errorf("read lab status %s: %w; remove the file and run savepoint lab up", statusFile(dir), err)
	}
	st.Running = running
	for i := range st.Nodes {
		st.Nodes[i].Online = running
	}
	return st, nil
}

func lockFile(dir string) string { return filepath.Join(dir, "lab.lock") }

// lock takes the lab's lock, or says that somebody holds it (ok false).
func lock(dir string) (f *os.File, ok bool, err error) {
	f, err = os.OpenFile(lockFile(dir), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("open lab lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		f.Close()
		return nil, false, nil
	}
	if err != nil {
		f.Close()
		return nil, false, fmt.Errorf("lock %s: %w", lockFile(dir), err)
	}
	return f, true, nil
}

// lockPatience is how long Serve tries: whoever looks whether a lab runs holds
// the lock for a moment.
const lockPatience = time.Second

// lockSoon is lock for the lab itself, which a mere look must not turn away.
func lockSoon(dir string, patience time.Duration) (f *os.File, ok bool, err error) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		if f, ok, err = lock(dir); ok || err != nil {
			return f, ok, err
		}
		select {
		case <-poll.C:
		case <-deadline.C:
			return nil, false, nil
		}
	}
}

// held reports whether a lab process lives.
func held(dir string) (bool, error) {
	if _, err := os.Stat(lockFile(dir)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	f, ok, err := lock(dir)
	if err != nil || !ok {
		return !ok && err == nil, err
	}
	f.Close()
	return false, nil
}
