package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/orchestrator/journal"
	"savepoint/orchestrator/provision"
	"savepoint/orchestrator/sshexec"
)

const aboutPool = "The pool has sandboxes that are made, booted, proved and snapshotted before anybody asks\n" +
	"for one, pool.size for each of pool.tenants. savepoint sandbox create hands one out if it\n" +
	"is what was asked for: same tenant, node and template, made as one would be made now, its\n" +
	"guest answers, its proof of isolation is not older than pool.proof_age and nothing was\n" +
	"applied to the networks since. One that is not is removed or proved anew. savepoint\n" +
	"sandbox return takes a sandbox back.\n\n" +
	"A pooled sandbox is called sp-ID. Its VM and the host name in its guest keep that name\n" +
	"when it is handed out; savepoint knows it by the new one from then on. It uses memory and\n" +
	"counts in cluster.max_per_node."

func newPool(a *app) *cobra.Command {
	c := &cobra.Command{Use: "pool", Short: "Keep sandboxes warm, so that creating one takes a second", Long: aboutPool}
	c.AddCommand(newPoolStatus(a), newPoolFill(a), newPoolDrain(a))
	return c
}

func newPoolStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show what waits in the pool", Args: cobra.NoArgs,
		Long: "Lists the pooled sandboxes, with what is wrong with one that would not be handed out.\n" +
			"It changes nothing and works beside the process that holds the journal.",
		RunE: func(c *cobra.Command, _ []string) error { return a.poolStatus(c.Context()) },
	}
}

func newPoolFill(a *app) *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use: "fill", Short: "Make what is missing in the pool", Args: cobra.NoArgs,
		Long: "Removes the pooled sandboxes that are outdated, too many or do not answer, repeats\n" +
			"proofs that get old, and makes sandboxes until the pool has pool.size for each tenant.\n" +
			"It can be interrupted and repeated, by a timer for example.",
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := withTimeout(c.Context(), timeout)
			defer cancel()
			s, err := a.open(ctx)
			if err != nil {
				return err
			}
			if s.cfg.Pool.Size == 0 {
				return usagef("fill the pool: pool.size is 0; set it, or run savepoint pool drain to remove what is left of the pool")
			}
			return s.changePool(func(p *provision.Pool) (provision.Filled, error) { return p.Fill(ctx) })
		},
	}
	addTimeout(c, &timeout)
	return c
}

func newPoolDrain(a *app) *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use: "drain", Short: "Remove every pooled sandbox", Args: cobra.NoArgs,
		Long: "Stops and removes the pooled sandboxes. Those that were handed out are left alone.",
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := withTimeout(c.Context(), timeout)
			defer cancel()
			s, err := a.open(ctx)
			if err != nil {
				return err
			}
			return s.changePool(func(p *provision.Pool) (provision.Filled, error) {
				removed, err := p.Drain(ctx)
				return provision.Filled{Removed: removed}, err
			})
		},
	}
	addTimeout(c, &timeout)
	return c
}

// changePool makes a change and prints what was done, also next to an error.
func (s *session) changePool(do func(*provision.Pool) (provision.Filled, error)) error {
	p := s.narrate()
	defer p.stop()
	done, err := do(provision.NewPool(s.prov))
	p.stop()
	if perr := s.app.printFilled(done); perr != nil {
		return perr
	}
	return err
}

func (a *app) printFilled(f provision.Filled) error {
	if a.format != formatText {
		return a.printJSON(provision.Filled{Made: append([]orchestrator.Sandbox{}, f.Made...), Removed: append([]provision.Removed{}, f.Removed...)})
	}
	for _, r := range f.Removed {
		fmt.Fprintf(a.out, "removed %s, %s: %s\n", r.Sandbox.Name, r.Sandbox.VM, printable(r.Why))
	}
	for _, sb := range f.Made {
		fmt.Fprintf(a.out, "made %s, %s%s\n", sb.Name, sb.VM, ofTenant(sb.Tenant))
	}
	if len(f.Removed)+len(f.Made) == 0 {
		fmt.Fprintln(a.out, "nothing to do")
	}
	return nil
}

func ofTenant(name string) string {
	if name == "" {
		return ""
	}
	return " for tenant " + name
}

