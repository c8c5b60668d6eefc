package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"savepoint/orchestrator"
	"savepoint/orchestrator/provision"
)

func newSandbox(a *app) *cobra.Command {
	c := &cobra.Command{Use: "sandbox", Short: "Make, list and remove agent VMs"}
	c.AddCommand(newSandboxCreate(a), newSandboxList(a), newSandboxShow(a), newSandboxReset(a), newSandboxDestroy(a))
	return c
}

func newSandboxCreate(a *app) *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use: "create NAME", Short: "Clone, start and prepare a sandbox",
		Long: "Clones the configured template, starts the VM, pins its SSH host key through the\n" +
			"guest agent, prepares the agent user and takes the pristine snapshot that\n" +
			"sandbox reset returns to. If anything fails, what was made is removed again.",
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
			defer s.narrate().stop()
			if _, err := s.prov.Lookup(ctx, args[0]); err == nil {
				return usagef("create sandbox %s: there is one already; choose another name or destroy it first", args[0])
			}
			tpl, err := s.template(ctx)
			if err != nil {
				return err
			}
			sb, err := s.prov.Create(ctx, args[0], tpl.VM)
			if err != nil {
				return err
			}
			return a.printSandbox(sb)
		},
	}
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
				return table(w, "NAME\tSTATE\tVM\tNODE\tADDRESS\tCREATED", rows)
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "destroyed ones too")
	return c
}

func newSandboxShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show one sandbox", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			views, err := a.sandboxViews(c.Context(), false)
			if err != nil {
				return err
			}
			for _, v := range views {
				if v.Name == args[0] {
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
			ctx, cancel := withTimeout(c.Context(), timeout)
			defer cancel()
			s, sb, err := a.openSandbox(ctx, args[0])
			if err != nil {
				return err
			}
			defer s.narrate().stop()
			release, err := s.engine.Hold(ctx, sb, "reset")
			if err != nil {
				return err
			}
			defer release()
			if err := s.prov.Reset(ctx, sb); err != nil {
				return err
			}
			sb.State, sb.Reason = orchestrator.SandboxReady, ""
			return a.printSandbox(sb)
		},
	}
	addTimeout(c, &timeout)
	return c
}

func newSandboxDestroy(a *app) *cobra.Command {
	var timeout time.Duration
	var force bool
	c := &cobra.Command{
		Use: "destroy NAME", Short: "Stop and remove a sandbox with its disks", Args: cobra.ExactArgs(1),
		Long: "Stops and removes the VM with its disks and snapshots. A sandbox with a stuck\n" +
			"transaction is kept for the operator to look at, unless --force is given.",
		RunE: func(c *cobra.Command, args []string) error {
			ctx, cancel := withTimeout(c.Context(), timeout)
			defer cancel()
			s, sb, err := a.openSandbox(ctx, args[0])
			if err != nil {
				return err
			}
			defer s.narrate().stop()
			// One that is merely open is for recovery first, force or not: it
			// could not be settled any more without its VM.
			release, err := s.engine.Hold(ctx, sb, "destroy")
			var stuck *orchestrator.StuckError
			switch {
			case err == nil:
				release()
			case force && errors.As(err, &stuck):
			default:
				return err
			}
			if err := s.prov.Destroy(ctx, sb); err != nil {
				return err
			}
			if err := s.engine.Forget(ctx, sb.ID); err != nil {
				return err
			}
			sb.State = orchestrator.SandboxDestroyed
			return a.printSandbox(sb)
		},
	}
	c.Flags().BoolVar(&force, "force", false, "also with a stuck transaction in it")
	addTimeout(c, &timeout)
	return c
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
	if v.Open != "" {
		fmt.Fprintf(a.out, "  transaction %s is stuck: %s\n", v.Open, printable(v.Hint))
	}
	return nil
}

func (a *app) printSandbox(sb orchestrator.Sandbox) error {
	if a.format != formatText {
		return a.printJSON(sb)
	}
	fmt.Fprintf(a.out, "%s: %s, %s, address %s\n", sb.Name, sb.State, sb.VM, addressText(sb.Address))
	if sb.Reason != "" {
		fmt.Fprintf(a.out, "  %s\n", printable(sb.Reason))
	}
	if sb.HostKey != "" {
		fmt.Fprintf(a.out, "  host key %s\n", sb.HostKey)
	}
	return nil
}
