package pve

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"time"

	"github.com/rs/zerolog"

	"savepoint/testbed/pve/access"
)

// Config is what a Server is made of.
type Config struct {
	// Dir holds all state; it is created with mode 0700. One server at a time.
	Dir string
	// Node is the node's name; "pve1" when empty.
	Node string
	// Version is the release to behave like, "8.4" or "9.2" (the default);
	// other 8.x and 9.x are taken as these.
	Version string

	Machines Machines // runs the VMs; closed by whoever made it
	Disks    Disks    // makes the images

	// Storages are the node's storages; one called "local" when empty.
	Storages []Storage
	// Bridges are the networks that VMs can be attached to; "vmbr0" when empty.
	Bridges []string

	// Fabric builds the virtual networks; nil where nothing needs to be built.
	Fabric Fabric
	// ReloadWait is how long the task of an apply waits for the reload of the
	// server's own node; 0 is until its end, as on a real node, less than 0 is
	// not at all, as for the other nodes of a cluster.
	ReloadWait time.Duration

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

// Storage is one storage of the node.
type Storage struct {
	ID string
	// Type is "dir" (the default) or "zfspool".
	Type string
	// Path is an absolute directory; below the server's Dir when empty.
	Path string
	// Content lists what it may hold: "images", "iso", "import", "snippets",
	// "vztmpl", "backup", "rootdir". All that a dir can when empty.
	Content []string
	// Format of new images: "qcow2" (the default) or "raw", which cannot be
	// snapshotted. A zfspool shows raw and can.
	Format string
	// VolumeChain keeps snapshots as a chain of volumes (9.x only): then only
	// the newest can be restored.
	VolumeChain bool
}

var reName = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?$`)

// withDefaults fills in and checks a configuration.
func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" || c.Machines == nil || c.Disks == nil {
		return c, errors.New("api server: Dir, Machines and Disks are required")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, fmt.Errorf("api server: %w", err)
	}
	c.Dir = dir
	if c.Node == "" {
		c.Node = "pve1"
	}
	if !reName.MatchString(c.Node) {
		return c, fmt.Errorf("api server: %q is no name of a node", c.Node)
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
