package orchestrator

import (
	"context"
	"fmt"
)

// Session is what a command's shell leaves for a next one.
type Session struct {
	// Dir is the working directory at the end, without symbolic links; "" when
	// it is gone.
	Dir string
	// Env are the exported variables that are other than those every command
	// begins with. A variable of those that was unset is not told.
	Env map[string]string
}

// Space is what is left of a file system for an account that is not root.
type Space struct {
	Mount               string // "/" or "/workspace"
	Bytes, TotalBytes   int64
	Inodes, TotalInodes int64 // both 0 where the file system has no fixed number
}

// What GuestHealth.Services has an entry for.
const (
	ServiceSSH   = "sshd"
	ServiceAgent = "qemu-guest-agent"
)

// GuestHealth is GuestFacts with what costs more to find out.
type GuestHealth struct {
	GuestFacts
	// Free has "/", and "/workspace" where that is a mount of its own.
	Free []Space
	// Services says which of savepoint's own ways into the guest are alive.
	Services map[string]bool
}

// ManifestRequest says what to list.
type ManifestRequest struct {
	// Roots are absolute paths of files or trees. A symbolic link is listed and
	// not followed, but for one on the way to a root. A tree ends at its file
	// system unless what is mounted there is a root itself.
	Roots []string
	// Hash reads every file for a digest of its content.
	Hash bool
	// Limit is the most entries; more are *TooManyError. 0 = 200,000.
	Limit int
}

// DefaultManifestLimit is ManifestRequest's.
const DefaultManifestLimit = 200_000

// Examiner is what a Guest may offer besides. Both calls wait for a guest that
// is booting, like Inspect, and fail like it.
type Examiner interface {
	// Health asks the guest how it is.
	Health(ctx context.Context, sb Sandbox) (GuestHealth, error)
	// Manifest lists trees of the guest's files. It is whole or an error; it
	// ends with ctx, in the guest too.
	Manifest(ctx context.Context, sb Sandbox, r ManifestRequest) (Manifest, error)
}

// Inside is what a Snapshotter may say besides.
type Inside interface {
	// Inside reports whether the VM's snapshots are kept on the VM's own disks: then a
	// restored snapshot of the whole VM takes those away that are newer, and only a
	// guest that answers can list and delete them.
	Inside(ctx context.Context, vm VMRef) bool
}

// TooManyError says that a manifest would have more entries than its limit. It
// counts as ErrDenied: to ask again does not help.
type TooManyError struct{ Limit int }

func (e *TooManyError) Error() string {
	return fmt.Sprintf("too many files for a manifest: more than %d; name smaller trees or raise the limit", e.Limit)
}

// Is makes it a denial for callers that only know classes.
func (e *TooManyError) Is(target error) bool { return target == ErrDenied }
