package bench

import (
	"errors"
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

// Interval is where a figure lies with a confidence of 95 %.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

const (
	z95        = 1.959963984540054
	resamples  = 2000
	resampleTo = 200 // above, the order statistics are as good and cost nothing
	bootSeed   = 0x5eed
)

// MedianInterval is the interval of the median: bootstrapped (percentiles of
// 2000 resamples, fixed seed), above 200 values from the order statistics. Of
// less than two values it is the value.
func MedianInterval(values []float64) Interval {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	switch {
	case n == 0:
		return Interval{math.NaN(), math.NaN()}
	case n > resampleTo:
		// The rank of the median is binomial: n/2 ± z·√n/2.
		half := z95 * math.Sqrt(float64(n)) / 2
		lo := int(math.Floor(float64(n)/2 - half))
		hi := int(math.Ceil(float64(n)/2 + half))
		return Interval{v[max(0, lo-1)], v[min(n-1, hi)]}
	}
	rng := rand.New(rand.NewPCG(bootSeed, uint64(n)))
	return percentiles(func() float64 { return Median(resample(rng, v)) })
}

// RatioInterval is the interval of Median(a) / Median(b), bootstrapped.
func RatioInterval(a, b []float64) Interval {
	return pairInterval(a, b, func(x, y float64) float64 { return x / y })
}

// DifferenceInterval is the interval of Median(a) - Median(b), bootstrapped.
func DifferenceInterval(a, b []float64) Interval {
	return pairInterval(a, b, func(x, y float64) float64 { return x - y })
}

func pairInterval(a, b []float64, of func(x, y float64) float64) Interval {
	if len(a) == 0 || len(b) == 0 {
		return Interval{math.NaN(), math.NaN()}
	}
	rng := rand.New(rand.NewPCG(bootSeed, uint64(len(a))<<32|uint64(len(b))))
	return percentiles(func() float64 { return of(Median(resample(rng, a)), Median(resample(rng, b))) })
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
	return Interval{quantileSorted(got, 0.025), quantileSorted(got, 0.975)}
}

// ShareInterval is Wilson's interval of a share of n.
func ShareInterval(share float64, n int) Interval {
	if n == 0 {
		return Interval{math.NaN(), math.NaN()}
	}
	f, z2 := float64(n), z95*z95
	mid := (share + z2/(2*f)) / (1 + z2/f)
	half := z95 / (1 + z2/f) * math.Sqrt(share*(1-share)/f+z2/(4*f*f))
	return Interval{max(0, mid-half), min(1, mid+half)}
}

// MannWhitney is the probability (two-sided) that two samples which differ as
// much come from the same distribution. It is 1 when there is nothing to tell
// them apart by.
func MannWhitney(a, b []float64) float64 {
	res, err := stats.MannWhitneyUTest(a, b, stats.LocationDiffers)
	switch {
	case errors.Is(err, stats.ErrSampleSize), errors.Is(err, stats.ErrSamplesEqual):
		return 1
	case err != nil || math.IsNaN(res.P):
		return 1
	}
	return min(1, res.P)
}
