package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/provision"
	"savepoint/policy"
)

// canaryName is the sandbox that proves what storages promise.
const canaryName = "savepoint-canary"

// canaries proves snapshots and rollback on every storage that sandboxes can
// live on. What goes wrong with one of them is a finding.
func (d *doctor) canaries(ctx context.Context) error {
	const check = "canary"
	if d.hasProblem(func(check string) bool { return check != "storage" && check != "ssh" && check != "template" }) {
		d.add(check, levelWarning, "nothing was proved: the problems come first", "mend them, then run savepoint doctor --canary again")
		return nil
	}
	reach := !d.hasProblem(func(check string) bool { return check == "ssh" || check == "template" })
	judge, err := decider(d.cfg)
	if err != nil {
		return err
	}
	perches := d.perches(ctx)
	if len(perches) == 0 {
		d.add(check, levelWarning, "nothing was proved: no storage can hold a sandbox", "see the storages and the template")
	}
	for _, p := range perches {
		if ctx.Err() != nil {
			return nil // the caller says so
		}
		c := &canary{d: d, perch: p, judge: judge}
		if reach {
			c.fly(ctx)
		} else {
			c.bare(ctx)
		}
	}
	return nil
}

// hasProblem reports whether a check of these found one.
func (d *doctor) hasProblem(these func(check string) bool) bool {
	return slices.ContainsFunc(d.findings, func(f finding) bool { return f.Level == levelProblem && these(f.Check) })
}

// unready keeps a sandbox from being ready: it is never handed out, and recovery
// removes it when this process ends before it does.
type unready struct{ provision.Registry }

func (u unready) PutSandbox(ctx context.Context, sb orchestrator.Sandbox) error {
	if sb.State == orchestrator.SandboxReady {
		sb.State = orchestrator.SandboxCreating
	}
	return u.Registry.PutSandbox(ctx, sb)
}

// canary is one VM on its perch.
type canary struct {
	d     *doctor
	perch perch
	judge *policy.Engine
	sb    orchestrator.Sandbox

	step  string   // what is being done
	tries string   // the storage that is tried by it; "" = none is
	over  bool     // what is done now only cleans up
	took  []string // what was proved, with its time
	boots map[string]bool
}

// at notes what is begun, so that an error is put down to it.
func (c *canary) at(tries, step string, args ...any) {
	text := fmt.Sprintf(step, args...)
	c.d.p.say("canary on %s: %s", c.perch, text)
	if !c.over {
		c.step, c.tries = text, tries
	}
}

// volume is the storage that a snapshot of that name is on.
func (c *canary) volume(name orchestrator.SnapshotName) string {
	if name == canaryWorkspace && !c.perch.full {
		return c.d.cfg.Workspace.Storage
	}
	return c.perch.storage
}

// fly makes the VM, proves, and removes it whatever happened.
func (c *canary) fly(ctx context.Context) {
	d := c.d
	prov := d.s.prov.With(func(p *provision.Config) {
		p.Registry = unready{p.Registry}
		if p.FullClone = c.perch.full; c.perch.full {
			p.Storage = c.perch.storage
		}
		p.Observe = func(st provision.Step) {
			if st.Done {
				c.over = c.over || st.Err != nil
				return
			}
			tries := ""
			if st.Name == "clone" || st.Name == "pristine" {
				tries = c.perch.storage
			}
			c.at(tries, "%s %s", st.Name, st.Detail)
		}
	})
	wish, err := d.s.wish("")
	if err != nil {
		d.failed("canary", levelProblem, err)
		return
	}
	wish.Node = c.perch.node
	start := time.Now()
	c.at("", "choose its place")
	if c.sb, err = prov.Create(ctx, canaryName, wish); err != nil {
		c.report(ctx, err)
		return
	}
	how := "linked clone"
	if c.perch.full {
		how = "full clone"
	}
	c.took = append(c.took, fmt.Sprintf("%s ready in %s", how, short(time.Since(start))))
	c.sb.State = orchestrator.SandboxReady // for the guest's sake; the journal knows better
	err = c.prove(ctx)
	c.over = true
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
	defer cancel()
	d.p.say("canary on %s: destroy", c.perch)
	if derr := prov.Destroy(end, c.sb); derr != nil {
		d.add("canary", levelProblem, fmt.Sprintf("on %s: the canary could not be removed: %v", c.perch, derr), "savepoint recover")
	}
	c.report(ctx, err)
}

