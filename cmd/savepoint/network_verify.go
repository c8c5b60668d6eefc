package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"savepoint/network"
	"savepoint/orchestrator"
	"savepoint/orchestrator/proof"
	"savepoint/orchestrator/provision"
)

func newNetworkVerify(a *app) *cobra.Command {
	var timeout time.Duration
	var sandbox string
	var last bool
	c := &cobra.Command{
		Use: "verify", Short: "Prove that the tenants' networks are sealed",
		Long: "Measures from inside the sandboxes and from the nodes' routing tables: what must be\n" +
			"reachable is, and the other tenants, this machine, the API, the nodes, the metadata\n" +
			"address and the outside are not, over TCP, UDP, ICMP and IPv6; forged addresses are\n" +
			"contained. Every line is stored with its sandboxes; those that are off are started,\n" +
			"and those that are found open are withheld until savepoint sandbox release.\n\n" +
			"What cannot be measured is not sealed. Further places that no sandbox may reach are\n" +
			"in network.places of the configuration; one of role outside has to be there. What is\n" +
			"not covered, as a network all of whose sandboxes are off, is noted below the table.\n" +
			"A jump host's SSH port is exempt in the networks that it has a leg in: list its\n" +
			"addresses there as a place of role jump, and they are lines of their own.\n" +
			"Exit code 0: every line is as expected. 7: one is not, or isolation is not provided.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := withTimeout(c.Context(), timeout)
			defer cancel()
			if last {
				if sandbox == "" {
					return usagef("--last shows the stored proof of one sandbox; name it with --sandbox")
				}
				return a.printLastProof(ctx, sandbox)
			}
			return a.verifyNetworks(ctx, sandbox)
		},
	}
	c.Flags().StringVar(&sandbox, "sandbox", "", "only what begins or ends at this sandbox")
	c.Flags().BoolVar(&last, "last", false, "show the stored proof of --sandbox instead of measuring")
	addTimeout(c, &timeout)
	return c
}

func (a *app) verifyNetworks(ctx context.Context, sandbox string) error {
	s, err := a.open(ctx)
	if err != nil {
		return err
	}
	p := newProgress(a.err, s.secrets)
	defer p.stop()
	if err := s.wakeTenants(ctx, p); err != nil {
		return err
	}
	res, err := s.verify(ctx, p, sandbox)
	p.stop()
	var none *proof.UnprovidedError
	switch {
	case errors.As(err, &none):
		if a.format != formatText {
			res.Report = network.Judge(nil, nil)
			if err := a.printJSON(res); err != nil {
				return err
			}
		} else {
			a.printNotes(res.Notes)
		}
		return err
	case err != nil:
		return err
	}
	if err := s.withhold(ctx, res); err != nil {
		return err
	}
	return a.printProof(res)
}

// withhold quarantines the sandboxes that were found open: a failed proof means
// that a sandbox is not handed out, also one that was before.
func (s *session) withhold(ctx context.Context, res proof.Result) error {
	for name, lines := range res.Open() {
		sb, err := s.prov.Lookup(ctx, name)
		if errors.Is(err, orchestrator.ErrNotFound) || err == nil && sb.State != orchestrator.SandboxReady {
			continue
		}
		if err != nil {
			return err
		}
		open := &orchestrator.UnsealedError{Sandbox: name, Failed: lines}
		if err := s.prov.Withhold(ctx, sb, open.Error()); err != nil {
			return err
		}
		fmt.Fprintf(s.app.err, "savepoint: sandbox %s is withheld; close its zone and run savepoint sandbox release %s\n", name, name)
	}
	return nil
}

// verify measures all sandboxes, or one.
func (s *session) verify(ctx context.Context, p *progress, sandbox string) (proof.Result, error) {
	pr, end, err := s.proof(ctx, p)
	if err != nil {
		return proof.Result{}, err
	}
	defer end()
	if sandbox == "" {
		return pr.Verify(ctx)
	}
	sb, err := s.prov.Lookup(ctx, sandbox)
	if err != nil {
		return proof.Result{}, named(err)
	}
	if sb.Tenant == "" {
		return proof.Result{}, &proof.UnprovidedError{Reason: fmt.Sprintf("sandbox %s has no tenant", sb.Name), Mend: "make it anew with --tenant"}
	}
	return pr.Measure(ctx, sb)
}

