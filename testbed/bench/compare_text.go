package bench

import (
	"bytes"
	"fmt"
	"io"
)

// Markdown writes what got worse, better, changed, came and went; noise is
// counted.
func (c *Comparison) Markdown(w io.Writer) error {
	var b bytes.Buffer
	count := map[Verdict]int{}
	for _, ch := range c.Changes {
		count[ch.Verdict]++
	}
	fmt.Fprintf(&b, "# %s against %s\n\n%d worse, %d better, %d changed, %d noise, %d new, %d gone. ", mdText(c.New), mdText(c.Old),
		count[Worse], count[Improved], count[Changed], count[NoChange], count[New], count[Gone])
	fmt.Fprintf(&b, "A change counts when q < %v (Mann-Whitney's p, corrected by Benjamini-Hochberg over the figures of its experiment) and it is larger than %s; "+
		"what is exact, as the share of failed samples, counts at any change. What is gone is as bad as worse.\n\n", significance, percent(c.Limit))
	for _, warning := range c.Warnings {
		fmt.Fprintf(&b, "- Beware: %s\n", mdText(warning))
	}
	if len(c.Warnings) > 0 {
		b.WriteString("\n")
	}
	if t := c.table(); len(t.Rows) > 0 {
		mdTable(&b, t)
	}
	if _, err := w.Write(append(bytes.TrimRight(printable(b.Bytes()), "\n"), '\n')); err != nil {
		return fmt.Errorf("write the comparison: %w", err)
	}
	return nil
}

// table of all changes but noise.
func (c *Comparison) table() Table {
	t := Table{Columns: []string{"", "experiment", "samples", "metric", "old", "new", "change", "p", "q", "n", "why"}}
	for _, v := range []Verdict{Worse, Gone, Improved, Changed, New} {
		for _, ch := range c.Changes {
			if ch.Verdict != v {
				continue
			}
			row := []string{string(v), ch.Experiment, ch.Group, ch.Metric, "–", "–", "–", "–", "–", fmt.Sprintf("%d, %d", ch.N[0], ch.N[1]), ch.Why}
			if ch.N[0] > 0 {
				row[4] = withUnit(ch.Old, ch.Unit)
			}
			if ch.N[1] > 0 && ch.Metric != "" {
				row[5] = withUnit(ch.New, ch.Unit)
			}
			if ch.N[0] > 0 && ch.N[1] > 0 {
				row[6] = byText(ch)
				if ch.P < 1 {
					row[7], row[8] = number(ch.P), number(ch.Q)
				}
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

func byText(c Change) string {
	sign := ""
	if c.By > 0 {
		sign = "+"
	}
	switch {
	case c.Unit == Share:
		return sign + number(100*c.By) + " points"
	case c.Old == 0:
		return sign + withUnit(c.By, c.Unit)
	}
	return sign + percent(c.By)
}
