package bench

import "fmt"

// PaperName is the work whose figures stand beside ours.
const PaperName = "Boyang Yan, “Fault-Tolerant Sandboxing for AI Coding Agents: A Transactional Approach”, arXiv 2512.12806v1"

// PaperNote is what has to be said beside every ratio of the paper.
const PaperNote = "Marks: abstract = stated in the paper's abstract or on its first page; readers = two or more readers of the paper agree; " +
	"reader = one reader; derived = computed here from the others. The paper leaves the base of its 14.5 % open: 1.82 s over its 4.69 s of " +
	"direct execution is 38.8 %, and 14.5 % needs a base of 12.55 s. So each ratio of ours names its base. " +
	"Seconds of two machines are not comparable; ratios within one run are."

// PaperFigure is one figure of the paper beside ours.
type PaperFigure struct {
	Item       string `json:"item"`
	Paper      string `json:"paper"`
	Provenance string `json:"provenance"`
	Ours       string `json:"ours"`
	Base       string `json:"base"` // of what ours is
	Experiment string `json:"experiment"`
}

type paperRow struct {
	item, paper, provenance, experiment string
	ours                                func(*Result) (value, base string)
}

var paperRows = []paperRow{
	{"interception of black-listed commands", "100 % (20 of 20)", "abstract; trials: readers", ExpInterception, func(r *Result) (string, string) {
		return share(r, r.Is("blacklist"), MetricCaught, "strings like the paper's")
	}},
	{"interception of everything to be stopped", "not stated", "", ExpInterception, func(r *Result) (string, string) {
		return share(r, r.Samples, MetricCaught, "all corpora, disguised commands included")
	}},
	{"rollback restores the state", "100 % (20 of 20)", "abstract; trials: readers", ExpRollback, func(r *Result) (string, string) {
		return share(r, r.Samples, MetricExact, "corruptions × boundaries that cover them, by tree hash")
	}},
	{"direct execution", "4.69 s", "readers", ExpOverhead, paperTime(ArmBare, "bare SSH")},
	{"sandboxed execution, the paper's way", "6.51 s", "reader", ExpOverhead, paperTime(ArmCopy, "copy of 250 MB in the guest")},
	{"sandboxed execution, savepoint", "not stated", "", ExpOverhead, paperTime(ArmWorkspace, "workspace boundary")},
	{"overhead per transaction, the paper's way", "1.82 s", "readers (abstract: about 1.8 s)", ExpOverhead, paperOverhead(ArmCopy)},
	{"the same over direct execution", "38.8 %", "derived", ExpOverhead, paperRatio(ArmCopy)},
	{"overhead per transaction, savepoint", "not stated", "", ExpOverhead, paperOverhead(ArmWorkspace)},
	{"the same over direct execution", "not stated", "", ExpOverhead, paperRatio(ArmWorkspace)},
	{"overhead, base open", "14.5 %", "abstract", ExpAgentTurn, func(r *Result) (string, string) {
		f, ok := turnOverhead(r)
		if !ok {
			return "", ""
		}
		return f.value, "a whole agent turn with 2 s of model time, the worst boundary"
	}},
	{"Gemini CLI, headless, without credentials", "0 % succeed, asks for sign-in", "abstract", ExpGemini, func(r *Result) (string, string) {
		return share(r, r.Is(GeminiBare), MetricSuccess, "tasks done, judged by the files")
	}},
}

// Paper puts the paper's figures beside those of a run.
func Paper(rep *Report) []PaperFigure {
	out := make([]PaperFigure, len(paperRows))
	for i, row := range paperRows {
		f := PaperFigure{Item: row.item, Paper: row.paper, Provenance: row.provenance, Experiment: row.experiment, Ours: NotMeasured}
		if r := rep.Result(row.experiment); r != nil && r.Finished() {
			if v, base := row.ours(r); v != "" {
				f.Ours, f.Base = v, base
			}
		}
		out[i] = f
	}
	return out
}

// share is a share of samples. Those that failed before there was anything to count are
// told beside it.
func share(r *Result, samples []Sample, metric, base string) (string, string) {
	v := r.Values(samples, metric)
	if len(v) == 0 {
		return "", ""
	}
	hits := Mean(v) * float64(len(v))
	text, failed := fmt.Sprintf("%s (%s of %s)", percent(Mean(v)), number(hits), number(float64(len(v)))), 0
	for _, s := range samples {
		if _, ok := s.Metrics[metric]; !ok && s.Err != "" {
			failed++
		}
	}
	if failed > 0 {
		text += fmt.Sprintf(", %d more failed", failed)
	}
	return text, base
}

func paperTime(arm, base string) func(*Result) (string, string) {
	return func(r *Result) (string, string) {
		workload := aimed(r)
		v := r.Values(ofWorkload(r, arm, workload), MetricSeconds)
		if len(v) == 0 {
			return "", ""
		}
		return seconds(Median(v)), fmt.Sprintf("%s, %s, median of %d", workload, base, len(v))
	}
}

func paperOverhead(arm string) func(*Result) (string, string) {
	return func(r *Result) (string, string) {
		workload := aimed(r)
		f := r.overBare(ofWorkload(r, arm, workload))
		if f == nil {
			return "", ""
		}
		return seconds(f.Value) + f.Interval.text(seconds), fmt.Sprintf("%s, median above that of bare SSH, n = %d at least", workload, f.N)
	}
}

func paperRatio(arm string) func(*Result) (string, string) {
	return func(r *Result) (string, string) {
		workload := aimed(r)
		over, bare := r.overBare(ofWorkload(r, arm, workload)), r.Values(ofWorkload(r, ArmBare, workload), MetricSeconds)
		if over == nil || Median(bare) <= 0 {
			return "", ""
		}
		base := Median(bare)
		return percent(over.Value / base), fmt.Sprintf("over the bare command's %s", seconds(base))
	}
}
