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
	"savepoint/orchestrator/provision"
	"savepoint/policy"
)

// longestGrant bounds --for: a grant is for what is about to be done.
const longestGrant = 24 * time.Hour

// grantView is a grant as it is listed.
type grantView struct {
	Grant   orchestrator.GrantID `json:"grant"`
	Sandbox string               `json:"sandbox"`
	State   string               `json:"state"` // open, used, revoked or expired
	Rules   []string             `json:"rules"`
	Command string               `json:"command"`
	Digest  string               `json:"command_sha256"`
	As      policy.User          `json:"as"`
	By      string               `json:"by,omitempty"`
	Made    time.Time            `json:"made"`
	Expires time.Time            `json:"expires"`
	UsedBy  orchestrator.TxID    `json:"used_by,omitempty"`
	Revoked time.Time            `json:"revoked,omitzero"`
	Lifts   []policy.Lift        `json:"lifts,omitempty"` // what it will lift; only when it is made
}

func viewGrant(g orchestrator.Grant, now time.Time) grantView {
	return grantView{
		Grant: g.ID, Sandbox: g.Name, State: g.State(now), Rules: g.Rules, Command: g.Command, Digest: g.Digest, As: g.As, By: g.By,
		Made: g.Made, Expires: g.Expires, UsedBy: g.Used, Revoked: g.Revoked,
	}
}

func newPolicyGrant(a *app) *cobra.Command {
	var as string
	var rules []string
	var last time.Duration
	c := &cobra.Command{
		Use: "grant SANDBOX --rule ID [flags] -- COMMAND", Short: "Let one denied command through, once",
		Long: "Lifts rules that deny a command for one transaction of the sandbox with exactly\n" +
			"this command and account. The command runs inside a snapshot; what leaves the\n" +
			"sandbox cannot be undone. The first transaction that begins uses the grant up,\n" +
			"however it ends; one that is denied all the same does not. Validations never use\n" +
			"one. savepoint run --grant RULE does the same for the one transaction it runs.",
		Example: "  savepoint policy grant demo --rule fs.delete-root --for 5m -- 'rm -rf /'",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef("policy grant: a sandbox and a command are needed: savepoint policy grant SANDBOX --rule ID -- COMMAND")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(rules) == 0:
				return usagef("policy grant: which rule? --rule ID; savepoint policy check -- COMMAND names those that deny it")
			case last <= 0 || last > longestGrant:
				return usagef("policy grant --for %s: must be more than nothing and at most %s", last, longestGrant)
			}
			return a.grant(c.Context(), args[0], orchestrator.Grant{
				Rules: slices.Compact(slices.Sorted(slices.Values(rules))), As: policy.User(as), By: "cli",
			}, strings.Join(args[1:], " "), last)
		},
	}
	c.Flags().StringVar(&as, "as", "agent", "who will run it: agent or root")
	c.Flags().StringArrayVar(&rules, "rule", nil, "the rule to lift; can be repeated")
	addSpan(c.Flags(), &last, "for", 10*time.Minute, "how long it can be used, at most 24h")
	return c
}

func (a *app) grant(ctx context.Context, sandbox string, g orchestrator.Grant, command string, last time.Duration) error {
	f := policyFlags{as: string(g.As)}
	e, req, cfg, err := f.request(a, "policy grant")
	if err != nil {
		return err
	}
	now := time.Now().Truncate(0)
	g.ID, g.Made, g.Expires, g.Profile = orchestrator.NewGrantID(now), now, now.Add(last), req.Profile
	req.Command, req.Now = command, now
	lifts, err := worth(e, req, g)
	if err != nil {
		return err
	}
	secrets, err := redactions(cfg.Redact)
	if err != nil {
		return err
	}
	j, err := a.writeJournalOf(cfg)
	if err != nil {
		return err
	}
	sb, err := provision.Lookup(ctx, j, sandbox)
	if err != nil {
		return named(err)
	}
	g.Sandbox, g.Name = sb.ID, sb.Name
	if err := j.PutGrant(ctx, g.For(command, secrets)); err != nil {
		return &orchestrator.JournalError{Cause: err}
	}
	if a.format != formatText {
		view := viewGrant(g.For(command, secrets), now)
		view.Command, view.Lifts = command, lifts
		return a.printJSON(view)
	}
	fmt.Fprintf(a.out, "%s: %s may run this once as %s until %s (%s)\n", g.ID, g.Name, g.As, g.Expires.Local().Format(time.TimeOnly), short(last))
	printWhole(a.out, command, a.width(a.out))
	sayLifts(a.out, lifts, a.width(a.out))
	return nil
}

