package configs

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Validate says what every transaction is validated by, besides how its command
// ended. Paths are those of the guest.
type Validate struct {
	// Protected are files and trees that a command may not change unnoticed.
	// "default" stands for savepoint's own list, what its hold of a guest rests
	// on, and "none" for nothing. Not set: default.
	Protected []string `mapstructure:"protected"`
	// Watch are the trees that --only-change and --changes look at. Not set:
	// everything for root, what the agent can write for the agent.
	Watch []string `mapstructure:"watch"`
	// Volatile are paths below Watch that the guest changes by itself, besides
	// logs, caches, scratch and what systemd and apt keep.
	Volatile []string `mapstructure:"volatile"`
	// MaxEntries bounds one list of files. Default 200000.
	MaxEntries int `mapstructure:"max_entries"`
	// MinFree is what a command has to leave free on each file system: a size,
	// or a part like "1%". Default 16MiB.
	MinFree string `mapstructure:"min_free"`
	// MinInodes is the same for inodes: a number, or a part. Default 1%.
	MinInodes string `mapstructure:"min_inodes"`
	// MaxClockSkew is how far the guest's clock may be off. Default 1s.
	MaxClockSkew time.Duration `mapstructure:"max_clock_skew"`
}

func defaultValidate() Validate {
	return Validate{MaxEntries: 200_000, MinFree: "16MiB", MinInodes: "1%", MaxClockSkew: time.Second}
}

// ParseLeast reads a lower limit: a size or number, or a part of the whole like
// "1%". One of the results is zero.
func ParseLeast(text string) (count int64, percent float64, err error) {
	if part, ok := strings.CutSuffix(strings.TrimSpace(text), "%"); ok {
		percent, err = strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil || !(percent >= 0 && percent <= 100) {
			return 0, 0, fmt.Errorf("is not a part between 0%% and 100%%")
		}
		return 0, percent, nil
	}
	size, err := ParseSize(text)
	if err != nil {
		return 0, 0, fmt.Errorf("is neither a number nor a part")
	}
	return int64(size), 0, nil
}

// validation checks section validate and redact.
func (k checker) validation() {
	v := k.c.Validate
	for _, l := range []struct {
		name  string
		paths []string
		words []string
	}{
		{"validate.protected", v.Protected, []string{"default", "none"}},
		{"validate.watch", v.Watch, nil},
		{"validate.volatile", v.Volatile, nil},
	} {
		for _, p := range l.paths {
			known := false
			for _, w := range l.words {
				known = known || p == w
			}
			switch {
			case p == "none" && len(l.paths) > 1:
				k.bad(l.name, `has "none" beside other items`, "keep the one or the others")
			case !known && !strings.HasPrefix(p, "/"):
				k.bad(l.name, fmt.Sprintf("has %q, which is not an absolute path", p), "give the whole path in the guest, from the root on")
			case strings.ContainsAny(p, "*?["):
				k.bad(l.name, fmt.Sprintf("has %q, and patterns are not expanded", p), "name the directory")
			}
		}
	}
	for _, l := range []struct{ name, text string }{{"validate.min_free", v.MinFree}, {"validate.min_inodes", v.MinInodes}} {
		if _, _, err := ParseLeast(l.text); err != nil {
			k.bad(l.name, err.Error(), `write it like "16MiB", "1000" or "1%"`)
		}
	}
	for _, text := range k.c.Redact {
		switch p, err := regexp.Compile(text); {
		case err != nil:
			k.bad("redact", fmt.Sprintf("has %q, which is not a regular expression", text), "use the syntax of Go's package regexp")
		case p.MatchString(""):
			k.bad("redact", fmt.Sprintf("has %q, which matches the empty text", text), "let it match at least one character")
		}
	}
}
