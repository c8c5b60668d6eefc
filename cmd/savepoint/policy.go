package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"savepoint/configs"
	"savepoint/policy"
)

func newPolicy(a *app) *cobra.Command {
	c := &cobra.Command{Use: "policy", Short: "Ask the policy, try rules out, and grant exceptions"}
	c.AddCommand(newPolicyCheck(a), newPolicyTest(a), newPolicyExplain(a), newPolicyGrant(a), newPolicyGrants(a), newPolicyRevoke(a))
	return c
}

// policyFlags say which policy is asked, and for whom.
type policyFlags struct {
	as, profile string
	rules       []string
}

func (f *policyFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.as, "as", "agent", "who would run it: agent or root")
	c.Flags().StringVar(&f.profile, "profile", "", "set of rules: sealed or open-egress (default from the configuration: sealed)")
	f.addRules(c)
}

func (f *policyFlags) addRules(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.rules, "rules", nil, "file with further rules, on top of the configuration's; can be repeated")
}

// load reads the configuration and the rules.
func (f *policyFlags) load(a *app) (*policy.Engine, configs.Config, error) {
	cfg, err := a.config(a.configFile, false)
	if err != nil {
		return nil, cfg, err
	}
	cfg.Policy.Rules = append(append([]string(nil), cfg.Policy.Rules...), f.rules...)
	if f.profile != "" {
		cfg.Policy.Profile = f.profile
	}
	e, err := decider(cfg)
	return e, cfg, err
}

// request is load for commands that judge.
func (f *policyFlags) request(a *app, name string) (e *policy.Engine, req policy.Request, cfg configs.Config, err error) {
	if u := policy.User(f.as); u != policy.Agent && u != policy.Root {
		return nil, req, cfg, usagef("%s --as %s: no such account; use agent or root", name, f.as)
	}
	if e, cfg, err = f.load(a); err != nil {
		return nil, req, cfg, err
	}
	p := cfg.Policy.Profile
	if p != policy.Sealed && p != policy.OpenEgress {
		return nil, req, cfg, usagef("%s: there is no profile %q; use %s or %s", name, p, policy.Sealed, policy.OpenEgress)
	}
	return e, policy.Request{User: policy.User(f.as), Profile: p}, cfg, nil
}

// input opens a file, or standard input for "-".
func (a *app) input(path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(a.stdin), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, usageError{err}
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		f.Close()
		return nil, usagef("open %s: it is a directory", path)
	}
	return f, nil
}

func paintDecision(st style, d string) string {
	switch d {
	case "allow":
		return st.green(d)
	case "snapshot":
		return st.yellow(d)
	default:
		return st.red(d)
	}
}

// sayLifts tells which rules did not apply, and why.
func sayLifts(w io.Writer, lifts []policy.Lift, width int) {
	for _, l := range lifts {
		of := ""
		if l.Target != "" {
			of = " for " + oneLine(l.Target, 100)
		}
		fmt.Fprint(w, fold(fmt.Sprintf("%s lifts %s%s", l.By, l.Rule, of), "  ", width))
	}
}
