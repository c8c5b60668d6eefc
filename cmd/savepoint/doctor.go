package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"savepoint/orchestrator"
	"savepoint/orchestrator/janitor"
	"savepoint/proxmox"
)

// finding is one line of the doctor's report. Its JSON form is a contract.
type finding struct {
	Check  string `json:"check"`
	Level  string `json:"level"` // ok, warning, problem
	Detail string `json:"detail"`
	Mend   string `json:"mend"`
}

func newDoctor(a *app) *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use: "doctor", Short: "Say whether the cluster can be used, and what to mend",
		Long: "Asks the configured cluster for its version, nodes and storages, our token's\n" +
			"rights, the template, and whether the jump host lets us in. It changes nothing there.\n" +
			"Exit code 7: there is a problem.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := withTimeout(c.Context(), timeout)
			defer cancel()
			s, err := a.openUnsettled(ctx)
			if err != nil {
				return err
			}
			p := newProgress(a.err, s.secrets)
			p.say("examining the cluster")
			d := &doctor{s: s}
			d.examine(ctx)
			p.stop()
			return a.printFindings(d.findings)
		},
	}
	addTimeout(c, &timeout)
	return c
}

type doctor struct {
	s        *session
	findings []finding
}

func (d *doctor) add(check, level, detail, mend string) {
	d.findings = append(d.findings, finding{check, level, detail, mend})
}

// problem notes an error; its text says what to do.
func (d *doctor) problem(check string, err error) {
	detail, mend := err.Error(), ""
	var u *orchestrator.UnsupportedError
	if errors.As(err, &u) {
		detail, mend = u.What, u.Mend
	}
	d.add(check, "problem", detail, mend)
}

// examine goes from what everything needs to the details. Without an API there
// is nothing more to ask.
func (d *doctor) examine(ctx context.Context) {
	v, err := d.s.cluster.Version(ctx)
	if err != nil {
		d.problem("api", err)
		return
	}
	d.add("api", "ok", d.s.cfg.Cluster.URL+" answers and accepts our credentials", "")
	if v.Supported() {
		d.add("version", "ok", "Proxmox VE "+v.Text, "")
	} else {
		d.add("version", "warning", "Proxmox VE "+v.Text+" is not one that savepoint knows", "use 8.4 or 9")
	}
	if !d.nodes(ctx) {
		return
	}
	tpl, err := d.s.template(ctx)
	use := proxmox.Use{Bridges: []string{d.s.cfg.Sandbox.Bridge}}
	if err != nil {
		d.problem("template", err)
	} else {
		d.add("template", "ok", fmt.Sprintf("%s is %s", tpl.Name, tpl.VM), "")
		use.Templates, use.Storages = []orchestrator.VMRef{tpl.VM}, []string{tpl.Storage}
		d.storage(ctx, tpl)
	}
	d.privileges(ctx, v, use)
	d.sandboxes(ctx)
	if err := d.s.ssh.Reach(ctx); err != nil {
		d.problem("ssh", err)
	} else if d.s.cfg.SSH.Jump.Configured() {
		d.add("ssh", "ok", "the jump host "+d.s.cfg.SSH.Jump.Address+" has the pinned key and lets us in", "")
	} else {
		d.add("ssh", "ok", "guests are dialled directly; no jump host is configured", "")
	}
}

func (d *doctor) storage(ctx context.Context, tpl proxmox.Template) {
	all, err := d.s.cluster.Storages(ctx, tpl.VM.Node)
	if err != nil {
		d.problem("storage", err)
		return
	}
	i := slices.IndexFunc(all, func(s proxmox.Storage) bool { return s.ID == tpl.Storage })
	if i < 0 {
		d.add("storage", "problem", fmt.Sprintf("storage %q of the template is not visible on %s", tpl.Storage, tpl.VM.Node),
			"give the token Datastore.Audit and Datastore.AllocateSpace on it")
		return
	}
	s, can := all[i], all[i].Snapshots()
	detail := fmt.Sprintf("%s (%s), %d GiB free: %s", s.ID, s.Type, s.Free>>30, can.Note)
	switch {
	case !can.Possible:
		d.add("storage", "problem", detail, "move the template to a ZFS, LVM-thin, RBD or qcow2 storage")
	case can.LatestOnly:
		d.add("storage", "ok", detail+"; only the newest snapshot can be restored", "")
	default:
		d.add("storage", "ok", detail, "")
	}
}

