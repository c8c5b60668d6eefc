package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"savepoint/orchestrator"
	"savepoint/orchestrator/provision"
)

func newSandbox(a *app) *cobra.Command {
	c := &cobra.Command{Use: "sandbox", Short: "Make, list and remove agent VMs"}
	c.AddCommand(newSandboxCreate(a), newSandboxList(a), newSandboxShow(a), newSandboxReset(a), newSandboxRelease(a), newSandboxReturn(a), newSandboxDestroy(a))
	return c
}

func newSandboxCreate(a *app) *cobra.Command {
	var timeout time.Duration
	var node, tenant string
	var fresh bool
	c := &cobra.Command{
		Use: "create NAME", Short: "Clone, start and prepare a sandbox, or take a warm one",
		Long: "Clones the configured template, starts the VM, pins its SSH host key through the\n" +
			"guest agent, prepares the agent user and takes the pristine snapshot that\n" +
			"sandbox reset returns to. If anything fails, what was made is removed again.\n" +
			"It is placed on the node with the most free memory that has the template, within\n" +
			"cluster.max_per_node and cluster.memory_reserve and never on a drained node.\n" +
			"With network.tenants it is in the zone of a tenant, and it is handed out only when\n" +
			"it is proved to be sealed: savepoint network apply makes the zones, savepoint\n" +
			"network verify shows the proof.\n" +
			"If a sandbox that is what was asked for waits in the pool, it is looked at and handed\n" +
			"out at once (savepoint pool --help); --fresh makes a new one all the same.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := provision.CheckName(args[0]); err != nil {
				return usageError{err}
			}
			ctx, cancel := withTimeout(c.Context(), timeout)
			defer cancel()
			s, err := a.open(ctx)
			if err != nil {
				return err
			}
			if name := args[0]; cleaner(s.secrets)(name) != name {
				return usagef("create sandbox: its name looks like a secret, and names are kept in the journal and on the cluster; choose another one")
			}
			wish, err := s.wish(tenant)
			if err != nil {
				return err
			}
			wish.Node, wish.Warm = node, !fresh
			p := s.narrate()
			defer p.stop()
			if _, err := s.prov.Lookup(ctx, args[0]); err == nil {
				return usagef("create sandbox %s: there is one already; choose another name or destroy it first", args[0])
			}
			sb, err := s.prov.Create(ctx, args[0], wish)
			p.stop()
			var place *provision.PlaceError
			if errors.As(err, &place) && place.Unknown {
				return usageError{err}
			}
			if err != nil {
				return err
			}
			return a.printSandbox(sb)
		},
	}
	c.Flags().StringVar(&node, "node", "", "place it on this node or not at all")
	c.Flags().StringVar(&tenant, "tenant", "", "the tenant whose network it is on; empty: sandbox.tenant")
	c.Flags().BoolVar(&fresh, "fresh", false, "make a new one, also when one waits in the pool")
	addTimeout(c, &timeout)
	return c
}

func newSandboxList(a *app) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "list", Short: "List the sandboxes", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			views, err := a.sandboxViews(c.Context(), all)
			if err != nil {
				return err
			}
			return printList(a, views, func(w io.Writer) error {
				if len(views) == 0 {
					fmt.Fprintln(a.err, "no sandboxes; make one with savepoint sandbox create NAME")
					return nil
				}
				rows := make([][]string, len(views))
				for i, v := range views {
					rows[i] = []string{v.Name, v.Health(), strconv.Itoa(int(v.VM.ID)), v.VM.Node, addressText(v.Address), v.Created.Local().Format(time.DateTime)}
				}
				if err := table(w, "NAME\tSTATE\tVM\tNODE\tADDRESS\tCREATED", rows); err != nil {
					return err
				}
				return printWithheld(w, views, a.width(w))
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also those that were destroyed, and those that wait in the pool")
	return c
}

func newSandboxShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show one sandbox", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			views, err := a.sandboxViews(c.Context(), true)
			if err != nil {
				return err
			}
			for _, v := range views {
				if v.Name == args[0] && v.State != orchestrator.SandboxDestroyed {
					return a.printView(v)
				}
			}
			return usagef("sandbox %q: not found; see savepoint sandbox list", args[0])
		},
	}
}

