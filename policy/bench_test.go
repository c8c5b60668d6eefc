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

// BenchmarkNew is the cost of loading the tables and rules and of running
// every example.
func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		if _, err := New(Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
