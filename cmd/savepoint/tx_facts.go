package main

import (
	"fmt"
	"strings"
	"time"

	"savepoint/orchestrator"
)

// commandOf is the command of a transaction of one, as one of several is.
func commandOf(t orchestrator.Transaction) orchestrator.CommandView {
	return orchestrator.CommandView{
		Command: t.Command, Runs: t.Runs, Digest: t.Digest, As: t.As, Dir: t.Dir, EnvNames: t.EnvNames, Timeout: t.Timeout,
		Verdict: t.Verdict, Guard: t.Guard,
	}
}

// commandFacts adds what was asked for and how it was judged.
func commandFacts(f *facts, c orchestrator.CommandView) {
	f.exact("command", c.Command)
	f.add("sha256", c.Digest)
	f.exact("ran as", c.Runs)
	f.add("as", string(c.As))
	f.exact("directory", c.Dir)
	f.list("variables", c.EnvNames)
	if c.Timeout > 0 {
		f.add("time limit", short(c.Timeout))
	}
	verdictFacts(f, "", c.Verdict)
	if g := c.Guard; g != nil {
		for _, l := range []struct {
			label string
			paths []string
		}{{"protect", g.Protect}, {"unprotect", g.Unprotect}, {"only change", g.OnlyChange}, {"watch", g.Watch}} {
			for _, path := range l.paths {
				f.exact(l.label, path)
			}
		}
		if g.Changes {
			f.add("changes", "were asked for")
		}
	}
}

// verdictFacts adds a verdict; in sets its labels in.
func verdictFacts(f *facts, in string, v orchestrator.Judgement) {
	f.addf(in+"verdict", "%s [%s] %s", v.Decision, v.Rule, v.Reason)
	f.add(in+"instead", v.Alternative)
	for _, e := range v.Effects {
		undone := ""
		if !e.Reversible {
			undone = ", cannot be undone"
		}
		f.exact(in+"effect", joined(string(e.Locus), " ", e.Target)+undone)
	}
	if !v.Recoverable && v.Decision != "deny" {
		f.add(in+"undo", "a rollback cannot undo all that the command may do")
	}
	for _, l := range v.Lifted {
		f.exact(in+"lifted", joined(l.Rule+" by "+l.By, ": ", l.Target))
	}
}

// joined joins two texts, where there is a second one.
func joined(first, by, second string) string {
	if second == "" {
		return first
	}
	return first + by + second
}

func validationFacts(f *facts, v orchestrator.ValidateView) {
	f.exact("validate", v.Command)
	f.exact("  ran as", v.Runs)
	limit := ""
	if v.Timeout > 0 {
		limit = ", time limit " + short(v.Timeout)
	}
	f.addf("  as", "%s%s", v.As, limit)
	verdictFacts(f, "  ", v.Verdict)
}

func resultFacts(f *facts, r orchestrator.RanView) {
	text := strings.TrimSpace(fmt.Sprintf("%d %s", r.Exit, r.Signal))
	if r.TimedOut {
		text += ", ended by its time limit"
	}
	f.add("exit", text)
	f.add("took", short(r.Took))
	streamFacts(f, "stdout", r.Stdout, r.StdoutBytes, r.StdoutDigest)
	streamFacts(f, "stderr", r.Stderr, r.StderrBytes, r.StderrDigest)
	if r.Truncated {
		f.add("output", "not all of it is kept")
	}
}

// streamFacts says how much was written, and how much of it is kept.
func streamFacts(f *facts, label, kept string, total int64, digest string) {
	if total == 0 {
		return
	}
	n, part := int64(len(kept)), ""
	switch {
	case strings.Contains(kept, orchestrator.Redacted):
		part = fmt.Sprintf(", %s kept, without secrets", plural(len(kept), "byte", "bytes"))
	case n < total:
		part = fmt.Sprintf(", the first %d kept and %d left out", n, total-n)
	}
	f.addf(label, "%s%s, sha256:%s", plural(int(total), "byte", "bytes"), part, digest)
}

func checkFacts(f *facts, checks []orchestrator.Check) {
	for _, k := range checks {
		answer := "ok: "
		if !k.OK {
			answer = "failed: "
		}
		f.exact("check", joined(answer+k.Name, ": ", k.Detail)) // the name may be a command
	}
}

func changeFacts(f *facts, changes []orchestrator.Change, count int) {
	for _, c := range changes {
		text := c.Path
		if c.What != "" {
			text += " (" + c.What + ")"
		}
		f.exact(string(c.Kind), text)
	}
	if more := count - len(changes); more > 0 {
		f.addf("and", "%s, of %d", plural(more, "more path", "more paths"), count)
	}
}

// timings names the steps that took time.
func timings(t orchestrator.Timings) (parts []string) {
	for _, p := range []struct {
		name string
		took time.Duration
	}{
		{"policy", t.Policy},
		{"snapshot", t.Snapshot},
		{"execute", t.Execute},
		{"validate", t.Validate},
		{"commit", t.Commit},
		{"rollback", t.Rollback},
		{"total", t.Total},
	} {
		if p.took > 0 {
			parts = append(parts, p.name+" "+short(p.took))
		}
	}
	return parts
}
