package sshexec

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec/wire"
)

// WorkspaceScript is the program savepoint-workspace, for /bin/sh. A guest runs
// "savepoint-workspace mount" at every boot, before its sshd; what else it does
// is in its head. The client needs no copy in the guest: it sends its own.
//
//go:embed workspace.sh
var WorkspaceScript string

// Where WorkspaceScript is installed in a guest, and what the volume's file
// system is labelled with.
const (
	WorkspacePath  = "/usr/local/sbin/savepoint-workspace"
	WorkspaceLabel = "sp-workspace"
)

// WorkspaceUnit runs WorkspaceScript at boot where systemd is the init. It has to
// be enabled. A machine without the volume boots all the same.
const WorkspaceUnit = `[Unit]
Description=savepoint's workspace volume
DefaultDependencies=no
After=local-fs.target tmp.mount systemd-tmpfiles-setup.service
Before=sysinit.target ssh.service ssh.socket shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=-` + WorkspacePath + ` mount

[Install]
WantedBy=sysinit.target
`

// WorkspaceUnitPath and WorkspaceDropInPath are where systemd looks for these.
const (
	WorkspaceUnitPath   = "/etc/systemd/system/savepoint-workspace.service"
	WorkspaceDropInPath = "/etc/systemd/system/service.d/savepoint-workspace.conf"
)

// WorkspaceDropIn is for every service of a guest with systemd: a private /tmp
// would lie on the workspace volume and keep it from being unmounted.
const WorkspaceDropIn = `[Service]
PrivateTmp=no
`

// diskPatience is how long the guest looks for the volume's disk, which may have
// been attached a moment ago.
const diskPatience = 20 * time.Second

// Freeze writes everything to the sandbox's workspace volume and holds further
// writes, for at most that long whatever becomes of the connection and of this
// process. ErrUnavailable: nothing is frozen. Freezing again starts the time anew.
func (c *Client) Freeze(ctx context.Context, sb orchestrator.Sandbox, atMost time.Duration) error {
	if atMost < time.Millisecond {
		return fmt.Errorf("freeze workspace of sandbox %s: %w: for %s", sb.Name, orchestrator.ErrDenied, atMost)
	}
	return c.tend(ctx, "freeze", sb, atMost)
}

// Thaw ends a freeze. It is no error when nothing is frozen. ErrUnavailable: it
// may be frozen still, and the guest goes on trying when the freeze's time is over.
func (c *Client) Thaw(ctx context.Context, sb orchestrator.Sandbox) error {
	return c.tend(ctx, "thaw", sb, 0)
}

// Unmount thaws, ends every process of agent, and unmounts the workspace volume
// everywhere. It is no error when it is not mounted. ErrBusy: processes that are
// not the agent's hold it, the error names them, and it stays mounted. After
// ErrUnavailable the agent's processes may be gone all the same.
func (c *Client) Unmount(ctx context.Context, sb orchestrator.Sandbox) error {
	return c.tend(ctx, "unmount", sb, 0)
}

// Mount mounts the workspace volume, makes its parts on first use, and takes
// from agent what else it could write. It is no error when it is mounted.
func (c *Client) Mount(ctx context.Context, sb orchestrator.Sandbox) error {
	return c.tend(ctx, "mount", sb, diskPatience)
}

// tend gives one order about the volume. An order whose answer is lost may have
// been carried out; it is not given again here.
func (c *Client) tend(ctx context.Context, verb string, sb orchestrator.Sandbox, d time.Duration) error {
	what := verb + " workspace of sandbox"
	if sb.Workspace == "" {
		return &orchestrator.UnsupportedError{What: what + " " + sb.Name + ": it has no workspace volume", Mend: "use boundary disk or machine"}
	}
	fields := []string{verb, strconv.FormatInt(d.Milliseconds(), 10)}
	if verb == "mount" || verb == "unmount" {
		fields = append(fields, WorkspaceScript)
	}
	_, err := c.ask(ctx, what, sb, wire.Tend, func() []byte { return wire.EncodeFields(fields...) }, false)
	return err
}
