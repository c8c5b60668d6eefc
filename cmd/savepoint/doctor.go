package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/proxmox"
)

// finding is one line of the doctor's report. Its JSON form is a contract.
type finding struct {
	Check  string `json:"check"`
	Level  string `json:"level"` // ok, warning, problem
	Detail string `json:"detail"`
	Mend   string `json:"mend"`
}

const (
	levelOK      = "ok"
	levelWarning = "warning"
	levelProblem = "problem"
)

func newDoctor(a *app) *cobra.Command {
	var timeout time.Duration
	var canary, setup, program bool
	c := &cobra.Command{
		Use: "doctor", Short: "Say whether the cluster can be used, and what to mend",
		Long: "Asks the configured cluster for everything that sandboxes rest on: version, quorum,\n" +
			"clocks, certificates, nodes, our token's rights, storages, networks, the template,\n" +
			"the SSH route, workspace volumes, and who else works on our VMs. It changes nothing.\n\n" +
			"--canary proves what the storages promise: on each that sandboxes can live on a VM\n" +
			"is made, snapshotted, damaged, rolled back and destroyed.\n" +
			"--setup prints, as a shell script and without asking the cluster, all that its\n" +
			"administrator does once. --program prints the program for the nodes that it names.\n\n" +
			"Exit code 7: there is a problem.",
		Example: "  savepoint doctor --output json\n" +
			"  savepoint doctor --setup > setup.sh     # read it, then run it as root on a node",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case setup && canary, program && canary, setup && program:
				return usagef("doctor: --canary, --setup and --program cannot be used together; give one of them")
			case program:
				return a.printProgram()
			case setup:
				return a.printSetup()
			}
			ctx, cancel := withTimeout(c.Context(), timeout)
			defer cancel()
			return a.doctor(ctx, canary)
		},
	}
	c.Flags().BoolVar(&canary, "canary", false, "prove snapshots and rollback with a VM made for it")
	c.Flags().BoolVar(&setup, "setup", false, "print what the cluster's administrator does once, as a shell script")
	c.Flags().BoolVar(&program, "program", false, "print the program that the nodes need for workspace snapshots")
	addTimeout(c, &timeout)
	return c
}

func (a *app) doctor(ctx context.Context, canary bool) error {
	open := a.openUnsettled
	if canary { // what an earlier canary left is collected first
		open = a.open
	}
	s, err := open(ctx)
	if err != nil {
		return err
	}
	d := &doctor{s: s, cfg: s.cfg, p: newProgress(a.err, s.secrets)}
	defer d.p.stop()
	d.p.say("examining the cluster")
	d.examine(ctx)
	if canary && ctx.Err() == nil {
		if err := d.canaries(ctx); err != nil {
			return err
		}
	}
	d.p.stop()
	if err := ctx.Err(); err != nil { // half of an answer is none
		return fmt.Errorf("examine the cluster: %w", context.Cause(ctx))
	}
	return a.printFindings(d.findings)
}

// doctor collects findings. What several checks need is asked for once.
type doctor struct {
	s   *session
	cfg configs.Config
	p   *progress

	version proxmox.Version
	sites   []proxmox.Site // all nodes, with the templates on them
	facts   []proxmox.NodeFacts
	boxes   []orchestrator.Sandbox // living ones
	blind   bool                   // our token may not look at the cluster as a whole

	findings []finding
}

func (d *doctor) add(check, level, detail, mend string) {
	d.findings = append(d.findings, finding{check, level, detail, mend})
}

func (d *doctor) ok(check, format string, args ...any) {
	d.add(check, levelOK, fmt.Sprintf(format, args...), "")
}

// problem notes an error; its text says what to do.
func (d *doctor) problem(check string, err error) { d.failed(check, levelProblem, err) }

func (d *doctor) failed(check, level string, err error) {
	detail, mend := err.Error(), ""
	var u *orchestrator.UnsupportedError
	if errors.As(err, &u) {
		detail, mend = u.What, u.Mend
	}
	d.add(check, level, detail, mend)
}

