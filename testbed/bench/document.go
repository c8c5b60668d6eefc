package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Document is a run as it is reported, in every form. Its JSON is a contract:
// fields are only added.
type Document struct {
	Run         string        `json:"run"`
	Environment Environment   `json:"environment"`
	Plan        Plan          `json:"plan"`
	Started     time.Time     `json:"started"`
	Targets     []Target      `json:"targets"`
	Paper       []PaperFigure `json:"paper"`
	Experiments []Section     `json:"experiments"`
	// Open are experiments that have no result yet.
	Open []string `json:"open,omitempty"`
}

// Section is one experiment of a document.
type Section struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Method  string `json:"method"`
	Skipped string `json:"skipped,omitempty"`
	Err     string `json:"error,omitempty"`
	// Partial says that the experiment was not made to its end. Resumed is how many
	// samples are of an earlier start of the run.
	Partial bool    `json:"partial,omitempty"`
	Resumed int     `json:"resumed,omitempty"`
	Took    float64 `json:"took_s"`
	Noise   string  `json:"noise,omitempty"`
	// Load and Steal are Result.Noise in numbers.
	Load    float64           `json:"load"`
	Steal   float64           `json:"steal"`
	Notes   []string          `json:"notes,omitempty"`
	Facts   map[string]string `json:"facts,omitempty"`
	Figures []Figure          `json:"figures,omitempty"`
	Steps   []StepTimes       `json:"steps,omitempty"`
	Tables  []Table           `json:"tables,omitempty"`
	// Failures are why samples failed, with how many did so.
	Failures []Failure `json:"failures,omitempty"`

	charts  []chart
	metrics []Metric
	samples int
}

// Failure is one reason of failed samples.
type Failure struct {
	Group string `json:"group"`
	Err   string `json:"error"`
	N     int    `json:"n"`
}

// Document sums a run up.
func (r *Report) Document() *Document {
	d := &Document{
		Run: r.Info.ID, Environment: r.Info.Where(), Plan: r.Info.Plan, Started: r.Info.Started,
		Targets: Targets(r), Paper: Paper(r), Open: r.Open(), Experiments: []Section{},
	}
	for _, res := range r.Results {
		s := Section{
			Name: res.Experiment, Title: res.Title, Method: res.Method, Skipped: res.Skipped, Err: res.Err, Took: res.Took,
			Partial: res.Partial, Resumed: res.Resumed, samples: len(res.Samples),
			Noise: res.Noise.Text(res.Environment.Cores), Load: res.Noise.Load, Steal: res.Noise.Steal, Notes: slices.Clone(res.Notes), Facts: res.Facts,
			Figures: res.Figures(), Steps: res.StepTimes(), Tables: res.Tables, Failures: failures(res), metrics: res.Metrics,
		}
		if s.Title == "" {
			s.Title = s.Name
		}
		// Only what uses the cluster knows of it.
		if !sameMachine(res.Environment, r.Info.Environment) && !sameMachine(res.Environment, r.Info.Where()) {
			s.Notes = append(s.Notes, "Measured on another machine than the run: "+res.Environment.Brief()+".")
		}
		for _, p := range res.Plots {
			if c, ok := draw(res, p); ok {
				s.charts = append(s.charts, c)
			}
		}
		d.Experiments = append(d.Experiments, s)
	}
	return d
}

// Brief is the machine in a few words.
func (e Environment) Brief() string {
	words := []string{fmt.Sprintf("%d cores", e.Cores)}
	for _, w := range []string{e.CPU, e.Accelerator, e.Kernel} {
		if w != "" {
			words = append(words, w)
		}
	}
	return strings.Join(words, ", ")
}

func failures(res *Result) []Failure {
	var out []Failure
	for _, g := range res.ordered() {
		n := map[string]int{}
		for _, s := range g.samples {
			if s.Err != "" {
				n[s.Err]++
			}
		}
		for _, err := range slices.Sorted(maps.Keys(n)) {
			out = append(out, Failure{g.name, err, n[err]})
		}
	}
	return out
}

// facts are pairs of names and values of an environment, for a table.
func (e Environment) facts() [][]string {
	rows := [][]string{{"machine", fmt.Sprintf("%s/%s, %d cores", e.OS, e.Arch, e.Cores)}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	add("processor", e.CPU)
	if e.Memory > 0 {
		add("memory", bytesText(float64(e.Memory)))
	}
	add("kernel", e.Kernel)
	add("accelerator", e.Accelerator)
	for _, m := range []map[string]string{e.Versions, e.Facts} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			add(k, m[k])
		}
	}
	return rows
}

// tables of a document, the same in every form.

// Answer says whether a target is reached, in a word: "yes", "no", "undecided", or
// "–" where nothing was measured.
func (t Target) Answer() string {
	switch {
	case t.Value == NotMeasured:
		return "–"
	case t.Undecided:
		return "undecided"
	case t.Reached:
		return "yes"
	}
	return "no"
}

func (d *Document) targetTable() Table {
	t := Table{Columns: []string{"what", "target", "this run", "reached", "experiment", "made of"}}
	for _, g := range d.Targets {
		t.Rows = append(t.Rows, []string{g.Name, g.Target, g.Value, g.Answer(), g.Experiment, g.Explain})
	}
	return t
}

