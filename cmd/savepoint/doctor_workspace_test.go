package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/orchestrator/provision"
	"savepoint/orchestrator/sshexec"
	"savepoint/testbed/jump"
	"savepoint/testbed/pve"
)

// zfsNode answers as savepoint-zfs on a node does: for one prefix, with one
// dataset.
type zfsNode struct {
	prefix, dataset, owner string
	snapshots              map[string]string // name → owner
}

func (z *zfsNode) Run(_ context.Context, in io.Reader, out, _ io.Writer) int {
	request, err := io.ReadAll(in)
	if err != nil {
		return 1
	}
	var b strings.Builder
	b.WriteString("savepoint-zfs 1\n")
	row := func(name, property, value, source string) {
		fmt.Fprintf(&b, "= %s\t%s\t%s\t%s\n", name, property, value, source)
	}
	if strings.Contains(string(request), "do hello") {
		row(z.prefix, "prefix", "-", "-")
	} else {
		row(z.dataset, "savepoint:owner", z.owner, "local")
		row(z.dataset, "available", "1000", "-")
		for name, owner := range z.snapshots {
			row(z.dataset+"@"+name, "createtxg", "7", "-")
			row(z.dataset+"@"+name, "savepoint:owner", owner, "local")
		}
	}
	b.WriteString("end ok\n")
	_, err = io.WriteString(out, b.String())
	if err != nil {
		return 1
	}
	return 0
}

