package zfs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"savepoint/orchestrator"
)

// Config is what Snapshots needs. Instance, Sandbox, Node and Guest are required.
type Config struct {
	Instance string // this savepoint's, as on the tags of its VMs
	// Sandbox returns the sandbox that a VM is; ErrNotFound when it is none.
	Sandbox func(ctx context.Context, vm orchestrator.VMRef) (orchestrator.Sandbox, error)
	Node    Node
	Guest   Guest
	// Reserve is how many bytes must be free for a new snapshot, so that
	// what is there can still be rolled back and deleted. 0 = 256 MiB.
	Reserve int64
	// Freeze is the longest that a guest is frozen. 0 = 10 s.
	Freeze time.Duration
	// Settle is how long thawing and mounting are tried when ctx has ended.
	// 0 = 30 s.
	Settle time.Duration
}

// Snapshots implements orchestrator.Snapshotter for workspace volumes. It is
// safe for use by several goroutines; those of one sandbox must come one after
// the other, as the engine does it.
type Snapshots struct{ c Config }

// New returns the driver.
func New(c Config) (*Snapshots, error) {
	if !instanceRE.MatchString(c.Instance) || c.Sandbox == nil || c.Node == nil || c.Guest == nil {
		return nil, fmt.Errorf("workspace snapshots: instance %q, sandboxes, node and guest are needed", c.Instance)
	}
	if c.Reserve == 0 {
		c.Reserve = 256 << 20
	}
	if c.Freeze == 0 {
		c.Freeze = 10 * time.Second
	}
	if c.Settle == 0 {
		c.Settle = 30 * time.Second
	}
	return &Snapshots{c}, nil
}

var _ orchestrator.Snapshotter = (*Snapshots)(nil)

var (
	instanceRE = regexp.MustCompile(`\A[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?\z`)
	nameRE     = regexp.MustCompile(`\A[A-Za-z][A-Za-z0-9_-]{1,39}\z`)
)

// Claim marks the sandbox's dataset as the sandbox's. It is called once, when the
// sandbox is made; to repeat it does nothing.
func (s *Snapshots) Claim(ctx context.Context, sb orchestrator.Sandbox) error {
	t, err := s.target("claim", sb)
	if err != nil {
		return err
	}
	_, err = s.c.Node.Claim(ctx, t)
	return err
}

func (s *Snapshots) target(op string, sb orchestrator.Sandbox) (Target, error) {
	if sb.Workspace == "" {
		return Target{}, &orchestrator.UnsupportedError{What: fmt.Sprintf("%s: sandbox %s has no workspace volume", op, sb.Name), Mend: "use boundary disk or machine"}
	}
	return Target{Node: sb.VM.Node, Dataset: sb.Workspace, Owner: s.c.Instance + "/" + string(sb.ID)}, nil
}

// job is one call of the port.
type job struct {
	op, subject string
	sb          orchestrator.Sandbox
	t           Target
	name        orchestrator.SnapshotName
}

func (j job) fail(class error, cause, mend string) error {
	return &failure{op: j.op, subject: j.subject, class: class, cause: cause, mend: mend}
}

// begin checks what can be checked here: name, sandbox and owner.
func (s *Snapshots) begin(ctx context.Context, op string, r orchestrator.SnapshotRequest) (job, error) {
	j := job{op: op + " workspace snapshot " + string(r.Name) + " of", subject: r.VM.String(), name: r.Name}
	if l := strings.ToLower(string(r.Name)); !nameRE.MatchString(l) || l == "current" || l == "pending" {
		return j, j.fail(orchestrator.ErrDenied, "not the name of a snapshot", "use 2 to 40 letters, digits, '_' and '-', a letter first")
	}
	if err := ctx.Err(); err != nil {
		return j, as(j.op, j.subject, err, orchestrator.ErrUnavailable)
	}
	sb, err := s.c.Sandbox(ctx, r.VM)
	if err != nil {
		return j, as(j.op, j.subject, err, nil)
	}
	if r.Sandbox == "" || sb.ID != r.Sandbox {
		return j, j.fail(orchestrator.ErrDenied, fmt.Sprintf("it belongs to sandbox %q, not %q", sb.ID, r.Sandbox), "")
	}
	j.sb = sb
	j.t, err = s.target(j.op, sb)
	return j, err
}