// sandboxes warns of what others do to our sandboxes and of what is left of
// crashes. It asks like gc and changes nothing.
func (d *doctor) sandboxes(ctx context.Context) {
	const check = "sandboxes"
	j, err := d.s.janitor(0, nil)
	if err != nil {
		d.problem(check, err)
		return
	}
	r, err := j.Look(ctx)
	if err != nil {
		d.problem(check, err)
		return
	}
	before := len(d.findings)
	for _, f := range r.Findings {
		switch f.Kind {
		case janitor.KindHA, janitor.KindReplication:
			d.add(check, "warning", fmt.Sprintf("%s of sandbox %s: %s", f.Subject, f.Sandbox, f.Evidence), f.Command)
		case janitor.KindForeignSnap:
			d.add(check, "warning", fmt.Sprintf("%s of sandbox %s: %s", f.Subject, f.Sandbox, f.Evidence), "keep other snapshot tools off sandboxes, or delete it there")
		case janitor.KindUnseen:
			d.add(check, "warning", f.Subject+": "+f.Evidence, "see why it does not answer")
		default: // gc's work: counted below by its level
		}
	}
	if n := r.Count(janitor.LevelCollect) + r.Count(janitor.LevelOperator); n > 0 {
		d.add(check, "warning", fmt.Sprintf("%d things are left of crashed or interrupted work", n), "see savepoint gc --dry-run")
	}
	if len(d.findings) == before {
		d.add(check, "ok", "nothing is left over, and nobody else works on them", "")
	}
}

func (d *doctor) privileges(ctx context.Context, v proxmox.Version, use proxmox.Use) {
	missing, err := d.s.cluster.MissingPrivileges(ctx, v, use)
	if err != nil {
		d.problem("privileges", err)
		return
	}
	if len(missing) == 0 {
		d.add("privileges", "ok", "the token may do all that is needed", "")
	}
	for _, m := range missing {
		d.add("privileges", "problem", fmt.Sprintf("%s is missing on %s, needed for %s", strings.Join(m.AnyOf, " or "), m.Path, m.For),
			"grant it to the user and to the token (a token with separated privileges has only its own)")
	}
}

func (a *app) printFindings(fs []finding) error {
	usable := !slices.ContainsFunc(fs, func(f finding) bool { return f.Level == "problem" })
	if a.format != formatText {
		err := a.printJSON(struct {
			Usable   bool      `json:"usable"`
			Findings []finding `json:"findings"`
		}{usable, fs})
		if err != nil {
			return err
		}
	} else {
		printFindingsText(a.out, a.style(a.out), fs, usable)
	}
	if !usable {
		return outcomeError{exitUnusable}
	}
	return nil
}

func printFindingsText(w io.Writer, st style, fs []finding, usable bool) {
	for _, f := range fs {
		level := st.green("ok     ")
		switch f.Level {
		case "warning":
			level = st.yellow("warning")
		case "problem":
			level = st.red("problem")
		}
		fmt.Fprintf(w, "%s  %-10s  %s\n", level, f.Check, f.Detail)
		if f.Mend != "" {
			fmt.Fprintf(w, "%21s%s\n", "", f.Mend)
		}
	}
	if usable {
		fmt.Fprintln(w, "\nthe cluster can be used")
	} else {
		fmt.Fprintln(w, "\nthe cluster cannot be used as it is")
	}
}
