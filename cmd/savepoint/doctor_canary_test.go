package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/proxmox"
)

// A failure of the canary is put down to its step and its cause, and the storage is
// blamed for its own alone, F61.
func TestCanaryBlames(t *testing.T) {
	wrap := func(class error) error { return fmt.Errorf("snapshot of vm 9000 on pve1: it says no: %w", class) }
	for name, tt := range map[string]struct {
		err        error
		tries      string
		level      string
		what, mend string
		storageToo bool // the mend is to keep off the storage
	}{
		"the storage":       {err: wrap(orchestrator.ErrUnknownOutcome), tries: "tank", level: levelProblem, what: "storage tank", mend: "keep sandboxes off tank", storageToo: true},
		"a permission":      {err: wrap(orchestrator.ErrDenied), tries: "tank", level: levelProblem, what: "a missing permission", mend: "privileges"},
		"a lock":            {err: wrap(orchestrator.ErrBusy), tries: "tank", level: levelWarning, what: "a lock", mend: "wait for what works there"},
		"a timeout":         {err: fmt.Errorf("%w: %w", context.DeadlineExceeded, wrap(orchestrator.ErrUnknownOutcome)), tries: "tank", level: levelProblem, what: "too little time", mend: "cluster.task_timeout"},
		"a node":            {err: wrap(&orchestrator.NodeError{Node: "pve1"}), tries: "tank", level: levelProblem, what: "no answer", mend: "does not answer"},
		"the guest":         {err: errors.New("exit code 1"), level: levelProblem, what: "the guest", mend: "in the guest"},
		"another host":      {err: wrap(&orchestrator.HostKeyError{Host: "h"}), level: levelProblem, what: "another host answers", mend: "address"},
		"an open network":   {err: wrap(&orchestrator.UnsealedError{Sandbox: "s"}), level: levelProblem, what: "not sealed", mend: "savepoint network verify"},
		"what cannot be":    {err: wrap(&orchestrator.UnsupportedError{What: "no", Mend: "choose another"}), tries: "tank", level: levelProblem, what: "cannot be done", mend: "choose another"},
		"the older is gone": {err: wrap(&orchestrator.NotLatestError{Name: "x"}), tries: "tank", level: levelProblem, what: "storage tank", mend: "keep sandboxes off tank", storageToo: true},
	} {
		c := &canary{d: &doctor{}, perch: perch{storage: "tank", node: "pve1", used: true}, step: "snapshot sp-canary-disk", tries: tt.tries}
		c.report(t.Context(), tt.err)
		f := c.d.findings[0]
		if f.Level != tt.level || !strings.Contains(f.Detail, `tank on pve1: at the step "snapshot sp-canary-disk", `) || !strings.Contains(f.Detail, tt.what) ||
			!strings.Contains(f.Detail, tt.err.Error()) || !strings.Contains(f.Mend, tt.mend) {
			t.Errorf("%s: %+v", name, f)
		}
		if strings.Contains(f.Mend, "keep sandboxes off") != tt.storageToo {
			t.Errorf("%s is put down to the storage: %+v", name, f)
		}
	}
	// An interrupt is nobody's fault.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &canary{d: &doctor{}}
	if c.report(ctx, ctx.Err()); len(c.d.findings) != 0 {
		t.Errorf("an interrupt: %+v", c.d.findings)
	}
}

// seen is a doctor that has looked at one node with these storages.
func seen(cfg configs.Config, stores ...proxmox.Storage) *doctor {
	return &doctor{cfg: cfg, facts: []proxmox.NodeFacts{{Node: "pve1", Storages: proxmox.Answer[[]proxmox.Storage]{Value: stores}}}}
}

// F61: raw files take no snapshots, except on btrfs.
func TestRawTemplate(t *testing.T) {
	for kind, bad := range map[string]bool{"dir": true, "nfs": true, "btrfs": false, "gone": true} {
		d := seen(configs.Default(t.TempDir()), proxmox.Storage{ID: "s", Type: kind, Active: true, Content: []string{"images"}})
		disk := proxmox.TemplateDisk{Slot: "scsi0", Storage: "s", Raw: true}
		if kind == "gone" {
			disk.Storage = "other"
		}
		d.oneTemplate(proxmox.Source{Template: proxmox.Template{VM: orchestrator.VMRef{Node: "pve1", ID: 9000}}}, proxmox.TemplateFacts{Agent: true, CloudInit: true, Linked: true, Disks: []proxmox.TemplateDisk{disk}})
		if got := d.findings[0].Level == levelProblem; got != bad || len(d.findings) != 1 {
			t.Errorf("a raw file on %s: %+v", kind, d.findings)
		}
	}
}

// Where no storage takes a template's image the doctor says what gives it one.
func TestDoctorMissesImport(t *testing.T) {
	cfg := configs.Default(t.TempDir())
	iso := proxmox.Storage{ID: "local", Type: "dir", Active: true, Content: []string{"iso"}}
	d := seen(cfg, iso)
	if d.imports(false); len(d.findings) != 1 || d.findings[0].Level != levelProblem || d.findings[0].Mend != "pvesm set local --content iso,import" {
		t.Errorf("got %+v", d.findings)
	}
	d = seen(cfg, iso)
	if d.imports(true); len(d.findings) != 1 || d.findings[0].Level != levelOK || !strings.Contains(d.findings[0].Detail, "pvesm set local --content iso,import") {
		t.Errorf("with a template: %+v", d.findings)
	}
	cfg.Template.Image = "local:import/debian.qcow2"
	d = seen(cfg, iso, proxmox.Storage{ID: "nfs", Type: "nfs", Active: true, Content: []string{"import"}})
	if d.imports(false); len(d.findings) != 1 || !strings.Contains(d.findings[0].Detail, `storage local of node pve1 has not the content type "import"`) {
		t.Errorf("the image's own storage: %+v", d.findings)
	}
	cfg.Template.Image = "https://a.example/b.qcow2"
	d = seen(cfg, iso, proxmox.Storage{ID: "nfs", Type: "nfs", Active: true, Content: []string{"import"}})
	if d.imports(false); len(d.findings) != 0 {
		t.Errorf("any storage will do: %+v", d.findings)
	}
}
