package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"savepoint/testbed/guest"
	"savepoint/testbed/lab"
)

func newLab(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "lab", Short: "The local Proxmox-compatible cluster with real QEMU guests",
		Long: "The lab is a Proxmox-VE-compatible API server on loopback that drives real QEMU\n" +
			"guests, for those who have no cluster at hand. It runs in the background until\n" +
			"savepoint lab down. While it runs, every other command uses it unless a\n" +
			"configuration says otherwise.",
	}
	c.AddCommand(newLabUp(a), newLabDown(a), newLabStatus(a), newLabServe(a))
	return c
}

// labFlags are the choices that lab up hands to lab serve.
type labFlags struct {
	nodes   int
	network string
	storage string
	version string
}

func (f *labFlags) add(c *cobra.Command) {
	c.Flags().IntVar(&f.nodes, "nodes", 1, "number of nodes")
	c.Flags().StringVar(&f.network, "network", "user", "how the guests are connected: user (no root needed; sealed)")
	c.Flags().StringVar(&f.storage, "storage", "qcow2", "what the disks are: qcow2")
	c.Flags().StringVar(&f.version, "pve", "9", "which Proxmox VE the API behaves like: 8 or 9")
}

func (f *labFlags) check() error {
	switch {
	case f.nodes != 1:
		return usagef("--nodes %d: this lab has exactly one node", f.nodes)
	case f.network != "user":
		return usagef("--network %s: this lab connects guests by user-mode networks only; use --network user", f.network)
	case f.storage != "qcow2":
		return usagef("--storage %s: this lab keeps disks as qcow2 only; use --storage qcow2", f.storage)
	case f.version != "8" && f.version != "9":
		return usagef("--pve %s: must be 8 or 9", f.version)
	}
	return nil
}

func (f *labFlags) args() []string {
	return []string{
		"--nodes", fmt.Sprint(f.nodes), "--network", f.network, "--storage", f.storage, "--pve", f.version,
	}
}

func newLabUp(a *app) *cobra.Command {
	var f labFlags
	var timeout time.Duration
	c := &cobra.Command{
		Use: "up", Short: "Start the lab, or find it running", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			ctx, cancel := withTimeout(c.Context(), timeout)
			defer cancel()
			st, started, err := a.labUp(ctx, f, newProgress(a.err, nil))
			if err == nil && !started {
				err = sameVersion(c, f.version, st)
			}
			if err != nil {
				return err
			}
			if a.format != formatText {
				return a.printJSON(st)
			}
			verb := "runs already"
			if started {
				verb = "is up"
			}
			fmt.Fprintf(a.out, "the lab %s: Proxmox VE %s API at %s, accelerator %s\n", verb, st.PVEVersion, st.APIURL, st.Accelerator)
			fmt.Fprintf(a.out, "state in %s; end it with savepoint lab down\n", st.StateDir)
			return nil
		},
	}
	f.add(c)
	addTimeout(c, &timeout)
	return c
}

// labUp starts the lab as a process of its own.
func (a *app) labUp(ctx context.Context, f labFlags, p *progress) (lab.Status, bool, error) {
	defer p.stop()
	state, err := a.state()
	if err != nil {
		return lab.Status{}, false, err
	}
	exe, err := os.Executable()
	if err != nil {
		return lab.Status{}, false, fmt.Errorf("start the lab: find our own program: %w", err)
	}
	p.say("starting the lab")
	args := append([]string{"lab", "serve", "--state-dir", state}, f.args()...)
	return lab.Up(ctx, labDir(state), exe, args, func(step string) { p.say("%s", step) })
}

// sameVersion refuses a running lab of another version than the one asked for.
func sameVersion(c *cobra.Command, asked string, st lab.Status) error {
	if major, _, _ := strings.Cut(st.PVEVersion, "."); c.Flags().Changed("pve") && major != asked {
		return usagef("lab up --pve %s: the lab runs already, as version %s; end it first with savepoint lab down", asked, st.PVEVersion)
	}
	return nil
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
				if err := lab.Purge(labDir(state)); err != nil {
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
			return table(a.out, "", [][]string{
				{"api", st.APIURL},
				{"certificate authority", st.CAFile},
				{"version", st.PVEVersion},
				{"nodes", fmt.Sprint(len(st.Nodes))},
				{"network, storage", st.Network + ", " + st.Storage},
				{"accelerator", st.Accelerator + ": " + oneLine(st.AcceleratorReason, 120)},
				{"configuration", st.Config},
				{"state", st.StateDir},
			})
		},
	}
}

// newLabServe is the background process itself.
func newLabServe(a *app) *cobra.Command {
	var f labFlags
	c := &cobra.Command{
		Use: "serve", Short: "Run the lab in the foreground", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			state, err := a.state()
			if err != nil {
				return err
			}
			cache, err := guest.CacheDir()
			if err != nil {
				return err
			}
			return lab.Serve(c.Context(), lab.Options{
				Dir: labDir(state), Cache: cache, Version: f.version, Log: a.logger(a.err), Report: reportPipe(),
			})
		},
	}
	f.add(c)
	return c
}

// reportPipe is descriptor 3 when lab up started us, which gave us a pipe
// there; nil when a person did.
func reportPipe() io.WriteCloser {
	f := os.NewFile(3, "report")
	if f == nil {
		return nil
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return nil
	}
	return f
}
