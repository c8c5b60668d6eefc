package provision

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"time"

	"savepoint/network"
	"savepoint/orchestrator"
)

// Registry is the durable list of sandboxes and of the ids and addresses they
// use. Every method that changes something is on disk when it returns.
type Registry interface {
	PutSandbox(ctx context.Context, sb orchestrator.Sandbox) error
	// Sandboxes returns all that were ever put, destroyed ones included.
	Sandboxes(ctx context.Context) ([]orchestrator.Sandbox, error)
	// ReserveVMID returns an id between first and last that no sandbox uses or
	// has used within rest, and never the same one twice in a row.
	ReserveVMID(ctx context.Context, first, last orchestrator.VMID, rest time.Duration, owner orchestrator.SandboxID) (orchestrator.VMID, error)
	// ReserveAddress returns a free host address of the subnet.
	ReserveAddress(ctx context.Context, subnet netip.Prefix, owner orchestrator.SandboxID) (netip.Addr, error)
	ReleaseAddress(ctx context.Context, owner orchestrator.SandboxID) error
}

// Identity reads a guest's SSH host key by a way that is not SSH.
type Identity interface {
	// HostKey waits until the guest answers or ctx ends and returns its
	// ed25519 key in authorized_keys form.
	HostKey(ctx context.Context, vm orchestrator.VMRef) (string, error)
}

// Guest is our hold of a guest, and what prepares a fresh one for it.
type Guest interface {
	orchestrator.Guest
	// Prepare waits until the guest answers or ctx ends, and makes the agent
	// user, the workspace and what Executor needs in it. It may be repeated.
	Prepare(ctx context.Context, sb orchestrator.Sandbox, agentKeys []string) error
	Disconnect(sb orchestrator.SandboxID)
}

// Networks are the networks that tenants have for sandboxes.
type Networks interface {
	// Pools returns those of a tenant in the order in which they are filled. It
	// is an error when there is none, or when one is not on the cluster yet.
	Pools(ctx context.Context, tenant string) ([]network.Pool, error)
}

// Workspaces finds and marks the volumes that hold what the agent can write.
type Workspaces interface {
	orchestrator.Snapshotter
	// Find names the workspace volume of a sandbox's VM on its node, "" when it
	// has none.
	Find(ctx context.Context, sb orchestrator.Sandbox) (string, error)
	// Claim makes the volume the sandbox's; ErrDenied when it is another's.
	Claim(ctx context.Context, sb orchestrator.Sandbox) error
}

// Step is one finished or started step of a long operation, for a person.
type Step struct {
	Name    string        // "clone", "workspace", "start", "identity", "prepare", "prove", "pristine", "take", "destroy"
	Detail  string        // e.g. "vm 9001 on pve1"
	Elapsed time.Duration // of a finished step
	Done    bool
	Err     error
}

// Config is what a Provisioner works with. All fields but Observe, Gateway,
// Storage, Limits, Networks, Prover, Workspaces, Recipe and Warm are required;
// Fleet, Template and Subnet only to make sandboxes.
type Config struct {
	Registry   Registry
	Hypervisor orchestrator.Hypervisor
	Snapshots  orchestrator.Snapshotter
	Identity   Identity
	Guest      Guest
	Fleet      Fleet

	// Networks has the tenants' networks, and Prover proves that a sandbox on one
	// is sealed: both or neither. Without them sandboxes are on the cluster's
	// configured bridge, with addresses of Subnet.
	Networks Networks
	Prover   orchestrator.Prover
	// Workspaces is nil where sandboxes have no volume for what the agent writes.
	Workspaces Workspaces

	Template string // the name of the template to clone
	Limits   Limits

	FirstVMID, LastVMID orchestrator.VMID
	Rest                time.Duration // how long the id of a destroyed sandbox is not used again
	Subnet              netip.Prefix  // where addresses come from
	Gateway             netip.Addr    // zero: the guests have no default route
	SSHKeys             []string      // authorized_keys lines for root and agent
	FullClone           bool
	Storage             string        // of full clones; "" = the template's
	BootTimeout         time.Duration // from power-on to the first SSH answer
	Recipe              string        // further settings that a sandbox is made with and cannot change
	Warm                Warm          // the pool; zero: none

	Now     func() time.Time
	NewID   func() string // a fresh ULID in lower case
	Observe func(Step)
}

