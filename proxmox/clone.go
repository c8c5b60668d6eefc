package proxmox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	pve "github.com/luthermonson/go-proxmox"

	"savepoint/orchestrator"
)

var hostNameRE = regexp.MustCompile(`\A[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\z`)

// cleanupTime is how long the removal of a half-made VM may take after the
// caller's context has ended.
const cleanupTime = time.Minute

// Clone makes the VM from the template, linked to its disks unless r.Full, and
// configures it: owner, host name, root's keys, address, bridge, guest agent.
// The owner is written by the clone call itself, so a crash leaves a VM that
// Status and Destroy recognise. A failure after the VM was made removes it; if
// that fails too, or while the clone's task still runs, the VM stays and the
// error says so.
func (v *VMs) Clone(ctx context.Context, r orchestrator.CloneRequest) error {
	op, subject := "clone "+r.Template.String()+" to", r.VM.String()
	if err := v.checkClone(op, r); err != nil {
		return err
	}
	release, err := v.c.exclusive(ctx, op, r.VM)
	if err != nil {
		return err
	}
	defer release()
	return v.c.again(ctx, func() error {
		storage, err := v.checkTemplate(ctx, op, r)
		if err != nil {
			return err
		}
		if err := v.checkFree(ctx, op, r.VM); err != nil {
			return err
		}
		return v.cloneLimited(ctx, op, subject, storage, r)
	})
}

// checkClone refuses requests that cannot be right, before any call.
func (v *VMs) checkClone(op string, r orchestrator.CloneRequest) error {
	deny := func(cause, mend string) error { return refuse(op, r.VM.String(), orchestrator.ErrDenied, cause, mend) }
	if err := errors.Join(checkRef(op, r.VM), checkRef(op, r.Template)); err != nil {
		return err
	}
	switch {
	case r.VM.ID == r.Template.ID:
		return deny("the new vm has the template's id", "choose another id")
	case !sandboxIDRE.MatchString(string(r.Sandbox)):
		return deny(fmt.Sprintf("%q is no sandbox id", r.Sandbox), "")
	case !hostNameRE.MatchString(r.Name):
		return deny(fmt.Sprintf("%q is no host name", r.Name), "use 1 to 63 letters, digits and dashes")
	case v.c.cfg.Pool == "":
		return deny("no resource pool is configured, and permission to make vms is given on a pool", "set the pool")
	case !r.Address.IsValid():
		return deny("no address", "give the guest a static address")
	case r.CloneStorage != "" && !r.Full:
		return deny("a linked clone stays on the template's storage", "leave the storage out, or make a full clone")
	}
	for _, k := range r.SSHKeys {
		if strings.ContainsAny(k, "\r\n") || strings.TrimSpace(k) == "" {
			return deny("an SSH key is empty or has more than one line", "")
		}
	}
	return nil
}

// checkTemplate returns the storage whose clones must be counted.
func (v *VMs) checkTemplate(ctx context.Context, op string, r orchestrator.CloneRequest) (string, error) {
	conf, err := v.c.config(ctx, op, r.Template)
	if err != nil {
		return "", err
	}
	if !conf.isTemplate() {
		what, mend := r.Template.String()+" is not a template", "make one with savepoint template build"
		return "", &failure{op: op, subject: r.VM.String(), cause: what, mend: mend, class: &orchestrator.UnsupportedError{What: what, Mend: mend}}
	}
	if err := v.c.checkLock(ctx, op, r.Template, conf); err != nil {
		return "", err
	}
	if r.CloneStorage != "" {
		return r.CloneStorage, nil
	}
	if disks := conf.disks(); len(disks) > 0 {
		return disks[0].storage, nil
	}
	return "", nil
}

// checkFree is ErrExists if the id is taken anywhere in the cluster. It
// reserves nothing: the call that makes the VM can still say the same.
func (v *VMs) checkFree(ctx context.Context, op string, vm orchestrator.VMRef) error {
	taken, err := v.c.taken(ctx, vm.ID)
	if err != nil {
		return explain(op, vm.String(), err, false)
	}
	if taken {
		return refuse(op, vm.String(), orchestrator.ErrExists, "a vm with that id exists", "choose another id")
	}
	return nil
}

