package proxmox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"savepoint/orchestrator"
)

// Template is one template VM of the cluster.
type Template struct {
	VM          orchestrator.VMRef
	Name        string
	Description string // without our mark
	Recipe      string // what BuildTemplate made it from; "" for a template that is not ours
	Storage     string // of its first disk
	Ready       bool   // false for one of ours whose build did not come to its end
}

// Templates lists the templates of the configured nodes, or of all online
// ones, by node and id. One of ours that is half-built is listed as not Ready.
func (c *Cluster) Templates(ctx context.Context) ([]Template, error) {
	const op = "list templates of"
	nodes, err := c.usableNodes(ctx)
	if err != nil {
		return nil, err
	}
	var out []Template
	for _, node := range nodes {
		found, err := c.templatesOn(ctx, op, node)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

func (c *Cluster) templatesOn(ctx context.Context, op, node string) ([]Template, error) {
	var list []struct {
		VMID     flexInt `json:"vmid"`
		Template flexInt `json:"template"`
		Tags     string  `json:"tags"`
		Status   string  `json:"status"`
	}
	if err := c.get(ctx, nodePath(node)+"/qemu", nil, &list); err != nil {
		return nil, explain(op, "node "+node, err, false)
	}
	var out []Template
	for _, vm := range list {
		// The list's template flag can be a moment behind; the tag and then the
		// configuration are not.
		if vm.Template == 0 && vm.Status != "unknown" && !slices.Contains(splitTags(vm.Tags), templateTag) {
			continue
		}
		ref := orchestrator.VMRef{Node: node, ID: orchestrator.VMID(vm.VMID)}
		conf, err := c.config(ctx, op, ref)
		if errors.Is(err, orchestrator.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if t, ok := c.asTemplate(ref, conf); ok {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b Template) int { return int(a.VM.ID - b.VM.ID) })
	return out, nil
}

// asTemplate reads a configuration; ok is false for a VM that is neither a
// template nor one of ours in the making.
func (c *Cluster) asTemplate(ref orchestrator.VMRef, conf vmConfig) (Template, bool) {
	t := Template{VM: ref, Name: conf.text("name"), Description: conf.text("description"), Ready: conf.isTemplate()}
	if disks := conf.disks(); len(disks) > 0 {
		t.Storage = disks[0].storage
	}
	if m, ok := c.ownerOf(conf); ok && m.recipe != "" {
		t.Recipe = m.recipe
		t.Ready = t.Ready && m.state == stateReady
		_, t.Description, _ = strings.Cut(t.Description, "\n")
		t.Description = strings.TrimSpace(t.Description)
		return t, true
	}
	return t, conf.isTemplate()
}

// TemplateSpec is what BuildTemplate makes a template from.
type TemplateSpec struct {
	Name          string // of the VM
	ImagePath     string // qcow2 file on this host
	Storage       string // for the template's disks
	ImportStorage string // where the image is uploaded to; "" = the first of the node with content "import"
	Node          string
	VMID          orchestrator.VMID
	MemoryMiB     int
	Cores         int
	Bridge        string // of net0; "" = the cluster's bridge from Config
	Description   string // for people
	Started       orchestrator.Started
	// Progress is told how far a stage is: "hash", "upload" in bytes; "create",
	// "convert" with total 0. It may be nil.
	Progress func(stage string, done, total int64)
}

// BuildTemplate uploads the image, makes a VM from it and turns that into a
// template. A template of the same recipe (image and settings) on that node is
// returned as it is. A crash leaves at most the uploaded image and a VM marked
// as building, which the next build on that node removes.
func (c *Cluster) BuildTemplate(ctx context.Context, spec TemplateSpec) (Template, error) {
	op, ref := "build template "+spec.Name+" as", orchestrator.VMRef{Node: spec.Node, ID: spec.VMID}
	if spec.Bridge == "" {
		spec.Bridge = c.cfg.Bridge
	}
	if spec.Progress == nil {
		spec.Progress = func(string, int64, int64) {}
	}
	if err := c.checkSpec(op, ref, spec); err != nil {
		return Template{}, err
	}
	release, err := c.builds.acquire(ctx, "build", caller{op: op, subject: ref.String()})
	if err != nil {
		return Template{}, &failure{op: op, subject: ref.String(), class: orchestrator.ErrBusy, err: err, cause: "another build is under way (" + err.Error() + ")"}
	}
	defer release()

	image, err := openImage(spec)
	if err != nil {
		return Template{}, refuse(op, ref.String(), orchestrator.ErrNotFound, err.Error(), "make the image first")
	}
	defer func() { _ = image.file.Close() }()

	existing, err := c.templatesOn(ctx, op, spec.Node)
	if err != nil {
		return Template{}, err
	}
	for _, t := range existing {
		if t.Recipe == image.recipe && t.Ready {
			return t, nil
		}
	}
	for _, t := range existing {
		if t.Recipe != "" && !t.Ready {
			if err := c.removeBuilding(ctx, t.VM); err != nil {
				return Template{}, err
			}
		}
	}
	if err := c.VMs().checkFree(ctx, op, ref); err != nil {
		return Template{}, err
	}
	volid, err := c.uploadImage(ctx, op, ref.String(), spec, image)
	if err != nil {
		return Template{}, err
	}
	if err := c.makeTemplate(ctx, op, ref, spec, image.recipe, volid); err != nil {
		return Template{}, err
	}
	conf, err := c.config(ctx, op, ref)
	if err != nil {
		return Template{}, err
	}
	t, ok := c.asTemplate(ref, conf)
	if !ok || !t.Ready {
		return Template{}, refuse(op, ref.String(), orchestrator.ErrUnknownOutcome, "the tasks ended well but the vm is no finished template", "look at the vm")
	}
	return t, nil
}

var storageRE = regexp.MustCompile(`\A[a-zA-Z][a-zA-Z0-9\-_.]*[a-zA-Z0-9]\z`)

func (c *Cluster) checkSpec(op string, ref orchestrator.VMRef, spec TemplateSpec) error {
	deny := func(cause string) error { return refuse(op, ref.String(), orchestrator.ErrDenied, cause, "") }
	if err := checkRef(op, ref); err != nil {
		return err
	}
	switch {
	case c.cfg.Pool == "":
		return deny("no resource pool is configured")
	case !hostNameRE.MatchString(spec.Name):
		return deny(fmt.Sprintf("%q is no host name", spec.Name))
	case !storageRE.MatchString(spec.Storage):
		return deny(fmt.Sprintf("%q is no storage name", spec.Storage))
	case spec.ImportStorage != "" && !storageRE.MatchString(spec.ImportStorage):
		return deny(fmt.Sprintf("%q is no storage name", spec.ImportStorage))
	case spec.MemoryMiB < 64 || spec.Cores < 1:
		return deny("a template needs at least 64 MiB of memory and one core")
	case spec.Bridge == "":
		return deny("no bridge is configured for net0")
	}
	return nil
}

// image is the open image file and what follows from its content.
type image struct {
	file   *os.File
	size   int64
	sha256 string
	recipe string
}

// recipeVersion changes when makeTemplate makes another VM of the same spec.
const recipeVersion = "1"

// openImage hashes the image and, with the settings, the recipe.
func openImage(spec TemplateSpec) (image, error) {
	f, err := os.Open(spec.ImagePath)
	if err != nil {
		return image{}, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", spec.ImagePath)
	}
	h := sha256.New()
	if err == nil {
		_, err = io.Copy(h, &progressReader{r: f, stage: "hash", total: info.Size(), report: spec.Progress})
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return image{}, err
	}
	sum := hex.EncodeToString(h.Sum(nil))
	recipe := sha256.Sum256([]byte(strings.Join([]string{
		recipeVersion, sum, spec.Name, spec.Storage, spec.Bridge, fmt.Sprint(spec.MemoryMiB), fmt.Sprint(spec.Cores),
	}, "\n")))
	return image{file: f, size: info.Size(), sha256: sum, recipe: hex.EncodeToString(recipe[:])[:32]}, nil
}

// removeBuilding removes a VM that is marked as a template of ours in the
// making.
func (c *Cluster) removeBuilding(ctx context.Context, vm orchestrator.VMRef) error {
	const op = "remove half-built template"
	release, err := c.exclusive(ctx, op, vm)
	if err != nil {
		return err
	}
	defer release()
	return c.again(ctx, func() error {
		conf, err := c.config(ctx, op, vm)
		if vmMissing(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if t, ok := c.asTemplate(vm, conf); !ok || t.Recipe == "" || t.Ready {
			return refuse(op, vm.String(), orchestrator.ErrDenied, "the vm is not a template of ours in the making", "nothing was changed")
		}
		return c.VMs().remove(ctx, op, orchestrator.VMRequest{VM: vm}, conf)
	})
}

// makeTemplate creates the VM with everything a sandbox needs and converts it.
func (c *Cluster) makeTemplate(ctx context.Context, op string, ref orchestrator.VMRef, spec TemplateSpec, recipe, volid string) error {
	release, err := c.exclusive(ctx, op, ref)
	if err != nil {
		return err
	}
	defer release()
	own := mark{instance: c.cfg.Instance, recipe: recipe, state: stateBuilding}
	params := map[string]any{
		"vmid": int(spec.VMID), "name": spec.Name, "pool": c.cfg.Pool,
		"description": own.String() + "\n" + spec.Description,
		"tags":        strings.Join([]string{ownerTag, instanceTag(c.cfg.Instance), templateTag}, ";"),
		"memory":      fmt.Sprint(spec.MemoryMiB), "cores": spec.Cores,
		"ostype": "l26", "scsihw": "virtio-scsi-pci",
		"scsi0":   spec.Storage + ":0,import-from=" + volid,
		"scsi1":   spec.Storage + ":cloudinit",
		"boot":    "order=scsi0",
		"net0":    "virtio,bridge=" + spec.Bridge,
		"serial0": "socket", "agent": "1", "ciuser": "root",
	}
	spec.Progress("create", 0, 0)
	err = c.again(ctx, func() error {
		return c.carryOut(ctx, order{
			op: op, subject: ref.String(), node: ref.Node, kind: "qmcreate", id: ref.ID, timeout: c.cfg.CloneTimeout, started: spec.Started,
			send: func(ctx context.Context) (string, error) { return c.postTask(ctx, nodePath(ref.Node)+"/qemu", params) },
		})
	})
	if err != nil {
		return err
	}
	spec.Progress("convert", 0, 0)
	err = c.again(ctx, func() error {
		return c.carryOut(ctx, order{
			op: op, subject: ref.String(), node: ref.Node, kind: "qmtemplate", id: ref.ID, timeout: c.cfg.CloneTimeout, started: spec.Started,
			send: func(ctx context.Context) (string, error) { return c.postTask(ctx, vmPath(ref)+"/template", nil) },
		})
	})
	if err != nil {
		return err
	}
	own.state = stateReady
	return c.again(ctx, func() error {
		return c.putConfig(ctx, op, ref, map[string]any{"description": strings.TrimSpace(own.String() + "\n" + spec.Description)})
	})
}

// importStorage finds where an image can be uploaded to.
func (c *Cluster) importStorage(ctx context.Context, op, subject string, spec TemplateSpec) (string, error) {
	if spec.ImportStorage != "" {
		return spec.ImportStorage, nil
	}
	list, err := c.Storages(ctx, spec.Node)
	if err != nil {
		return "", err
	}
	for _, s := range list {
		if s.Active && slices.Contains(s.Content, "import") {
			return s.ID, nil
		}
	}
	what, mend := "no storage of node "+spec.Node+" takes images for import", `enable the content type "import" on a directory storage`
	return "", &failure{op: op, subject: subject, cause: what, mend: mend, class: &orchestrator.UnsupportedError{What: what, Mend: mend}}
}

// uploaded reports whether the storage holds the file with that size.
func (c *Cluster) uploaded(ctx context.Context, node, storage, volid string, size int64) (bool, error) {
	var list []struct {
		VolID string  `json:"volid"`
		Size  flexInt `json:"size"`
	}
	err := c.get(ctx, contentPath(node, storage), url.Values{"content": {"import"}}, &list)
	if err != nil {
		return false, err
	}
	for _, v := range list {
		if v.VolID == volid {
			return int64(v.Size) == size, nil
		}
	}
	return false, nil
}
