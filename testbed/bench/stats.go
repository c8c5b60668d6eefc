package bench

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/aclements/go-moremath/stats"
)

// Median is the middle of the values; NaN of none.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile is the value below which the share q of the values lies, between
// neighbours in proportion; NaN of none.
func Quantile(values []float64, q float64) float64 {
	return quantileSorted(slices.Sorted(slices.Values(values)), q)
}

func quantileSorted(v []float64, q float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	at := q * float64(len(v)-1)
	lo := int(math.Floor(at))
	hi := min(lo+1, len(v)-1)
	if v[lo] == v[hi] { // also where both are infinite
		return v[lo]
	}
	return v[lo] + (at-float64(lo))*(v[hi]-v[lo])
}

// Mean is the sum by the number; NaN of none.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// Interval is where a figure lies with a confidence of 95 %, or only the range of
// what there is.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Range says that it is the smallest and the largest that the values give: there
	// are too few of them for a confidence.
	Range bool `json:"range,omitempty"`
}

// text is the interval in brackets, its ends printed by show. One that is a range
// is called so, and an end without a bound too. A range of one value says nothing.
func (in Interval) text(show func(float64) string) string {
	if math.IsNaN(in.Low) || math.IsNaN(in.High) || in.Range && in.Low == in.High {
		return ""
	}
	end := func(v float64) string {
		if math.IsInf(v, 0) {
			return "no bound"
		}
		return show(v)
	}
	word := ""
	if in.Range {
		word = "range "
	}
	return " (" + word + end(in.Low) + " to " + end(in.High) + ")"
}

const (
	z95       = 1.959963984540054
	resamples = 2000
	bootSeed  = 0x5eed
	// confidentFrom is the fewest values of which there is an interval: the range of five
	// holds the median in 94 of 100 cases.
	confidentFrom = 6
)

// MedianInterval is the interval of the median: the values of the narrowest pair of
// ranks that holds it with 95 % at least, by the binomial distribution, whatever the
// values are distributed like. Of less than six values it is their range.
func MedianInterval(values []float64) Interval {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	switch {
	case n == 0:
		return Interval{Low: math.NaN(), High: math.NaN()}
	case n < confidentFrom:
		return Interval{v[0], v[n-1], true}
	}
	k := medianRank(n)
	return Interval{Low: v[k-1], High: v[n-k]}
}

// medianRank is the largest rank that is above the median of what n values are drawn
// from with 2.5 % at most. It is at least 1 from six values on.
func medianRank(n int) int {
	ways, _ := math.Lgamma(float64(n) + 1)
	above := 0.0 // how likely it is that k values or fewer are below the median
	for k := 0; ; k++ {
		in, _ := math.Lgamma(float64(k) + 1)
		out, _ := math.Lgamma(float64(n-k) + 1)
		if above += math.Exp(ways - in - out - float64(n)*math.Ln2); above > 0.025 {
			return k
		}
	}
}

// RatioInterval is the interval of Median(a) / Median(b), bootstrapped. With less
// than six values on a side it is the range of what they give.
func RatioInterval(a, b []float64) Interval {
	return medianInterval(func(m []float64) float64 { return m[0] / m[1] }, a, b)
}

// DifferenceInterval is RatioInterval of Median(a) - Median(b).
func DifferenceInterval(a, b []float64) Interval {
	return medianInterval(func(m []float64) float64 { return m[0] - m[1] }, a, b)
}

// OverheadRatio is how much what a adds to bare is of what b adds to it, by their
// medians, and its interval as that of RatioInterval, over all three. It is NaN
// where b adds nothing.
func OverheadRatio(a, b, bare []float64) (float64, Interval) {
	of := func(m []float64) float64 {
		if m[1] <= m[2] { // nothing was added to hold it against
			return math.Inf(1)
		}
		return (m[0] - m[2]) / (m[1] - m[2])
	}
	v := of([]float64{Median(a), Median(b), Median(bare)})
	if math.IsInf(v, 0) {
		v = math.NaN()
	}
	return v, medianInterval(of, a, b, bare)
}

