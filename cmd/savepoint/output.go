package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
)

// format is the value of --output.
type format string

const (
	formatText   format = "text"
	formatJSON   format = "json"
	formatNDJSON format = "ndjson"
)

// String, Set and Type make format a flag.
func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "text|json|ndjson" }
func (f *format) Set(s string) error {
	switch format(s) {
	case formatText, formatJSON, formatNDJSON:
		*f = format(s)
		return nil
	}
	return fmt.Errorf("must be text, json or ndjson")
}

// printJSON writes one value: indented for json, on one line for ndjson.
func (a *app) printJSON(v any) error {
	enc := encoder(a.out)
	if a.format == formatJSON {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(v)
}

// encoder writes values as JSON, each on a line.
func encoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}

// printList writes a list: an array for json, a value a line for ndjson, and
// what text does otherwise.
func printList[T any](a *app, items []T, text func(io.Writer) error) error {
	switch a.format {
	case formatJSON:
		if items == nil {
			items = []T{}
		}
		return a.printJSON(items)
	case formatNDJSON:
		for _, it := range items {
			if err := a.printJSON(it); err != nil {
				return err
			}
		}
		return nil
	case formatText:
	}
	return text(a.out)
}

// table writes rows in aligned columns, below a header if there is one.
func table(w io.Writer, header string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if header != "" {
		fmt.Fprintln(t, header)
	}
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	return t.Flush()
}

// terminal returns the width of w if a person looks at it, else 0.
func terminal(w io.Writer) int {
	if p, ok := w.(*pipe); ok {
		w = p.to
	}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		return 80
	}
	return width
}

// style colours text, or leaves it alone: no terminal, NO_COLOR, TERM=dumb.
type style struct{ on bool }

func (a *app) style(w io.Writer) style {
	return style{on: terminal(w) > 0 && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"}
}

func (s style) paint(code, text string) string {
	if !s.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) bold(t string) string   { return s.paint("1", t) }
func (s style) dim(t string) string    { return s.paint("2", t) }
func (s style) red(t string) string    { return s.paint("31", t) }
func (s style) green(t string) string  { return s.paint("32", t) }
func (s style) yellow(t string) string { return s.paint("33", t) }

// short prints a duration the way people say it: 85 ms, 1.4 s, 2 min 3 s.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	default:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
}
