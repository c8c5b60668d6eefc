package main

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

const about = `savepoint gives an AI coding agent a virtual machine on a Proxmox VE cluster in
which every command is a transaction: policy, snapshot, run over SSH, validate,
commit or roll back. Without a cluster it brings its own: savepoint demo.`

const exitCodes = `Exit codes:
  0    committed, or done
  1    internal error
  2    wrong usage or configuration
  3    denied by the policy
  4    rolled back
  5    stuck: an operator is needed
  6    another instance holds the journal
  7    the cluster cannot be used
  130  interrupted, and rolled back`

func newRoot(a *app) *cobra.Command {
	a.format = formatText
	root := &cobra.Command{
		Use:           "savepoint",
		Short:         "Transactions for AI coding agents in virtual machines",
		Long:          about + "\n\n" + exitCodes,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
		Args:          cobra.NoArgs,
	}
	root.SetIn(a.stdin)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%s%w; see %s --help", prefix(c), err, c.CommandPath())
	})
	f := root.PersistentFlags()
	f.StringVar(&a.configFile, "config", "", "configuration file (default: ./savepoint.yaml, the user's, else the running lab's)")
	f.VarP(&a.format, "output", "o", "form of the result")
	f.StringVar(&a.stateDir, "state-dir", "", "directory for all durable state (default: $SAVEPOINT_STATE_DIR, else under the user's state directory)")
	f.StringVar(&a.logLevel, "log-level", "", "debug, info, warn or error (default from the configuration: warn)")
	root.AddCommand(
		newDemo(a), newLab(a), newDoctor(a), newTemplate(a), newSandbox(a), newPool(a), newRun(a), newTx(a), newPolicy(a), newNetwork(a), newRecover(a), newJournal(a), newGC(a), newBench(a),
	)
	wrapArgs(root)
	return root
}

// wrapArgs makes wrong arguments a usage error in every command below c, and a
// group without a sub-command print its help.
func wrapArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				var told usageError // it names the command already
				if !errors.As(err, &told) {
					err = fmt.Errorf("%s%w", prefix(c), err)
				}
				return usagef("%w; see %s --help", err, c.CommandPath())
			}
			return nil
		}
	}
	if c.HasSubCommands() && c.RunE == nil {
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("%sunknown command %q; see %s --help", prefix(c), args[0], c.CommandPath())
			}
			return c.Help()
		}
	}
	for _, s := range c.Commands() {
		wrapArgs(s)
	}
}

// prefix begins an error with the command that it is about. All errors begin with
// the name of the program anyway.
func prefix(c *cobra.Command) string {
	if !c.HasParent() {
		return ""
	}
	return strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ") + ": "
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v == "(devel)" {
			v = fmt.Sprintf("devel %.12s", s.Value)
		}
	}
	return v
}