// wakeTenants starts the sandboxes of tenants that are off, as their next command
// would: who is off cannot measure, nor be seen to be alive. One that does not
// start takes no part, and the table says so.
func (s *session) wakeTenants(ctx context.Context, p *progress) error {
	all, err := s.journal.Sandboxes(ctx)
	if err != nil {
		return err
	}
	for _, sb := range all {
		if sb.Tenant == "" || sb.State != orchestrator.SandboxReady {
			continue
		}
		p.say("waking sandbox %s", sb.Name)
		if err := s.prov.Start(ctx, sb); err != nil && ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// printLastProof works beside the process that holds the journal.
func (a *app) printLastProof(ctx context.Context, sandbox string) error {
	cfg, err := a.config(a.configFile, false)
	if err != nil {
		return err
	}
	j, err := a.readJournalOf(cfg)
	if err != nil {
		return err
	}
	if j == nil {
		return usagef("sandbox %q: there is no journal yet; make a sandbox first (see savepoint sandbox create)", sandbox)
	}
	sb, err := provision.Lookup(ctx, registry{j, nil}, sandbox)
	if err != nil {
		return named(err)
	}
	data, at, err := j.Proof(ctx, sb.ID)
	if err != nil {
		return err
	}
	if data == nil {
		return usagef("sandbox %s was never proved; run savepoint network verify --sandbox %s", sb.Name, sb.Name)
	}
	var res proof.Result
	if err := json.Unmarshal(data, &res); err != nil {
		return &orchestrator.JournalError{Cause: fmt.Errorf("read the proof of sandbox %s: %w", sb.Name, err)}
	}
	if a.format == formatText {
		fmt.Fprintf(a.out, "measured %s\n", at.Local().Format(time.RFC3339))
	}
	return a.printProof(res)
}

// printProof prints a report and ends with its exit code.
func (a *app) printProof(res proof.Result) error {
	var err error
	if a.format == formatText {
		err = a.printChecks(res.Report)
		a.printNotes(res.Notes)
	} else {
		err = a.printJSON(res) // the contract, with notes beside it
	}
	if err != nil {
		return err
	}
	if !res.Sealed {
		return exitWith(exitUnusable)
	}
	return nil
}

// printNotes says below the table what it does not cover.
func (a *app) printNotes(notes []string) {
	for _, n := range notes {
		fmt.Fprintf(a.out, "note: %s\n", printable(n))
	}
}

// printChecks prints the table, one block for each that measures, and what it
// comes to.
func (a *app) printChecks(r network.Report) error {
	st, width := a.style(a.out), a.width(a.out)
	for i := 0; i < len(r.Checks); {
		from := r.Checks[i].From
		fmt.Fprintln(a.out, st.bold(printable(from)))
		var rows [][]string
		for ; i < len(r.Checks) && r.Checks[i].From == from; i++ {
			c := r.Checks[i]
			mark := st.green("ok")
			if !c.OK {
				mark = st.red("FAILED")
			}
			what := string(c.Observed)
			switch {
			case !c.OK:
				what += ", expected " + string(c.Expected)
			case c.Expected == network.Exempt:
				what += ", exempt"
			}
			rows = append(rows, []string{mark, string(c.Protocol), what, c.To})
		}
		if err := listed(a.out, rows, width); err != nil {
			return err
		}
	}
	failed := r.Failed()
	switch {
	case r.Sealed:
		_, err := fmt.Fprintf(a.out, "%s: all %d checks are as expected\n", st.green("sealed"), len(r.Checks))
		return err
	case len(failed) == 0:
		_, err := fmt.Fprintf(a.out, "%s: nothing shows that the networks are alive and apart\n", st.red("not sealed"))
		return err
	}
	lines := make([]string, len(failed))
	for i, c := range failed {
		lines[i] = printable(proof.Line(c))
	}
	_, err := fmt.Fprintf(a.out, "%s: %d of %d checks\n%s", st.red("not sealed"), len(failed), len(r.Checks), foldAll(lines, width))
	return err
}

// foldAll sets each text in lines of its own.
func foldAll(texts []string, width int) string {
	var b strings.Builder
	for _, t := range texts {
		b.WriteString(fold(t, "  ", width))
	}
	return b.String()
}
