package proxmox_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/proxmox"
	"savepoint/testbed/pve"
)

// threeNodes makes a lab of a cluster.
func threeNodes(c *pve.Config) { c.Nodes = []string{"pve1", "pve2", "pve3"} }

// F94: what nodes say of themselves is asked for one by one, and what a token may
// not ask is told from what could not be answered.
func TestNodeFacts(t *testing.T) {
	for _, release := range []string{"8.4", "9.2"} {
		t.Run(release, func(t *testing.T) {
			l := startLab(t, version(release), threeNodes)
			ends := time.Now().Add(-time.Hour).Truncate(time.Second)
			must(t, l.server.SetFacts("pve2", pve.Facts{
				Skew: -90 * time.Second, CertificateEnds: ends, Version: "8.3.1", Packages: map[string]string{"frr-pythontools": "", "frr": "10.1"},
				Free: map[string]int64{"local": 1000},
			}))
			facts := l.admin.LookAt(t.Context(), []string{"pve1", "pve2"})
			one, two := facts[0], facts[1]
			for _, f := range facts {
				for what, err := range map[string]error{
					"version": f.Version.Err, "skew": f.Skew.Err, "certificate": f.Certificate.Err, "packages": f.Packages.Err,
					"zones": f.Zones.Err, "bridges": f.Bridges.Err, "storages": f.Storages.Err,
				} {
					if err != nil {
						t.Errorf("%s of %s: %v", what, f.Node, err)
					}
				}
			}
			if one.Skew.Value != 0 || two.Skew.Value > -85*time.Second || two.Skew.Value < -95*time.Second {
				t.Errorf("skews are %s and %s", one.Skew.Value, two.Skew.Value)
			}
			c1, c2 := one.Certificate.Value, two.Certificate.Value
			if c1.File != "pve-ssl.pem" || c1.Distrust != "" || time.Until(c1.Ends) < time.Hour || !c2.Ends.Equal(ends) || c2.Distrust != "" {
				t.Errorf("certificates are %+v and %+v", c1, c2)
			}
			if one.Packages.Value["frr-pythontools"] == "" || two.Packages.Value["frr-pythontools"] != "" || two.Packages.Value["frr"] != "10.1" || one.Packages.Value["ifupdown2"] == "" {
				t.Errorf("packages are %v and %v", one.Packages.Value, two.Packages.Value)
			}
			if v := two.Version.Value; v.Major != 8 || v.Minor != 3 || one.Version.Value.Text == v.Text {
				t.Errorf("versions are %+v and %+v", one.Version.Value, v)
			}
			if st := two.Storages.Value; len(st) != 1 || st[0].Free != 1000 || one.Storages.Value[0].Free == 1000 {
				t.Errorf("storages are %+v", st)
			}
			if edition, err := l.admin.Edition(t.Context(), "pve1"); err != nil || edition != "community" {
				t.Errorf("edition %q, %v", edition, err)
			}

			less := l.cluster.LookAt(t.Context(), []string{"pve1"})[0]
			if !less.Skew.Denied() || !less.Packages.Denied() || less.Certificate.Err != nil || less.Version.Err != nil || less.Storages.Err != nil {
				t.Errorf("a token without Sys.Audit is told %+v", less)
			}
			if _, err := l.cluster.Membership(t.Context()); !errors.Is(err, orchestrator.ErrDenied) {
				t.Errorf("the quorum without Sys.Audit: %v", err)
			}
		})
	}
}

func TestMembership(t *testing.T) {
	l := startLab(t, threeNodes)
	want := func(quorate bool, online ...string) {
		t.Helper()
		m, err := l.admin.Membership(t.Context())
		if err != nil || m.Quorate != quorate || !slices.Equal(m.Online, online) || m.Name != "lab" {
			t.Errorf("got %+v, %v", m, err)
		}
	}
	want(true, "pve1", "pve2", "pve3")
	must(t, l.server.SetNode("pve2", false))
	want(true, "pve1", "pve3")
	must(t, l.server.SetNode("pve3", false))
	want(false, "pve1")
	if m, err := startLab(t).admin.Membership(t.Context()); err != nil || !m.Quorate || m.Name != "" {
		t.Errorf("a node alone: %+v, %v", m, err)
	}
	gone := l.admin.LookAt(t.Context(), []string{"pve3"})[0]
	if gone.Skew.Err == nil || gone.Skew.Denied() || !errors.Is(gone.Version.Err, orchestrator.ErrUnavailable) {
		t.Errorf("a node that is gone: %+v", gone)
	}
}