// Create takes a snapshot of the workspace while the guest holds its writes.
// *orchestrator.FullError: the pool has too little room.
func (s *Snapshots) Create(ctx context.Context, r orchestrator.SnapshotRequest) error {
	j, err := s.begin(ctx, "create", r)
	if err != nil {
		return err
	}
	if r.Memory {
		return &orchestrator.UnsupportedError{What: j.op + " " + j.subject + ": a workspace has no memory", Mend: "use boundary machine"}
	}
	frozen := time.Now()
	v, made, err := s.frozen(ctx, j, func(ctx context.Context) (Volume, error) {
		return s.c.Node.Snapshot(ctx, j.t, j.name, r.Description, s.c.Reserve)
	})
	switch took := made.Sub(frozen); {
	case err != nil:
		return err
	case took >= s.c.Freeze:
		return s.dropTorn(ctx, j, took)
	}
	if i := v.find(j.name); i < 0 || i != len(v.Taken)-1 || v.Taken[i].Owner != j.t.Owner {
		return j.fail(orchestrator.ErrUnknownOutcome, "the node does not list it as the newest, with its owner", "another tool takes snapshots of this dataset: turn it off")
	}
	return nil
}

// frozen does something while the guest holds its writes, and thaws it on every
// path. made is when it was done.
func (s *Snapshots) frozen(ctx context.Context, j job, do func(context.Context) (Volume, error)) (v Volume, made time.Time, err error) {
	defer func() { // also when it was not frozen as far as anybody knows
		if terr := s.settle(ctx, func(ctx context.Context) error { return s.c.Guest.Thaw(ctx, j.sb) }); terr != nil && err == nil {
			err = j.fail(orchestrator.ErrUnknownOutcome, fmt.Sprintf("it was taken, but the guest was not seen to thaw: %v", terr), fmt.Sprintf("the guest thaws by itself within %s", s.c.Freeze))
		}
	}()
	fctx, cancel := context.WithTimeout(ctx, s.c.Freeze)
	defer cancel()
	if err := s.c.Guest.Freeze(fctx, j.sb, s.c.Freeze); err != nil {
		class := classOf(err)
		if unknown(err) { // a freeze that ends by itself leaves nothing behind
			class = orchestrator.ErrUnavailable
		}
		return v, made, as(j.op, j.subject, fmt.Errorf("freeze the workspace: %w", err), class)
	}
	v, err = do(fctx)
	if err != nil {
		err = as(j.op, j.subject, err, nil)
	}
	return v, time.Now(), err
}

// dropTorn deletes a snapshot that was taken when the guest may have thawed.
func (s *Snapshots) dropTorn(ctx context.Context, j job, took time.Duration) error {
	err := s.settle(ctx, func(ctx context.Context) error {
		_, err := s.c.Node.Delete(ctx, j.t, j.name)
		return err
	})
	cause := fmt.Sprintf("the node took %s, longer than the guest's writes were held", took.Round(time.Millisecond))
	if err != nil {
		return j.fail(orchestrator.ErrUnknownOutcome, fmt.Sprintf("%s, and the snapshot was not deleted: %v", cause, err), "delete it")
	}
	return j.fail(orchestrator.ErrUnavailable, cause+"; the snapshot was deleted", "try again when the node is less busy")
}

// settle repeats what must be done whatever becomes of ctx, within a deadline
// of its own. A denial is final.
func (s *Snapshots) settle(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.c.Settle)
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := do(ctx)
		if err == nil || errors.Is(err, orchestrator.ErrDenied) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// Rollback restores the workspace. The VM runs on; what the agent runs in it is
// ended. *orchestrator.NotLatestError leaves everything as it was.
func (s *Snapshots) Rollback(ctx context.Context, r orchestrator.SnapshotRequest) error {
	j, err := s.begin(ctx, "roll back to", r)
	if err != nil {
		return err
	}
	v, err := s.c.Node.List(ctx, j.t)
	if err != nil {
		return as(j.op, j.subject, err, nil)
	}
	if err := j.possible(v); err != nil {
		return err
	}
	if err := s.c.Guest.Unmount(ctx, j.sb); err != nil {
		class := classOf(err)
		if unknown(err) { // the volume is as it was; what the agent ran may be gone
			class = orchestrator.ErrUnavailable
		}
		return as(j.op, j.subject, fmt.Errorf("unmount the workspace: %w", err), class)
	}
	v, err = s.c.Node.Rollback(ctx, j.t, j.name)
	if err != nil {
		if unknown(err) {
			return as(j.op, j.subject, fmt.Errorf("%w; the workspace stays unmounted until it is rolled back again", err), nil)
		}
		return s.remount(ctx, j, s.refused(ctx, j, err))
	}
	if err := s.mount(ctx, j); err != nil {
		class := classOf(err)
		if !errors.Is(err, orchestrator.ErrDenied) {
			class = orchestrator.ErrUnknownOutcome
		}
		return as(j.op, j.subject, fmt.Errorf("it was restored, but the guest does not mount it: %w", err), class)
	}
	if i := v.find(j.name); i < 0 || i != len(v.Taken)-1 {
		return j.fail(orchestrator.ErrUnknownOutcome, "the node does not list it as the newest", "another tool takes snapshots of this dataset: turn it off")
	}
	return nil
}