// report says what came of it. An interrupt is nobody's fault.
func (c *canary) report(ctx context.Context, err error) {
	switch {
	case err == nil:
		c.d.ok("canary", "%s: %s; all damage was undone", c.perch, strings.Join(c.took, ", "))
	case ctx.Err() != nil:
	default:
		what, mend := c.blame(err)
		level := levelWarning
		if c.perch.used && what != blameLock {
			level = levelProblem
		}
		c.d.add("canary", level, fmt.Sprintf("%s: at the step %q, %s: %v", c.perch, c.step, what, err), mend)
	}
}

// The snapshots of a canary, and what it says when each is taken.
const (
	canaryWorkspace orchestrator.SnapshotName = "sp-canary-workspace"
	canaryDisk      orchestrator.SnapshotName = "sp-canary-disk"
	canaryMachine   orchestrator.SnapshotName = "sp-canary-machine"
	canaryDamage                              = "sp-canary-damage"
)

// prove takes a snapshot of each kind, damages the guest, and goes back in the
// order in which every storage can. On the way it learns whether this one could
// go back to an older one too.
func (c *canary) prove(ctx context.Context) error {
	if c.sb.Workspace != "" {
		if err := c.workspace(ctx); err != nil {
			return err
		}
	}
	snaps := c.d.s.cluster.Snapshots()
	if err := c.save(ctx, snaps, canaryDisk, false); err != nil {
		return err
	}
	if err := c.save(ctx, snaps, canaryMachine, true); err != nil {
		return err
	}
	if err := c.damage(ctx, policy.Root); err != nil {
		return err
	}
	if err := c.back(ctx, snaps, canaryMachine, "memory and disks"); err != nil {
		return err
	}
	err := c.back(ctx, snaps, canaryDisk, "disks")
	var older *orchestrator.NotLatestError
	if errors.As(err, &older) {
		c.took = append(c.took, "only the newest can be restored")
		if err := c.remove(ctx, snaps, canaryMachine); err != nil {
			return err
		}
		err = c.back(ctx, snaps, canaryDisk, "disks")
	} else if err == nil {
		c.took = append(c.took, "an older one can be restored")
	}
	if err != nil {
		return err
	}
	for _, name := range []orchestrator.SnapshotName{canaryMachine, canaryDisk} {
		if err := c.remove(ctx, snaps, name); err != nil {
			return err
		}
	}
	return nil
}

func (c *canary) remove(ctx context.Context, by orchestrator.Snapshotter, name orchestrator.SnapshotName) error {
	c.at(c.volume(name), "delete snapshot %s", name)
	return by.Delete(ctx, c.request(name))
}

// workspace proves the snapshots of the volume that the agent writes to.
func (c *canary) workspace(ctx context.Context) error {
	if err := c.save(ctx, c.d.s.workspaces, canaryWorkspace, false); err != nil {
		return err
	}
	if err := c.damage(ctx, policy.Agent); err != nil {
		return err
	}
	if err := c.back(ctx, c.d.s.workspaces, canaryWorkspace, "workspace"); err != nil {
		return err
	}
	return c.remove(ctx, c.d.s.workspaces, canaryWorkspace)
}

func (c *canary) request(name orchestrator.SnapshotName) orchestrator.SnapshotRequest {
	return orchestrator.SnapshotRequest{Sandbox: c.sb.ID, VM: c.sb.VM, Name: name, Description: "savepoint: a canary's"}
}

// accounts are who writes what is damaged later: what only root could restore,
// and what the agent could.
var accounts = map[policy.User]string{policy.Root: "/root/savepoint-canary", policy.Agent: "/workspace/savepoint-canary"}

func accountOf(name orchestrator.SnapshotName) policy.User {
	if name == canaryWorkspace {
		return policy.Agent
	}
	return policy.Root
}

// save writes the snapshot's name into the guest and takes it.
func (c *canary) save(ctx context.Context, by orchestrator.Snapshotter, name orchestrator.SnapshotName, memory bool) error {
	user := accountOf(name)
	c.at("", "write into the guest")
	if _, err := c.run(ctx, user, fmt.Sprintf("echo %s > %s && sync", name, accounts[user])); err != nil {
		return err
	}
	facts, err := c.d.s.ssh.Mark(ctx, c.sb, string(name))
	if err != nil {
		return err
	}
	if c.boots == nil {
		c.boots = map[string]bool{}
	}
	c.boots[facts.BootID] = true
	r := c.request(name)
	r.Memory = memory
	c.at(c.volume(name), "snapshot %s", name)
	start := time.Now()
	if err := by.Create(ctx, r); err != nil {
		return err
	}
	what := "snapshot"
	switch {
	case memory:
		what = "snapshot with memory"
	case name == canaryWorkspace:
		what = "snapshot of the workspace"
	}
	c.took = append(c.took, what+" "+short(time.Since(start)))
	return nil
}

