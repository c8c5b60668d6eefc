package configs

import (
	"net/netip"
	"path/filepath"
	"time"
)

// Config is the whole configuration. The tag of a field is its key; sections
// are joined by dots ("cluster.url"). Optional values are zero when not set.
type Config struct {
	// StateDir holds the journal, the lab and SSH identities.
	// Default: $XDG_STATE_HOME/savepoint, else ~/.local/state/savepoint. The
	// lab's own file names a directory inside the lab, see [Load].
	StateDir string `mapstructure:"state_dir" kind:"path"`

	Cluster Cluster `mapstructure:"cluster"`
	Sandbox Sandbox `mapstructure:"sandbox"`
	Pool    Pool    `mapstructure:"pool"`
	SSH     SSH     `mapstructure:"ssh"`
	Policy  Policy  `mapstructure:"policy"`
	Run     Run     `mapstructure:"run"`
	Log     Log     `mapstructure:"log"`

	Transaction Transaction `mapstructure:"transaction"`
	Journal     Journal     `mapstructure:"journal"`
	Validate    Validate    `mapstructure:"validate"`
	Network     Network     `mapstructure:"network"`
	Workspace   Workspace   `mapstructure:"workspace"`
	Template    Template    `mapstructure:"template"`

	// Redact are regular expressions of secrets that must not reach the
	// journal, besides the usual forms. What their groups match is redacted,
	// without groups all that they match.
	Redact []string `mapstructure:"redact"`

	// Source says where the values came from. It is not a key.
	Source Source `mapstructure:"-"`
}

// Cluster is how to reach the Proxmox VE cluster and what may be used there.
type Cluster struct {
	// URL is the API's origin, https only, without a path: "https://pve1:8006".
	URL string `mapstructure:"url"`
	// CAFile is a PEM file with the authority that signed the API's
	// certificate (/etc/pve/pve-root-ca.pem on a node). When it is not set, the
	// system's authorities decide.
	CAFile string `mapstructure:"ca_file" kind:"path"`
	// Fingerprint pins the API's certificate, on top of the authority: its SHA-256 as 64 hexadecimal
	// digits, lower case, without colons (colons are accepted in the file).
	Fingerprint string `mapstructure:"fingerprint"`
	// TokenID is "USER@REALM!NAME".
	TokenID string `mapstructure:"token_id"`
	// TokenSecret is the token's secret. Load fills it from TokenSecretFile.
	TokenSecret Secret `mapstructure:"token_secret"`
	// TokenSecretFile holds the secret alone, mode 0600. Only one of the two
	// can be set.
	TokenSecretFile string `mapstructure:"token_secret_file" kind:"path"`
	// Nodes that sandboxes may be placed on. Empty: every node that is online.
	Nodes []string `mapstructure:"nodes"`
	// DrainedNodes get no new sandboxes; those that are there can be used.
	DrainedNodes []string `mapstructure:"drained_nodes"`
	// MaxPerNode is the most sandboxes of one node. Default 0: any number.
	MaxPerNode int `mapstructure:"max_per_node"`
	// MemoryReserve is how much memory stays free on a node when a sandbox is
	// placed there. Default 0: free memory only says which node comes first.
	MemoryReserve Size `mapstructure:"memory_reserve"`
	// Pool that every sandbox is put into. Default "savepoint".
	Pool string `mapstructure:"pool"`
	// Storage is where a full clone is written. Empty: the template's storage.
	Storage string `mapstructure:"storage"`
	// StateStorage is where snapshots with memory keep it, for sandboxes that are made
	// from now on; each of their nodes needs it, with the content "images". A fast
	// local one makes the boundary machine cheaper. Empty: where Proxmox VE puts it,
	// which is the storage of the disks.
	StateStorage string `mapstructure:"state_storage"`
	// VMIDFirst and VMIDLast bound the ids of sandboxes, both included. The
	// range must belong to this savepoint alone. Default 900000 to 900999.
	VMIDFirst int `mapstructure:"vmid_first"`
	VMIDLast  int `mapstructure:"vmid_last"`
	// VMIDRest is how long the id of a destroyed sandbox is not used again.
	// Default 1h.
	VMIDRest time.Duration `mapstructure:"vmid_rest"`
	// RequestTimeout bounds one API request. Default 30s.
	RequestTimeout time.Duration `mapstructure:"request_timeout"`
	// TaskTimeout bounds the wait for one cluster task. Default 10m.
	TaskTimeout time.Duration `mapstructure:"task_timeout"`
	// PollInterval is the longest pause between two looks at a task, at most
	// 250ms. Default 250ms.
	PollInterval time.Duration `mapstructure:"poll_interval"`
	// ClonesPerStorage is how many clones onto one storage run at a time.
	// Default 2.
	ClonesPerStorage int `mapstructure:"clones_per_storage"`
	// Limits bound what else runs at a time. Who comes first goes first;
	// rollbacks wait for none of it.
	Limits Limits `mapstructure:"limits"`
}