// tankCluster is a cluster of one node with a ZFS pool, and with the template.
func tankCluster(t *testing.T, dir string) *cluster {
	t.Helper()
	c, err := startCluster(dir, []string{"pve1"}, pve.Storage{ID: "local"}, pve.Storage{ID: "tank", Type: "zfspool"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	if err := c.buildTemplate(t.Context(), dir, "local"); err != nil {
		t.Fatal(err)
	}
	return c
}

// The driver is the one that is written, or follows from the storage's type. A
// sandbox keeps the one it was made with.
func TestWorkspaceDriver(t *testing.T) {
	dir := t.TempDir()
	c := tankCluster(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, tt := range []struct{ driver, storage, want, text string }{
		{"auto", "local", driverBtrfs, "storage local is of type dir"},
		{"btrfs", "tank", driverBtrfs, "workspace.driver says so"},
		{"auto", "tank", "", "workspace.nodes does not say how its nodes are reached"},
		{"auto", "nowhere", "", "no storage of that name"},
	} {
		t.Run(tt.driver+" "+tt.storage, func(t *testing.T) {
			a := &app{out: io.Discard, err: io.Discard, getenv: func(string) string { return "" }, format: formatText}
			cfg := c.config
			cfg.Workspace.Storage, cfg.Workspace.Driver = tt.storage, tt.driver
			s, err := a.openWith(ctx, cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := a.close(); err != nil {
					t.Error(err)
				}
			}()
			got, why, err := s.workspaces.driver(ctx)
			if got != tt.want || (err == nil) != (tt.want != "") || !strings.Contains(why+fmt.Sprint(err), tt.text) {
				t.Errorf("%q, %q, %v", got, why, err)
			}
			d := &doctor{s: s, cfg: cfg}
			d.workspaces(ctx)
			if len(d.findings) != 1 || (d.findings[0].Level == levelOK) != (tt.want != "") || !strings.Contains(d.findings[0].Detail+d.findings[0].Mend, tt.text) {
				t.Errorf("%+v", d.findings)
			}
		})
	}
}

// A sandbox keeps the driver it was made with. Nothing asks a guest for what goes
// back with the whole VM: it may be the guest that is broken.
func TestWorkspaceOfSandbox(t *testing.T) {
	sb := orchestrator.Sandbox{ID: "01box", Name: "box", VM: orchestrator.VMRef{Node: "pve1", ID: 9001}}
	find := func(context.Context, orchestrator.VMRef) (orchestrator.Sandbox, error) { return sb, nil }
	id, err := sshexec.CreateIdentity(t.TempDir()+"/id", "test")
	if err != nil {
		t.Fatal(err)
	}
	client, err := sshexec.New(sshexec.Config{Identities: []sshexec.Identity{id}})
	if err != nil {
		t.Fatal(err)
	}
	inside, err := sshexec.NewBtrfs(sshexec.BtrfsConfig{Client: client, Instance: "one", Sandbox: find,
		Running: func(context.Context, orchestrator.VMRef) (bool, error) { return false, nil }})
	if err != nil {
		t.Fatal(err)
	}
	w := &workspaces{inside: inside, sandbox: find, storage: "local", wanted: "auto"}
	ctx := t.Context()

	sb.Workspace = sshexec.BtrfsWorkspace
	if list, err := (resetVolumes{w}).List(ctx, sb.VM); err != nil || len(list) != 0 || !w.Inside(ctx, sb.VM) || w.Claim(ctx, sb) != nil {
		t.Errorf("before a reset: %v, %v", list, err)
	}
	if _, err := w.List(ctx, sb.VM); !errors.Is(err, orchestrator.ErrUnavailable) || !strings.Contains(err.Error(), "switched off") {
		t.Errorf("of a VM that is off: %v", err)
	}
	sb.Workspace = "tank/vm-9001-disk-1"
	var never *orchestrator.UnsupportedError
	if _, err := w.List(ctx, sb.VM); !errors.As(err, &never) || w.Inside(ctx, sb.VM) {
		t.Errorf("of a volume on ZFS without workspace.nodes: %v", err)
	}
	if _, err := (resetVolumes{w}).List(ctx, sb.VM); !errors.As(err, &never) {
		t.Errorf("before a reset: %v", err)
	}
}

// F70 F73: the doctor asks every node whether our account can work there, and
// names the snapshots of others on our volumes.
func TestDoctorWorkspaces(t *testing.T) {
	dir := t.TempDir()
	c := tankCluster(t, dir)
	id, err := sshexec.LoadIdentity(c.config.SSH.IdentityFile)
	if err != nil {
		t.Fatal(err)
	}
	z := &zfsNode{prefix: "tank", dataset: "tank/vm-9000-disk-1"}
	node, err := jump.Listen(jump.Config{Dir: t.TempDir(), Commands: map[string]jump.Command{
		"savepoint-zfs": {Authorized: []string{id.AuthorizedKey()}, Run: z.Run},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	cfg := c.config
	cfg.Workspace.Storage, cfg.Workspace.IdentityFile = "tank", cfg.SSH.IdentityFile
	cfg.Workspace.Nodes = []configs.NodeSSH{{Name: "pve1", Address: node.Addr().String(), HostKey: node.HostKey()}}
	a := &app{out: io.Discard, err: io.Discard, getenv: func(string) string { return "" }, format: formatText}
	defer func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := a.openWith(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	plain := s.prov.With(func(p *provision.Config) { p.Workspaces = nil }) // the template has no volume
	sb, err := plain.Create(ctx, "box", provision.Wish{})
	if err != nil {
		t.Fatal(err)
	}
	sb.Workspace = z.dataset
	z.owner = s.cluster.Instance() + "/" + string(sb.ID)
	z.snapshots = map[string]string{"sp-old": z.owner, string(provision.Pristine): ""}
	look := func() []finding {
		d := &doctor{s: s, cfg: cfg, boxes: []orchestrator.Sandbox{sb}}
		if d.sites, err = s.cluster.Sites(ctx, cfg.Sandbox.Template); err != nil {
			t.Fatal(err)
		}
		d.facts = s.cluster.LookAt(ctx, []string{"pve1"})
		d.workspaces(ctx)
		return d.findings
	}
	want := func(level string, texts ...string) {
		t.Helper()
		fs := look()
		i := slices.IndexFunc(fs, func(f finding) bool { return f.Level == level })
		if i < 0 {
			t.Fatalf("no %s among %+v", level, fs)
		}
		for _, text := range texts {
			if !strings.Contains(fs[i].Detail+" | "+fs[i].Mend, text) {
				t.Errorf("%q is not in %+v", text, fs[i])
			}
		}
		if level == levelOK && len(fs) != 1 {
			t.Errorf("there is more: %+v", fs)
		}
	}
	want(levelOK, "pve1: our account works on tank")

	z.snapshots["zfs-auto-snap_daily"] = ""
	want(levelWarning, "snapshot zfs-auto-snap_daily of tank/vm-9000-disk-1, the volume of sandbox box, is not ours", "on pve1: zfs destroy tank/vm-9000-disk-1@zfs-auto-snap_daily")
	delete(z.snapshots, "zfs-auto-snap_daily")

	z.owner = "somebody/else"
	want(levelProblem, `has the owner "somebody/else"`)
	z.owner = s.cluster.Instance() + "/" + string(sb.ID)

	z.prefix = "rpool/other"
	want(levelProblem, "our account is for rpool/other, and storage tank is on tank", "zfs allow -u savepoint-zfs")
	z.prefix = "tank"
	want(levelOK)

	node.Close()
	want(levelProblem, "doctor --setup")
}