// worth returns what a grant would lift, and refuses one that would not do what
// it is for: a rule that does not deny the command, or a command that would be
// denied all the same.
func worth(e *policy.Engine, req policy.Request, g orchestrator.Grant) ([]policy.Lift, error) {
	for _, rule := range g.Rules {
		if err := e.Grantable(rule); err != nil {
			return nil, usagef("policy %w; see savepoint policy explain", err)
		}
		req.Grants = append(req.Grants, policy.Grant{ID: string(g.ID), Rule: rule, Command: req.Command, User: g.As, Expires: g.Expires})
	}
	plain := req
	plain.Grants = nil
	without := e.Decide(plain)
	if without.Decision != policy.Deny {
		return nil, usagef("policy grant: the command is not denied (%s, rule %s): it needs no grant", without.Decision, without.Rule)
	}
	v := e.Decide(req)
	var lifts []policy.Lift
	lifted := map[string]bool{}
	for _, l := range v.Lifted {
		if id, ok := orchestrator.GrantOf(l); ok && id == g.ID {
			lifts, lifted[l.Rule] = append(lifts, l), true
		}
	}
	for _, rule := range g.Rules {
		if !lifted[rule] {
			return nil, usagef("policy grant: rule %s does not deny this command; it is denied by %s", rule, strings.Join(denying(without), ", "))
		}
	}
	if still := denying(v); len(still) > 0 {
		for _, rule := range still {
			if e.Grantable(rule) != nil {
				return nil, usagef("policy grant: the command would still be denied by %s, which no grant can lift", rule)
			}
		}
		return nil, usagef("policy grant: the command would still be denied; add --rule %s", strings.Join(still, " --rule "))
	}
	return lifts, nil
}

func newPolicyGrants(a *app) *cobra.Command {
	var open bool
	c := &cobra.Command{
		Use: "grants [SANDBOX]", Short: "List grants, newest first, and what became of them", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			j, err := a.readJournal()
			if err != nil {
				return err
			}
			var all []orchestrator.Grant
			if j != nil {
				if all, err = j.Grants(c.Context(), ""); err != nil {
					return err
				}
			}
			now := time.Now()
			var views []grantView
			for _, g := range all {
				v := viewGrant(g, now)
				if (len(args) == 0 || args[0] == g.Name || args[0] == string(g.Sandbox)) && (!open || v.State == orchestrator.GrantOpen) {
					views = append(views, v)
				}
			}
			return printList(a, views, func(w io.Writer) error {
				rows := [][]string{{"GRANT", "SANDBOX", "STATE", "UNTIL", "AS", "RULES", "COMMAND"}}
				for _, v := range views {
					state := v.State
					if v.UsedBy != "" {
						state = "used by " + string(v.UsedBy)
					}
					rows = append(rows, []string{string(v.Grant), v.Sandbox, state, v.Expires.Local().Format(time.DateTime), string(v.As), strings.Join(v.Rules, ","), v.Command})
				}
				return fitted(w, rows, a.width(w))
			})
		},
	}
	c.Flags().BoolVar(&open, "open", false, "only those that can still be used")
	return c
}

func newPolicyRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "revoke GRANT", Short: "End a grant that was not used", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := a.config(a.configFile, false)
			if err != nil {
				return err
			}
			j, err := a.writeJournalOf(cfg)
			if err != nil {
				return err
			}
			id := orchestrator.GrantID(strings.ToLower(args[0]))
			err = j.RevokeGrant(c.Context(), id)
			var gone *orchestrator.GrantError
			switch {
			case errors.As(err, &gone), errors.Is(err, orchestrator.ErrNotFound):
				return usagef("policy revoke: %w", err)
			case err != nil:
				return &orchestrator.JournalError{Cause: err}
			}
			if a.format != formatText {
				return a.printJSON(map[string]string{"grant": string(id), "state": orchestrator.GrantRevoked})
			}
			_, err = fmt.Fprintf(a.out, "%s is revoked\n", id)
			return err
		},
	}
}