// Limits bound what runs at a time on the cluster.
type Limits struct {
	// FullClones of one template to one node. Default 1.
	FullClones int `mapstructure:"full_clones"`
	// LinkedClones of one template to one node. Default 4.
	LinkedClones int `mapstructure:"linked_clones"`
	// PerNode is how many clones, new snapshots and removals. Default 8.
	PerNode int `mapstructure:"per_node"`
}

// Sandbox is what a new sandbox looks like.
type Sandbox struct {
	// Template is the name of the template to clone. Default "savepoint-guest".
	Template string `mapstructure:"template"`
	// FullClone copies the disks instead of linking to the template's.
	FullClone bool `mapstructure:"full_clone"`
	// Bridge or vnet of the network card. Default "vmbr0".
	Bridge string `mapstructure:"bridge"`
	// Subnet that addresses of sandboxes are taken from, all of it ours.
	Subnet netip.Prefix `mapstructure:"subnet"`
	// Gateway of the guests. Not set: the guest gets no default route.
	Gateway netip.Addr `mapstructure:"gateway"`
	// BootTimeout is how long a guest may take from power-on to its first
	// answer. Default 3m: guests without KVM need many seconds.
	BootTimeout time.Duration `mapstructure:"boot_timeout"`
	// RootBoundary is the boundary for commands that run as root: "machine"
	// (default; disks and memory) or "disk".
	RootBoundary string `mapstructure:"root_boundary"`
	// Tenant whose network new sandboxes are on, one of Network.Tenants. Not
	// set: the first one. Without tenants: Bridge and Subnet.
	Tenant string `mapstructure:"tenant"`
}

// SSH is how guests are reached.
type SSH struct {
	// IdentityFile is the private key that guests accept.
	// Default STATE_DIR/ssh/id_ed25519.
	IdentityFile string `mapstructure:"identity_file" kind:"path"`
	// Jump is the host in front of the guests. Not set: guests are dialled
	// directly.
	Jump Jump `mapstructure:"jump"`
}

// Jump is an SSH server that forwards to the guests.
type Jump struct {
	Address string `mapstructure:"address"` // HOST:PORT
	User    string `mapstructure:"user"`
	// HostKey is the only key accepted: "ssh-ed25519 AAAA…".
	HostKey string `mapstructure:"host_key"`
	// IdentityFile is the private key for the jump host. Default: SSH.IdentityFile.
	IdentityFile string `mapstructure:"identity_file" kind:"path"`
}

// Configured reports whether there is a jump host.
func (j Jump) Configured() bool { return j.Address != "" }

// Policy chooses the rules that judge commands.
type Policy struct {
	// Profile is the name of the rule set: "sealed", or "open-egress", under
	// which commands may write to OpenHosts. Default "sealed".
	Profile string `mapstructure:"profile"`
	// Rules are files with further rules, read by package policy in order.
	Rules []string `mapstructure:"rules" kind:"path"`
	// OpenHosts are the hosts that profile open-egress opens: a name, a name
	// with a port, or "*.example.org" for every name below. Package policy
	// checks them.
	OpenHosts []string `mapstructure:"open_hosts"`
}

