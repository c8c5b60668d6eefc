package sshexec

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec/wire"
)

// BtrfsWorkspace is what Sandbox.Workspace says of a volume that is a btrfs, whose
// snapshots the guest's own kernel takes.
const BtrfsWorkspace = "guest:btrfs"

// BtrfsConfig is what Btrfs needs. All but Running and Patience are required.
type BtrfsConfig struct {
	Client   *Client
	Instance string // this savepoint's, as on the tags of its VMs
	// Sandbox returns the sandbox that a VM is; ErrNotFound when it is none.
	Sandbox func(ctx context.Context, vm orchestrator.VMRef) (orchestrator.Sandbox, error)
	// Running reports whether the VM is switched on. Without it a guest that is
	// off is waited for as one that boots.
	Running func(ctx context.Context, vm orchestrator.VMRef) (bool, error)
	// Patience is how long a guest is waited for that does not answer. 0 = 30 s.
	Patience time.Duration
}

// Btrfs implements orchestrator.Snapshotter for workspace volumes that are btrfs.
// It is safe for concurrent use; the calls about one sandbox must come one after
// the other, as the engine does it.
type Btrfs struct{ c BtrfsConfig }

var (
	_ orchestrator.Snapshotter = (*Btrfs)(nil)
	_ orchestrator.Inside      = (*Btrfs)(nil)
)

// Inside implements orchestrator.Inside.
func (b *Btrfs) Inside(context.Context, orchestrator.VMRef) bool { return true }

// NewBtrfs returns the driver.
func NewBtrfs(c BtrfsConfig) (*Btrfs, error) {
	if c.Client == nil || c.Instance == "" || strings.ContainsAny(c.Instance, " \n\x00") || c.Sandbox == nil {
		return nil, fmt.Errorf("workspace snapshots in guests: instance %q, client and sandboxes are needed", c.Instance)
	}
	if c.Patience == 0 {
		c.Patience = 30 * time.Second
	}
	return &Btrfs{c}, nil
}

var snapshotName = regexp.MustCompile(`\A[A-Za-z][A-Za-z0-9_-]{1,39}\z`)

// begin checks what can be checked here: name, sandbox and owner.
func (b *Btrfs) begin(ctx context.Context, op string, r orchestrator.SnapshotRequest) (string, orchestrator.Sandbox, error) {
	what := fmt.Sprintf("%s workspace snapshot %s of", op, r.Name)
	if l := strings.ToLower(string(r.Name)); !snapshotName.MatchString(l) || l == "current" || l == "pending" {
		return what, orchestrator.Sandbox{}, fmt.Errorf("%s %s: %w: not the name of a snapshot; use 2 to 40 letters, digits, '_' and '-', a letter first", what, r.VM, orchestrator.ErrDenied)
	}
	sb, err := b.sandbox(ctx, what, r.VM)
	switch {
	case err != nil:
		return what, sb, err
	case r.Sandbox == "" || sb.ID != r.Sandbox:
		return what, sb, fmt.Errorf("%s %s: %w: it belongs to sandbox %q, not %q", what, r.VM, orchestrator.ErrDenied, sb.ID, r.Sandbox)
	}
	return what, sb, nil
}

// sandbox finds the sandbox of a VM and that it has such a volume.
func (b *Btrfs) sandbox(ctx context.Context, what string, vm orchestrator.VMRef) (orchestrator.Sandbox, error) {
	if ctx.Err() != nil {
		return orchestrator.Sandbox{}, fmt.Errorf("%s %s: %w: %w", what, vm, orchestrator.ErrUnavailable, context.Cause(ctx))
	}
	sb, err := b.c.Sandbox(ctx, vm)
	if err != nil {
		return sb, fmt.Errorf("%s %s: %w", what, vm, err)
	}
	if sb.Workspace != BtrfsWorkspace {
		return sb, &orchestrator.UnsupportedError{What: fmt.Sprintf("%s sandbox %s: its workspace volume is %q, not %q", what, sb.Name, sb.Workspace, BtrfsWorkspace), Mend: "use boundary disk or machine"}
	}
	return sb, nil
}

// Create takes a snapshot of the workspace. The guest's writes are not held for it.
func (b *Btrfs) Create(ctx context.Context, r orchestrator.SnapshotRequest) error {
	what, sb, err := b.begin(ctx, "create", r)
	if err != nil {
		return err
	}
	if r.Memory {
		return &orchestrator.UnsupportedError{What: what + " " + sb.Name + ": a workspace has no memory", Mend: "use boundary machine"}
	}
	v, err := b.order(ctx, what, sb, false, "take", string(r.Name), strings.ReplaceAll(r.Description, "\x00", ""))
	if err != nil {
		return err
	}
	if n := len(v.taken); n == 0 || v.taken[n-1].Name != r.Name {
		return fmt.Errorf("%s %s: %w: the guest does not list it as the newest", what, sb.Name, orchestrator.ErrUnknownOutcome)
	}
	return nil
}