// poolView is the printed form of the pool.
type poolView struct {
	Size      int                  `json:"size"` // wanted, for each tenant
	Tenants   []string             `json:"tenants"`
	Sandboxes []provision.Standing `json:"sandboxes"`
	// Unknown says why the sandboxes could not be compared with what new ones
	// would be.
	Unknown string `json:"unknown,omitempty"`
}

func (a *app) poolStatus(ctx context.Context) error {
	cfg, err := a.config(a.configFile, true)
	if err != nil {
		return err
	}
	view := poolView{Size: cfg.Pool.Size, Tenants: append([]string{}, poolTenants(cfg)...), Sandboxes: []provision.Standing{}}
	j, err := a.readJournalOf(cfg)
	if err != nil {
		return err
	}
	if j != nil {
		list, err := a.standings(ctx, cfg, j)
		if err != nil && (len(list) == 0 || !errors.Is(err, orchestrator.ErrUnavailable)) {
			return err
		}
		if view.Sandboxes = append(view.Sandboxes, list...); err != nil {
			view.Unknown = err.Error()
		}
	}
	if a.format != formatText {
		return a.printJSON(view)
	}
	return a.printPool(view)
}

// standings puts as much of a session together as a look needs.
func (a *app) standings(ctx context.Context, cfg configs.Config, j *journal.Journal) ([]provision.Standing, error) {
	s := &session{app: a, cfg: cfg, journal: j, onStep: func(provision.Step) {}, onEvent: func(orchestrator.Event) {}}
	var err error
	if s.secrets, err = redactions(cfg.Redact); err != nil {
		return nil, err
	}
	id, err := sshexec.LoadIdentity(cfg.SSH.IdentityFile)
	if err != nil { // whoever filled the pool had one
		return nil, usageError{err}
	}
	s.keys = []string{id.AuthorizedKey()}
	if err := s.openCluster(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askCluster)
	defer cancel()
	return provision.NewPool(s.provisioner()).Status(ctx)
}

func (a *app) printPool(v poolView) error {
	ready := 0
	rows := make([][]string, len(v.Sandboxes))
	for i, s := range v.Sandboxes {
		state := "ready"
		switch {
		case v.Unknown != "":
			state = "unknown"
		case s.Outdated != "":
			state = "outdated"
		case s.Waiting != "":
			state = "waiting"
		default:
			ready++
		}
		proved := "-"
		if !s.Proved.IsZero() {
			if proved = ageOf(s.Proved, time.Now()) + " ago"; !s.Current {
				proved += ", is repeated"
			}
		}
		rows[i] = []string{s.Name, state, strconv.Itoa(int(s.VM.ID)), s.VM.Node, cmp.Or(s.Tenant, "-"), strconv.Itoa(int(s.Template.ID)), ageOf(s.Created, time.Now()), proved}
	}
	if len(rows) > 0 {
		if err := table(a.out, "NAME\tSTATE\tVM\tNODE\tTENANT\tTEMPLATE\tAGE\tPROVED", rows); err != nil {
			return err
		}
	}
	for _, s := range v.Sandboxes {
		if why := cmp.Or(s.Outdated, s.Waiting); why != "" {
			fmt.Fprintf(a.out, "\n%s is not handed out:\n%s", s.Name, fold(printable(why), "  ", a.width(a.out)))
		}
	}
	if v.Unknown != "" {
		fmt.Fprintf(a.err, "savepoint: whether they are outdated is not known: %s\n", printable(v.Unknown))
	}
	return a.printPoolTotal(v, ready)
}

func (a *app) printPoolTotal(v poolView, ready int) error {
	var err error
	switch {
	case v.Size == 0 && len(v.Sandboxes) == 0:
		_, err = fmt.Fprintln(a.out, "no pool: pool.size is 0")
	case v.Size == 0:
		_, err = fmt.Fprintln(a.out, "pool.size is 0: remove what is left with savepoint pool drain")
	case v.Unknown != "":
		_, err = fmt.Fprintf(a.out, "%d pooled, pool.size is %d\n", len(v.Sandboxes), v.Size)
	default:
		each := ""
		if len(v.Tenants) > 1 {
			each = " for each of " + strings.Join(v.Tenants, ", ")
		}
		_, err = fmt.Fprintf(a.out, "%d ready, pool.size is %d%s\n", ready, v.Size, each)
	}
	return err
}
