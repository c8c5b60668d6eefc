package program

import (
	"slices"
	"strings"

	"savepoint/policy/shell"
)

// output says what is known of what a program prints.
func output(spec *Spec, u Use, p parsed, c shell.Call) shell.Stream {
	switch u.Name {
	case "which":
		// The directory is a guess, the name is what decides.
		if len(p.options) == 0 && len(p.operands) == 1 && shell.Known(p.operands[0]) && !strings.Contains(p.operands[0], "/") {
			return shell.Stream{Known: true, Text: "/usr/bin/" + p.operands[0] + "\n"}
		}
	case "yes":
		if text := strings.Join(p.operands, " "); len(p.options) == 0 && shell.Known(text) {
			if len(p.operands) == 0 {
				text = "y"
			}
			return shell.Stream{Known: true, Text: text + "\n"} // the rest repeats it
		}
	}
	return shell.Stream{
		Listing: listing(u, p, c), Plain: spec.Plain && tellsNothing(u),
		Fetched: fetches(u.Accesses), Decoded: decodes(u, c),
	}
}

// tellsNothing reports whether a program that prints facts of no interest got
// nothing else to print: "expr", "date -f" and "seq" repeat what they are given.
func tellsNothing(u Use) bool {
	for _, a := range u.Argv {
		if strings.ContainsAny(a, string([]rune{shell.HoleOutput, shell.HoleFields, shell.HoleDecoded, shell.HoleFetched, shell.HoleScript})) {
			return false
		}
	}
	return !slices.ContainsFunc(u.Accesses, func(a Access) bool { return a.Action == Read })
}
