package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"savepoint/orchestrator"
	"savepoint/proxmox"
	"savepoint/testbed/guest"
)

func newTemplate(a *app) *cobra.Command {
	c := &cobra.Command{Use: "template", Short: "Build and list the VM templates that sandboxes are cloned from"}
	c.AddCommand(newTemplateBuild(a), newTemplateList(a))
	return c
}

func newTemplateBuild(a *app) *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use: "build", Short: "Build the guest image and make it a template on the cluster",
		Long: "Builds the guest image from Debian packages on this machine (once: it is cached by\n" +
			"its recipe), uploads it to the cluster and makes it the configured template. It is\n" +
			"safe to repeat.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := withTimeout(c.Context(), timeout)
			defer cancel()
			s, err := a.open(ctx)
			if err != nil {
				return err
			}
			p := newProgress(a.err, s.secrets)
			defer p.stop()
			t, err := s.buildTemplate(ctx, func(step string) { p.say("%s", step) })
			p.stop()
			if err != nil {
				return err
			}
			return a.printTemplates([]proxmox.Template{t})
		},
	}
	addTimeout(c, &timeout)
	return c
}

// buildTemplate makes the image and the template, or finds them made.
func (s *session) buildTemplate(ctx context.Context, say func(string)) (proxmox.Template, error) {
	cache, err := guest.CacheDir()
	if err != nil {
		return proxmox.Template{}, err
	}
	img, err := guest.Build(ctx, guest.Options{CacheDir: cache, Progress: say})
	if err != nil {
		return proxmox.Template{}, err
	}
	spec, err := s.templateSpec(ctx, img, say)
	if err != nil {
		return proxmox.Template{}, err
	}
	return s.cluster.BuildTemplate(ctx, spec)
}

func newTemplateList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the templates on the cluster", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := a.open(c.Context())
			if err != nil {
				return err
			}
			all, err := s.cluster.Templates(c.Context())
			if err != nil {
				return err
			}
			return a.printTemplates(all)
		},
	}
}

// templateView is the printed form of a template.
type templateView struct {
	Name string `json:"name"`
	Node string `json:"node"`
	VMID int    `json:"vmid"`
}

func (a *app) printTemplates(all []proxmox.Template) error {
	views := make([]templateView, len(all))
	for i, t := range all {
		views[i] = templateView{Name: t.Name, Node: t.VM.Node, VMID: int(t.VM.ID)}
	}
	return printList(a, views, func(w io.Writer) error {
		if len(views) == 0 {
			fmt.Fprintln(a.err, "no templates; build one with savepoint template build")
			return nil
		}
		rows := make([][]string, len(views))
		for i, v := range views {
			rows[i] = []string{v.Name, v.Node, strconv.Itoa(v.VMID)}
		}
		return table(w, "NAME\tNODE\tVM", rows)
	})
}

// Memory and cores of the template: enough for builds of ordinary projects,
// small enough for several guests on a laptop.
const (
	templateMemoryMiB = 512
	templateCores     = 1
)

// templateSpec says how the image becomes the configured template.
func (s *session) templateSpec(ctx context.Context, img guest.Image, say func(string)) (proxmox.TemplateSpec, error) {
	if s.cfg.Cluster.Storage == "" {
		return proxmox.TemplateSpec{}, usagef("build template: say where its disk shall be: set cluster.storage")
	}
	node, err := s.node(ctx)
	if err != nil {
		return proxmox.TemplateSpec{}, err
	}
	id, err := s.journal.ReserveVMID(ctx, orchestrator.VMID(s.cfg.Cluster.VMIDFirst), orchestrator.VMID(s.cfg.Cluster.VMIDLast),
		s.cfg.Cluster.VMIDRest, templateOwner)
	if err != nil {
		return proxmox.TemplateSpec{}, err
	}
	return proxmox.TemplateSpec{
		Name: s.cfg.Sandbox.Template, ImagePath: img.Path, Node: node, VMID: id, Storage: s.cfg.Cluster.Storage,
		MemoryMiB: templateMemoryMiB, Cores: templateCores, Bridge: s.cfg.Sandbox.Bridge,
		Description: "Debian guest of savepoint, recipe " + img.Hash,
		Progress: func(stage string, done, total int64) {
			if total > 0 {
				say(fmt.Sprintf("%s the image: %d %%", stage, 100*done/total))
				return
			}
			say(stage + " the template")
		},
	}, nil
}

// templateOwner stands for the template in the list of reserved VM ids.
const templateOwner orchestrator.SandboxID = "template"
