package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"savepoint/testbed/lab"
)

func newLab(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "lab", Short: "The local Proxmox-compatible cluster with real QEMU guests",
		Long: "The lab is a Proxmox-VE-compatible API server on loopback that drives real QEMU\n" +
			"guests, for those who have no cluster at hand. It runs in the background until\n" +
			"savepoint lab down. While it runs, every other command uses it unless a\n" +
			"configuration says otherwise.\n\n" +
			"It has one node or several. With --network evpn they are network namespaces with\n" +
			"BGP EVPN between them, and each tenant has a sealed zone; with --storage zfs the\n" +
			"disks are on a ZFS pool. Both need root and a few Debian packages; without them the\n" +
			"lab works all the same, but shows nothing about isolation or ZFS.",
	}
	c.AddCommand(newLabUp(a), newLabDown(a), newLabStatus(a), newLabServe(a))
	return c
}

func labDir(state string) string { return filepath.Join(state, "lab") }

func newLabDown(a *app) *cobra.Command {
	var timeout time.Duration
	var purge bool
	c := &cobra.Command{
		Use: "down", Short: "Stop the lab and its guests; their disks stay",
		Long: "Stops the lab and every guest it started, also what a killed lab left behind.\n" +
			"Disks, templates and records stay for the next lab up; --purge removes them.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := withTimeout(c.Context(), timeout)
			defer cancel()
			state, err := a.state()
			if err != nil {
				return err
			}
			p := newProgress(a.err, nil)
			p.say("stopping the lab")
			was, err := lab.Down(ctx, labDir(state))
			p.stop()
			if err != nil {
				return err
			}
			if purge {
				if err := lab.Purge(ctx, labDir(state)); err != nil {
					return err
				}
			}
			return a.printDown(was, purge)
		},
	}
	c.Flags().BoolVar(&purge, "purge", false, "remove all VMs, disks, templates and records of the lab too")
	addTimeout(c, &timeout)
	return c
}

func (a *app) printDown(was, purged bool) error {
	if a.format != formatText {
		return a.printJSON(struct {
			WasRunning bool `json:"was_running"`
			Purged     bool `json:"purged"`
		}{was, purged})
	}
	switch {
	case purged:
		fmt.Fprintln(a.out, "the lab is down and its state is removed")
	case was:
		fmt.Fprintln(a.out, "the lab is down; savepoint lab up brings it back as it was")
	default:
		fmt.Fprintln(a.out, "the lab was not running")
	}
	return nil
}

func newLabStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Say whether the lab runs and how to reach it", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			state, err := a.state()
			if err != nil {
				return err
			}
			st, err := lab.Read(labDir(state))
			if err != nil {
				return err
			}
			if a.format != formatText {
				return a.printJSON(st)
			}
			if !st.Running {
				fmt.Fprintln(a.out, "the lab does not run; start it with savepoint lab up")
				return nil
			}
			fmt.Fprintf(a.out, "running, pid %d\n", st.PID)
			return table(a.out, "", labRows(st))
		},
	}
}

// labRows tell where a running lab is and what it has.
func labRows(st lab.Status) [][]string {
	isolation := "guests are in zones that are kept apart"
	if !st.Isolation {
		isolation = "not provided: " + st.IsolationReason
	}
	rows := [][]string{
		{"api", st.APIURL},
		{"certificate authority", st.CAFile},
		{"version", st.PVEVersion},
		{"network, storage", st.Network + ", " + st.Storage},
		{"isolation", isolation},
		{"accelerator", st.Accelerator + ": " + oneLine(st.AcceleratorReason, 120)},
		{"jump host", st.JumpAddress},
	}
	for _, n := range st.Nodes {
		parts := []string{"offline"}
		if n.Online {
			parts[0] = "online"
		}
		if n.Address != "" {
			parts = append(parts, n.Address)
		}
		if n.SSH != "" {
			parts = append(parts, "ssh at "+n.SSH)
		}
		rows = append(rows, []string{"node " + n.Name, strings.Join(parts, ", ")})
	}
	if st.Faults != "" {
		rows = append(rows, []string{"faults", st.Faults})
	}
	return append(rows, []string{"configuration", st.Config}, []string{"state", st.StateDir})
}
