package proxmox

import (
	"context"
	"net/url"
	"strings"

	"savepoint/orchestrator"
)

// TemplateFacts are what makes a template fit for sandboxes.
type TemplateFacts struct {
	Agent     bool // the guest agent's channel is configured
	CloudInit bool // it has a drive for cloud-init
	Linked    bool // the cluster makes linked clones of it
	Disks     []TemplateDisk
}

// TemplateDisk is a disk that a snapshot of a clone has to cover.
type TemplateDisk struct {
	Slot    string
	Storage string
	Raw     bool // a raw file: most storages take no snapshots of it
}

// TemplateFacts reads the configuration of a template.
func (c *Cluster) TemplateFacts(ctx context.Context, vm orchestrator.VMRef) (TemplateFacts, error) {
	const op = "examine template"
	conf, err := c.config(ctx, op, vm)
	if err != nil {
		return TemplateFacts{}, err
	}
	var out struct {
		HasFeature flexInt `json:"hasFeature"`
	}
	if err := c.readVM(ctx, op, vm, "/feature", url.Values{"feature": {"clone"}}, &out); err != nil {
		return TemplateFacts{}, err
	}
	f := TemplateFacts{Agent: conf.agent(), Linked: out.HasFeature != 0}
	for name := range conf {
		f.CloudInit = f.CloudInit || diskSlotRE.MatchString(name) && strings.Contains(conf.text(name), "cloudinit")
	}
	for _, d := range conf.disks() {
		f.Disks = append(f.Disks, TemplateDisk{Slot: d.slot, Storage: d.storage, Raw: strings.HasSuffix(d.volume, ".raw")})
	}
	return f, nil
}

// agent reports whether the option is on: "1", "enabled=1", with more behind it.
func (v vmConfig) agent() bool {
	for part := range strings.SplitSeq(v.text("agent"), ",") {
		if part == "1" || part == "enabled=1" {
			return true
		}
	}
	return false
}
