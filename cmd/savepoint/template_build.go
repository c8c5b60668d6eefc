package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/orchestrator/provision"
	"savepoint/orchestrator/sshexec"
	"savepoint/orchestrator/template"
	"savepoint/proxmox"
	"savepoint/testbed/guest"
)

// templateStep bounds one step in a VM that is being prepared: a download
// of packages is the longest.
const templateStep = 15 * time.Minute

// templateOwner stands for the template in the list of reserved VM ids.
const templateOwner orchestrator.SandboxID = "template"

// buildTemplate makes the template on the first node, or finds it made.
func (s *session) buildTemplate(ctx context.Context, say func(string)) (proxmox.Template, error) {
	node, err := s.node(ctx)
	if err != nil {
		return proxmox.Template{}, err
	}
	spec, err := s.templateSpec(ctx, say)
	if err != nil {
		return proxmox.Template{}, err
	}
	spec.Node = node
	return s.cluster.BuildTemplate(ctx, spec)
}

// buildTemplates makes the template on each node that needs one of its own, and
// removes those of older recipes there that nobody uses.
func (s *session) buildTemplates(ctx context.Context, say func(string)) ([]proxmox.Template, error) {
	all, err := s.cluster.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	spec, err := s.templateSpec(ctx, say)
	if err != nil {
		return nil, err
	}
	var built []proxmox.Template
	var passed []string // why nodes were passed over
	serves := map[string]bool{}
	for _, n := range inOrder(all, s.cfg.Cluster.Nodes) {
		why := limits(s.cfg.Cluster).Closed(provision.Node{Name: n.Name, Online: n.Online})
		if why != "" {
			passed = append(passed, "node "+n.Name+" "+why)
			continue
		}
		stores, err := s.cluster.Storages(ctx, n.Name)
		if err != nil {
			return built, err
		}
		missing, shared := templateStores(stores, spec)
		switch {
		case len(missing) > 0:
			passed = append(passed, fmt.Sprintf("node %s has no storage %s", n.Name, strings.Join(missing, ", ")))
			continue
		case shared && len(built) > 0: // it is there already
			serves[n.Name] = true
			continue
		}
		spec.Node = n.Name
		t, err := s.cluster.BuildTemplate(ctx, spec)
		if err != nil {
			return built, err
		}
		built, serves[n.Name] = append(built, t), true
	}
	if len(built) == 0 {
		return nil, fmt.Errorf("build template: no node takes it: %s: %w", strings.Join(passed, "; "), orchestrator.ErrUnavailable)
	}
	for _, why := range passed {
		fmt.Fprintf(s.app.err, "savepoint: no template there: %s\n", printable(why))
	}
	return built, s.retire(ctx, built, serves)
}

// inOrder sorts nodes by the order of the configuration.
func inOrder(nodes []proxmox.Node, names []string) []proxmox.Node {
	slices.SortStableFunc(nodes, func(a, b proxmox.Node) int { return slices.Index(names, a.Name) - slices.Index(names, b.Name) })
	return nodes
}

// templateStores says which of the template's storages a node has not, and
// whether all of them are shared: then one template serves every node that has
// them.
func templateStores(stores []proxmox.Storage, spec proxmox.TemplateSpec) (missing []string, shared bool) {
	want := []string{spec.Storage}
	if spec.Workspace != nil && spec.Workspace.Storage != spec.Storage {
		want = append(want, spec.Workspace.Storage)
	}
	shared = true
	for _, id := range want {
		i := slices.IndexFunc(stores, func(st proxmox.Storage) bool {
			return st.ID == id && st.Active && slices.Contains(st.Content, "images")
		})
		if i < 0 {
			missing = append(missing, id)
			continue
		}
		shared = shared && stores[i].Shared
	}
	return missing, shared
}

// retire removes templates of ours that the new ones take the place of and that
// no sandbox is made from. One that a VM is linked to stays all the same.
func (s *session) retire(ctx context.Context, built []proxmox.Template, serves map[string]bool) error {
	all, err := s.cluster.Templates(ctx)
	if err != nil {
		return err
	}
	uses, err := s.templateUses(ctx)
	if err != nil {
		return err
	}
	for _, t := range all {
		current := slices.ContainsFunc(built, func(b proxmox.Template) bool { return b.VM == t.VM })
		if t.Recipe == "" || !t.Ready || t.Name != s.cfg.Sandbox.Template || current || !serves[t.VM.Node] {
			continue
		}
		if n := uses[t.VM]; n > 0 {
			fmt.Fprintf(s.app.err, "savepoint: the older template %s stays: %d sandboxes are made from it\n", t.VM, n)
			continue
		}
		switch err := s.cluster.RemoveTemplate(ctx, t, nil); {
		case errors.Is(err, orchestrator.ErrBusy):
			fmt.Fprintf(s.app.err, "savepoint: the older template stays: %s\n", printable(err.Error()))
		case err != nil:
			return err
		default:
			fmt.Fprintf(s.app.err, "savepoint: the older template %s, which nobody used, was removed\n", t.VM)
		}
	}
	return nil
}

