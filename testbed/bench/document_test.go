package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// shown is a run with a bit of everything that a report shows.
func shown(t *testing.T) *Report {
	t.Helper()
	exps := everything(true)
	exps = append(exps,
		Experiment{Name: "odd", Title: "Text | that <breaks> `things`", Method: "Its texts are hostile.", Run: func(_ context.Context, r *Run) error {
			r.Add(Sample{Arm: "a|b", Labels: tags{"x": "<script>alert(1)</script>"}, Err: "exit 1\n\x1b[31mred & \"quoted\""})
			r.Table(Table{Title: "A table", Columns: []string{"wide", "cell"}, Rows: [][]string{{"|", "# no heading"}}, Note: "A note."})
			r.Note("a note with *stars*")
			r.Fact("image", "sha256:0123")
			return nil
		}},
		Experiment{Name: "lacking", Title: "Lacking", Run: func(context.Context, *Run) error { return Skip("npm is not installed") }},
		Experiment{Name: "broken", Title: "Broken", Run: func(context.Context, *Run) error { return errors.New("no answer within 2m0s") }},
	)
	return made(t, QuickPlan(), exps...)
}

func TestMarkdown(t *testing.T) {
	var b bytes.Buffer
	if err := shown(t).Document().Markdown(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/report.md", b.Bytes())
	// A table's rows have as many cells as its head, so texts did not break out.
	cells := regexp.MustCompile(`(?:^|[^\\])\|`)
	columns := 0
	for line := range strings.Lines(b.String()) {
		if !strings.HasPrefix(line, "|") {
			columns = 0
			continue
		}
		n := len(cells.FindAllString(line, -1))
		if columns == 0 {
			columns = n
		}
		if n != columns {
			t.Errorf("%d cells, want %d: %s", n, columns, line)
		}
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (rewrite with -update); got:\n%s", path, got)
	}
}

// The names scripts rely on.
func TestJSON(t *testing.T) {
	data, err := json.Marshal(shown(t).Document())
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Run         string
		Environment map[string]any
		Targets     []map[string]any
		Experiments []map[string]any
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.Run != "run-a" || got.Environment["cores"] != 2.0 || len(got.Targets) != len(goals) || len(got.Experiments) != 10 {
		t.Errorf("%+v", got)
	}
	for _, g := range got.Targets {
		for _, key := range []string{"name", "target", "value", "experiment"} {
			if _, ok := g[key].(string); !ok {
				t.Errorf("target without text %q: %v", key, g)
			}
		}
		if _, ok := g["reached"].(bool); !ok {
			t.Errorf("target without \"reached\": %v", g)
		}
	}
	if got.Experiments[8]["skipped"] != "npm is not installed" || got.Experiments[9]["error"] != "no answer within 2m0s" {
		t.Errorf("%v", got.Experiments[8:])
	}
}

// void elements of HTML have no end.
var void = []string{"meta", "link", "br", "hr", "img", "input", "col"}

// faults are what is wrong with a page: tags that are not balanced, requests to
// elsewhere, scripts, what a page may not hold.
func faults(page []byte) (out []string) {
	if !bytes.HasPrefix(bytes.TrimSpace(page), []byte("<!doctype html>")) {
		out = append(out, "it has no doctype at its begin")
	}
	d := xml.NewDecoder(bytes.NewReader(page))
	d.Strict, d.Entity = false, xml.HTMLEntity
	var open []string
	for {
		token, err := d.RawToken()
		if err == io.EOF {
			break
		}
		if err != nil {
			return append(out, err.Error())
		}
		switch e := token.(type) {
		case xml.StartElement:
			out = append(out, elementFaults(e)...)
			if !slices.Contains(void, e.Name.Local) {
				open = append(open, e.Name.Local)
			}
		case xml.EndElement:
			// A self-closed element ends at once, and so does a void one.
			if slices.Contains(void, e.Name.Local) {
				continue
			}
			if len(open) == 0 || open[len(open)-1] != e.Name.Local {
				return append(out, fmt.Sprintf("</%s> ends %q", e.Name.Local, open))
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		out = append(out, fmt.Sprintf("%q are open at the end", open))
	}
	if i := bytes.Index(page, []byte("url(")); i >= 0 {
		out = append(out, "the style asks for a file")
	}
	return out
}

func elementFaults(e xml.StartElement) (out []string) {
	if slices.Contains([]string{"script", "link", "img", "iframe", "object", "embed", "form", "base"}, e.Name.Local) {
		out = append(out, "it has an element "+e.Name.Local)
	}
	seen := map[string]bool{}
	for _, a := range e.Attr {
		name := a.Name.Local
		switch {
		case seen[name]:
			out = append(out, fmt.Sprintf("<%s> has %s twice", e.Name.Local, name))
		case strings.HasPrefix(name, "on"):
			out = append(out, "it has a handler "+name)
		case name == "src" || name == "srcset" || name == "href" && !strings.HasPrefix(a.Value, "#"):
			out = append(out, fmt.Sprintf("it refers to %q", a.Value))
		case strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf%"), strings.Contains(a.Value, "ZgotmplZ"):
			out = append(out, fmt.Sprintf("<%s %s=%q>", e.Name.Local, name, a.Value))
		}
		seen[name] = true
		for _, m := range place100.FindAllStringSubmatch(a.Value, -1) {
			if v, err := strconv.ParseFloat(m[1], 64); name == "style" && (err != nil || v < 0 || v > 100.05) {
				out = append(out, fmt.Sprintf("<%s %s=%q> is beyond its box", e.Name.Local, name, a.Value))
			}
		}
	}
	return out
}

// place100 is a place or a width in per cent.
var place100 = regexp.MustCompile(`(?:left|width):([^%;]*)%`)

func TestHTML(t *testing.T) {
	rep := shown(t)
	older := past(rep)
	older.Run, older.Started = "run-0", older.Started.AddDate(0, 0, -1)
	var b bytes.Buffer
	if err := rep.Document().HTML(&b, []Past{older, past(rep)}); err != nil {
		t.Fatal(err)
	}
	for _, f := range faults(b.Bytes()) {
		t.Error(f)
	}
	if i := bytes.IndexAny(b.Bytes(), "\x00\x1b"); i >= 0 {
		t.Errorf("a control byte at %d", i)
	}
	for _, want := range []string{"prefers-color-scheme:dark", "width=device-width", "&lt;script&gt;alert(1)&lt;/script&gt;", "npm is not installed", "no answer within 2m0s", "not stated"} {
		if !strings.Contains(strings.ReplaceAll(b.String(), ": dark", ":dark"), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	// Wide tables scroll in a box of their own.
	if tables, boxes := strings.Count(b.String(), "<table"), len(regexp.MustCompile(`<div class="wide"[^>]*><table`).FindAllString(b.String(), -1)); tables == 0 || tables != boxes {
		t.Errorf("%d tables, %d in a box", tables, boxes)
	}
}

// Long tables are folded, short ones, the plots and the targets stand open; what
// is measured and how can be unfolded.
func TestFolded(t *testing.T) {
	table := func(name string, rows int) Table {
		out := Table{Title: name, Columns: []string{"n"}}
		for range rows {
			out.Rows = append(out.Rows, []string{name})
		}
		return out
	}
	for rows, folded := range map[int]bool{mostRows: false, mostRows + 1: true} {
		var b bytes.Buffer
		if err := page.ExecuteTemplate(&b, "table", table("cells", rows)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), "<details><summary>cells: 13 rows</summary>"); got != folded || strings.Count(b.String(), "<td>cells</td>") != rows {
			t.Errorf("%d rows, folded: %v:\n%s", rows, folded, b.String())
		}
	}
	rep := shown(t)
	var b bytes.Buffer
	if err := rep.Document().HTML(&b, []Past{past(rep), past(rep)}); err != nil {
		t.Fatal(err)
	}
	depth, folded := 0, map[string]bool{}
	for _, m := range regexp.MustCompile(`</?details|<figure|class="card|class="method"`).FindAllString(b.String(), -1) {
		switch m {
		case "<details":
			depth++
		case "</details":
			depth--
		default:
			if was, ok := folded[m]; ok && was != (depth > 0) {
				t.Errorf("%s is folded here and open there", m)
			}
			folded[m] = depth > 0
		}
	}
	want := map[string]bool{"<figure": false, `class="card`: false, `class="method"`: true}
	if !maps.Equal(folded, want) {
		t.Errorf("folded: %v, want %v", folded, want)
	}
}

// The check of pages finds what it is for.
func TestFaults(t *testing.T) {
	const good = `<!doctype html><html><head><meta charset="utf-8"><style>a>b{c:d}</style></head><body><p>a &amp; b</p><svg><line x1="0"/></svg></body></html>`
	if f := faults([]byte(good)); f != nil {
		t.Fatalf("a good page: %q", f)
	}
	for old, tt := range map[string]struct{ new, want string }{
		"</p>":             {"", "</body> ends"},
		"<p>":              {`<p onclick="x()">`, "a handler onclick"},
		"</body>":          {`<img src="http://192.0.2.1/x.png"></body>`, "refers to"},
		"<!doctype html>":  {"", "no doctype"},
		`<line x1="0"/>`:   {`<line x1="NaN"/>`, "NaN"},
		"<svg>":            {`<svg style="left:0%;width:101%">`, "beyond its box"},
		"c:d":              {"c:url(x)", "asks for a file"},
		"</html>":          {"", "are open at the end"},
		"<html>":           {`<html id="a" id="b">`, "id twice"},
		"<p>a &amp; b</p>": {"<script>x()</script>", "an element script"},
	} {
		if f := strings.Join(faults([]byte(strings.Replace(good, old, tt.new, 1))), "\n"); !strings.Contains(f, tt.want) {
			t.Errorf("%s for %s: found %q, want %q", tt.new, old, f, tt.want)
		}
	}
}

func TestGoBench(t *testing.T) {
	rep := made(t, QuickPlan(), filled("agent-turn", []Metric{{Name: "decision", Unit: Seconds}, {Name: "heap size", Unit: Bytes}},
		Sample{Arm: "with / without", Labels: tags{"think": "2 s"}, Metrics: nums{MetricSeconds: 2.5, "decision": 1e-4, "heap size": 3}, Steps: nums{StepExecute: 2}},
		Sample{Arm: "failed", Metrics: nums{MetricSeconds: 1}, Err: "x"}))
	var b bytes.Buffer
	if err := rep.GoBench(&b); err != nil {
		t.Fatal(err)
	}
	want := "goos: linux\ngoarch: amd64\npkg: savepoint/bench\ncpu: Some CPU\n" +
		"BenchmarkAgentTurn/arm=with___without/think=2_s 1 100000 decision-ns 3 heap_size 2.5e+09 ns/op 2e+09 execute-step-ns\n"
	if b.String() != want {
		t.Errorf("got:\n%swant:\n%s", b.String(), want)
	}
}
