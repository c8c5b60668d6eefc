package conformance

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// HypervisorSubject is a cluster with a template, and the Hypervisor to be
// tested on it.
type HypervisorSubject struct {
	Hypervisor orchestrator.Hypervisor
	Template   orchestrator.VMRef
	Foreign    orchestrator.VMRef                // a stopped VM that is not ours
	NewVM      func() orchestrator.VMRef         // a place that is free, another at every call
	NewSandbox func() orchestrator.SandboxID     // another at every call
	NewAddress func() (netip.Prefix, netip.Addr) // another at every call, with its gateway
}

// HypervisorCaps is what an implementation can do.
type HypervisorCaps struct {
	Tasks    bool          // Started is called with the name of a task
	Parallel int           // clones at once; 0 = 4
	Timeout  time.Duration // of one test; 0 = 1 min
}

// HypervisorFactory makes a fresh subject and registers its clean-up.
type HypervisorFactory func(t *testing.T) HypervisorSubject

// Hypervisor runs the suite.
func Hypervisor(t *testing.T, factory HypervisorFactory, caps HypervisorCaps) {
	t.Helper()
	if caps.Parallel == 0 {
		caps.Parallel = 4
	}
	if caps.Timeout == 0 {
		caps.Timeout = time.Minute
	}
	tests := []struct {
		name string
		run  func(h *hypervisorTest)
		when bool
	}{
		{"a clone is owned, named and stopped", (*hypervisorTest).cloneOwned, true},
		{"a full clone works", (*hypervisorTest).fullClone, true},
		{"start and stop are idempotent", (*hypervisorTest).power, true},
		{"destroy removes and is idempotent, F45 F47", (*hypervisorTest).destroy, true},
		{"a taken id is ErrExists and untouched, F42 F121", (*hypervisorTest).taken, true},
		{"another owner is ErrDenied, F121", (*hypervisorTest).otherOwner, true},
		{"a foreign vm is ErrDenied, F123", (*hypervisorTest).foreign, true},
		{"the template is never touched, F40", (*hypervisorTest).template, true},
		{"impossible ids are refused, F45", (*hypervisorTest).impossibleIDs, true},
		{"a missing template is ErrNotFound", (*hypervisorTest).missingTemplate, true},
		{"a missing vm is ErrNotFound", (*hypervisorTest).missing, true},
		{"parallel clones all succeed, F34 F35", (*hypervisorTest).parallel, true},
		{"an ended context does nothing", (*hypervisorTest).endedContext, true},
		{"started is told", (*hypervisorTest).startedTold, caps.Tasks},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if !tc.when {
				t.Skip("not a capability of this implementation")
			}
			ctx, cancel := context.WithTimeout(t.Context(), caps.Timeout)
			defer cancel()
			tc.run(&hypervisorTest{T: t, ctx: ctx, caps: caps, s: factory(t)})
		})
	}
}

type hypervisorTest struct {
	*testing.T
	ctx  context.Context
	caps HypervisorCaps
	s    HypervisorSubject
}