// possible checks on the node's word, before anything is touched.
func (j job) possible(v Volume) error {
	i := v.find(j.name)
	switch {
	case v.Owner != j.t.Owner:
		return j.fail(orchestrator.ErrDenied, fmt.Sprintf("%s has the owner %q, not %q", v.Dataset, v.Owner, j.t.Owner), "")
	case i < 0:
		return j.fail(orchestrator.ErrNotFound, "there is no such snapshot", "nothing was changed")
	case v.Taken[i].Owner != j.t.Owner:
		return j.fail(orchestrator.ErrDenied, fmt.Sprintf("the snapshot has the owner %q, not %q", v.Taken[i].Owner, j.t.Owner), "")
	}
	if newer := v.newer(j.name); len(newer) > 0 {
		return j.fail(&orchestrator.NotLatestError{Name: j.name, Newer: newer}, fmt.Sprintf("newer than it are %v", newer), "delete the newer snapshots first")
	}
	return nil
}

// refused finds the names of snapshots that came in the way after the look.
func (s *Snapshots) refused(ctx context.Context, j job, err error) error {
	var newer *orchestrator.NotLatestError
	if errors.As(err, &newer) {
		if v, lerr := s.c.Node.List(ctx, j.t); lerr == nil {
			if perr := j.possible(v); errors.As(perr, &newer) {
				return perr
			}
		}
	}
	return as(j.op, j.subject, err, nil)
}

// remount gives the guest its workspace back after a rollback that was not
// done. The first cause stays the error's class.
func (s *Snapshots) remount(ctx context.Context, j job, cause error) error {
	if err := s.mount(ctx, j); err != nil {
		return as(j.op, j.subject, fmt.Errorf("%w; and the guest does not mount it again: %v", cause, err), classOf(cause))
	}
	return cause
}

func (s *Snapshots) mount(ctx context.Context, j job) error {
	return s.settle(ctx, func(ctx context.Context) error { return s.c.Guest.Mount(ctx, j.sb) })
}

// Delete removes a snapshot; a missing one is no error.
func (s *Snapshots) Delete(ctx context.Context, r orchestrator.SnapshotRequest) error {
	j, err := s.begin(ctx, "delete", r)
	if err != nil {
		return err
	}
	v, err := s.c.Node.Delete(ctx, j.t, j.name)
	if err != nil {
		return as(j.op, j.subject, err, nil)
	}
	if v.find(j.name) >= 0 {
		return j.fail(orchestrator.ErrUnknownOutcome, "the node still lists it", "delete it again")
	}
	return nil
}

// List returns the snapshots of the VM's workspace, oldest first; none when it
// has no workspace. Foreign ones are among them.
func (s *Snapshots) List(ctx context.Context, vm orchestrator.VMRef) ([]orchestrator.Snapshot, error) {
	const op = "list workspace snapshots of"
	sb, err := s.c.Sandbox(ctx, vm)
	if err != nil {
		return nil, as(op, vm.String(), err, nil)
	}
	if sb.Workspace == "" {
		return nil, nil
	}
	t, err := s.target(op, sb)
	if err != nil {
		return nil, err
	}
	v, err := s.c.Node.List(ctx, t)
	if err != nil {
		return nil, as(op, vm.String(), err, nil)
	}
	if v.Owner != t.Owner {
		return nil, &failure{op: op, subject: vm.String(), class: orchestrator.ErrDenied, cause: fmt.Sprintf("%s has the owner %q, not %q", v.Dataset, v.Owner, t.Owner)}
	}
	return v.snapshots(), nil
}