// Run bounds one transaction.
type Run struct {
	// Timeout ends a command and all it started. Default 10m.
	Timeout time.Duration `mapstructure:"timeout"`
	// OutputLimit is how many bytes are kept of each output stream. Default 1MiB.
	OutputLimit Size `mapstructure:"output_limit"`
	// RollbackTimeout bounds a rollback with its verification; it runs on
	// after the caller was interrupted. Default 5m.
	RollbackTimeout time.Duration `mapstructure:"rollback_timeout"`
	// SnapshotTimeout bounds taking the snapshot, the wait for somebody else's
	// lock on the VM included. Default 2m.
	SnapshotTimeout time.Duration `mapstructure:"snapshot_timeout"`
	// ValidateTimeout bounds each validator. Default 1m.
	ValidateTimeout time.Duration `mapstructure:"validate_timeout"`
	// Session begins every command where the last committed one of the account
	// ended: working directory and exported variables. Default false.
	Session bool `mapstructure:"session"`
}

// Transaction bounds transactions of several commands.
type Transaction struct {
	// Idle is how long one may wait for its next order before it is rolled
	// back. Default 1h.
	Idle time.Duration `mapstructure:"idle"`
}

// Journal is how long the record is kept.
type Journal struct {
	// KeepFor is what journal compact keeps: what ended since so long. Days can
	// be written as "90d". Default 90d.
	KeepFor time.Duration `mapstructure:"keep_for"`
}

// Log is what is written to stderr.
type Log struct {
	Level  string `mapstructure:"level"`  // debug, info, warn (default), error
	Format string `mapstructure:"format"` // text (default) or json
}

// Source says where a configuration came from.
type Source struct {
	// File is the absolute path of the file that was read, "" for none.
	File string
	// Keys names who set each key that has not its default: "FILE:LINE", the
	// name of an environment variable, or "command line".
	Keys map[string]string
}

// Default returns the configuration that holds when nothing else is said, for
// the given state directory. It has no cluster and no subnet.
func Default(stateDir string) Config {
	return Config{
		StateDir: stateDir,
		Cluster: Cluster{
			Pool:             "savepoint",
			VMIDFirst:        900000,
			VMIDLast:         900999,
			VMIDRest:         time.Hour,
			RequestTimeout:   30 * time.Second,
			TaskTimeout:      10 * time.Minute,
			PollInterval:     250 * time.Millisecond,
			ClonesPerStorage: 2,
			Limits:           Limits{FullClones: 1, LinkedClones: 4, PerNode: 8},
		},
		Sandbox: Sandbox{
			Template:     "savepoint-guest",
			Bridge:       "vmbr0",
			BootTimeout:  3 * time.Minute,
			RootBoundary: "machine",
		},
		Pool:   Pool{ProofAge: time.Hour},
		SSH:    SSH{IdentityFile: filepath.Join(stateDir, "ssh", "id_ed25519")},
		Policy: Policy{Profile: "sealed"},
		Run: Run{
			Timeout:         10 * time.Minute,
			OutputLimit:     1 << 20,
			RollbackTimeout: 5 * time.Minute,
			SnapshotTimeout: 2 * time.Minute,
			ValidateTimeout: time.Minute,
		},
		Validate: defaultValidate(),
		Log:      Log{Level: "warn", Format: "text"},

		Network:     Network{UnderlayMTU: 1500, VNIFirst: 900000, VNILast: 900999, ASN: 65000},
		Workspace:   Workspace{Driver: "auto", Size: 4 << 30, Reserve: 256 << 20, Freeze: 10 * time.Second, User: "savepoint-zfs"},
		Template:    Template{CPU: "x86-64-v2-AES", Cores: 1, Memory: 512 << 20},
		Transaction: Transaction{Idle: time.Hour},
		Journal:     Journal{KeepFor: 90 * day},
	}
}