// medianInterval is the interval of a figure that is made of the medians of several
// sets of values, each resampled by itself. With less than six values in one of them
// it is from the smallest to the largest that any choice of single values gives: of
// is monotone in each.
func medianInterval(of func(medians []float64) float64, sets ...[]float64) Interval {
	fewest := len(sets[0])
	for _, v := range sets {
		fewest = min(fewest, len(v))
	}
	m := make([]float64, len(sets))
	switch {
	case fewest == 0:
		return Interval{Low: math.NaN(), High: math.NaN()}
	case fewest < confidentFrom:
		in := Interval{math.Inf(1), math.Inf(-1), true}
		for ends := range 1 << len(sets) {
			for i, v := range sets {
				if m[i] = slices.Min(v); ends>>i&1 == 1 {
					m[i] = slices.Max(v)
				}
			}
			v := of(m)
			in.Low, in.High = min(in.Low, v), max(in.High, v)
		}
		return in
	}
	seed := uint64(0)
	for _, v := range sets {
		seed = seed<<21 | uint64(len(v))
	}
	rng := rand.New(rand.NewPCG(bootSeed, seed))
	return percentiles(func() float64 {
		for i, v := range sets {
			m[i] = Median(resample(rng, v))
		}
		return of(m)
	})
}

func resample(rng *rand.Rand, v []float64) []float64 {
	out := make([]float64, len(v))
	for i := range out {
		out[i] = v[rng.IntN(len(v))]
	}
	return out
}

func percentiles(draw func() float64) Interval {
	got := make([]float64, resamples)
	for i := range got {
		got[i] = draw()
	}
	slices.Sort(got)
	return Interval{Low: quantileSorted(got, 0.025), High: quantileSorted(got, 0.975)}
}

// ShareInterval is Wilson's interval of a share of n.
func ShareInterval(share float64, n int) Interval {
	if n == 0 {
		return Interval{Low: math.NaN(), High: math.NaN()}
	}
	f, z2 := float64(n), z95*z95
	mid := (share + z2/(2*f)) / (1 + z2/f)
	half := z95 / (1 + z2/f) * math.Sqrt(share*(1-share)/f+z2/(4*f*f))
	return Interval{Low: max(0, mid-half), High: min(1, mid+half)}
}

// exactTo is how many values on a side are compared by counting; of more it is the
// normal approximation that is as good.
const exactTo = 25

// MannWhitney is the probability (two-sided) that two samples which differ as
// much come from the same distribution: the share of all ways to divide the values
// that are as far from the middle. It is 1 when there is nothing to tell them apart by.
func MannWhitney(a, b []float64) float64 {
	if len(a) > exactTo || len(b) > exactTo {
		res, err := stats.MannWhitneyUTest(a, b, stats.LocationDiffers)
		if err != nil || math.IsNaN(res.P) { // all are equal, or there are none
			return 1
		}
		return min(1, res.P)
	}
	// The exact one is not the library's: with ties it is wrong, and another the other
	// way round. Ranks are doubled, so that those of ties are whole.
	all := slices.Sorted(slices.Values(slices.Concat(a, b)))
	rank := func(v float64) int {
		first, _ := slices.BinarySearch(all, v)
		past := first
		for past < len(all) && all[past] == v {
			past++
		}
		return first + past + 1
	}
	// ways[k][s] is how many choices of k values have ranks with the sum s.
	ways := make([][]float64, len(a)+1)
	for k := range ways {
		ways[k] = make([]float64, len(all)*(len(all)+1)+1)
	}
	ways[0][0] = 1
	for _, v := range all {
		for k, by := len(a), rank(v); k > 0; k-- {
			for s := len(ways[k]) - 1; s >= by; s-- {
				ways[k][s] += ways[k-1][s-by]
			}
		}
	}
	middle, sum := len(a)*(len(all)+1), 0
	for _, v := range a {
		sum += rank(v)
	}
	off := max(sum-middle, middle-sum)
	total, extreme := 0.0, 0.0
	for s, n := range ways[len(a)] {
		total += n
		if max(s-middle, middle-s) >= off {
			extreme += n
		}
	}
	return extreme / total
}

// benjaminiHochberg corrects the probabilities of a family of comparisons: where all
// below 0.05 are called differences, at most one in twenty of them is expected to be
// chance. The order is kept.
func benjaminiHochberg(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(p[i], p[j]) })
	out, least := make([]float64, len(p)), 1.0
	for rank, i := range slices.Backward(order) {
		least = min(least, p[i]*float64(len(p))/float64(rank+1))
		out[i] = least
	}
	return out
}
