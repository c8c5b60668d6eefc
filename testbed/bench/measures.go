package bench

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// What targets are measured by, each from the samples of one experiment.

func decisionTime(r *Result) (found, bool) {
	v := r.Values(r.Samples, MetricDecision)
	if len(v) == 0 {
		return found{}, false
	}
	p99 := Quantile(v, 0.99)
	return found{
		value: seconds(p99), number: p99, reached: p99 < mostDecision,
		explain: fmt.Sprintf("over %d decisions of all corpora, median %s", len(v), seconds(Median(v))),
		about:   slices.DeleteFunc(r.Is(""), func(s Sample) bool { _, ok := s.Metrics[MetricDecision]; return !ok }),
		n:       len(v), least: leastDecisions,
	}, true
}

func commitCost(r *Result) (found, bool) {
	commits := r.Is("commit")
	syncs, calls := r.Values(commits, MetricSyncs), r.Values(commits, MetricCalls)
	if len(syncs) == 0 || len(calls) == 0 {
		return found{about: commits}, false
	}
	s, c, which := slices.Max(syncs), slices.Max(calls), "the most"
	if least := slices.Min(syncs); least < mostSyncs { // it may be lost
		s, which = least, "the least syncs and the most calls"
	}
	return found{
		value: fmt.Sprintf("%s, %s", counted(s, "sync", "syncs"), counted(c, "call", "calls")), number: s + c, reached: s == mostSyncs && c == 0, exact: true,
		explain: fmt.Sprintf("arm commit, %s of %d", which, len(commits)), about: commits, n: min(len(syncs), len(calls)), least: leastSamples,
	}, true
}

// turnOverhead judges each boundary by itself, since their times have nothing in
// common, and takes the worst.
func turnOverhead(r *Result) (found, bool) {
	with := groups(r.Is(ArmSavepoint, LabelThink, "2"), labelsOf)
	var all []found
	var lost []Sample // of boundaries without a value
	for _, g := range groups(r.Is(ArmBare, LabelThink, "2"), labelsOf) {
		i := slices.IndexFunc(with, func(w group) bool { return w.name == g.name })
		if i < 0 {
			continue
		}
		f, ok := ratio(r, with[i].samples, g.samples, 1+mostTurn, "a whole turn with savepoint / without")
		if !ok {
			lost = slices.Concat(lost, f.about, f.beside)
			continue
		}
		in := RatioInterval(r.Values(with[i].samples, MetricSeconds), r.Values(g.samples, MetricSeconds))
		f.number--
		f.value = percent(f.number) + Interval{in.Low - 1, in.High - 1, in.Range}.text(percent)
		f.explain = apart(g, LabelThink) + f.value + ": " + f.explain
		if name := strings.TrimSuffix(apart(g, LabelThink), ": "); name != "" {
			f.value += ", " + name
		}
		all = append(all, f)
	}
	return worstOf(all, lost, func(a, b found) bool { return a.number > b.number })
}

// labelsOf names samples of several arms that belong together.
func labelsOf(s Sample) string { return Sample{Labels: s.Labels}.Group() }

// apart is what tells a group from others of its arm, but for one label that all
// have.
func apart(g group, but string) string {
	labels := maps.Clone(g.samples[0].Labels)
	delete(labels, but)
	if text := strings.TrimPrefix(labelsOf(Sample{Labels: labels}), ", "); text != "" {
		return text + ": "
	}
	return ""
}

// worstOf is the worst of what was found, explained by all of it. There have to be
// enough samples, and none that failed, in all of it and in lost, of which nothing
// was found.
func worstOf(all []found, lost []Sample, worse func(a, b found) bool) (found, bool) {
	if len(all) == 0 {
		return found{about: lost}, false
	}
	at, texts := 0, []string{}
	for i, f := range all {
		if worse(f, all[at]) {
			at = i
		}
		texts = append(texts, f.explain)
	}
	worst := all[at]
	for i, f := range all {
		if i != at {
			worst.n, worst.beside = min(worst.n, f.n), slices.Concat(worst.beside, f.about, f.beside)
		}
	}
	worst.beside = slices.Concat(worst.beside, lost)
	if worst.explain = strings.Join(texts, "; "); len(all) > 1 {
		worst.explain = "the worst of " + worst.explain
	}
	return worst, true
}

