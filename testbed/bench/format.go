package bench

import (
	"math"
	"strconv"
	"strings"
)

// number prints three digits that count, without an exponent where one can read
// it: 0.0823, 1.05, 48,200.
func number(v float64) string {
	a := math.Abs(v)
	switch {
	case !finite(v):
		return "–"
	case v == 0:
		return "0"
	case a < 1e-6 || a >= 1e15:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case a >= 1000:
		return thousands(strconv.FormatFloat(v, 'f', 0, 64))
	}
	digits := max(0, 2-int(math.Floor(math.Log10(a))))
	s := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

func thousands(s string) string {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// seconds prints a time with the unit that fits.
func seconds(v float64) string {
	switch a := math.Abs(v); {
	case !finite(v):
		return "–"
	case a == 0:
		return "0 s"
	case a < 1e-3:
		return number(v*1e6) + " µs"
	case a < 1:
		return number(v*1e3) + " ms"
	}
	return number(v) + " s"
}

// percent prints a part. What is not all is never printed as 100 %: one command of
// thousands that was not stopped is what the reader looks for.
func percent(v float64) string {
	if !finite(v) {
		return "–"
	}
	if lacks := 1 - v; lacks > 1e-8 && lacks < 1e-3 {
		return strconv.FormatFloat(100*v, 'f', int(math.Ceil(-math.Log10(lacks)))-2, 64) + " %"
	}
	return number(math.Round(v*1e5)/1e3) + " %"
}

func bytesText(v float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for math.Abs(v) >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return number(v) + " " + units[i]
}

func counted(v float64, one, many string) string {
	if v == 1 {
		return "1 " + one
	}
	return number(v) + " " + many
}

// withUnit prints a value of a metric.
func withUnit(v float64, unit string) string {
	switch unit {
	case Seconds:
		return seconds(v)
	case Bytes:
		return bytesText(v)
	case Share:
		return percent(v)
	case PerSec:
		return number(v) + "/s"
	}
	return number(v)
}

// roundTo rounds to a multiple of a step.
func roundTo(v, step float64) float64 { return math.Round(v/step) * step }
