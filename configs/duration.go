package configs

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// ParseDuration reads a duration as time.ParseDuration does, and days in front
// of it: "90d", "1d12h".
func ParseDuration(text string) (time.Duration, error) {
	number, rest, found := strings.Cut(text, "d")
	if !found {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil || n > uint64(1<<63-1)/uint64(day) {
		return 0, fmt.Errorf("%q is not a duration", text)
	}
	d := time.Duration(n) * day
	if rest == "" {
		return d, nil
	}
	if rest[0] < '0' || rest[0] > '9' { // no sign in the middle
		return 0, fmt.Errorf("%q is not a duration", text)
	}
	more, err := time.ParseDuration(rest)
	if err != nil || d+more < d {
		return 0, fmt.Errorf("%q is not a duration", text)
	}
	return d + more, nil
}
