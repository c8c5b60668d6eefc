package proxmox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"savepoint/orchestrator"
)

// TemplateSpec is what BuildTemplate makes a template from.
type TemplateSpec struct {
	Name string // of the VM

	// The image of the root disk: exactly one of the three.
	ImagePath   string // a qcow2 file on this host, which is uploaded
	ImageURL    string // the node fetches it, and checks it against ImageSum
	ImageVolume string // on a storage of the node: "local:import/debian-12.qcow2"
	ImageSum    string // SHA-256 or SHA-512 of the URL's file, in hexadecimal digits

	Storage       string // for the template's disks
	ImportStorage string // where images are put; "" = the first of the node with content "import"
	Workspace     *TemplateVolume
	Node          string
	VMID          orchestrator.VMID // 0: NewVMID is asked for one
	NewVMID       func(ctx context.Context) (orchestrator.VMID, error)
	MemoryMiB     int
	Cores         int
	CPU           string       // its type, like "x86-64-v2-AES"; "" = the cluster's default
	Bridge        string       // of net0; "" = the cluster's bridge from Config
	Description   string       // for people
	Prepare       *Preparation // nil: the image is complete as it is
	Started       orchestrator.Started
	// Progress is told how far a stage is: "hash", "upload" in bytes; "fetch",
	// "create", "start", "prepare", "shut down", "convert" with total 0. It may
	// be nil.
	Progress func(stage string, done, total int64)
}

// TemplateVolume is the second disk of a template, at scsi1.
type TemplateVolume struct {
	Storage string
	Size    int64 // bytes, whole MiB
	// ImagePath is a qcow2 file of that size on this host that the disk is
	// filled from; "" = it is left empty.
	ImagePath string
}

// Preparation is what happens inside the new VM before it becomes a template.
type Preparation struct {
	// Recipe names what Run does: with another one another template is made.
	Recipe  string
	Address netip.Prefix // static, for the time of the preparation
	Gateway netip.Addr
	SSHKeys []string // of root, for the same time
	// Run is called when the VM was started. When it returns the guest must be
	// ready to be shut down and to be copied.
	Run func(ctx context.Context, vm orchestrator.VMRef) error
	// Shutdown is how long the guest may take to power down; 0 = 3 minutes.
	Shutdown time.Duration
}

// buildAttempts bounds how many VM ids are tried.
const buildAttempts = 20

// BuildTemplate makes a VM from the image, prepares it and turns it into a
// template. A template of the same recipe (image, settings, preparation) on
// that node is returned as it is. A build that fails removes what it made. A
// crash leaves at most the image and a VM marked as building, which the next
// build on that node removes, as RemoveBuilding does.
func (c *Cluster) BuildTemplate(ctx context.Context, spec TemplateSpec) (Template, error) {
	op, ref := "build template "+spec.Name+" as", orchestrator.VMRef{Node: spec.Node, ID: spec.VMID}
	spec.Bridge = cmp.Or(spec.Bridge, c.cfg.Bridge)
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

	b := &building{c: c, spec: spec, op: "build template " + spec.Name + " on"}
	defer b.close()
	if err := b.open(ctx); err != nil {
		return Template{}, err
	}
	if t, found, err := b.clear(ctx); found || err != nil {
		return t, err
	}
	return b.build(ctx)
}

// building is one build.
type building struct {
	c      *Cluster
	spec   TemplateSpec
	op     string
	ref    orchestrator.VMRef
	root   source
	second source // zero: none, or an empty disk
	recipe string
}

func (b *building) subject() string { return "node " + b.spec.Node }

// recipeVersion changes when make makes another VM of the same spec.
const recipeVersion = "3"