// cloneLimited makes the VM while it holds the template's and the storage's
// turn, because parallel clones fail on the cluster's short file locks, and
// then configures it.
func (v *VMs) cloneLimited(ctx context.Context, op, subject, storage string, r orchestrator.CloneRequest) error {
	c := v.c
	release, err := c.cloneTurn(ctx, op, r, storage)
	if err != nil {
		return &failure{op: op, subject: subject, class: orchestrator.ErrUnavailable, err: err, cause: "gave up waiting for a turn to clone (" + err.Error() + ")", mend: "other clones of this template or storage go first; give it more time"}
	}
	own := mark{instance: c.cfg.Instance, sandbox: r.Sandbox, state: stateCloning}
	err = c.carryOut(ctx, order{
		op: op, subject: subject, node: r.Template.Node, kind: "qmclone", id: r.Template.ID,
		timeout: c.cfg.CloneTimeout, started: r.Started,
		send: func(ctx context.Context) (string, error) {
			return c.postTask(ctx, vmPath(r.Template)+"/clone", v.cloneParams(r, own))
		},
	})
	release()
	if err != nil {
		return v.afterFailedClone(ctx, r, err)
	}
	err = v.configure(ctx, op, r, own)
	var f *failure
	if errors.As(err, &f) && !f.foreign {
		return v.discarding(ctx, r, f)
	}
	return err
}

// cloneTurn waits for the template's turn first, then for the storage's, then
// for the target node's, so that nobody waits for the first while holding one
// of the others. A stopped template is locked for reading only, so several
// linked clones of it can be made at once; a full one reads all of its disks.
// Clones to other nodes count apart: each target takes them by itself.
func (c *Cluster) cloneTurn(ctx context.Context, op string, r orchestrator.CloneRequest, storage string) (release func(), err error) {
	template := r.Template.String()
	if r.VM.Node != r.Template.Node {
		template += " to " + r.VM.Node
	}
	kind := &c.linkedClones
	if r.Full {
		kind = &c.fullClones
	}
	who := caller{op: op, subject: r.VM.String()}
	var held []func()
	release = func() {
		for _, give := range slices.Backward(held) {
			give()
		}
	}
	for _, t := range []struct {
		k   *keyed
		key string
	}{{kind, template}, {&c.storages, storage}, {&c.nodes, r.VM.Node}} {
		give, err := t.k.acquire(ctx, t.key, who)
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, give)
	}
	return release, nil
}

// discarding removes the half-made VM and returns the failure it is removed
// for, which says so when that did not work either.
func (v *VMs) discarding(ctx context.Context, r orchestrator.CloneRequest, f *failure) error {
	if err := v.discard(ctx, r); err != nil {
		g := f.with(f.class, strings.TrimPrefix(f.mend+"; the half-made vm is still there: destroy it", "; "))
		g.cause += fmt.Sprintf(" (and %v)", err)
		g.retry = false
		return g
	}
	return f
}

func (v *VMs) cloneParams(r orchestrator.CloneRequest, own mark) map[string]any {
	full := 0
	if r.Full {
		full = 1
	}
	p := map[string]any{
		"newid": int(r.VM.ID), "name": r.Name, "pool": v.c.cfg.Pool, "description": own.String(), "full": full,
	}
	if r.VM.Node != r.Template.Node {
		p["target"] = r.VM.Node
	}
	if r.CloneStorage != "" {
		p["storage"] = r.CloneStorage
	}
	return p
}

// afterFailedClone removes what a failed task left, so that "nothing was done"
// is true before another attempt. The cluster removes it itself unless the
// worker was killed.
func (v *VMs) afterFailedClone(ctx context.Context, r orchestrator.CloneRequest, failed error) error {
	f, unclear := unexplained(ctx, failed)
	if !unclear && !(retriable(failed) && errors.As(failed, &f)) {
		return failed
	}
	if _, err := v.c.config(ctx, "look at", r.VM); !vmMissing(err) {
		return v.discarding(ctx, r, f)
	}
	if unclear {
		return f.with(orchestrator.ErrUnavailable, "nothing was left behind; look at the task's log for the cause, then try again")
	}
	return failed
}

