package pve

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"savepoint/testbed/pve/access"
	"savepoint/testbed/pve/schema"
)

// Config is what a Server is made of.
type Config struct {
	// Dir holds all state; it is created with mode 0700. One server at a time.
	Dir string
	// Node is the node's name; "pve1" when empty.
	Node string
	// Nodes are the names of a cluster's nodes; the first one serves. Only
	// Node when empty.
	Nodes []string
	// Addresses are those of the nodes in the cluster, by name; 127.0.0.N for
	// those that are left out.
	Addresses map[string]netip.Addr
	// Version is the release to behave like, "8.4" or "9.2" (the default);
	// other 8.x and 9.x are taken as these.
	Version string

	Machines Machines // runs the VMs; closed by whoever made it
	Disks    Disks    // makes the images
	// Backends are those of single nodes by name; Machines and Disks are for
	// the nodes that are not named. To take over a VM from another node, Disks
	// must be able to read the images of that one.
	Backends map[string]Backend

	// Storages are the storages of all nodes; one called "local" when empty.
	Storages []Storage
	// Bridges are the networks that VMs can be attached to; "vmbr0" when empty.
	Bridges []string

	// Fabric builds the virtual networks; nil where nothing needs to be built.
	Fabric Fabric
	// ReloadWait is how long the task of an apply waits for the reload of the
	// server's own node; 0 is until its end, as on a real node, less than 0 is
	// not at all, as for the other nodes of a cluster.
	ReloadWait time.Duration

	// DownloadCAs are trusted when the cluster is told to fetch a file, which it
	// does from loopback addresses only; nil are the system's.
	DownloadCAs *x509.CertPool

	// Seen is told every request of a known user, before anything is checked,
	// and those for other nodes too; nil is nobody.
	Seen func(schema.Request)

	// Pools are resource pools that are made when they are missing.
	Pools []string

	// Users may call, besides the superuser, who always exists. A secret left
	// empty is made up and kept; see Server.Credentials.
	Users []access.User
	// Roles are added to the built-in ones.
	Roles map[string][]string
	// ACL grants roles.
	ACL []access.Entry

	// UnauthorizedDelay is how long a 401 waits; 0 is the usual 3 s, less than
	// 0 is none.
	UnauthorizedDelay time.Duration
	// LockTimeout is how long a call waits for a VM's file lock; 0 is the usual 10 s.
	LockTimeout time.Duration
	// AgentTimeout is how long a silent guest agent is waited for; 0 is the usual 3 s.
	AgentTimeout time.Duration
	// ResourceLag is how old the figures of /cluster/resources and of new VMs
	// may be, 10 s on a real node; 0 keeps them fresh.
	ResourceLag time.Duration
	// IdleTimeout closes a connection without requests; 0 is the usual 5 s.
	IdleTimeout time.Duration
	// OmitMessage leaves the "message" out of error bodies, as 8.x before 8.4 did.
	OmitMessage bool

	Logger zerolog.Logger
	Now    func() time.Time // time.Now when nil
}

// Backend runs the VMs and keeps the disks of one node.
type Backend struct {
	Machines Machines
	Disks    Disks
}

// NodeMark stands for the node's name in the path of a storage.
const NodeMark = "{node}"

// Storage is one storage, on each node that has it.
type Storage struct {
	ID string
	// Type is "dir" (the default) or "zfspool".
	Type string
	// Path is an absolute directory; below the server's Dir when empty. In a
	// cluster it must hold NodeMark, unless the storage is shared.
	Path string
	// Shared storages hold the same on every node; others are each node's own.
	Shared bool
	// Nodes are the names of the nodes that have the storage; all when empty.
	Nodes []string
	// Content lists what it may hold: "images", "iso", "import", "snippets",
	// "vztmpl", "backup", "rootdir". All that a dir can when empty.
	Content []string
	// Format of new images: "qcow2" (the default) or "raw", which cannot be
	// snapshotted. A zfspool shows raw and can.
	Format string
	// Pool is the name of a zfspool's real pool. A volume is then the raw file
	// "raw" in the directory Path/NAME, and Disks must be PoolDisks. Empty: a
	// stand-in with qcow2 images, whose newest-only rule the server keeps by itself.
	Pool string
	// VolumeChain keeps snapshots as a chain of volumes (9.x only): then only
	// the newest can be restored.
	VolumeChain bool
}

var reName = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?$`)

// withDefaults fills in and checks a configuration.
func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("api server: Dir is required")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, fmt.Errorf("api server: %w", err)
	}
	c.Dir = dir
	if c.Node == "" {
		c.Node = "pve1"
	}
	if len(c.Nodes) == 0 {
		c.Nodes = []string{c.Node}
	}
	c.Node = c.Nodes[0]
	for i, node := range c.Nodes {
		of := c.of(node)
		switch {
		case !reName.MatchString(node) || slices.Contains(c.Nodes[:i], node):
			return c, fmt.Errorf("api server: %q is no name of a node, or of two", node)
		case of.Machines == nil || of.Disks == nil:
			return c, fmt.Errorf("api server: node %s: Machines and Disks are required", node)
		}
	}
	if c.Version == "" {
		c.Version = "9.2"
	}
	if c.Version[0] != '8' && c.Version[0] != '9' {
		return c, fmt.Errorf("api server: version %q: only 8.x and 9.x are known", c.Version)
	}
	if len(c.Storages) == 0 {
		c.Storages = []Storage{{ID: "local"}}
	}
	if len(c.Bridges) == 0 {
		c.Bridges = []string{"vmbr0"}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.UnauthorizedDelay = usual(c.UnauthorizedDelay, 3*time.Second)
	c.LockTimeout = usual(c.LockTimeout, 10*time.Second)
	c.AgentTimeout = usual(c.AgentTimeout, 3*time.Second)
	c.IdleTimeout = usual(c.IdleTimeout, 5*time.Second)
	return c, nil
}

func usual(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// major is "8" or "9".
func (c Config) major() string { return c.Version[:1] }

// release is what GET /version tells.
func (c Config) release() (release, version string) {
	if c.major() == "8" {
		return "8.4", "8.4.21"
	}
	return "9.2", "9.2.11"
}
