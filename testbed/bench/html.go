package bench

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"drawing": func() frame { return drawing },
	"series":  func(i int) int { return i % seriesColours },
	"long":    func(t Table) bool { return len(t.Rows) > mostRows },
	"add":     func(a, b float64) float64 { return a + b },
	"sub":     func(a, b float64) float64 { return a - b },
}).Parse(pageText))

// seriesColours is how many colours the page has for series.
const seriesColours = 8

// mostRows is how many rows a table has that stands open on the page.
const mostRows = 12

// HTML writes the document as one page that asks nothing of the network, with
// the plots, and the trend of earlier runs when there are some.
func (d *Document) HTML(w io.Writer, history []Past) error {
	v := view{Document: d, Verdict: d.verdict(), PlanText: d.Plan.text(), Statistics: statisticsText, PaperName: PaperName}
	v.TargetTable, v.PaperTable = d.targetTable(), d.paperTable()
	v.Machine = Table{Columns: []string{"fact", "value"}, Rows: d.Environment.facts()}
	for i := range d.Experiments {
		s := &d.Experiments[i]
		word, rest := s.state()
		v.Sections = append(v.Sections, sectionView{
			Section: s, Word: word, Rest: rest, Charts: s.charts, Shown: s.allTables(), Texts: slices.Concat(s.Notes, s.metricTexts()),
		})
	}
	v.Trend = trend(history)
	var b bytes.Buffer
	if err := page.Execute(&b, v); err != nil {
		return fmt.Errorf("write the page of run %s: %w", d.Run, err)
	}
	if _, err := w.Write(printable(b.Bytes())); err != nil {
		return fmt.Errorf("write the page of run %s: %w", d.Run, err)
	}
	return nil
}

// view is what the page shows.
type view struct {
	*Document
	Verdict, PlanText, Statistics, PaperName string
	TargetTable, PaperTable, Machine         Table
	Sections                                 []sectionView
	Trend                                    []chart
	Colours                                  [seriesColours]struct{}
}

type sectionView struct {
	*Section
	// Word and Rest are how far it came.
	Word, Rest string
	Charts     []chart
	Shown      []Table
	Texts      []string
}
