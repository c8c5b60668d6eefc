package proxmox

import (
	"context"
	"fmt"

	"savepoint/orchestrator"
)

// Rename gives a VM of ours another name: a change of its configuration that a
// rollback has to undo.
func (c *Cluster) Rename(ctx context.Context, r orchestrator.VMRequest, name string) error {
	const op = "rename"
	if !hostNameRE.MatchString(name) {
		return refuse(op, r.VM.String(), orchestrator.ErrDenied, fmt.Sprintf("%q is no host name", name), "use 1 to 63 letters, digits and dashes")
	}
	release, err := c.exclusive(ctx, op, r.VM)
	if err != nil {
		return err
	}
	defer release()
	return c.again(ctx, func() error {
		conf, err := c.owned(ctx, op, r.VM, r.Sandbox, false)
		if err != nil {
			return err
		}
		if err := c.checkLock(ctx, op, r.VM, conf); err != nil {
			return err
		}
		if err := c.put(ctx, vmPath(r.VM)+"/config", map[string]any{"name": name}); err != nil {
			return explain(op, r.VM.String(), err, true)
		}
		return nil
	})
}