// journalRate judges each number of writers by itself and takes the worst.
func journalRate(r *Result) (found, bool) {
	var all []found
	var lost []Sample
	for _, g := range groups(r.Is("journal"), labelsOf) {
		rates := r.Values(g.samples, MetricTxRate)
		if len(rates) == 0 {
			lost = append(lost, g.samples...)
			continue
		}
		m := Median(rates)
		f := found{value: number(m) + "/s" + MedianInterval(rates).text(number), number: m, reached: m >= leastJournal, about: g.samples, n: len(rates), least: leastSamples}
		f.explain = fmt.Sprintf("arm journal, %s%s, median of %d", apart(g, ""), f.value, len(rates))
		if name := strings.TrimSuffix(apart(g, ""), ": "); name != "" {
			f.value += ", " + name
		}
		all = append(all, f)
	}
	return worstOf(all, lost, func(a, b found) bool { return a.number < b.number })
}

func engineRate(r *Result) (found, bool) {
	samples := r.Is("engine", LabelSandboxes, "1000")
	rates, m := r.Values(samples, MetricTxRate), memoryOf(r, samples)
	if len(rates) == 0 || m.n == 0 {
		return found{about: samples}, false
	}
	rate := Median(rates)
	f := found{
		value: fmt.Sprintf("%s/s%s, memory %s", number(rate), MedianInterval(rates).text(number), m.value), number: rate,
		reached: rate >= leastEngine && m.flat,
		explain: fmt.Sprintf("arm engine, 1,000 sandboxes, median of %d; %s", len(rates), m.explain),
		about:   samples, n: min(len(rates), m.n), least: leastSamples,
	}
	// A rate says little without how many processors it had and where it wrote.
	if text := r.Metric(MetricTxRate).Text; text != "" {
		f.explain += "; rate: " + text
	}
	// The arm's own: it may have fewer than the machine.
	var procs []string
	for _, s := range samples {
		if n := s.Labels[LabelProcs]; n != "" && !slices.Contains(procs, n) {
			procs = append(procs, n)
		}
	}
	if len(procs) > 0 {
		f.explain += "; the arm has GOMAXPROCS " + strings.Join(procs, " and ")
	}
	return f, true
}

// memory is whether the engine's stays as it is, in words, of n samples.
type memory struct {
	flat           bool
	value, explain string
	n              int
}

// memoryOf judges by what each transaction leaves behind: beside a large cluster the
// heap as a whole hardly grows by that. Runs of before have the heap only.
func memoryOf(r *Result, samples []Sample) memory {
	if kept := r.Values(samples, MetricRetained); len(kept) > 0 {
		m, sign := Median(kept), ""
		if m > 0 {
			sign = "+"
		}
		return memory{m <= MostRetained, sign + bytesText(m) + " a transaction", fmt.Sprintf("memory: what the heap grew by for each transaction of the second half, flat is at most %s", bytesText(MostRetained)), len(kept)}
	}
	grown := r.Values(samples, MetricGrowth)
	if len(grown) == 0 {
		return memory{}
	}
	// Ten per cent is what a collector leaves lying about.
	m := Median(grown)
	return memory{m <= 1.10, "× " + number(m), "memory of the second half by that of the first, flat is at most 1.10", len(grown)}
}

// crashes is reached only by all crash points and all pairs of them.
func crashes(r *Result) (found, bool) {
	add := func(metric string) (sum float64, ok bool) {
		v := r.Values(r.Samples, metric)
		for _, n := range v {
			sum += n
		}
		return math.Round(sum), len(v) > 0
	}
	played, ok := add(MetricSchedules)
	bad, judged := add(MetricViolations)
	if !ok || !judged {
		return found{about: r.Samples}, false
	}
	f := found{
		value: fmt.Sprintf("%s of %s schedules", number(bad), number(played)), number: bad, reached: bad == 0 && played > 0, exact: true,
		explain: "violations, of all schedules that were played", about: r.Samples,
	}
	pairs, ok := add(MetricPairs)
	all, known := add(MetricPairsAll)
	switch {
	case !ok || !known || all == 0:
		f.open = "the run does not say how many pairs of crash points there are; `bench run --only crash` plays all"
	case pairs < all:
		f.open = "a quick run plays a selection; `bench run --only crash` plays all"
	}
	if ok && known {
		f.value += fmt.Sprintf("; pairs: %s of %s", number(pairs), number(all))
	}
	return f, true
}
