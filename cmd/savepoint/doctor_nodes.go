package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"savepoint/orchestrator/janitor"
	"savepoint/orchestrator/provision"
)

// nodes tells of each node what it is as a place for sandboxes. None that is
// open and has room is a problem.
func (d *doctor) nodes(context.Context) {
	const check = "nodes"
	all := placesOf(d.sites)
	load, l := provision.Loads(d.boxes, time.Now()), limits(d.cfg.Cluster)
	usable := false
	for _, n := range all {
		need := int64(0)
		if len(n.Templates) > 0 {
			need = n.Templates[0].Memory
		}
		text := nodeText(n, load[n.Name])
		switch closed, full := l.Closed(n), l.Full(n, load[n.Name], need); {
		case !n.Online || n.Unseen != "":
			mend := "bring it back"
			if b := load[n.Name].Sandboxes; b > 0 {
				mend += fmt.Sprintf(": its %d sandboxes are unavailable until then", b)
			}
			d.add(check, levelWarning, n.Name+" "+closed, mend)
		case closed != "":
			d.ok(check, "%s; gets no new sandboxes: it %s", text, closed)
		case full != "":
			d.add(check, levelWarning, text+"; gets no new sandboxes: it "+full, "destroy sandboxes that are not needed, or give it more")
		default:
			usable = true
			d.ok(check, "%s%s", text, d.unsourced(n.Name, all))
		}
	}
	for _, name := range missing(all, l.Nodes) {
		d.add(check, levelWarning, name+" is in cluster.nodes and not in the cluster", "take it out of cluster.nodes")
	}
	for _, name := range missing(all, l.Drained) {
		d.add(check, levelWarning, name+" is in cluster.drained_nodes and not in the cluster", "take it out of cluster.drained_nodes, or mend its name")
	}
	if !usable {
		d.add(check, levelProblem, "no node can take a new sandbox", "see the nodes above")
	}
}

// unsourced says why a node that has room gets no sandbox all the same: there is
// nothing that it could be cloned from. "" also where there is no template at all.
func (d *doctor) unsourced(node string, all []provision.Node) string {
	storage := ""
	if d.cfg.Sandbox.FullClone {
		storage = d.cfg.Cluster.Storage
	}
	_, err := provision.Choose(provision.Query{Name: d.cfg.Sandbox.Template, Nodes: all, Wish: provision.Wish{Node: node}, Storage: storage})
	var place *provision.PlaceError
	if !errors.As(err, &place) {
		return ""
	}
	for _, r := range place.Refusals {
		if r.Node == node {
			return "; gets no new sandboxes: it " + r.Why
		}
	}
	return ""
}

var snapshotOfRE = regexp.MustCompile(`^snapshot (\S+) of vm (\d+) on (\S+)$`)

// foreignMend removes a snapshot that somebody else took, and what takes the next.
func foreignMend(f janitor.Finding) string {
	if f.Command != "" {
		return f.Command
	}
	m := snapshotOfRE.FindStringSubmatch(f.Subject)
	if m == nil {
		return "delete it, and take the sandboxes' pool out of the schedule that made it"
	}
	return fmt.Sprintf("on %s: qm delsnapshot %s %s, and take the vm out of the schedule that made it", m[3], m[2], m[1])
}

// missing lists the names that no node has.
func missing(all []provision.Node, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(all, func(n provision.Node) bool { return n.Name == name })
	})
}

func nodeText(n provision.Node, has provision.Load) string {
	memory := "its free memory cannot be seen without Sys.Audit on /nodes/" + n.Name
	if n.Memory > 0 {
		memory = fmt.Sprintf("%d of %d MiB of memory free", n.Free>>20, n.Memory>>20)
	}
	return fmt.Sprintf("%s: %s, sandboxes: %d", n.Name, memory, has.Sandboxes)
}

// sandboxes warns of what others do to our sandboxes and of what is left of
// crashes. It asks like gc and changes nothing.
func (d *doctor) sandboxes(ctx context.Context) {
	const check = "sandboxes"
	j, err := d.s.janitor(0, nil)
	if err != nil {
		d.problem(check, err)
		return
	}
	r, err := j.Look(ctx)
	if err != nil {
		d.problem(check, err)
		return
	}
	before, left := len(d.findings), 0
	for _, f := range r.Findings {
		switch f.Kind {
		case janitor.KindSpent: // the collector's everyday work
		case janitor.KindHA, janitor.KindReplication:
			d.add(check, levelWarning, fmt.Sprintf("%s of sandbox %s: %s", f.Subject, f.Sandbox, f.Evidence), f.Command)
		case janitor.KindForeignSnap:
			d.add(check, levelWarning, fmt.Sprintf("%s of sandbox %s: %s", f.Subject, f.Sandbox, f.Evidence), foreignMend(f))
		case janitor.KindUnseen:
			d.add(check, levelWarning, f.Subject+": "+f.Evidence, "see why it does not answer")
		default: // gc's work
			if f.Level == janitor.LevelCollect || f.Level == janitor.LevelOperator {
				left++
			}
		}
	}
	if left > 0 {
		d.add(check, levelWarning, fmt.Sprintf("%d things are left of crashed or interrupted work", left), "see savepoint gc --dry-run")
	}
	if len(d.findings) == before {
		d.ok(check, "nothing is left over, and nobody else works on them")
	}
}