func (t *hypervisorTest) ok(what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

const someKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f test"

func (t *hypervisorTest) request(name string) orchestrator.CloneRequest {
	address, gateway := t.s.NewAddress()
	return orchestrator.CloneRequest{
		VMRequest: orchestrator.VMRequest{Sandbox: t.s.NewSandbox(), VM: t.s.NewVM()},
		Template:  t.s.Template, Name: name, SSHKeys: []string{someKey}, Address: address, Gateway: gateway,
	}
}

func (t *hypervisorTest) clone(name string) orchestrator.VMRequest {
	t.Helper()
	r := t.request(name)
	t.ok("clone", t.s.Hypervisor.Clone(t.ctx, r))
	return r.VMRequest
}

func (t *hypervisorTest) status(vm orchestrator.VMRef) orchestrator.VMStatus {
	t.Helper()
	st, err := t.s.Hypervisor.Status(t.ctx, vm)
	t.ok("status", err)
	return st
}

func (t *hypervisorTest) want(vm orchestrator.VMRef, want orchestrator.VMStatus) {
	t.Helper()
	if got := t.status(vm); got != want {
		t.Fatalf("status of %s = %+v, want %+v", vm, got, want)
	}
}

func (t *hypervisorTest) cloneOwned() {
	r := t.clone("sb-one")
	t.want(r.VM, orchestrator.VMStatus{Name: "sb-one", Owner: r.Sandbox})
}

func (t *hypervisorTest) fullClone() {
	r := t.request("sb-full")
	r.Full = true
	t.ok("clone", t.s.Hypervisor.Clone(t.ctx, r))
	t.want(r.VM, orchestrator.VMStatus{Name: "sb-full", Owner: r.Sandbox})
}

func (t *hypervisorTest) power() {
	r := t.clone("sb-one")
	for range 2 {
		t.ok("start", t.s.Hypervisor.Start(t.ctx, r))
		t.want(r.VM, orchestrator.VMStatus{Name: "sb-one", Owner: r.Sandbox, Running: true})
	}
	for range 2 {
		t.ok("stop", t.s.Hypervisor.Stop(t.ctx, r))
		t.want(r.VM, orchestrator.VMStatus{Name: "sb-one", Owner: r.Sandbox})
	}
}

func (t *hypervisorTest) destroy() {
	r := t.clone("sb-one")
	t.ok("start", t.s.Hypervisor.Start(t.ctx, r))
	t.ok("stop", t.s.Hypervisor.Stop(t.ctx, r))
	for range 2 {
		t.ok("destroy", t.s.Hypervisor.Destroy(t.ctx, r))
		_, err := t.s.Hypervisor.Status(t.ctx, r.VM)
		wantClass(t.T, "status", err, orchestrator.ErrNotFound)
	}
}

func (t *hypervisorTest) taken() {
	first := t.clone("sb-one")
	for _, vm := range []orchestrator.VMRef{first.VM, t.s.Foreign} {
		before := t.status(vm)
		r := t.request("sb-two")
		r.VM = vm
		wantClass(t.T, "clone", t.s.Hypervisor.Clone(t.ctx, r), orchestrator.ErrExists)
		t.want(vm, before)
	}
}

// denied makes every destructive call and expects a denial.
func (t *hypervisorTest) denied(r orchestrator.VMRequest) {
	t.Helper()
	before := t.status(r.VM)
	wantClass(t.T, "start", t.s.Hypervisor.Start(t.ctx, r), orchestrator.ErrDenied)
	wantClass(t.T, "stop", t.s.Hypervisor.Stop(t.ctx, r), orchestrator.ErrDenied)
	wantClass(t.T, "destroy", t.s.Hypervisor.Destroy(t.ctx, r), orchestrator.ErrDenied)
	t.want(r.VM, before)
}

func (t *hypervisorTest) otherOwner() {
	r := t.clone("sb-one")
	t.ok("start", t.s.Hypervisor.Start(t.ctx, r))
	t.denied(orchestrator.VMRequest{Sandbox: t.s.NewSandbox(), VM: r.VM})
	t.denied(orchestrator.VMRequest{VM: r.VM})
}

func (t *hypervisorTest) foreign() {
	if st := t.status(t.s.Foreign); st.Owner != "" {
		t.Fatalf("the foreign vm has the owner %q", st.Owner)
	}
	t.denied(orchestrator.VMRequest{Sandbox: t.s.NewSandbox(), VM: t.s.Foreign})
	t.denied(orchestrator.VMRequest{VM: t.s.Foreign})
}

func (t *hypervisorTest) template() {
	st := t.status(t.s.Template)
	if !st.Template || st.Owner != "" {
		t.Fatalf("template status = %+v", st)
	}
	t.denied(orchestrator.VMRequest{Sandbox: t.s.NewSandbox(), VM: t.s.Template})
	r := t.request("sb-one")
	r.VM = t.s.Template
	if err := t.s.Hypervisor.Clone(t.ctx, r); err == nil {
		t.Error("cloned a template onto itself")
	}
	t.want(t.s.Template, st)
}

func (t *hypervisorTest) impossibleIDs() {
	for _, id := range []orchestrator.VMID{0, -1, 99, 1_000_000_000} {
		r := t.request("sb-one")
		r.VM.ID = id
		if err := t.s.Hypervisor.Clone(t.ctx, r); err == nil {
			t.Errorf("cloned to id %d", id)
		}
		if err := t.s.Hypervisor.Destroy(t.ctx, r.VMRequest); err == nil {
			t.Errorf("destroyed id %d", id)
		}
	}
}

func (t *hypervisorTest) missingTemplate() {
	r := t.request("sb-one")
	r.Template.ID = t.s.NewVM().ID
	wantClass(t.T, "clone", t.s.Hypervisor.Clone(t.ctx, r), orchestrator.ErrNotFound)
	_, err := t.s.Hypervisor.Status(t.ctx, r.VM)
	wantClass(t.T, "status", err, orchestrator.ErrNotFound)
}

func (t *hypervisorTest) missing() {
	r := orchestrator.VMRequest{Sandbox: t.s.NewSandbox(), VM: t.s.NewVM()}
	_, err := t.s.Hypervisor.Status(t.ctx, r.VM)
	wantClass(t.T, "status", err, orchestrator.ErrNotFound)
	wantClass(t.T, "start", t.s.Hypervisor.Start(t.ctx, r), orchestrator.ErrNotFound)
	wantClass(t.T, "stop", t.s.Hypervisor.Stop(t.ctx, r), orchestrator.ErrNotFound)
	t.ok("destroy", t.s.Hypervisor.Destroy(t.ctx, r))
}

func (t *hypervisorTest) parallel() {
	requests := make([]orchestrator.CloneRequest, t.caps.Parallel)
	for i := range requests {
		requests[i] = t.request(fmt.Sprintf("sb-%d", i))
	}
	errs := make([]error, len(requests))
	var wg sync.WaitGroup
	for i, r := range requests {
		wg.Go(func() { errs[i] = t.s.Hypervisor.Clone(t.ctx, r) })
	}
	wg.Wait()
	for i, r := range requests {
		t.ok(r.Name, errs[i])
		t.want(r.VM, orchestrator.VMStatus{Name: r.Name, Owner: r.Sandbox})
	}
}

func (t *hypervisorTest) endedContext() {
	r := t.request("sb-one")
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	if err := t.s.Hypervisor.Clone(ctx, r); err == nil {
		t.Error("clone with an ended context returned nil")
	}
	_, err := t.s.Hypervisor.Status(t.ctx, r.VM)
	wantClass(t.T, "status", err, orchestrator.ErrNotFound)
}

func (t *hypervisorTest) startedTold() {
	var ids []orchestrator.UPID
	r := t.request("sb-one")
	r.Started = func(id orchestrator.UPID) error { ids = append(ids, id); return nil }
	t.ok("clone", t.s.Hypervisor.Clone(t.ctx, r))
	t.ok("start", t.s.Hypervisor.Start(t.ctx, r.VMRequest))
	t.ok("stop", t.s.Hypervisor.Stop(t.ctx, r.VMRequest))
	t.ok("destroy", t.s.Hypervisor.Destroy(t.ctx, r.VMRequest))
	if len(ids) != 4 {
		t.Fatalf("started was told %q, want four tasks", ids)
	}
	seen := map[orchestrator.UPID]bool{}
	for _, id := range ids {
		if id == "" || seen[id] {
			t.Errorf("started was told %q", ids)
		}
		seen[id] = true
	}
}