// open finds the images and names the recipe.
func (b *building) open(ctx context.Context) (err error) {
	s := b.spec
	if b.root, err = b.rootImage(ctx); err != nil {
		return err
	}
	parts := []string{recipeVersion, b.root.id, s.Name, s.Storage, s.Bridge, fmt.Sprint(s.MemoryMiB), fmt.Sprint(s.Cores), s.CPU}
	if w := s.Workspace; w != nil {
		if w.ImagePath != "" {
			if b.second, err = b.fileImage(w.ImagePath); err != nil {
				return err
			}
		}
		parts = append(parts, "workspace", w.Storage, fmt.Sprint(w.Size), b.second.id)
	}
	if p := s.Prepare; p != nil {
		parts = append(parts, "prepare", p.Recipe)
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	b.recipe = hex.EncodeToString(sum[:])[:32]
	return nil
}

func (b *building) close() {
	b.root.close()
	b.second.close()
}

// clear returns the template of the recipe if there is one, else removes what
// interrupted builds left on the node.
func (b *building) clear(ctx context.Context) (Template, bool, error) {
	existing, err := b.c.templatesOn(ctx, b.op, b.spec.Node)
	if err != nil {
		return Template{}, false, err
	}
	for _, t := range existing {
		if t.Recipe == b.recipe && t.Ready {
			return t, true, nil
		}
	}
	for _, t := range existing {
		if t.Recipe != "" && !t.Ready {
			if err := b.c.RemoveBuilding(ctx, t.VM, b.spec.Started); err != nil {
				return Template{}, false, err
			}
		}
	}
	return Template{}, false, nil
}

// build brings the images, takes an id and makes the template.
func (b *building) build(ctx context.Context) (Template, error) {
	c := b.c
	if b.spec.VMID != 0 { // an id that is taken is said before gigabytes are moved
		if err := b.takeID(ctx); err != nil {
			return Template{}, err
		}
	}
	volid, err := b.root.bring(ctx)
	if err != nil {
		return Template{}, err
	}
	second := ""
	if b.second.bring != nil {
		if second, err = b.second.bring(ctx); err != nil {
			return Template{}, err
		}
	}
	if err := b.takeID(ctx); err != nil {
		return Template{}, err
	}
	b.op = "build template " + b.spec.Name + " as"
	if err := b.make(ctx, volid, second); err != nil {
		return Template{}, b.discard(ctx, err)
	}
	conf, err := c.config(ctx, b.op, b.ref)
	if err != nil {
		return Template{}, err
	}
	t, ok := c.asTemplate(b.ref, conf)
	if !ok || !t.Ready {
		return Template{}, refuse(b.op, b.ref.String(), orchestrator.ErrUnknownOutcome, "the tasks ended well but the vm is no finished template", "look at the vm")
	}
	return t, nil
}

// takeID finds a free VM id, in the way the spec says.
func (b *building) takeID(ctx context.Context) error {
	b.ref = orchestrator.VMRef{Node: b.spec.Node, ID: b.spec.VMID}
	as := "build template " + b.spec.Name + " as"
	if b.spec.VMID != 0 {
		return b.c.VMs().checkFree(ctx, as, b.ref)
	}
	for range buildAttempts {
		id, err := b.spec.NewVMID(ctx)
		if err != nil {
			return fmt.Errorf("%s %s: %w", b.op, b.subject(), err)
		}
		b.ref.ID = id
		if err := b.c.VMs().checkFree(ctx, as, b.ref); !errors.Is(err, orchestrator.ErrExists) {
			return err
		}
	}
	return refuse(b.op, b.subject(), orchestrator.ErrExists, fmt.Sprintf("%d vm ids in a row are taken by others", buildAttempts), "choose another range of ids")
}

// discard removes the VM that could not be finished and returns the first
// cause. It has its own time, because the caller's may have ended. What is not
// ours, or was not even made, is left alone.
func (b *building) discard(ctx context.Context, failed error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	conf, err := b.c.config(ctx, b.op, b.ref)
	if vmMissing(err) {
		return failed
	}
	if err == nil {
		if t, ok := b.c.asTemplate(b.ref, conf); !ok || t.Recipe != b.recipe || t.Ready {
			return failed
		}
		err = b.c.RemoveBuilding(ctx, b.ref, b.spec.Started)
	}
	if err == nil {
		return failed
	}
	return fmt.Errorf("%w (and the half-built vm is still there: %v; savepoint gc removes it)", failed, err)
}

var (
	storageRE = regexp.MustCompile(`\A[a-zA-Z][a-zA-Z0-9\-_.]*[a-zA-Z0-9]\z`)
	cpuRE     = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9._-]*(?:,[a-z-]+=[^\s,]+)*\z`)
	volumeRE  = regexp.MustCompile(`\A[a-zA-Z][a-zA-Z0-9\-_.]*[a-zA-Z0-9]:[a-zA-Z0-9][a-zA-Z0-9\-_./]*\z`)
	imageRE   = regexp.MustCompile(`\Ahttps?://[^\s@?#,]+\z`)
)

func (c *Cluster) checkSpec(op string, ref orchestrator.VMRef, spec TemplateSpec) error {
	deny := func(format string, args ...any) error {
		return refuse(op, ref.String(), orchestrator.ErrDenied, fmt.Sprintf(format, args...), "")
	}
	if spec.VMID == 0 && spec.NewVMID != nil {
		ref.ID = 100 // the node alone is checked
	}
	if err := checkRef(op, ref); err != nil {
		return err
	}
	images := 0
	for _, s := range []string{spec.ImagePath, spec.ImageURL, spec.ImageVolume} {
		if s != "" {
			images++
		}
	}
	switch {
	case c.cfg.Pool == "":
		return deny("no resource pool is configured")
	case !hostNameRE.MatchString(spec.Name):
		return deny("%q is no host name", spec.Name)
	case images != 1:
		return deny("it takes exactly one image, and %d are given", images)
	case spec.ImageURL != "" && !imageRE.MatchString(spec.ImageURL):
		return deny("%q is no address of an image", spec.ImageURL)
	case spec.ImageURL != "" && sumAlgorithm(spec.ImageSum) == "":
		return deny("neither a SHA-256 nor a SHA-512 of the image is given, and what is fetched must be checked")
	case spec.ImageVolume != "" && !volumeRE.MatchString(spec.ImageVolume):
		return deny("%q is no volume", spec.ImageVolume)
	case !storageRE.MatchString(spec.Storage):
		return deny("%q is no storage name", spec.Storage)
	case spec.ImportStorage != "" && !storageRE.MatchString(spec.ImportStorage):
		return deny("%q is no storage name", spec.ImportStorage)
	case spec.MemoryMiB < 64 || spec.Cores < 1:
		return deny("a template needs at least 64 MiB of memory and one core")
	case spec.CPU != "" && !cpuRE.MatchString(spec.CPU):
		return deny("%q is no type of CPU", spec.CPU)
	case spec.Bridge == "":
		return deny("no bridge is configured for net0")
	}
	if w := spec.Workspace; w != nil {
		switch {
		case !storageRE.MatchString(w.Storage):
			return deny("%q is no storage name", w.Storage)
		case w.Size < 16<<20 || w.Size%(1<<20) != 0:
			return deny("a workspace of %d bytes: it must be whole MiB, and 16 at least", w.Size)
		}
	}
	if p := spec.Prepare; p != nil && (p.Run == nil || !p.Address.IsValid() || len(p.SSHKeys) == 0) {
		return deny("a preparation needs an address, a key and something to run")
	}
	return nil
}
