package setup

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed packages.txt
var list string

// Tier says what needs a package.
type Tier string

// The tiers of packages.txt.
const (
	Demo Tier = "demo" // make demo and make test
	Test Tier = "test" // make test alone
	User Tier = "user" // both, when they run without root
)

// Package is one Debian package.
type Package struct {
	Name  string
	Probe string // a program on the PATH, or an absolute path
	Tier  Tier
	Why   string
}

// Packages returns the list, in its order. The error names the line that does
// not have the form.
func Packages() ([]Package, error) { return parse(list) }

func parse(text string) ([]Package, error) {
	var out []Package
	n := 0
	for line := range strings.Lines(text) {
		n++
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		if len(f) < 4 {
			return nil, fmt.Errorf("packages.txt line %d: want package, probe, tier and reason", n)
		}
		p := Package{Name: f[0], Probe: f[1], Tier: Tier(f[2]), Why: strings.Join(f[3:], " ")}
		switch p.Tier {
		case Demo, Test, User:
		default:
			return nil, fmt.Errorf("packages.txt line %d: unknown tier %q", n, p.Tier)
		}
		out = append(out, p)
	}
	return out, nil
}