// templateSpec says how the configured template is made, on whatever node.
func (s *session) templateSpec(ctx context.Context, say func(string)) (proxmox.TemplateSpec, error) {
	cfg := s.cfg
	if cfg.Cluster.Storage == "" {
		return proxmox.TemplateSpec{}, usagef("build template: say where its disk shall be: set cluster.storage")
	}
	spec := proxmox.TemplateSpec{
		Name: cfg.Sandbox.Template, Storage: cfg.Cluster.Storage,
		MemoryMiB: int(cfg.Template.Memory >> 20), Cores: cfg.Template.Cores, CPU: cfg.Template.CPU,
		Bridge: cmp.Or(cfg.Template.Bridge, cfg.Sandbox.Bridge),
		NewVMID: func(ctx context.Context) (orchestrator.VMID, error) {
			return s.journal.ReserveVMID(ctx, orchestrator.VMID(cfg.Cluster.VMIDFirst), orchestrator.VMID(cfg.Cluster.VMIDLast), cfg.Cluster.VMIDRest, templateOwner)
		},
		Progress: func(stage string, done, total int64) {
			if total > 0 {
				say(fmt.Sprintf("%s the image: %d %%", stage, 100*done/total))
				return
			}
			say(stage + " the template")
		},
	}
	btrfs := false
	if w := cfg.Workspace; w.Storage != "" {
		driver, _, err := s.workspaces.driver(ctx)
		if err != nil {
			return spec, err
		}
		btrfs = driver == driverBtrfs
		spec.Workspace = &proxmox.TemplateVolume{Storage: w.Storage, Size: int64(w.Size)}
	}
	source := s.stockImage
	if cfg.Template.Image == "" {
		source = s.ownImage
	}
	err := source(ctx, &spec, btrfs, say)
	return spec, err
}

// ownImage builds the guest image of ours, which is complete.
func (s *session) ownImage(ctx context.Context, spec *proxmox.TemplateSpec, btrfs bool, say func(string)) error {
	cache, err := guest.CacheDir()
	if err != nil {
		return err
	}
	img, err := guest.Build(ctx, guest.Options{CacheDir: cache, Progress: say})
	if err != nil {
		return err
	}
	spec.ImagePath, spec.Description = img.Path, "Debian guest of savepoint, recipe "+img.Hash
	if spec.Workspace != nil {
		image := guest.Volume
		if btrfs {
			image = guest.BtrfsVolume
		}
		spec.Workspace.ImagePath, err = image(ctx, cache, spec.Workspace.Size)
	}
	return err
}

// stockImage says where the image is and how it is prepared.
func (s *session) stockImage(ctx context.Context, spec *proxmox.TemplateSpec, btrfs bool, say func(string)) error {
	cfg := s.cfg.Template
	spec.Description = "made from " + cfg.Image
	if strings.Contains(cfg.Image, "://") {
		spec.ImageURL, spec.ImageSum = cfg.Image, cfg.Checksum
	} else {
		spec.ImageVolume = cfg.Image
	}
	address, err := s.templateAddress(ctx)
	if err != nil {
		return err
	}
	prepare := template.Preparer{
		Guest: s.ssh, Identity: s.cluster, Address: address.Addr(), Boot: s.cfg.Sandbox.BootTimeout, Step: templateStep, Say: say,
	}
	if spec.Workspace != nil {
		prepare.Workspace, prepare.Btrfs = spec.Workspace.Size, btrfs
	}
	recipe := sshexec.TemplateRecipe()
	if btrfs {
		recipe += " with btrfs"
	}
	spec.Prepare = &proxmox.Preparation{
		Recipe: recipe, Address: address, Gateway: cfg.Gateway, SSHKeys: s.keys, Run: prepare.Run,
	}
	return nil
}

// templateAddress is what the VM is reached at while it is prepared.
func (s *session) templateAddress(ctx context.Context) (netip.Prefix, error) {
	address := s.cfg.Template.Address
	if !address.IsValid() {
		if !s.cfg.Sandbox.Subnet.IsValid() {
			return address, usagef("build template: the VM needs an address while it is prepared: set template.address")
		}
		address = lastHost(s.cfg.Sandbox.Subnet)
	}
	boxes, err := s.journal.Sandboxes(ctx)
	if err != nil {
		return address, err
	}
	for _, sb := range boxes {
		if sb.State != orchestrator.SandboxDestroyed && sb.Address == address.Addr() {
			return address, usagef("build template: sandbox %s has the address %s; set template.address to a free one", sb.Name, address.Addr())
		}
	}
	return address, nil
}

// lastHost is the last address of a subnet that a host can have, with the
// subnet's length: the one before the broadcast address.
func lastHost(subnet netip.Prefix) netip.Prefix {
	last := configs.LastAddr(subnet)
	if last.Is4() && subnet.Bits() < 31 {
		last = last.Prev()
	}
	return netip.PrefixFrom(last, subnet.Bits())
}
