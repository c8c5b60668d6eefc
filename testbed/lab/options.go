package lab

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"

	"github.com/rs/zerolog"

	"savepoint/testbed/fabric"
	"savepoint/testbed/zfs"
)

// Options say what lab to run.
type Options struct {
	Dir   string // all its state
	Cache string // guest images, for the accelerator probe
	// What is left empty is what the lab in Dir was made as, see Complete; of a new
	// one it is "9", 1 node (pve1), NetworkUser and StorageQCOW2.
	Version string // "8" or "9"
	Nodes   int
	Network string
	Storage string
	Faults  Faults // what goes wrong on purpose
	Log     zerolog.Logger
	// Report gets what the process that waits in Up wants to know. Nil: nobody
	// waits.
	Report io.WriteCloser
}

// How guests are connected, and what their disks are.
const (
	NetworkUser  = "user" // QEMU's own, which no two guests share
	NetworkEVPN  = "evpn" // zones between nodes that are namespaces; needs root
	StorageQCOW2 = "qcow2"
	StorageZFS   = "zfs" // needs root
)

// The lab's fixed names.
const (
	NodeName   = "pve1" // of the first node, which serves the API
	pool       = "savepoint"
	storage    = "local"
	zfsStorage = "local-zfs"
	zfsPool    = "savepoint"
	bridge     = "vmbr0"
	user       = "savepoint@pve" // what savepoint itself uses, with the least rights
	admin      = "admin@pve"     // for people and their programs, with all rights
	token      = "lab"
	jumpUser   = "jump"
	zfsUser    = "savepoint-zfs"
)

// maxNodes is how many nodes a lab can have.
const maxNodes = 16

// subnet is where guests on the plain bridge have their addresses. It exists
// only inside QEMU's user-mode networks; the host has no address and no route
// there. With zones it is smaller, and theirs lie beside it.
var (
	subnet      = netip.MustParsePrefix("10.99.0.0/20")
	buildSubnet = netip.MustParsePrefix("10.99.8.0/24")
	tenants     = []tenant{
		{"alpha", netip.MustParsePrefix("10.99.0.0/24")},
		{"beta", netip.MustParsePrefix("10.99.1.0/24")},
	}
)

// tenant has one zone with one vnet, whose gateway is the subnet's first address.
type tenant struct {
	name   string
	subnet netip.Prefix
}

func (t tenant) gateway() netip.Addr { return t.subnet.Masked().Addr().Next() }

// ErrOptions is wrapped by what Check says of options that no lab can have.
var ErrOptions = errors.New("the lab's options")

// Check reports why there can be no lab with these options on this machine, or
// nil. The error says what is missing and what works without it. They have to be
// complete.
func (o Options) Check() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrOptions}, a...)...)
	}
	switch {
	case o.Version != "8" && o.Version != "9":
		return bad("pve %q: must be 8 or 9", o.Version)
	case o.Nodes < 1 || o.Nodes > maxNodes:
		return bad("%d nodes: must be 1 to %d", o.Nodes, maxNodes)
	case o.Network != NetworkUser && o.Network != NetworkEVPN:
		return bad("network %q: must be %s or %s", o.Network, NetworkUser, NetworkEVPN)
	case o.Storage != StorageQCOW2 && o.Storage != StorageZFS:
		return bad("storage %q: must be %s or %s", o.Storage, StorageQCOW2, StorageZFS)
	}
	if o.Network == NetworkEVPN {
		if err := fabric.Check(); err != nil {
			return fmt.Errorf("network %s: %w; network %s works without it, and isolates nothing", o.Network, err, NetworkUser)
		}
	}
	if o.Storage == StorageZFS {
		if err := zfs.Require(); err != nil {
			return fmt.Errorf("storage %s: %w; storage %s works without it", o.Storage, err, StorageQCOW2)
		}
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.Version == "" {
		o.Version = "9"
	}
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	if o.Network == "" {
		o.Network = NetworkUser
	}
	if o.Storage == "" {
		o.Storage = StorageQCOW2
	}
	return o
}

// nodes are the names of the lab's nodes.
func (o Options) nodes() []string {
	out := make([]string, o.Nodes)
	for i := range out {
		out[i] = "pve" + strconv.Itoa(i+1)
	}
	return out
}