// Rollback restores the workspace. The VM runs on; what the agent runs in it is
// ended. *orchestrator.NotLatestError leaves everything as it was, and so does
// ErrBusy, but for the agent's processes.
func (b *Btrfs) Rollback(ctx context.Context, r orchestrator.SnapshotRequest) error {
	what, sb, err := b.begin(ctx, "roll back to", r)
	if err != nil {
		return err
	}
	_, err = b.order(ctx, what, sb, false, "restore", string(r.Name), "")
	if newer, ok := errors.AsType[*orchestrator.NotLatestError](err); ok {
		newer.Name = r.Name
	}
	return err
}

// Delete removes a snapshot; a missing one is no error.
func (b *Btrfs) Delete(ctx context.Context, r orchestrator.SnapshotRequest) error {
	what, sb, err := b.begin(ctx, "delete", r)
	if err != nil {
		return err
	}
	_, err = b.order(ctx, what, sb, true, "delete", string(r.Name), "")
	return err
}

// List returns the snapshots of the VM's workspace, oldest first; none when it
// has no workspace. Foreign ones are among them. A snapshot of the whole VM that is
// restored takes this list back as well: the volume is one of the VM's disks.
func (b *Btrfs) List(ctx context.Context, vm orchestrator.VMRef) ([]orchestrator.Snapshot, error) {
	const what = "list workspace snapshots of"
	sb, err := b.sandbox(ctx, what, vm)
	if err != nil {
		if sb.ID != "" && sb.Workspace == "" {
			return nil, nil
		}
		return nil, err
	}
	v, err := b.order(ctx, what, sb, true, "list", "", "")
	if err != nil {
		return nil, err
	}
	if owner := b.owner(sb); v.owner != "" && v.owner != owner {
		return nil, fmt.Errorf("%s %s: %w: the volume has the owner %q, not %q", what, sb.Name, orchestrator.ErrDenied, v.owner, owner)
	}
	return v.chain(), nil
}

func (b *Btrfs) owner(sb orchestrator.Sandbox) string { return b.c.Instance + "/" + string(sb.ID) }

// order gives the guest one order. One that may be repeated is, after a loss.
func (b *Btrfs) order(ctx context.Context, what string, sb orchestrator.Sandbox, repeatable bool, verb, name, text string) (guestVolume, error) {
	if repeatable && b.c.Running != nil { // a crash or a collection must not wait for what is off
		on, err := b.c.Running(ctx, sb.VM)
		if err != nil {
			return guestVolume{}, fmt.Errorf("%s %s: %w", what, sb.Name, err)
		}
		if !on {
			return guestVolume{}, fmt.Errorf("%s %s: %w: it is switched off, and its guest has them; start it", what, sb.Name, orchestrator.ErrUnavailable)
		}
	}
	if repeatable {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, b.c.Patience)
		defer cancel()
	}
	script := ""
	if verb == "restore" {
		script = WorkspaceScript
	}
	fields := []string{"snapshots", "0", script, verb, b.owner(sb), name, text}
	a, err := b.c.Client.ask(ctx, what, sb, wire.Tend, func() []byte { return wire.EncodeFields(fields...) }, repeatable)
	return a.volume, err
}

// guestVolume is what the guest says of its volume.
type guestVolume struct {
	owner string // "" = nobody's yet
	taken []orchestrator.Snapshot
}

// chain is the snapshots as the port has them.
func (v guestVolume) chain() []orchestrator.Snapshot {
	var parent orchestrator.SnapshotName
	for i := range v.taken {
		v.taken[i].Parent, parent = parent, v.taken[i].Name
		v.taken[i].Current = i == len(v.taken)-1
	}
	return v.taken
}

// read takes the next fields of an answer that are the volume's, and returns those
// that follow them.
func (v *guestVolume) read(fields []string) ([]string, error) {
	switch {
	case fields[0] == "volume" && len(fields) >= 2:
		v.owner = fields[1]
		return fields[2:], nil
	case fields[0] == "taken" && len(fields) >= 6:
		sec, err := strconv.ParseInt(fields[4], 10, 64)
		if err != nil {
			return nil, err
		}
		v.taken = append(v.taken, orchestrator.Snapshot{Name: orchestrator.SnapshotName(fields[1]), Taken: time.Unix(sec, 0), Description: fields[5]})
		return fields[6:], nil
	}
	return nil, fmt.Errorf("unknown fact %q", fields[0])
}
