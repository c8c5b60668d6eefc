package proxmox

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	pve "github.com/luthermonson/go-proxmox"
)

// make creates the VM with everything a sandbox needs, prepares it and
// converts it. Until the last call its mark says that it is being built.
func (b *building) make(ctx context.Context, volid, second string) error {
	release, err := b.c.exclusive(ctx, b.op, b.ref)
	if err != nil {
		return err
	}
	defer release()
	b.spec.Progress("create", 0, 0)
	err = b.order(ctx, order{kind: "qmcreate", timeout: b.c.cfg.CloneTimeout}, func(ctx context.Context) (string, error) {
		return b.c.postTask(ctx, nodePath(b.ref.Node)+"/qemu", b.params(volid, second))
	})
	if err != nil {
		return err
	}
	if b.spec.Prepare != nil {
		if err := b.prepare(ctx); err != nil {
			return err
		}
	}
	b.spec.Progress("convert", 0, 0)
	err = b.order(ctx, order{kind: "qmtemplate", timeout: b.c.cfg.CloneTimeout}, func(ctx context.Context) (string, error) {
		return b.c.postTask(ctx, vmPath(b.ref)+"/template", nil)
	})
	if err != nil {
		return err
	}
	return b.c.again(ctx, func() error { return b.c.putConfig(ctx, b.op, b.ref, b.finished()) })
}

// order carries one change of the VM out.
func (b *building) order(ctx context.Context, o order, send func(context.Context) (string, error)) error {
	o.op, o.subject, o.node, o.id, o.started, o.send = b.op, b.ref.String(), b.ref.Node, b.ref.ID, b.spec.Started, send
	return b.c.again(ctx, func() error { return b.c.carryOut(ctx, o) })
}

func (b *building) mark(state string) string {
	own := mark{instance: b.c.cfg.Instance, recipe: b.recipe, state: state}
	return strings.TrimSpace(own.String() + "\n" + b.spec.Description)
}

// params is the new VM. Clones take all of it over, so everything that makes a
// guest quick and quiet is here: no upgrade of packages at the first boot, which
// a sealed guest would wait for in vain; a cloud-init drive on SCSI, because
// Debian's kernel for clouds has no driver for IDE.
func (b *building) params(volid, second string) map[string]any {
	s := b.spec
	p := map[string]any{
		"vmid": int(b.ref.ID), "name": s.Name, "pool": b.c.cfg.Pool, "description": b.mark(stateBuilding),
		"tags":   strings.Join([]string{ownerTag, instanceTag(b.c.cfg.Instance), templateTag}, ";"),
		"memory": fmt.Sprint(s.MemoryMiB), "cores": s.Cores,
		"ostype": "l26", "scsihw": "virtio-scsi-single",
		"scsi0":   s.Storage + ":0,import-from=" + volid,
		"scsi2":   s.Storage + ":cloudinit",
		"boot":    "order=scsi0",
		"net0":    "virtio,bridge=" + s.Bridge,
		"serial0": "socket", "agent": "1", "ciuser": "root", "ciupgrade": "0",
	}
	if s.CPU != "" {
		p["cpu"] = s.CPU
	}
	if w := s.Workspace; w != nil {
		p["scsi1"] = w.Storage + ":" + strconv.FormatFloat(float64(w.Size)/(1<<30), 'f', -1, 64)
		if second != "" {
			p["scsi1"] = w.Storage + ":0,import-from=" + second
		}
	}
	if s.Prepare != nil {
		p["ipconfig0"], p["sshkeys"] = ipConfig(s.Prepare.Address, s.Prepare.Gateway), pve.EncodeSSHKeys(s.Prepare.SSHKeys...)
	}
	return p
}

// finished is the last change: the mark that says so, and nothing left of the
// preparation.
func (b *building) finished() map[string]any {
	p := map[string]any{"description": b.mark(stateReady)}
	if b.spec.Prepare != nil {
		p["delete"] = "ipconfig0,sshkeys"
	}
	return p
}

// shutdownTime is how long a guest may take to power down when the spec does
// not say; under emulation systemd needs most of a minute.
const shutdownTime = 3 * time.Minute

// prepare starts the VM, has it prepared, and powers it down.
func (b *building) prepare(ctx context.Context) error {
	c, how := b.c, b.spec.Prepare
	b.spec.Progress("start", 0, 0)
	err := b.order(ctx, order{kind: "qmstart"}, func(ctx context.Context) (string, error) {
		return c.postTask(ctx, vmPath(b.ref)+"/status/start", nil)
	})
	if err != nil && !says(err, alreadyRunsRE) {
		return err
	}
	if err := c.VMs().awaitPower(ctx, c.cfg.VerifyTimeout, b.op, b.ref, true); err != nil {
		return err
	}
	b.spec.Progress("prepare", 0, 0)
	if err := how.Run(ctx, b.ref); err != nil {
		return fmt.Errorf("%s %s: %w", b.op, b.ref, err)
	}
	b.spec.Progress("shut down", 0, 0)
	wait := how.Shutdown
	if wait == 0 {
		wait = shutdownTime
	}
	err = b.order(ctx, order{kind: "qmshutdown", timeout: wait + time.Minute}, func(ctx context.Context) (string, error) {
		return c.postTask(ctx, vmPath(b.ref)+"/status/shutdown", map[string]any{"timeout": int(wait / time.Second)})
	})
	if err != nil {
		return err
	}
	return c.VMs().awaitPower(ctx, c.cfg.VerifyTimeout, b.op, b.ref, false)
}
