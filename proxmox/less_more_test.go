package proxmox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/networks"
	"savepoint/proxmox"
)

// moreUse is what single commands do besides sandboxes.
func moreUse() proxmox.Use {
	use := labUse()
	use.ManageSDN, use.Collect, use.Look, use.LookAt = true, true, true, []string{labNode}
	use.ImportStorages = []string{"local"}
	return use
}

// F117 F118: every command that needs privileges beyond a sandbox's gets by with
// those that are named for it; with one less it is refused, or it is known what it
// does not see.
func TestOnePrivilegeLessForCommands(t *testing.T) {
	for _, release := range []string{"8.4", "9.2"} {
		t.Run(release, func(t *testing.T) {
			l := startLab(t, version(release)).withTemplate()
			v := proxmox.Version{Major: int(release[0] - '0')}
			all := proxmox.Privileges(labPool, v, moreUse())
			roles, list := proxmox.Roles(all)
			w := &worker{l: l, c: l.newToken("op@pve", roles, list)}
			for _, only := range []string{proxmox.ForNetworks, proxmox.ForTemplates, proxmox.ForGC, proxmox.ForDoctor} {
				if err := w.do(t.Context(), only, labNode); err != nil {
					t.Fatalf("%s with all privileges: %v", only, err)
				}
			}
			missing, err := w.c.MissingPrivileges(t.Context(), v, moreUse())
			if err != nil || len(missing) > 0 {
				t.Fatalf("missing %v, %v", missing, err)
			}
			for _, p := range all {
				if p.Only != "" {
					w.without(t, v, p, roles)
				}
			}
		})
	}
}

// without takes one privilege away on its path alone and tries what it is for.
func (w *worker) without(t *testing.T, v proxmox.Version, p proxmox.Privilege, roles []proxmox.Role) {
	t.Helper()
	name := p.AnyOf[0]
	i := slices.IndexFunc(roles, func(r proxmox.Role) bool { return r.Name == p.Role })
	left := slices.DeleteFunc(slices.Clone(roles[i].Privs), func(n string) bool { return n == name })
	// the role is on other paths too: those keep what they have
	w.l.call("POST", "/access/roles", map[string]any{"roleid": "Less", "privs": strings.Join(left, ",")})
	w.swap(p.Path, p.Role, "Less")
	missing, err := w.c.MissingPrivileges(t.Context(), v, moreUse())
	if err != nil {
		t.Error(err)
	}
	refusal := w.do(t.Context(), p.Only, strings.TrimPrefix(p.Path, "/nodes/"))
	w.swap(p.Path, "Less", p.Role)
	w.l.call("DELETE", "/access/roles/Less", nil)

	madeUp := len(missing) == 0 // another role on that path has it too
	if !madeUp && !slices.ContainsFunc(missing, func(m proxmox.Privilege) bool { return m.String() == p.String() }) {
		t.Errorf("without %s: the doctor misses %v", p, missing)
	}
	switch {
	case name == "SDN.Audit": // its lack hides: what nodes have is not seen
		if refusal == nil || !strings.Contains(refusal.Error(), "is not there on node") {
			t.Errorf("without %s: %v", p, refusal)
		}
	case madeUp || hidden[name] || unproved[name]:
		if refusal != nil {
			t.Errorf("without %s: %v", p, refusal)
		}
	case !errors.Is(refusal, orchestrator.ErrDenied) || !strings.Contains(refusal.Error(), name):
		t.Errorf("without %s: %v", p, refusal)
	}
}

// unproved is what a real cluster asks for and the lab does not: it takes a drive
// for cloud-init for a disk, and not for a drive of CDs.
var unproved = map[string]bool{"VM.Config.CDROM": true}

// worker does what single commands do.
type worker struct {
	l *lab
	c *proxmox.Cluster
	n int
}

func (w *worker) do(ctx context.Context, only, node string) error {
	w.n++
	switch only {
	case proxmox.ForNetworks:
		kept := newStore(w.l.t)
		m := networks.New(networks.Config{Fabric: w.c.SDN(), Store: kept, Wait: 300 * time.Millisecond})
		_, err := m.Apply(ctx, tenants())
		if err == nil {
			var r networks.Result
			if r, err = m.Destroy(ctx); err == nil && len(r.Kept) > 0 { // it says what it does not see
				err = fmt.Errorf("%w: kept %v", orchestrator.ErrDenied, r.Kept)
			}
		}
		// what it could not do is done by who may do everything
		_, aerr := networks.New(networks.Config{Fabric: w.l.admin.SDN(), Store: kept, Wait: 10 * time.Second}).Destroy(ctx)
		must(w.l.t, aerr)
		return err
	case proxmox.ForTemplates:
		_, err := w.c.BuildTemplate(ctx, templateSpec(w.l.t, orchestrator.VMID(9200+w.n), fmt.Sprint(w.n)))
		return err
	case proxmox.ForGC:
		return w.collect(ctx)
	case proxmox.ForDoctor:
		if node != labNode {
			_, err := w.c.Membership(ctx)
			_, berr := w.c.BackupJobs(ctx, nil)
			return errors.Join(err, berr)
		}
		f := w.c.LookAt(ctx, []string{node})[0]
		return errors.Join(f.Skew.Err, f.Packages.Err)
	}
	return fmt.Errorf("nobody knows %q", only)
}

// collect deletes a volume of saved memory that a crash left.
func (w *worker) collect(ctx context.Context) error {
	l := w.l
	r := l.sandbox()
	l.leaveMemory(r, "sp-lost")
	if err := l.server.SetLock(int(r.VM.ID), ""); err != nil {
		return err
	}
	saved, _, err := l.admin.SavedMemories(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(saved, func(s proxmox.SavedMemory) bool { return s.VM == r.VM.ID })
	if i < 0 {
		return fmt.Errorf("there is no volume of %s among %v", r.VM, saved)
	}
	return w.c.DeleteSavedMemory(ctx, r.VM, r.Sandbox, saved[i].ID, nil)
}

// newToken makes a user with a token that has exactly these roles.
func (l *lab) newToken(user string, roles []proxmox.Role, list []proxmox.Grant) *proxmox.Cluster {
	l.t.Helper()
	l.call("POST", "/access/users", map[string]any{"userid": user})
	var made struct{ Value string }
	if err := json.Unmarshal(l.call("POST", "/access/users/"+user+"/token/t1", map[string]any{"privsep": 1}), &made); err != nil {
		l.t.Fatal(err)
	}
	for _, r := range roles {
		l.call("POST", "/access/roles", map[string]any{"roleid": r.Name, "privs": strings.Join(r.Privs, ",")})
	}
	for _, g := range list {
		l.call("PUT", "/access/acl", map[string]any{"path": g.Path, "users": user, "tokens": user + "!t1", "roles": g.Role})
	}
	return l.open(func(c *proxmox.Config) { c.TokenID, c.TokenSecret = user+"!t1", proxmox.Secret(made.Value) })
}

// swap puts one role in the place of another on a path.
func (w *worker) swap(path, from, to string) {
	entry := map[string]any{"path": path, "users": "op@pve", "tokens": "op@pve!t1", "roles": to}
	w.l.call("PUT", "/access/acl", entry)
	entry["roles"], entry["delete"] = from, 1
	w.l.call("PUT", "/access/acl", entry)
}
