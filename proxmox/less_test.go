package proxmox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"savepoint/orchestrator"
	"savepoint/proxmox"
)

// F117 F118: with the role that the doctor asks for a sandbox's whole life goes
// well; with one privilege less something in it is refused, and the refusal
// names what the cluster named.
func TestOnePrivilegeLess(t *testing.T) {
	for _, release := range []string{"8.4", "9.2"} {
		t.Run(release, func(t *testing.T) {
			l := startLab(t, version(release)).withTemplate()
			if err := l.life(t.Context()); err != nil {
				t.Fatalf("with all privileges: %v", err)
			}
			v := proxmox.Version{Major: int(release[0] - '0')}
			granted := map[string][]string{}
			for _, p := range l.cluster.Privileges(v, labUse()) {
				granted[p.Path] = append(granted[p.Path], p.AnyOf[0])
			}
			for _, p := range l.cluster.Privileges(v, labUse()) {
				left := slices.DeleteFunc(slices.Clone(granted[p.Path]), func(name string) bool { return name == p.AnyOf[0] })
				l.grant(p.Path, left)
				missing, err := l.cluster.MissingPrivileges(t.Context(), v, labUse())
				if err != nil {
					t.Error(err)
				}
				refusal := l.life(t.Context())
				l.grant(p.Path, granted[p.Path])
				// the template is in the pool, and so has what the pool's role gives
				has := slices.Concat(left, granted["/pool/"+labPool])
				if p.Path != "/vms/9000" {
					has = left
				}
				if slices.ContainsFunc(p.AnyOf, func(name string) bool { return slices.Contains(has, name) }) {
					if len(missing) != 0 || refusal != nil {
						t.Errorf("without %s, which something else makes up for: the doctor misses %v, %v", p, missing, refusal)
					}
					continue
				}
				if len(missing) != 1 || missing[0].String() != p.String() {
					t.Errorf("without %s: the doctor misses %v", p, missing)
				}
				judge(t, p, refusal)
			}
		})
	}
}

// grant gives the ordinary token exactly these privileges on a path.
func (l *lab) grant(path string, privs []string) {
	l.call("PUT", "/access/roles/SP"+strings.ReplaceAll(path, "/", "-"), map[string]any{"privs": strings.Join(privs, ",")})
}

// judge looks at how a sandbox's life ended without a privilege.
func judge(t *testing.T, p proxmox.Privilege, err error) {
	t.Helper()
	name := p.AnyOf[0]
	switch {
	case hidden[name]:
		if err != nil {
			t.Errorf("without %s: %v", p, err)
		}
	case !errors.Is(err, orchestrator.ErrDenied):
		t.Errorf("without %s: %v", p, err)
	case !silent[name] && !strings.Contains(err.Error(), name):
		t.Errorf("without %s the refusal does not name it: %v", p, err)
	}
}

// What the cluster refuses without naming a privilege, and what it does not
// refuse but hides.
var (
	silent = map[string]bool{"VM.Allocate": true}
	hidden = map[string]bool{"Datastore.Audit": true}
)

// life is all that is done with a sandbox.
func (l *lab) life(ctx context.Context) error {
	r := l.cloneRequest()
	serveKey(l, r.VM.ID, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f root@box\n")
	snap := orchestrator.SnapshotRequest{Sandbox: r.Sandbox, VM: r.VM, Name: "sp-one"}
	for _, step := range []func() error{
		func() error { return l.cluster.VMs().Clone(ctx, r) },
		func() error { return l.cluster.VMs().Start(ctx, r.VMRequest) },
		func() error { _, err := l.cluster.HostKey(ctx, r.VM); return err },
		func() error { return l.cluster.Snapshots().Create(ctx, snap) },
		func() error { return l.cluster.Snapshots().Rollback(ctx, snap) },
		func() error { return l.cluster.Snapshots().Delete(ctx, snap) },
		func() error { return l.cluster.VMs().Stop(ctx, r.VMRequest) },
		func() error { return l.cluster.VMs().Destroy(ctx, r.VMRequest) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
