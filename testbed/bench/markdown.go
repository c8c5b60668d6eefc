package bench

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// Markdown writes the document as Markdown. The plots are in the HTML form only.
func (d *Document) Markdown(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Measurements: %s\n\n%s\n\n", mdText(d.Run), mdText(d.verdict()))
	fmt.Fprintf(&b, "Begun %s. Plan: %s.\n\n", d.Started.UTC().Format("2006-01-02 15:04 MST"), d.Plan.text())
	b.WriteString("## Targets\n\n")
	mdTable(&b, d.targetTable())
	if t := d.missedTable(); len(t.Rows) > 0 {
		mdTable(&b, t)
	}
	fmt.Fprintf(&b, "## The paper beside this run\n\n%s.\n\n", mdText(PaperName))
	mdTable(&b, d.paperTable())
	b.WriteString("## Experiments\n\n" + statisticsText + "\n\n")
	for i := range d.Experiments {
		mdSection(&b, &d.Experiments[i])
	}
	b.WriteString("## Environment\n\n")
	mdTable(&b, Table{Columns: []string{"fact", "value"}, Rows: d.Environment.facts()})
	if _, err := w.Write(bytes.TrimRight(printable(b.Bytes()), "\n")); err != nil {
		return fmt.Errorf("write the report of run %s: %w", d.Run, err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func mdSection(b *bytes.Buffer, s *Section) {
	fmt.Fprintf(b, "### %s (%s)\n\n", mdText(s.Title), s.Name)
	if s.Method != "" {
		b.WriteString(mdText(s.Method) + "\n\n")
	}
	word, rest := s.state()
	if word != "" {
		word = "**" + mdText(word) + "** "
	}
	b.WriteString(strings.TrimSpace(word+mdText(rest)) + "\n\n")
	lines := append(append([]string{}, s.Notes...), s.metricTexts()...)
	if s.Noise != "" {
		lines = append(lines, s.Noise)
	}
	for _, n := range lines {
		fmt.Fprintf(b, "- %s\n", mdText(n))
	}
	if len(lines) > 0 {
		b.WriteString("\n")
	}
	for _, t := range s.allTables() {
		mdTable(b, t)
	}
}

// allTables are the tables of a section that have rows, in their order.
func (s *Section) allTables() []Table {
	all := append([]Table{s.figureTable(), s.stepTable()}, s.Tables...)
	all = append(all, s.failureTable(), s.factTable())
	var out []Table
	for _, t := range all {
		if len(t.Rows) > 0 && len(t.Columns) > 0 {
			out = append(out, t)
		}
	}
	return out
}

func mdTable(b *bytes.Buffer, t Table) {
	if t.Title != "" {
		fmt.Fprintf(b, "**%s**\n\n", mdText(t.Title))
	}
	row := func(cells []string) {
		for _, c := range cells {
			b.WriteString("| " + mdText(c) + " ")
		}
		b.WriteString("|\n")
	}
	row(t.Columns)
	b.WriteString(strings.Repeat("| --- ", len(t.Columns)) + "|\n")
	for _, r := range t.Rows {
		row(r)
	}
	b.WriteString("\n")
	if t.Note != "" {
		b.WriteString(mdText(t.Note) + "\n\n")
	}
}

var mdEscape = strings.NewReplacer("\r", " ", "\n", " ", "\\", "\\\\", "|", "\\|", "<", "&lt;", "`", "\\`", "*", "\\*", "_", "\\_", "[", "\\[", "#", "\\#")

// mdText is text that is one line and no markup.
func mdText(s string) string { return mdEscape.Replace(s) }

// printable replaces what a terminal would obey and a page may not hold: texts
// of programs that were measured are in reports.
func printable(b []byte) []byte {
	return bytes.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == 0xfffe || r == 0xffff {
			return '�'
		}
		return r
	}, b)
}
