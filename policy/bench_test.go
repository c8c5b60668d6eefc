package policy

import (
	"slices"
	"testing"
	"time"
)

// BenchmarkDecide reports the time of one decision over the golden commands,
// and its 99th percentile.
func BenchmarkDecide(b *testing.B) {
	e := newEngine(b)
	list := golden(b)
	took := make([]time.Duration, 0, 1<<16)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		start := time.Now()
		e.Decide(Request{Command: list[i%len(list)][2]})
		if len(took) < cap(took) {
			took = append(took, time.Since(start))
		}
		i++
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}

// BenchmarkNew is what the first New of a process costs: the tables and the
// built-in rules are loaded anew each time.
func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		built, err := loadBaseNow()
		if err != nil {
			b.Fatal(err)
		}
		assemble(built.tables, built.rules, nil)
	}
}
