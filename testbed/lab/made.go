package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"savepoint/testbed/notes"
)

// Made is what a lab was made as. It stays so until it is purged: its disks and
// the networks of its guests are of that kind.
type Made struct {
	Nodes   int    `json:"nodes"`
	Network string `json:"network"`
	Storage string `json:"storage"`
	Version string `json:"version"` // of the last start; this one may change
}

func madeFile(dir string) string { return filepath.Join(dir, "made.json") }

// Before returns what the lab in dir was made as, all zero when there is none.
func Before(dir string) (Made, error) {
	raw, err := os.ReadFile(madeFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return Made{}, nil
	}
	var m Made
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	if err != nil {
		return Made{}, fmt.Errorf("read what the lab was made as, %s: %w", madeFile(dir), err)
	}
	return m, nil
}

// Complete fills what was not asked for with what the lab in o.Dir was made as,
// else with the usual. It refuses what would leave guests or disks behind.
func (o Options) Complete() (Options, error) {
	m, err := Before(o.Dir)
	if err != nil {
		return o, err
	}
	take := func(asked *string, had string) {
		if *asked == "" {
			*asked = had
		}
	}
	take(&o.Network, m.Network)
	take(&o.Storage, m.Storage)
	take(&o.Version, m.Version)
	if o.Nodes == 0 {
		o.Nodes = m.Nodes
	}
	o = o.withDefaults()
	differs := ""
	switch {
	case m == Made{}:
	case o.Nodes < m.Nodes:
		differs = fmt.Sprintf("it has %d nodes, and cannot do with %d", m.Nodes, o.Nodes)
	case o.Network != m.Network:
		differs = fmt.Sprintf("its network is %s, not %s", m.Network, o.Network)
	case o.Storage != m.Storage:
		differs = fmt.Sprintf("its disks are on %s, not %s", m.Storage, o.Storage)
	}
	if differs != "" {
		return o, fmt.Errorf("%w: the lab in %s was made otherwise: %s; start it as it was, or remove it with savepoint lab down --purge", ErrOptions, o.Dir, differs)
	}
	return o, nil
}

// record notes what the lab is, before any of it is made.
func (o Options) record() error {
	raw, err := json.Marshal(Made{o.Nodes, o.Network, o.Storage, o.Version})
	if err == nil {
		err = notes.Write(madeFile(o.Dir), raw)
	}
	if err != nil {
		return fmt.Errorf("record what the lab is: %w", err)
	}
	return nil
}