// Provisioner makes and removes sandboxes. Several may be made at a time.
type Provisioner struct {
	c       Config
	placing sync.Mutex                      // from the count of sandboxes to the record of a new one
	held    map[orchestrator.SandboxID]bool // pooled ones that are being looked at; with placing
	taken   chan struct{}                   // one left the pool
}

// New returns a Provisioner.
func New(c Config) *Provisioner {
	if c.Observe == nil {
		c.Observe = func(Step) {}
	}
	c.Warm = c.Warm.withDefaults()
	return &Provisioner{c: c, held: map[orchestrator.SandboxID]bool{}, taken: make(chan struct{}, 1)}
}

// Pristine is the snapshot that every sandbox keeps of its first moment.
const Pristine orchestrator.SnapshotName = "sp-pristine"

// attempts bounds how many VM ids are tried before giving up.
const attempts = 20

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,30}[a-z0-9]$`)

// CheckName says whether a sandbox may be called so: 2 to 32 letters, digits
// and dashes, a letter first, no dash last. The name becomes the host
// name, but for one of the pool, which keeps the neutral one it was made with:
// names like those are refused.
func CheckName(name string) error {
	if strings.HasPrefix(name, neutral) {
		return fmt.Errorf("sandbox name %q: names that begin with %s are those of the pool; choose another one", name, neutral)
	}
	if !nameForm.MatchString(name) {
		return fmt.Errorf("sandbox name %q: must be 2 to 32 lower-case letters, digits and dashes, with a letter first and no dash last", name)
	}
	return nil
}

// Lookup returns the living sandbox of that name. ErrNotFound if there is none.
func (p *Provisioner) Lookup(ctx context.Context, name string) (orchestrator.Sandbox, error) {
	return Lookup(ctx, p.c.Registry, name)
}

// Lookup returns the living sandbox of that name. ErrNotFound if there is none.
func Lookup(ctx context.Context, r Registry, name string) (orchestrator.Sandbox, error) {
	all, err := r.Sandboxes(ctx)
	if err != nil {
		return orchestrator.Sandbox{}, err
	}
	for _, sb := range all {
		if sb.Name == name && sb.State != orchestrator.SandboxDestroyed {
			return sb, nil
		}
	}
	return orchestrator.Sandbox{}, fmt.Errorf("sandbox %q: %w; see savepoint sandbox list", name, orchestrator.ErrNotFound)
}

// step runs one named step and tells the observer.
func (p *Provisioner) step(name, detail string, fn func() error) error {
	p.c.Observe(Step{Name: name, Detail: detail})
	start := p.c.Now()
	err := fn()
	p.c.Observe(Step{Name: name, Detail: detail, Elapsed: p.c.Now().Sub(start), Done: true, Err: err})
	return err
}

// put records the sandbox's new state.
func (p *Provisioner) put(ctx context.Context, sb *orchestrator.Sandbox, s orchestrator.SandboxState, reason string) error {
	sb.State, sb.Reason = s, reason
	if err := p.c.Registry.PutSandbox(ctx, *sb); err != nil {
		return &orchestrator.JournalError{Cause: fmt.Errorf("record sandbox %s as %s: %w", sb.Name, s, err)}
	}
	return nil
}

// quarantine withholds the sandbox until an operator has looked. It has its own
// time: what led here may have used all of ctx.
func (p *Provisioner) quarantine(ctx context.Context, sb *orchestrator.Sandbox, reason string) error {
	ctx, cancel := detach(ctx)
	defer cancel()
	return p.put(ctx, sb, orchestrator.SandboxQuarantined, reason)
}

func vmRequest(sb orchestrator.Sandbox) orchestrator.VMRequest {
	return orchestrator.VMRequest{Sandbox: sb.ID, VM: sb.VM}
}

// cleanupTime bounds the removal of a half-made sandbox after its creation
// failed or was interrupted.
const cleanupTime = 2 * time.Minute

// detach gives a clean-up its own time, whatever happened to ctx.
func detach(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
}

// isTaken says that the VM id belongs to somebody else.
func isTaken(err error) bool { return errors.Is(err, orchestrator.ErrExists) }