func newSandboxReset(a *app) *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use: "reset NAME", Short: "Return a sandbox to its first moment",
		Long: "Rolls the VM back to the pristine snapshot taken when it was made and verifies it.\n" +
			"Everything done in the sandbox since is gone, committed transactions included.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onSandbox(c, args[0], timeout, func(ctx context.Context, s *session, sb *orchestrator.Sandbox) error {
				release, err := s.engine.Hold(ctx, *sb, "reset")
				if err != nil {
					return err
				}
				defer release()
				// Directories and variables of before mean nothing afterwards.
				if err := s.journal.ClearSession(ctx, sb.ID); err != nil {
					return &orchestrator.JournalError{Cause: err}
				}
				if err := s.prov.Reset(ctx, *sb); err != nil {
					return err
				}
				*sb, err = s.prov.Lookup(ctx, sb.Name) // ready, or one of the pool
				return err
			})
		},
	}
	addTimeout(c, &timeout)
	return c
}

func newSandboxRelease(a *app) *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use: "release NAME", Short: "Hand a quarantined sandbox out again, after its cause was mended",
		Long: "Verifies that the VM is the sandbox's and unlocked, that its snapshots are complete\n" +
			"and that the guest answers with the pinned key and is the one its snapshots say.\n" +
			"Only then is the sandbox ready again. Nothing is rolled back.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onSandbox(c, args[0], timeout, func(ctx context.Context, s *session, sb *orchestrator.Sandbox) error {
				release, err := s.engine.Hold(ctx, *sb, "release")
				if err != nil {
					return err
				}
				defer release()
				if err := s.prov.Release(ctx, *sb); err != nil {
					return err
				}
				*sb, err = s.prov.Lookup(ctx, sb.Name) // ready, or one of the pool
				return err
			})
		},
	}
	addTimeout(c, &timeout)
	return c
}

// onSandbox does something to the sandbox of that name, shows its steps, and
// prints what has become of the sandbox.
func (a *app) onSandbox(c *cobra.Command, name string, timeout time.Duration, do func(context.Context, *session, *orchestrator.Sandbox) error) error {
	ctx, cancel := withTimeout(c.Context(), timeout)
	defer cancel()
	s, sb, err := a.openSandbox(ctx, name)
	if err != nil {
		return err
	}
	p := s.narrate()
	err = do(ctx, s, &sb)
	p.stop()
	if err != nil {
		return err
	}
	return a.printSandbox(sb)
}

// printWithheld says below a list why sandboxes are not handed out.
func printWithheld(w io.Writer, views []sandboxView, width int) error {
	for _, v := range views {
		if v.Unavailable != "" {
			if _, err := fmt.Fprintf(w, "\n%s is unavailable:\n%s", v.Name, fold(v.Unavailable+"; nothing is lost, and it can be used when the node is back", "  ", width)); err != nil {
				return err
			}
		}
		if v.Health() != string(orchestrator.SandboxQuarantined) {
			continue
		}
		why := v.Reason
		if v.Open != "" {
			why = "transaction " + v.Open + " is stuck"
		}
		if _, err := fmt.Fprintf(w, "\n%s is withheld:\n%s", v.Name, fold(why+"; "+v.Hint, "  ", width)); err != nil {
			return err
		}
	}
	return nil
}

func newSandboxDestroy(a *app) *cobra.Command {
	var timeout time.Duration
	var force bool
	c := &cobra.Command{
		Use: "destroy NAME", Short: "Stop and remove a sandbox with its disks", Args: cobra.ExactArgs(1),
		Long: "Stops and removes the VM with its disks and snapshots. A sandbox with a stuck\n" +
			"transaction is kept for the operator to look at, unless --force is given.",
		RunE: func(c *cobra.Command, args []string) error {
			return a.onSandbox(c, args[0], timeout, func(ctx context.Context, s *session, sb *orchestrator.Sandbox) error {
				if err := s.remove(ctx, *sb, force); err != nil {
					return err
				}
				sb.State = orchestrator.SandboxDestroyed
				return nil
			})
		},
	}
	c.Flags().BoolVar(&force, "force", false, "also with a stuck transaction in it")
	addTimeout(c, &timeout)
	return c
}

