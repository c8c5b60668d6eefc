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
)

func newTemplate(a *app) *cobra.Command {
	c := &cobra.Command{Use: "template", Short: "Build and list the VM templates that sandboxes are cloned from"}
	c.AddCommand(newTemplateBuild(a), newTemplateList(a))
	return c
}

func newTemplateBuild(a *app) *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use: "build", Short: "Make the template that sandboxes are cloned from",
		Long: "Makes the configured template on each node that sandboxes can be placed on, or on\n" +
			"one of them where its storage is shared.\n\n" +
			"With template.image, the URL of a stock Debian cloud image or a volume that is on\n" +
			"a storage already, the image is imported and started on template.bridge with a\n" +
			"static address; over SSH it gets the guest agent, the agent's account and the\n" +
			"workspace volume, is checked and loses its identity again. Without it the guest\n" +
			"image is built on this machine from Debian packages (once: it is cached by its\n" +
			"recipe) and uploaded; it is complete and is not started.\n\n" +
			"It is safe to repeat: a template of the same recipe is found, what an interrupted\n" +
			"build left is removed. A template of an older recipe stays for as long as a\n" +
			"sandbox is made from it.",
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
			built, err := s.buildTemplates(ctx, func(step string) { p.say("%s", step) })
			p.stop()
			if err != nil {
				return err
			}
			return s.printTemplates(ctx, built)
		},
	}
	addTimeout(c, &timeout)
	return c
}

func newTemplateList(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the templates on the cluster", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := a.openUnsettled(c.Context())
			if err != nil {
				return err
			}
			all, err := s.cluster.Templates(c.Context())
			if err != nil {
				return err
			}
			return s.printTemplates(c.Context(), all)
		},
	}
}

// templateView is the printed form of a template.
type templateView struct {
	Name   string `json:"name"`
	Node   string `json:"node"`
	VMID   int    `json:"vmid"`
	Recipe string `json:"recipe"` // "" for one that is not ours
	State  string `json:"state"`  // ready, building: what an interrupted build left
	// Created is when its VM was made.
	Created   time.Time `json:"created,omitzero"`
	Sandboxes int       `json:"sandboxes"` // made from it, and not destroyed
}

func (s *session) printTemplates(ctx context.Context, all []proxmox.Template) error {
	uses, err := s.templateUses(ctx)
	if err != nil {
		return err
	}
	views := make([]templateView, len(all))
	for i, t := range all {
		v := templateView{Name: t.Name, Node: t.VM.Node, VMID: int(t.VM.ID), Recipe: t.Recipe, State: "ready", Created: t.Created, Sandboxes: uses[t.VM]}
		if !t.Ready {
			v.State = "building"
		}
		views[i] = v
	}
	return printList(s.app, views, func(w io.Writer) error {
		if len(views) == 0 {
			fmt.Fprintln(s.app.err, "no templates; build one with savepoint template build")
			return nil
		}
		rows := make([][]string, len(views))
		for i, v := range views {
			rows[i] = []string{v.Name, v.State, strconv.Itoa(v.VMID), v.Node, shortRecipe(v.Recipe), ageOf(v.Created, time.Now()), strconv.Itoa(v.Sandboxes)}
		}
		return table(w, "NAME\tSTATE\tVM\tNODE\tRECIPE\tAGE\tSANDBOXES", rows)
	})
}

// templateUses counts the living sandboxes of each template.
func (s *session) templateUses(ctx context.Context) (map[orchestrator.VMRef]int, error) {
	boxes, err := s.journal.Sandboxes(ctx)
	if err != nil {
		return nil, err
	}
	uses := map[orchestrator.VMRef]int{}
	for _, sb := range boxes {
		if sb.State != orchestrator.SandboxDestroyed {
			uses[sb.Template]++
		}
	}
	return uses, nil
}

// shortRecipe is enough of a recipe's name to tell two apart.
func shortRecipe(recipe string) string {
	if recipe == "" {
		return "not ours"
	}
	return recipe[:min(12, len(recipe))]
}

// ageOf is how old something is, in its largest unit.
func ageOf(since, now time.Time) string {
	d := now.Sub(since)
	switch {
	case since.IsZero():
		return "-"
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", max(d, 0)/time.Second)
}
