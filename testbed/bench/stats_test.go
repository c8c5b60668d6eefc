package bench

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"testing"
)

func near(t *testing.T, what string, got, want, by float64) {
	t.Helper()
	if !(math.Abs(got-want) <= by) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestQuantile(t *testing.T) {
	v := []float64{15, 20, 35, 40, 50}
	near(t, "median", Median(v), 35, 0)
	near(t, "median of four", Median([]float64{4, 1, 3, 2}), 2.5, 0)
	near(t, "40 %", Quantile(v, 0.4), 29, 1e-12)
	near(t, "95 %", Quantile(v, 0.95), 48, 1e-12)
	near(t, "all", Quantile(v, 1), 50, 0)
	near(t, "none of it", Quantile(v, 0), 15, 0)
	if v[0] != 15 || !math.IsNaN(Median(nil)) {
		t.Error("the values were sorted in place, or nothing has a median")
	}
}

// Wilson's interval, values of the literature (Newcombe 1998, method 3).
func TestShareInterval(t *testing.T) {
	for _, tt := range []struct {
		hits, n   int
		low, high float64
	}{{81, 263, 0.2553, 0.3662}, {15, 148, 0.0624, 0.1605}, {0, 20, 0, 0.1611}, {1, 29, 0.0061, 0.1718}, {20, 20, 0.8389, 1}} {
		in := ShareInterval(float64(tt.hits)/float64(tt.n), tt.n)
		near(t, "low", in.Low, tt.low, 5e-5)
		near(t, "high", in.High, tt.high, 5e-5)
	}
}

func TestMannWhitney(t *testing.T) {
	for _, tt := range []struct {
		name string
		a, b []float64
		p    float64
	}{
		// Two of C(8,4) = 70 orders are as extreme.
		{"apart, four each", []float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}, 2.0 / 70},
		{"apart, three each", []float64{1, 2, 3}, []float64{4, 5, 6}, 0.1},
		// U is 6 for R's wilcox.test(c(1,4,5,8), c(2,3,6,7)): 8, the middle.
		{"mixed", []float64{1, 4, 5, 8}, []float64{2, 3, 6, 7}, 1},
		{"apart, five each", []float64{1, 2, 3, 4, 5}, []float64{6, 7, 8, 9, 10}, 2.0 / 252},
		{"all equal", []float64{1, 1, 1, 1}, []float64{1, 1, 1, 1}, 1},
		// Ties make the distribution lopsided. Of the C(10,6) = 210 choices only the 7 that
		// have all zeros among the four are as extreme.
		{"ties, six and four", []float64{1, 1, 1, 1, 1, 1}, []float64{1, 0, 0, 0}, 7.0 / 210},
		{"ties, four and six", []float64{1, 0, 1, 0}, []float64{2, 2, 1, 1, 2, 1}, 15.0 / 210},
		{"nothing", nil, []float64{1}, 1},
	} {
		near(t, tt.name, MannWhitney(tt.a, tt.b), tt.p, 1e-9)
		near(t, tt.name+", the other way round", MannWhitney(tt.b, tt.a), tt.p, 1e-9)
	}
}

func TestMedianInterval(t *testing.T) {
	v := []float64{10, 11, 9, 10.5, 9.5, 10.2, 9.8, 10.1, 9.9, 30}
	in := MedianInterval(v)
	if in != (Interval{Low: 9.5, High: 11}) { // the 2nd and the 9th of ten
		t.Errorf("interval %v of a median of %v", in, Median(v))
	}
	if one := MedianInterval([]float64{7}); one != (Interval{7, 7, true}) {
		t.Errorf("of one value: %v", one)
	}
	// Order statistics of 1 to 1000: ranks 469 and 532 (binomial, 95 %).
	many := make([]float64, 1000)
	for i := range many {
		many[(i*7)%1000] = float64(i + 1)
	}
	in = MedianInterval(many)
	near(t, "low of many", in.Low, 469, 1)
	near(t, "high of many", in.High, 532, 1)
	if r := RatioInterval([]float64{2, 2, 2}, []float64{4, 4, 4}); r != (Interval{0.5, 0.5, true}) {
		t.Errorf("ratio %v", r)
	}
}

// The interval holds the true median as often as it says at least, of few values too.
func TestMedianIntervalCovers(t *testing.T) {
	rng := NewRun(Experiment{Name: "x"}, Plan{Seed: 3}).Rand("cover")
	for _, n := range []int{6, 7, 8, 9, 20, 25, 201} {
		hits, rounds := 0, 4000
		for range rounds {
			v := make([]float64, n)
			for i := range v {
				v[i] = rng.ExpFloat64()
			}
			if in := MedianInterval(v); in.Low <= math.Ln2 && math.Ln2 <= in.High {
				hits++
			}
		}
		// 0.94 is 95 % less what chance does in so many rounds.
		if share := float64(hits) / float64(rounds); share < 0.94 {
			t.Errorf("n = %d: %v of the intervals hold the median", n, share)
		}
	}
}

func TestFormat(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{number(0.08234), "0.0823"}, {number(1.05), "1.05"}, {number(12), "12"}, {number(999.96), "1000"}, {number(48211.7), "48,212"},
		{number(-1234567), "-1,234,567"}, {number(0), "0"}, {number(math.NaN()), "–"}, {number(100), "100"}, {number(1e-9), "1e-09"},
		{seconds(0.000412), "412 µs"}, {seconds(0.25), "250 ms"}, {seconds(4.69), "4.69 s"}, {seconds(0), "0 s"}, {seconds(math.Inf(1)), "–"},
		{percent(0.388), "38.8 %"}, {percent(1), "100 %"}, {percent(0.9996), "99.96 %"}, {percent(0.9999996), "99.99996 %"}, {percent(-0.0004), "-0.04 %"},
		{bytesText(1536), "1.5 KiB"}, {bytesText(250 << 20), "250 MiB"}, {withUnit(3, Count), "3"}, {withUnit(3, PerSec), "3/s"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

// With and without ties it is the share of all ways to divide the values that are as
// far from the middle, whichever side comes first.
func TestMannWhitneyIsExact(t *testing.T) {
	rng := NewRun(Experiment{Name: "x"}, Plan{Seed: 5}).Rand("ties")
	for range 200 {
		a, b := make([]float64, 4+rng.IntN(3)), make([]float64, 4+rng.IntN(3))
		levels := 2 + rng.IntN(12)
		for i := range a {
			a[i] = float64(rng.IntN(levels))
		}
		for i := range b {
			b[i] = float64(rng.IntN(levels) + rng.IntN(2))
		}
		want := divided(a, b)
		if p, q := MannWhitney(a, b), MannWhitney(b, a); math.Abs(p-want) > 1e-9 || math.Abs(q-want) > 1e-9 {
			t.Errorf("%v and %v: %v, the other way round %v, want %v", a, b, p, q, want)
		}
	}
}

// divided tries every way to divide the values of a and b.
func divided(a, b []float64) float64 {
	all := slices.Concat(a, b)
	off := func(set uint) float64 { // how far U is from its middle
		u := -float64(len(a)*len(b)) / 2
		for i, v := range all {
			for j, w := range all {
				if set>>i&1 == 1 && set>>j&1 == 0 {
					u += float64(cmp.Compare(v, w)+1) / 2
				}
			}
		}
		return math.Abs(u)
	}
	seen, ways, extreme := off(1<<len(a)-1), 0, 0
	for set := range uint(1) << len(all) {
		if bits.OnesCount(set) == len(a) {
			if ways++; off(set) >= seen {
				extreme++
			}
		}
	}
	return float64(extreme) / float64(ways)
}