// remove destroys a sandbox that is idle.
func (s *session) remove(ctx context.Context, sb orchestrator.Sandbox, force bool) error {
	if err := idle(ctx, s.engine, sb, force); err != nil {
		return err
	}
	if err := s.prov.Destroy(ctx, sb); err != nil {
		return err
	}
	return s.engine.Forget(ctx, sb.ID)
}

// idle reports an error when a transaction is unfinished in the sandbox: it could not
// be settled any more without its VM. One that is stuck keeps it for the operator,
// unless by force.
func idle(ctx context.Context, e *orchestrator.Engine, sb orchestrator.Sandbox, force bool) error {
	release, err := e.Hold(ctx, sb, "destroy")
	if err == nil {
		release()
	}
	var stuck *orchestrator.StuckError
	if force && errors.As(err, &stuck) {
		return nil
	}
	return err
}

// wish is what a new sandbox of the tenant needs; "" is the configured tenant.
func (s *session) wish(tenant string) (provision.Wish, error) {
	all := s.cfg.Network.Tenants
	if tenant = cmp.Or(tenant, s.cfg.Sandbox.Tenant); tenant == "" && len(all) > 0 {
		tenant = all[0].Name
	}
	names := make([]string, len(all))
	for i, t := range all {
		if names[i] = t.Name; t.Name == tenant {
			return provision.Wish{Tenant: tenant, Zone: t.Nodes}, nil
		}
	}
	if tenant == "" {
		return provision.Wish{}, nil
	}
	return provision.Wish{}, usagef("create sandbox: there is no tenant %q; choose one of network.tenants (%s)", tenant, cmp.Or(strings.Join(names, ", "), "there are none"))
}

// addressText is "-" for a sandbox that has no address yet.
func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return "-"
	}
	return a.String()
}

// printView prints a sandbox with what the journal says is wrong with it.
func (a *app) printView(v sandboxView) error {
	if a.format != formatText {
		return a.printJSON(v)
	}
	if err := a.printSandbox(v.Sandbox); err != nil {
		return err
	}
	if v.Unavailable != "" {
		fmt.Fprintf(a.out, "  unavailable: %s\n", printable(v.Unavailable))
	}
	if v.Open != "" {
		fmt.Fprintf(a.out, "  transaction %s is stuck: %s\n", v.Open, printable(v.Hint))
	}
	if v.Begun != "" {
		fmt.Fprintf(a.out, "  transaction %s is open in it, without an order until %s; see savepoint tx show %s\n", v.Begun, v.Expires.Local().Format(time.DateTime), v.Begun)
	}
	for _, s := range v.Session {
		fmt.Fprintf(a.out, "  session of %s: directory %s, variables %s\n", s.As, oneLine(cmp.Or(s.Dir, "(home)"), 200), cmp.Or(strings.Join(s.Variables, " "), "none"))
	}
	return nil
}

func (a *app) printSandbox(sb orchestrator.Sandbox) error {
	if a.format != formatText {
		return a.printJSON(sb)
	}
	fmt.Fprintf(a.out, "%s: %s, %s, address %s\n", sb.Name, sb.State, sb.VM, addressText(sb.Address))
	if sb.Tenant != "" {
		fmt.Fprintf(a.out, "  tenant %s, network %s\n", sb.Tenant, cmp.Or(sb.VNet, "(none yet)"))
	}
	if sb.Workspace != "" {
		fmt.Fprintf(a.out, "  workspace volume %s\n", sb.Workspace)
	}
	if sb.Reason != "" {
		fmt.Fprintf(a.out, "  %s\n", printable(sb.Reason))
	}
	if sb.HostKey != "" {
		fmt.Fprintf(a.out, "  host key %s\n", sb.HostKey)
	}
	return nil
}