func (d *Document) paperTable() Table {
	t := Table{Columns: []string{"what", "the paper", "known from", "this run", "base of ours"}, Note: PaperNote}
	for _, f := range d.Paper {
		t.Rows = append(t.Rows, []string{f.Item, f.Paper, f.Provenance, f.Ours, f.Base})
	}
	return t
}

func (s *Section) figureTable() Table {
	t := Table{Columns: []string{"samples", "metric", "value", "95 % interval or range", "p95", "n", "failed"}}
	for _, f := range s.Figures {
		row := []string{f.Group(), f.Metric, "–", "–", "–", "0", fmt.Sprint(f.Failed)}
		if f.N > 0 {
			row[2], row[5] = withUnit(f.Value, f.Unit), fmt.Sprint(f.N)
			if text := strings.Trim(f.Interval.text(func(v float64) string { return withUnit(v, f.Unit) }), " ()"); text != "" {
				row[3] = text
			}
			if f.Unit != Share {
				row[4] = withUnit(f.P95, f.Unit)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// overBareColumn is the last column of the steps, where the bare command was measured.
const overBareColumn = "over bare"

func (s *Section) stepTable() Table {
	names := stepNames(s.Steps)
	t := Table{Title: "Where the time goes (medians)", Columns: append([]string{"samples"}, names...)}
	if slices.ContainsFunc(s.Steps, func(g StepTimes) bool { return g.OverBare != nil }) {
		t.Columns, t.Note = append(t.Columns, overBareColumn), overBareText
	}
	for _, g := range s.Steps {
		row := []string{g.Group}
		for _, name := range names {
			text := "–"
			if v, ok := g.Steps[name]; ok {
				text = seconds(v)
			}
			row = append(row, text)
		}
		if t.Note != "" {
			text := "–"
			if f := g.OverBare; f != nil {
				text = seconds(f.Value) + f.Interval.text(seconds)
			}
			row = append(row, text)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (s *Section) failureTable() Table {
	t := Table{Title: "Samples that failed", Columns: []string{"samples", "n", "why"}}
	for _, f := range s.Failures {
		t.Rows = append(t.Rows, []string{f.Group, fmt.Sprint(f.N), f.Err})
	}
	return t
}

// metricTexts says what metrics are, where the experiment says so.
func (s *Section) metricTexts() []string {
	var out []string
	for _, m := range s.metrics {
		if m.Text != "" {
			out = append(out, m.Name+": "+m.Text)
		}
	}
	return out
}

// factTable is what the experiment alone knows of where it ran.
func (s *Section) factTable() Table {
	t := Table{Title: "Where it ran", Columns: []string{"fact", "value"}}
	for _, k := range slices.Sorted(maps.Keys(s.Facts)) {
		t.Rows = append(t.Rows, []string{k, s.Facts[k]})
	}
	return t
}

// state is how far the experiment came, for the reader: a word that is set out, and
// the rest of the sentence.
func (s *Section) state() (word, rest string) {
	switch {
	case s.Skipped != "":
		word, rest = "Skipped:", s.Skipped
	case s.Err != "":
		word, rest = "Failed after "+seconds(s.Took)+":", s.Err
	case !s.Partial:
		rest = fmt.Sprintf("Took %s. Load when it began: %s; time that the hypervisor below took: %s.", seconds(s.Took), number(s.Load), percent(s.Steal))
	}
	if s.Partial {
		n := counted(float64(s.samples), "sample", "samples")
		if word == "" {
			word, rest = "Stopped before its end.", ""
		}
		rest = strings.TrimSpace(rest + " Partial: the figures are those of " + n + "; the run goes on from them when it is started again.")
	}
	return word, rest
}

// answered counts the targets with an answer.
func (d *Document) answered(answer string) int {
	n := 0
	for _, t := range d.Targets {
		if t.Answer() == answer {
			n++
		}
	}
	return n
}

// verdict is the run in one sentence.
func (d *Document) verdict() string {
	text := fmt.Sprintf("%d of %d targets reached, %d missed, %d undecided, %d not measured.", d.answered("yes"), len(d.Targets), d.answered("no"), d.answered("undecided"), d.answered("–"))
	if len(d.Open) > 0 {
		text += " Not made yet, or not to the end: " + strings.Join(d.Open, ", ") + "."
	}
	return text
}

func (p Plan) text() string {
	text := "full"
	if p.Quick {
		text = "quick"
	}
	if p.Repeat > 0 {
		text += fmt.Sprintf(", %d repetitions", p.Repeat)
	}
	if len(p.Boundaries) > 0 {
		text += ", boundaries " + strings.Join(p.Boundaries, ", ")
	}
	return fmt.Sprintf("%s, %d warm-up rounds, seed %d", text, p.Warmup, p.Seed)
}

// statisticsText is the method that all experiments share.
const statisticsText = "Values are medians with 95 % intervals (order statistics; of ratios and differences bootstrap, 2,000 resamples, fixed seed); " +
	"of fewer than six values it is their range, which is no interval. A target takes at least five samples on each side, none of them failed. " +
	"Shares are means with Wilson intervals. Arms are interleaved in an order drawn anew for each round, after warm-up rounds that are not kept. " +
	"Failed samples are counted, and their times are in no median. Raw samples are in the run's directory."
