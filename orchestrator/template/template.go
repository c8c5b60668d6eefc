package template

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"savepoint/orchestrator"
)

// The steps that a Guest carries out in the VM.
const (
	stepProvision = "provision"
	stepBtrfs     = "provision-btrfs" // the same, with a btrfs as the workspace volume
	stepCheck     = "check"
	stepClean     = "clean"
)

// Guest reaches the VM over SSH, as root. sshexec.Client is one.
type Guest interface {
	// FirstHostKey waits until the VM at the address lets us in, and
	// returns the host key that it shows.
	FirstHostKey(ctx context.Context, address netip.Addr) (string, error)
	// Template carries out a step and passes on each line that it prints.
	// workspace is the size of the disk for the workspace volume, 0 for none.
	Template(ctx context.Context, sb orchestrator.Sandbox, step string, workspace int64, say func(line string)) error
	// Prepare makes the agent's account.
	Prepare(ctx context.Context, sb orchestrator.Sandbox, agentKeys []string) error
	// Hold tries out what runs commands; it says how it holds them together.
	Hold(ctx context.Context, sb orchestrator.Sandbox) (string, error)
	// Disconnect closes what is open.
	Disconnect(id orchestrator.SandboxID)
}

// Identity reads a VM's SSH host key by a way that is not SSH.
type Identity interface {
	HostKey(ctx context.Context, vm orchestrator.VMRef) (string, error)
}

// Preparer prepares VMs. All fields are required but Workspace,
// Btrfs and Say.
type Preparer struct {
	Guest    Guest
	Identity Identity

	Address   netip.Addr
	Workspace int64 // bytes of the disk for the workspace volume; 0 = there is none
	Btrfs     bool  // the volume becomes a btrfs, whose snapshots the guest itself takes

	Boot time.Duration // from power-on to the first SSH answer; the same again for the agent's
	Step time.Duration // the longest that one step may take

	Say func(text string) // told what is being done
}

// Run prepares the VM. An error of the VM's own is ErrUnavailable, a
// host key that is not the VM's *orchestrator.HostKeyError, and what is
// missing in the image *orchestrator.UnsupportedError.
func (p Preparer) Run(ctx context.Context, vm orchestrator.VMRef) error {
	if p.Say == nil {
		p.Say = func(string) {}
	}
	id := orchestrator.SandboxID(fmt.Sprintf("template-%d", vm.ID))
	sb := orchestrator.Sandbox{ID: id, Name: string(id), VM: vm, Address: p.Address}
	defer p.Guest.Disconnect(id)
	p.Say("waiting for the first boot")
	err := within(ctx, p.Boot, func(ctx context.Context) (err error) {
		sb.HostKey, err = p.Guest.FirstHostKey(ctx, p.Address)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w (it had %s: see sandbox.boot_timeout)", err, p.Boot)
	}
	provision := stepProvision
	if p.Btrfs {
		provision = stepBtrfs
	}
	if err := p.step(ctx, sb, provision, p.Say); err != nil {
		return err
	}
	if err := p.confirm(ctx, sb); err != nil {
		return err
	}
	if err := p.complete(ctx, sb); err != nil {
		return err
	}
	p.Say("removing its identity")
	return p.step(ctx, sb, stepClean, func(string) {})
}

// confirm compares the key that the VM showed with the one that the
// hypervisor reads in it.
func (p Preparer) confirm(ctx context.Context, sb orchestrator.Sandbox) error {
	p.Say("confirming that it is the VM")
	return within(ctx, p.Boot, func(ctx context.Context) error {
		key, err := p.Identity.HostKey(ctx, sb.VM)
		if err != nil {
			return err
		}
		if fields(key) != fields(sb.HostKey) {
			return fmt.Errorf("confirm the host key of %s: another machine answers at %s: %w; see that nothing else on the build network has that address",
				sb.VM, sb.Address, &orchestrator.HostKeyError{Host: sb.Address.String(), Want: fields(key), Got: fields(sb.HostKey)})
		}
		return nil
	})
}

// fields is a key without its comment.
func fields(key string) string {
	f := strings.Fields(key)
	return strings.Join(f[:min(2, len(f))], " ")
}

// complete makes the agent's account, tries out what runs commands, and has
// everything else checked.
func (p Preparer) complete(ctx context.Context, sb orchestrator.Sandbox) error {
	p.Say("checking that all is there")
	hold := ""
	err := within(ctx, p.Step, func(ctx context.Context) (err error) {
		if err = p.Guest.Prepare(ctx, sb, nil); err != nil {
			return err
		}
		hold, err = p.Guest.Hold(ctx, sb)
		return err
	})
	if err != nil {
		return err
	}
	var missing []string
	seen := 0
	err = p.step(ctx, sb, stepCheck, func(line string) {
		kind, text, _ := strings.Cut(line, " ")
		switch kind {
		case "ok":
			seen++
		case "missing":
			name, why, _ := strings.Cut(text, ": ")
			missing = append(missing, name+" ("+why+")")
		}
	})
	switch {
	case err != nil:
		return err
	case len(missing) == 0 && seen == 0:
		return fmt.Errorf("check %s: %w: it said nothing", sb.VM, orchestrator.ErrUnavailable)
	case hold == "tree": // it works, but a command can leave processes behind
		missing = append(missing, "cgroup (control groups of version 2 cannot be used)")
	}
	if len(missing) > 0 {
		return &orchestrator.UnsupportedError{
			What: "the image is not fit for sandboxes: missing: " + strings.Join(missing, ", "),
			Mend: "use a stock cloud image with systemd, cloud-init and Linux 5.3 or newer",
		}
	}
	return nil
}

func (p Preparer) step(ctx context.Context, sb orchestrator.Sandbox, step string, say func(string)) error {
	return within(ctx, p.Step, func(ctx context.Context) error {
		return p.Guest.Template(ctx, sb, step, p.Workspace, say)
	})
}

// within gives fn that much time.
func within(ctx context.Context, d time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return fn(ctx)
}
