package lab

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"savepoint/testbed/pve"
)

// Faults are what goes wrong on purpose, for users' own drills.
type Faults struct {
	File   string // where they were read from; "" = there are none
	Digest string // of the file's content
	List   []pve.Fault
}

// FaultsHelp describes the file that ReadFaults reads.
const FaultsHelp = `A file of faults is a YAML list. An item without a key matches anything:

  - method: POST                          # GET, POST, PUT or DELETE
    path: /nodes/*/qemu/*/snapshot        # below /api2/json; * is one part of it
    nth: 2                                # only the second such call; 0 or no key: every one
    status: 596                           # answer with this
    message: Connection timed out         # and this text
  - path: /cluster/sdn
    delay: 5s                             # hold the call up
    after_effect: true                    # what follows happens once the work is done
    drop: true                            # close the connection without an answer

Each needs a delay, a drop or a status.
`

// faultItem is one item of the file.
type faultItem struct {
	Method      string        `yaml:"method"`
	Path        string        `yaml:"path"`
	Nth         int           `yaml:"nth"`
	Delay       time.Duration `yaml:"delay"`
	AfterEffect bool          `yaml:"after_effect"`
	Drop        bool          `yaml:"drop"`
	Status      int           `yaml:"status"`
	Message     string        `yaml:"message"`
}

// maxDelay bounds how long a call is held up.
const maxDelay = 10 * time.Minute

// ReadFaults reads a file of faults. An unknown key, a bad value and a fault
// that could do nothing are errors, which say where.
func ReadFaults(file string) (Faults, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return Faults{}, fmt.Errorf("read faults: %w", err)
	}
	sum := sha256.Sum256(raw)
	f := Faults{File: file, Digest: hex.EncodeToString(sum[:])}
	if f.List, err = parseFaults(raw); err != nil {
		return Faults{}, fmt.Errorf("read faults from %s: %w", file, err)
	}
	return f, nil
}

func parseFaults(raw []byte) ([]pve.Fault, error) {
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	var items []faultItem
	err := d.Decode(&items)
	if errors.Is(err, io.EOF) || err == nil && len(items) == 0 {
		return nil, errors.New("there is none in it; write a list")
	}
	if err != nil {
		return nil, err
	}
	if !errors.Is(d.Decode(new(any)), io.EOF) {
		return nil, errors.New("more than one document; write one list")
	}
	out := make([]pve.Fault, len(items))
	for i, item := range items {
		if err := item.check(); err != nil {
			return nil, fmt.Errorf("fault %d: %w", i+1, err)
		}
		out[i] = pve.Fault(item)
	}
	return out, nil
}

func (f faultItem) check() error {
	if f.Method != "" && !slices.Contains([]string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete}, f.Method) {
		return fmt.Errorf("method %q: must be GET, POST, PUT or DELETE", f.Method)
	}
	if _, err := path.Match(f.Path, ""); err != nil || f.Path != "" && !strings.HasPrefix(f.Path, "/") || strings.HasPrefix(f.Path, "/api2") {
		return fmt.Errorf("path %q: must be a pattern of the path below /api2/json, like /nodes/*/qemu", f.Path)
	}
	switch {
	case f.Nth < 0:
		return fmt.Errorf("nth %d: calls are counted from 1", f.Nth)
	case f.Delay < 0 || f.Delay > maxDelay:
		return fmt.Errorf("delay %v: must be at most %v", f.Delay, maxDelay)
	case f.Status != 0 && (f.Status < 400 || f.Status > 599):
		return fmt.Errorf("status %d: must be 400 to 599", f.Status)
	case f.Drop && f.Status != 0:
		return errors.New("drop and status: a connection that is closed answers nothing; choose one")
	case f.Message != "" && f.Status == 0:
		return errors.New("message without status: write which one it goes with")
	case strings.ContainsAny(f.Message, "\r\n"):
		return errors.New("message: must be one line")
	case f.Status == 0 && !f.Drop && f.Delay == 0:
		return errors.New("it does nothing; write a delay, a drop or a status")
	}
	return nil
}