// configure writes everything that the clone call could not, the final mark
// and the tags included, in one call that can be repeated.
func (v *VMs) configure(ctx context.Context, op string, r orchestrator.CloneRequest, own mark) error {
	c, subject := v.c, r.VM.String()
	var conf vmConfig
	err := c.verify(ctx, op, subject, func(ctx context.Context) (string, error) {
		var err error
		if conf, err = c.config(ctx, op, r.VM); err != nil {
			return "", err
		}
		if m, ok := parseMark(conf.text("description")); !ok || m.instance != own.instance || m.sandbox != own.sandbox {
			return "", &failure{op: op, subject: subject, class: orchestrator.ErrUnknownOutcome, foreign: true, cause: "the vm with that id does not carry the mark that this clone wrote", mend: "nothing more was changed; choose another id"}
		}
		if lock := conf.text("lock"); lock != "" {
			return "vm is locked (" + lock + ")", nil
		}
		return "", nil
	})
	if err != nil {
		return err
	}
	own.state = stateReady
	params := map[string]any{
		"description": own.String(),
		"tags":        ownerTag + ";" + instanceTag(c.cfg.Instance),
		"name":        r.Name,
		"agent":       "1",
		"ciuser":      "root",
		"ipconfig0":   ipConfig(r.Address, r.Gateway),
	}
	if len(r.SSHKeys) > 0 {
		params["sshkeys"] = pve.EncodeSSHKeys(r.SSHKeys...)
	}
	if bridge := cmp.Or(r.Bridge, c.cfg.Bridge); bridge != "" {
		params["net0"] = rebridge(conf.text("net0"), bridge)
	}
	if s := c.cfg.StateStorage; s != "" {
		params["vmstatestorage"] = s
	}
	return c.again(ctx, func() error { return c.putConfig(ctx, op, r.VM, params) })
}

// putConfig writes options and makes sure that they are there: a lost answer
// is answered by looking, and by writing the same again.
func (c *Cluster) putConfig(ctx context.Context, op string, vm orchestrator.VMRef, params map[string]any) error {
	for n := 0; ; n++ {
		err := c.put(ctx, vmPath(vm)+"/config", params)
		if err == nil {
			return nil
		}
		failed := explain(op, vm.String(), err, true)
		if !errors.Is(failed, orchestrator.ErrUnknownOutcome) || n == 3 || ctx.Err() != nil {
			return failed
		}
		if conf, cerr := c.config(ctx, op, vm); cerr == nil && strings.TrimSpace(conf.text("description")) == params["description"] {
			return nil // the call is one write, so all of it is there
		}
		if pause(ctx, backoff(n, 100*time.Millisecond, time.Second)) != nil {
			return failed
		}
	}
}

// ipConfig writes cloud-init's ipconfigN for one static address.
func ipConfig(address netip.Prefix, gateway netip.Addr) string {
	ip, gw := "ip", "gw"
	if address.Addr().Is6() {
		ip, gw = "ip6", "gw6"
	}
	s := ip + "=" + address.String()
	if gateway.IsValid() {
		s += "," + gw + "=" + gateway.String()
	}
	return s
}

var nicModelRE = regexp.MustCompile(`\A(virtio|e1000|e1000e|rtl8139|vmxnet3)(?:=([0-9A-Fa-f:]{17}))?\z`)

// rebridge returns a NIC like the given one on another bridge. Model, MAC and
// the firewall and mtu options stay; VLAN settings belong to the old bridge.
func rebridge(nic, bridge string) string {
	out := []string{"virtio"}
	for i, part := range strings.Split(nic, ",") {
		switch name, _, _ := strings.Cut(part, "="); {
		case i == 0 && nicModelRE.MatchString(part):
			out[0] = part
		case name == "firewall" || name == "mtu" || name == "queues" || name == "rate":
			out = append(out, part)
		}
	}
	return strings.Join(append(out, "bridge="+bridge), ",")
}

// discard removes what Clone made and could not finish. It has its own
// deadline, because the caller's context may have ended. A VM that does not
// carry the sandbox's mark is left alone.
func (v *VMs) discard(ctx context.Context, r orchestrator.CloneRequest) error {
	const op = "remove half-made"
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	return v.c.again(ctx, func() error {
		conf, err := v.c.owned(ctx, op, r.VM, r.Sandbox, true)
		if vmMissing(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return v.remove(ctx, op, orchestrator.VMRequest{Sandbox: r.Sandbox, VM: r.VM}, conf)
	})
}
