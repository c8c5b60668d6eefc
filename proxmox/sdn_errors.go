package proxmox

import (
	"errors"
	"regexp"

	"savepoint/orchestrator"
)

var (
	otherTokenRE = re(`invalid lock token provided`)
	// placeRE is where in the cluster's program a text comes from.
	placeRE = regexp.MustCompile(` at \S+ line \w+\.`)
)

// sdnRules are read before the others: the cluster has texts for its networks
// that mean something else than they do for a VM.
var sdnRules = []rule{
	{re: otherTokenRE, class: orchestrator.ErrBusy, mend: "somebody else has the lock on the cluster's networks; wait for them, and if nobody works on it run pvesh delete /cluster/sdn/lock --force 1 on a node"},
	{re: re(`configuration has pending changes`), class: orchestrator.ErrBusy, mend: "an apply would commit edits that this token cannot see; apply or revert them in the cluster's SDN view first"},
	{re: re(`already defined|already declared|already exist`), class: orchestrator.ErrExists, mend: "run savepoint network plan again"},
	{re: re(`is used by|if subnets exists`), class: orchestrator.ErrBusy, mend: "somebody added to it; run savepoint network plan again"},
	{re: re(`only 1 global evpn controller`), unsupported: true, mend: "the cluster has a controller that this token cannot see; name it in network.controller"},
	{re: re(`don't exist|does not exist|lookup undefined type`), class: orchestrator.ErrNotFound, mend: "run savepoint network plan again"},
}

// explainSDN is explain for requests about networks. They are carried out, or
// not, before the answer: there is no task to look for.
func explainSDN(op, subject string, err error, write bool) error {
	err = explain(op, subject, err, write)
	var f *failure
	if !errors.As(err, &f) || f.err == nil {
		return err
	}
	f.cause = placeRE.ReplaceAllString(f.cause, "")
	for _, r := range sdnRules {
		if !refused(f.err) || !r.re.MatchString(textOf(f.err)) {
			continue
		}
		f.class, f.mend, f.retry = r.class, r.mend, false
		if r.unsupported {
			f.class = &orchestrator.UnsupportedError{What: f.cause, Mend: r.mend}
		}
		return err
	}
	if errors.Is(f.class, orchestrator.ErrUnknownOutcome) {
		f.mend = "savepoint network plan tells whether it was done"
	}
	return err
}