// F41: backups that reach our VMs are found however they name them.
func TestBackupJobs(t *testing.T) {
	l := startLab(t)
	for name, tt := range map[string]struct {
		job pve.BackupJob
		vms []orchestrator.VMID
		hit string // what mends it; "" = it does not reach them
	}{
		"our pool":        {pve.BackupJob{Pool: labPool}, nil, "--enabled 0 (or --pool with another pool)"},
		"another pool":    {pve.BackupJob{Pool: "other"}, []orchestrator.VMID{100}, ""},
		"one of ours":     {pve.BackupJob{VMs: []int{7, 101, 9}}, []orchestrator.VMID{100, 101}, "--vmid 7,9"},
		"none of ours":    {pve.BackupJob{VMs: []int{1100, 10}}, []orchestrator.VMID{100, 101}, ""},
		"all":             {pve.BackupJob{All: true}, nil, "--all 0 --pool with the pool"},
		"all but ours":    {pve.BackupJob{All: true, Exclude: []int{101, 100}}, []orchestrator.VMID{100, 101}, ""},
		"all but one":     {pve.BackupJob{All: true, Exclude: []int{7, 100}}, []orchestrator.VMID{100, 101}, "--exclude 100,101,7 (again for later"},
		"turned off":      {pve.BackupJob{All: true, Off: true}, nil, ""},
		"ours and others": {pve.BackupJob{VMs: []int{100}}, []orchestrator.VMID{100}, "--enabled 0"},
	} {
		tt.job.ID = "nightly"
		l.server.SetBackupJobs(tt.job)
		got, err := l.admin.BackupJobs(t.Context(), tt.vms)
		if err != nil || (len(got) == 1) != (tt.hit != "") || tt.hit != "" && (got[0].ID != "nightly" || got[0].Why == "" || !strings.HasPrefix(got[0].Mend, "pvesh set /cluster/backup/nightly "+tt.hit)) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestTemplateFacts(t *testing.T) {
	l := startLab(t).withTemplate()
	f, err := l.cluster.TemplateFacts(t.Context(), templateVM)
	if err != nil || !f.Agent || !f.CloudInit || !f.Linked || len(f.Disks) != 1 || f.Disks[0] != (proxmox.TemplateDisk{Slot: "scsi0", Storage: "local"}) {
		t.Errorf("got %+v, %v", f, err)
	}
	for agent, want := range map[string]bool{"0": false, "enabled=1,fstrim_cloned_disks=1": true, "enabled=0": false} {
		l.call("PUT", "/nodes/pve1/qemu/9000/config", map[string]any{"agent": agent})
		if f, err := l.cluster.TemplateFacts(t.Context(), templateVM); err != nil || f.Agent != want {
			t.Errorf("agent %s: %+v, %v", agent, f, err)
		}
	}
	l.call("PUT", "/nodes/pve1/qemu/9000/config", map[string]any{"delete": "scsi1"})
	if f, err := l.cluster.TemplateFacts(t.Context(), templateVM); err != nil || f.CloudInit {
		t.Errorf("without a cloud-init drive: %+v, %v", f, err)
	}
}

// F121: only what is ours gets another name, and no lock is passed over.
func TestRename(t *testing.T) {
	l := startLab(t).withTemplate()
	r := l.sandbox()
	must(t, l.cluster.Rename(t.Context(), r, "other"))
	if st := l.status(r.VM); st.Name != "other" {
		t.Errorf("it is called %q", st.Name)
	}
	wantClass(t, l.cluster.Rename(t.Context(), r, "a b"), orchestrator.ErrDenied)
	foreign := orchestrator.VMRequest{Sandbox: r.Sandbox, VM: orchestrator.VMRef{Node: labNode, ID: foreignID}}
	wantClass(t, l.cluster.Rename(t.Context(), foreign, "other"), orchestrator.ErrDenied)
	must(t, l.server.SetLock(int(r.VM.ID), "backup"))
	wantClass(t, l.cluster.Rename(t.Context(), r, "third"), orchestrator.ErrBusy)
	if st := l.status(r.VM); st.Name != "other" {
		t.Errorf("it is called %q", st.Name)
	}
}
