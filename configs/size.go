package configs

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes. Its text is a whole number with an optional unit:
// B, KiB, MiB, GiB, or KB, MB, GB for powers of 1000.
type Size int64

var sizeUnits = []struct {
	suffix string
	factor int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9},
	{"B", 1}, // last: the others end in B too
}

// ParseSize reads the text form of a Size. Negative sizes are refused.
func ParseSize(text string) (Size, error) {
	number, factor := strings.TrimSpace(text), int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, factor = strings.TrimSpace(rest), u.factor
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("not a size")
	}
	if int64(n) > math.MaxInt64/factor {
		return 0, fmt.Errorf("too large")
	}
	return Size(int64(n) * factor), nil
}

// String writes the largest binary unit that loses nothing: "1MiB", "1000B".
func (s Size) String() string {
	for i := 2; i >= 0; i-- {
		u := sizeUnits[i]
		if s != 0 && int64(s)%u.factor == 0 {
			return strconv.FormatInt(int64(s)/u.factor, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// MarshalText writes String.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
