package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"savepoint/testbed/guest"
	"savepoint/testbed/lab"
)

// labFlags are the choices that lab up hands to lab serve. Empty ones are what the
// lab was made as, and the usual of a new one.
type labFlags struct {
	nodes   int
	network string
	storage string
	version string
	faults  string // file
}

func (f *labFlags) add(c *cobra.Command) {
	c.Flags().IntVar(&f.nodes, "nodes", 0, "number of nodes (default 1, or as many as it had)")
	c.Flags().StringVar(&f.network, "network", "", "how the guests are connected: user (no root needed; no two of them are) or evpn (zones; root) (default user, or what it had)")
	c.Flags().StringVar(&f.storage, "storage", "", "what the disks are: qcow2, or zfs (root) (default qcow2, or what it had)")
	c.Flags().StringVar(&f.version, "pve", "", "which Proxmox VE the API behaves like: 8 or 9 (default 9, or what it had)")
	c.Flags().StringVar(&f.faults, "faults", "", "a file of what goes wrong on purpose, as described above")
}

// options checks the choices for a lab in dir and gives them the lab's form.
func (f *labFlags) options(dir string) (lab.Options, error) {
	o, err := lab.Options{Dir: dir, Version: f.version, Nodes: f.nodes, Network: f.network, Storage: f.storage}.Complete()
	if err == nil {
		err = o.Check()
	}
	if err == nil {
		o.Faults, err = f.readFaults()
	}
	if err != nil {
		return o, usageError{err}
	}
	return o, nil
}

func (f *labFlags) readFaults() (lab.Faults, error) {
	if f.faults == "" {
		return lab.Faults{}, nil
	}
	file, err := filepath.Abs(f.faults)
	if err != nil {
		return lab.Faults{}, err
	}
	return lab.ReadFaults(file)
}

// serveArgs are lab serve's for a lab with these options.
func serveArgs(o lab.Options, state string) []string {
	args := []string{
		"lab", "serve", "--state-dir", state,
		"--nodes", strconv.Itoa(o.Nodes), "--network", o.Network, "--storage", o.Storage, "--pve", o.Version,
	}
	if o.Faults.File != "" {
		args = append(args, "--faults", o.Faults.File)
	}
	return args
}

func newLabUp(a *app) *cobra.Command {
	var f labFlags
	var timeout time.Duration
	c := &cobra.Command{
		Use: "up", Short: "Start the lab, or find it running", Args: cobra.NoArgs,
		Long: "Starts the lab in the background, or finds it running. What was there before comes\n" +
			"back, guests of a killed lab included.\n\n" + lab.FaultsHelp,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := withTimeout(c.Context(), timeout)
			defer cancel()
			st, started, err := a.labUp(ctx, f, newProgress(a.err, nil))
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
			fmt.Fprintf(a.out, "%s; network %s, storage %s\n", plural(len(st.Nodes), "node", "nodes"), st.Network, st.Storage)
			if !st.Isolation {
				fmt.Fprintf(a.out, "isolation is not provided: %s\n", st.IsolationReason)
			}
			if st.Faults != "" {
				fmt.Fprintf(a.out, "things go wrong on purpose, as %s says\n", st.Faults)
			}
			fmt.Fprintf(a.out, "state in %s; end it with savepoint lab down\n", st.StateDir)
			return nil
		},
	}
	f.add(c)
	addTimeout(c, &timeout)
	return c
}

// labUp starts the lab as a process of its own, or finds one that runs and is what
// is asked for.
func (a *app) labUp(ctx context.Context, f labFlags, p *progress) (lab.Status, bool, error) {
	defer p.stop()
	state, err := a.state()
	if err != nil {
		return lab.Status{}, false, err
	}
	if st, err := lab.Read(labDir(state)); err != nil || st.Running {
		if err == nil {
			err = f.same(st)
		}
		return st, false, err
	}
	o, err := f.options(labDir(state))
	if err != nil {
		return lab.Status{}, false, err
	}
	exe, err := os.Executable()
	if err != nil {
		return lab.Status{}, false, fmt.Errorf("start the lab: find our own program: %w", err)
	}
	p.say("starting the lab")
	return lab.Up(ctx, labDir(state), exe, serveArgs(o, state), func(step string) { p.say("%s", step) })
}

// same refuses a running lab that differs from what was asked for in so many words.
func (f *labFlags) same(st lab.Status) error {
	major, _, _ := strings.Cut(st.PVEVersion, ".")
	var differ []string
	nodes := ""
	if f.nodes != 0 {
		nodes = strconv.Itoa(f.nodes)
	}
	for _, o := range []struct{ name, asked, runs string }{
		{"nodes", nodes, strconv.Itoa(len(st.Nodes))},
		{"network", f.network, st.Network},
		{"storage", f.storage, st.Storage},
		{"pve", f.version, major},
	} {
		if o.asked != "" && o.asked != o.runs {
			differ = append(differ, fmt.Sprintf("--%s %s, and it has %s", o.name, o.asked, o.runs))
		}
	}
	if faults, err := f.readFaults(); err != nil {
		return usageError{err}
	} else if f.faults != "" && faults.Digest != st.FaultsDigest {
		differ = append(differ, fmt.Sprintf("--faults %s, and it has %s", f.faults, orNone(st.Faults)))
	}
	if len(differ) == 0 {
		return nil
	}
	return usagef("lab up: the lab runs already, and is not the one that is asked for: %s; end it first with savepoint lab down", strings.Join(differ, "; "))
}

func orNone(faults string) string {
	if faults == "" {
		return "no faults"
	}
	return "those that " + faults + " held when it started"
}

// newLabServe is the background process itself.
func newLabServe(a *app) *cobra.Command {
	var f labFlags
	c := &cobra.Command{
		Use: "serve", Short: "Run the lab in the foreground", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			state, err := a.state()
			if err != nil {
				return err
			}
			o, err := f.options(labDir(state))
			if err != nil {
				return err
			}
			if o.Cache, err = guest.CacheDir(); err != nil {
				return err
			}
			o.Log, o.Report = a.logger(a.err), reportPipe()
			return lab.Serve(c.Context(), o)
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
