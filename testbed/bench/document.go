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
	Name    string            `json:"name"`
	Title   string            `json:"title"`
	Method  string            `json:"method"`
	Skipped string            `json:"skipped,omitempty"`
	Err     string            `json:"error,omitempty"`
	Took    float64           `json:"took_s"`
	Noise   string            `json:"noise,omitempty"`
	Notes   []string          `json:"notes,omitempty"`
	Facts   map[string]string `json:"facts,omitempty"`
	Figures []Figure          `json:"figures,omitempty"`
	Steps   []StepTimes       `json:"steps,omitempty"`
	Tables  []Table           `json:"tables,omitempty"`
	// Failures are why samples failed, with how many did so.
	Failures []Failure `json:"failures,omitempty"`

	charts  []chart
	metrics []Metric
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
		Run: r.Info.ID, Environment: r.Info.Environment, Plan: r.Info.Plan, Started: r.Info.Started,
		Targets: Targets(r), Paper: Paper(r), Open: r.Open(), Experiments: []Section{},
	}
	for _, res := range r.Results {
		s := Section{
			Name: res.Experiment, Title: res.Title, Method: res.Method, Skipped: res.Skipped, Err: res.Err, Took: res.Took,
			Noise: res.Noise.Text(res.Environment.Cores), Notes: slices.Clone(res.Notes), Facts: res.Facts,
			Figures: res.Figures(), Steps: res.StepTimes(), Tables: res.Tables, Failures: failures(res), metrics: res.Metrics,
		}
		if s.Title == "" {
			s.Title = s.Name
		}
		if !sameMachine(res.Environment, r.Info.Environment) {
			s.Notes = append(s.Notes, "Measured on another machine than the run's last part: "+res.Environment.Brief()+".")
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

// sameMachine reports whether seconds of both may be compared.
func sameMachine(a, b Environment) bool {
	return a.Arch == b.Arch && a.Cores == b.Cores && a.CPU == b.CPU && a.Accelerator == b.Accelerator
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

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (d *Document) targetTable() Table {
	t := Table{Columns: []string{"what", "target", "this run", "reached", "experiment", "made of"}}
	for _, g := range d.Targets {
		reached := yes(g.Reached)
		if g.Value == NotMeasured {
			reached = "–"
		}
		t.Rows = append(t.Rows, []string{g.Name, g.Target, g.Value, reached, g.Experiment, g.Explain})
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
	t := Table{Columns: []string{"samples", "metric", "value", "95 % interval", "p95", "n", "failed"}}
	for _, f := range s.Figures {
		row := []string{f.Group(), f.Metric, "–", "–", "–", "0", fmt.Sprint(f.Failed)}
		if f.N > 0 {
			row[2], row[5] = withUnit(f.Value, f.Unit), fmt.Sprint(f.N)
			row[3] = withUnit(f.Low, f.Unit) + " to " + withUnit(f.High, f.Unit)
			if f.Unit != Share {
				row[4] = withUnit(f.P95, f.Unit)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (s *Section) stepTable() Table {
	names := stepNames(s.Steps)
	t := Table{Title: "Where the time goes (medians)", Columns: append([]string{"samples"}, names...)}
	for _, g := range s.Steps {
		row := []string{g.Group}
		for _, name := range names {
			text := "–"
			if v, ok := g.Steps[name]; ok {
				text = seconds(v)
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

// missed are targets that were measured and not reached.
func (d *Document) missed() int {
	n := 0
	for _, t := range d.Targets {
		if !t.Reached && t.Value != NotMeasured {
			n++
		}
	}
	return n
}

func (d *Document) reached() int {
	n := 0
	for _, t := range d.Targets {
		if t.Reached {
			n++
		}
	}
	return n
}

// verdict is the run in one sentence.
func (d *Document) verdict() string {
	text := fmt.Sprintf("%d of %d targets reached, %d missed, %d not measured.", d.reached(), len(d.Targets), d.missed(), len(d.Targets)-d.reached()-d.missed())
	if len(d.Open) > 0 {
		text += " Not made yet: " + strings.Join(d.Open, ", ") + "."
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
	return fmt.Sprintf("%s, %d warm-up rounds, seed %d", text, p.Warmup, p.Seed)
}

// statisticsText is the method that all experiments share.
const statisticsText = "Values are medians with 95 % intervals (bootstrap, 2,000 resamples, fixed seed; above 200 values from the order statistics); " +
	"shares are means with Wilson intervals. Arms are interleaved in an order drawn anew for each round, after warm-up rounds that are not kept. " +
	"Failed samples are counted, and their times are in no median. Raw samples are in the run's directory."
