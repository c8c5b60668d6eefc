package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"savepoint/network"
	"savepoint/orchestrator/networks"
)

// networkChange is the printed form of one change.
type networkChange struct {
	Op     network.Op     `json:"op"`
	Kind   network.Kind   `json:"kind"`
	ID     string         `json:"id"`
	Name   string         `json:"name,omitempty"` // in the configuration
	Reason string         `json:"reason"`
	Fields network.Fields `json:"fields,omitempty"`
	Unset  []string       `json:"unset,omitempty"`
}

// networkKept is something of ours that would go and is used.
type networkKept struct {
	Kind   network.Kind `json:"kind"`
	ID     string       `json:"id"`
	Name   string       `json:"name,omitempty"`
	Reason string       `json:"reason"`
	VMs    []string     `json:"vms,omitempty"`
}

// networkLag is a node without a zone that it should have.
type networkLag struct {
	Node   string `json:"node"`
	Zone   string `json:"zone"`
	Online bool   `json:"online"`
	Status string `json:"status"`
}

func changesOf(list []network.Change, a network.Allocation) []networkChange {
	out := []networkChange{}
	for _, c := range list {
		out = append(out, networkChange{c.Op, c.Kind, c.ID, a.Name(c.Kind, c.ID), c.Reason, c.Fields, c.Unset})
	}
	return out
}

func keptOf(list []network.Kept, a network.Allocation) []networkKept {
	out := []networkKept{}
	for _, k := range list {
		out = append(out, networkKept{k.Kind, k.ID, a.Name(k.Kind, k.ID), k.Reason, k.VMs})
	}
	return out
}

func lagsOf(list []network.Lag) []networkLag {
	out := []networkLag{}
	for _, l := range list {
		out = append(out, networkLag(l))
	}
	return out
}

// printPlan prints what would be done.
func (a *app) printPlan(p network.Plan) error {
	changes, kept, lags := changesOf(p.Changes, p.Allocation), keptOf(p.Kept, p.Allocation), lagsOf(p.Lagging)
	if a.format != formatText {
		return a.printJSON(struct {
			Empty   bool            `json:"empty"`
			Changes []networkChange `json:"changes"`
			Kept    []networkKept   `json:"kept"`
			Lagging []networkLag    `json:"lagging"`
		}{p.Empty(), changes, kept, lags})
	}
	if len(changes) > 0 {
		if err := table(a.out, "OPERATION\tKIND\tID\tNAME\tWHY", changeRows(changes)); err != nil {
			return err
		}
	}
	printKept(a.out, kept)
	for _, l := range lags {
		if l.Online {
			fmt.Fprintf(a.out, "node %s is to be told again: zone %s is %s there\n", printable(l.Node), printable(l.Zone), orElse(printable(l.Status), "missing"))
		}
	}
	printOffline(a.out, lags)
	if p.Empty() {
		fmt.Fprintln(a.out, "nothing to do")
	}
	return nil
}

func changeRows(changes []networkChange) [][]string {
	var rows [][]string
	for _, c := range changes {
		why := c.Reason
		if c.Op == network.OpCreate {
			var set []string
			for _, key := range slices.Sorted(maps.Keys(c.Fields)) {
				set = append(set, key+"="+c.Fields[key])
			}
			why += ": " + strings.Join(set, " ")
		}
		rows = append(rows, []string{string(c.Op), string(c.Kind), printable(c.ID), orElse(c.Name, "-"), printable(why)})
	}
	return rows
}

func printKept(w io.Writer, kept []networkKept) {
	for _, k := range kept {
		name := k.ID
		if k.Name != "" {
			name += " (" + k.Name + ")"
		}
		fmt.Fprintf(w, "kept: %s %s %s\n", k.Kind, printable(name), printable(k.Reason))
	}
}

func printOffline(w io.Writer, lags []networkLag) {
	var told []string
	for _, l := range lags {
		if !l.Online && !slices.Contains(told, l.Node) {
			told = append(told, l.Node)
			fmt.Fprintf(w, "warning: node %s is offline and does not have this; run savepoint network apply when it is back\n", printable(l.Node))
		}
	}
}

// printChanged prints what was done.
func (a *app) printChanged(r networks.Result, whole bool) error {
	changes, kept, offline := changesOf(r.Changes, r.Allocation), keptOf(r.Kept, r.Allocation), lagsOf(r.Offline)
	if a.format != formatText {
		return a.printJSON(struct {
			Done    bool            `json:"done"`
			Applied bool            `json:"applied"`
			Changes []networkChange `json:"changes"`
			Kept    []networkKept   `json:"kept"`
			Offline []networkLag    `json:"offline"`
		}{whole, r.Applied, changes, kept, offline})
	}
	for _, c := range changes {
		fmt.Fprintf(a.out, "%s %s %s\n", c.Op, c.Kind, strings.TrimSpace(printable(c.ID)+" "+c.Name))
	}
	printKept(a.out, kept)
	printOffline(a.out, offline)
	switch {
	case r.Applied && whole:
		fmt.Fprintln(a.out, "applied: every node that is online has it")
	case whole:
		fmt.Fprintln(a.out, "nothing to do")
	}
	return nil
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
