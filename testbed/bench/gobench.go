package bench

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// GoBench writes the samples in the text form of Go's benchmarks, a line per
// sample, so that benchstat reads them:
//
//	BenchmarkOverhead/arm=workspace/workload=pip-install 1 4.71e+09 ns/op 2.1e+08 snapshot-ns
//
// Times are nanoseconds; failed samples are left out, as go test does.
func (r *Report) GoBench(w io.Writer) error {
	var b bytes.Buffer
	e := r.Info.Environment
	fmt.Fprintf(&b, "goos: %s\ngoarch: %s\npkg: savepoint/bench\n", e.OS, e.Arch)
	if e.CPU != "" {
		fmt.Fprintf(&b, "cpu: %s\n", strings.Join(strings.Fields(e.CPU), " "))
	}
	for _, res := range r.Results {
		for _, s := range res.Samples {
			if s.Err == "" && len(s.Metrics) > 0 {
				benchLine(&b, res, s)
			}
		}
	}
	if _, err := w.Write(printable(b.Bytes())); err != nil {
		return fmt.Errorf("write run %s as benchmarks: %w", r.Info.ID, err)
	}
	return nil
}

func benchLine(b *bytes.Buffer, res *Result, s Sample) {
	b.WriteString("Benchmark")
	for _, part := range strings.Split(res.Experiment, "-") {
		if part != "" {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	b.WriteString("/arm=" + benchWord(s.Arm))
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		b.WriteString("/" + benchWord(k) + "=" + benchWord(s.Labels[k]))
	}
	b.WriteString(" 1")
	value := func(v float64, unit string) {
		b.WriteString(" " + strconv.FormatFloat(v, 'g', -1, 64) + " " + unit)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Metrics)) {
		v := s.Metrics[name]
		switch unit := res.Metric(name).Unit; {
		case name == MetricSeconds:
			value(v*1e9, "ns/op")
		case unit == Seconds:
			value(v*1e9, benchWord(name)+"-ns")
		default:
			value(v, benchWord(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Steps)) {
		value(s.Steps[name]*1e9, benchWord(name)+"-step-ns")
	}
	b.WriteString("\n")
}

// benchWord is a text as a part of a benchmark's name or unit.
func benchWord(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || r == '/' || r == '=' || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, s)
	if s == "" {
		return "_"
	}
	return s
}