// damage removes what was written, marks the guest, and makes sure that both are
// to be seen: a rollback of nothing proves nothing.
func (c *canary) damage(ctx context.Context, user policy.User) error {
	c.at("", "damage the guest")
	if _, err := c.run(ctx, user, "rm -f "+accounts[user]+" && sync"); err != nil {
		return err
	}
	if _, err := c.d.s.ssh.Mark(ctx, c.sb, canaryDamage); err != nil {
		return err
	}
	if text, err := c.run(ctx, user, "cat "+accounts[user]+" 2>/dev/null || echo gone"); err != nil || text != "gone" {
		return fmt.Errorf("damage the guest: %s says %q: %w", accounts[user], text, cmp.Or(err, orchestrator.ErrUnknownOutcome))
	}
	return nil
}

// back restores a snapshot and proves that the guest is the one of its moment.
func (c *canary) back(ctx context.Context, by orchestrator.Snapshotter, name orchestrator.SnapshotName, what string) error {
	d := c.d
	d.s.ssh.Disconnect(c.sb.ID)
	c.at(c.volume(name), "rollback to %s", name)
	start := time.Now()
	if err := by.Rollback(ctx, c.request(name)); err != nil {
		return err
	}
	took := time.Since(start)
	c.at("", "look at the guest after the rollback to %s", name)
	boot, cancel := context.WithTimeout(ctx, d.cfg.Sandbox.BootTimeout)
	defer cancel()
	if name == canaryDisk {
		if err := d.s.cluster.VMs().Start(boot, orchestrator.VMRequest{Sandbox: c.sb.ID, VM: c.sb.VM}); err != nil {
			return err
		}
	}
	facts, err := d.s.ssh.Inspect(boot, c.sb)
	if err != nil {
		return fmt.Errorf("after the rollback of %s: %w", what, err)
	}
	wrong := func(format string, args ...any) error {
		c.tries = c.volume(name) // it answered, and with the wrong things
		return fmt.Errorf("the rollback of %s did not restore the guest: %s: %w", what, fmt.Sprintf(format, args...), orchestrator.ErrUnknownOutcome)
	}
	if facts.Generation != string(name) {
		return wrong("its mark is %q and not %q", facts.Generation, name)
	}
	switch same := c.boots[facts.BootID]; {
	case same && name == canaryDisk:
		return wrong("it was not booted anew")
	case !same && name != canaryDisk:
		return wrong("it was booted anew")
	}
	if err := d.s.ssh.SetClock(boot, c.sb, time.Now()); err != nil {
		return err
	}
	user := accountOf(name)
	text, err := c.run(boot, user, "cat "+accounts[user])
	if err != nil {
		return err
	}
	if text != string(name) {
		return wrong("%s says %q", accounts[user], text)
	}
	c.took = append(c.took, fmt.Sprintf("rollback of %s %s", what, short(took)))
	return nil
}

// run runs a command of ours as any other: judged, and with a permit for
// exactly its bytes. It returns the output.
func (c *canary) run(ctx context.Context, user policy.User, command string) (string, error) {
	v := c.judge.Decide(policy.Request{Command: command, User: user, Profile: c.d.cfg.Policy.Profile})
	permit, ok := v.Permit()
	if !ok {
		return "", fmt.Errorf("run %q in the canary: %w: the policy denies it: %s", command, orchestrator.ErrDenied, v.Reason)
	}
	res, err := c.d.s.ssh.Run(ctx, c.sb, permit, orchestrator.ExecRequest{Timeout: c.d.cfg.Run.Timeout})
	if err != nil {
		return "", err
	}
	if res.ExitCode != 0 {
		return "", fmt.Errorf("run %q in the canary: exit code %d: %s", command, res.ExitCode, strings.TrimSpace(string(res.Stderr)))
	}
	return strings.TrimSpace(string(res.Stdout)), nil
}