// unknown notes what could not be asked of the cluster: for want of a right, or
// of an answer.
func (d *doctor) unknown(check, what string, err error) {
	if !errors.Is(err, orchestrator.ErrDenied) {
		d.failed(check, levelWarning, err)
		return
	}
	d.add(check, levelWarning, what+" not known: our token has no Sys.Audit on /", d.lookGrant("/"))
}

// unknownOf is unknown for nodes, which are named together.
func (d *doctor) unknownOf(check, what string, nodes []string) {
	if len(nodes) == 0 {
		return
	}
	path := "/nodes/" + nodes[0]
	if d.blind { // what is granted on top holds for nodes too
		path = "/"
	}
	d.add(check, levelWarning, fmt.Sprintf("%s of %s are not known: our token has no Sys.Audit there", what, strings.Join(nodes, ", ")), d.lookGrant(path))
}

func (d *doctor) lookGrant(path string) string {
	return d.grant(path, "SavepointLook", []string{"Sys.Audit"})
}

// examine goes from what everything needs to the details. Without an API there
// is nothing more to ask.
func (d *doctor) examine(ctx context.Context) {
	var err error
	if d.version, err = d.s.cluster.Version(ctx); err != nil {
		d.problem("api", err)
		return
	}
	d.ok("api", "%s answers and accepts our credentials", d.cfg.Cluster.URL)
	if d.sites, err = d.s.cluster.Sites(ctx, d.cfg.Sandbox.Template); err != nil {
		d.problem("nodes", err)
		return
	}
	all, err := d.s.journal.Sandboxes(ctx)
	if err != nil {
		d.problem("sandboxes", err)
		return
	}
	d.boxes = slices.DeleteFunc(all, func(sb orchestrator.Sandbox) bool { return sb.State == orchestrator.SandboxDestroyed })
	d.facts = d.s.cluster.LookAt(ctx, d.online())
	_, err = d.s.cluster.Membership(ctx)
	d.blind = errors.Is(err, orchestrator.ErrDenied)
	for _, check := range []func(context.Context){
		d.versions, d.quorum, d.clocks, d.certificates, d.nodes, d.privileges, d.storages,
		d.networks, d.packages, d.template, d.ssh, d.workspaces, d.schedules, d.sandboxes,
	} {
		if ctx.Err() != nil {
			return
		}
		check(ctx)
	}
}

func (d *doctor) online() []string {
	var out []string
	for _, s := range d.sites {
		if s.Online {
			out = append(out, s.Name)
		}
	}
	return out
}

// usable reports whether sandboxes may be on the node.
func (d *doctor) usable(node string) bool {
	return len(d.cfg.Cluster.Nodes) == 0 || slices.Contains(d.cfg.Cluster.Nodes, node)
}

// usableFacts are the facts of nodes that are there and that sandboxes may be on.
func (d *doctor) usableFacts() []proxmox.NodeFacts {
	return slices.DeleteFunc(slices.Clone(d.facts), func(f proxmox.NodeFacts) bool { return !d.usable(f.Node) })
}

func (d *doctor) ssh(ctx context.Context) {
	switch err := d.s.ssh.Reach(ctx); {
	case err != nil:
		d.problem("ssh", err)
	case d.cfg.SSH.Jump.Configured():
		d.ok("ssh", "the jump host %s has the pinned key and lets us in", d.cfg.SSH.Jump.Address)
	default:
		d.ok("ssh", "guests are dialled directly; no jump host is configured")
	}
}

// perNode are nodes by what is to be said of them, so that it is said once.
type perNode struct {
	order []string
	nodes map[string][]string
}

func (p *perNode) add(node, text string) {
	if p.nodes == nil {
		p.nodes = map[string][]string{}
	}
	if p.nodes[text] == nil {
		p.order = append(p.order, text)
	}
	p.nodes[text] = append(p.nodes[text], node)
}

// each calls f for every text with the nodes that it is about.
func (p *perNode) each(f func(nodes, text string)) {
	for _, text := range p.order {
		f(strings.Join(p.nodes[text], ", "), text)
	}
}
