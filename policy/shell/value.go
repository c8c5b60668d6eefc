package shell

import (
	"path"
	"strings"
	"unicode/utf8"
)

// The holes: bytes inside a value that stand for text that is not known.
const (
	HoleText    = '\x01' // some text, not empty, one word
	HoleMaybe   = '\x02' // some text that may be empty: a variable nobody set
	HoleStar    = '\x03' // an active *, or an extended pattern
	HoleChar    = '\x04' // an active ? or [...]
	HoleFields  = '\x05' // unquoted text that may become any number of words
	HoleDecoded = '\x06' // text that was written encoded in the line itself
	HoleFetched = '\x0e' // text that came from the network
	HoleScript  = '\x0f' // shell code printed by a program known to print such code
	HoleOutput  = '\x10' // what some other command printed
)

const (
	holes     = "\x01\x02\x03\x04\x05\x06\x0e\x0f\x10"
	maxValue  = MaxSource // longest value that is kept
	maxFields = 4096      // most words one word may become
)

// Known reports whether every byte of the value is known.
func Known(v string) bool { return !strings.ContainsAny(v, holes) }

// Has reports whether the value contains the given hole.
func Has(v string, hole rune) bool { return strings.ContainsRune(v, hole) }

var legible = strings.NewReplacer("\x01", "…", "\x02", "…", "\x03", "*", "\x04", "?", "\x05", "…", "\x06", "…", "\x0e", "…", "\x0f", "…", "\x10", "…")

// Show returns the value as a person may read it: unknown text becomes "…" and
// patterns get their characters back.
func Show(v string) string {
	if len(v) > 200 {
		n := 200
		for n > 0 && !utf8.RuneStart(v[n]) {
			n--
		}
		v = v[:n] + "…"
	}
	if Known(v) {
		return v
	}
	return legible.Replace(v)
}

// inert maps control characters that quoting can make out of harmless text
// to private code points, so that they are never taken for holes.
func inert(s string) string {
	clean := true
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 && s[i] != '\t' && s[i] != '\n' || s[i] >= 0x7f {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < 0x20 && r != '\t' && r != '\n', r == 0x7f:
			b.WriteRune(0xe000 + r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Clean returns the canonical form of a path value: absolute when the working
// directory is known or the path is, without ".", "..", and doubled slashes.
// A variable that may be empty in front of a slash counts as empty. cwd is ""
// when it is not known.
func Clean(p, cwd string) string {
	if p == "" {
		return ""
	}
	for strings.HasPrefix(p, "\x02/") {
		p = p[1:]
	}
	if p[0] != '/' {
		switch {
		case strings.IndexByte(holes, p[0]) >= 0 && p[0] != HoleStar && p[0] != HoleChar:
			return p // may be absolute itself
		case cwd == "":
			return path.Clean(p)
		}
		p = cwd + "/" + p
	}
	if strings.Contains(p, "/\x02/") {
		p = strings.ReplaceAll(p, "/\x02/", "/")
	}
	return path.Clean(p)
}

// Matches reports whether s, which may hold holes, can stand for the plain
// text want.
func Matches(s, want string) bool {
	// Greedy matching with one backtrack point, as for file name patterns.
	si, wi, star, mark := 0, 0, -1, 0
	for wi < len(want) {
		if si < len(s) {
			switch c := s[si]; c {
			case HoleStar, HoleText, HoleMaybe, HoleFields, HoleDecoded, HoleFetched, HoleScript, HoleOutput:
				star, mark = si, wi
				si++
				continue
			case HoleChar:
				si++
				wi++
				continue
			default:
				if c == want[wi] {
					si++
					wi++
					continue
				}
			}
		}
		if star < 0 {
			return false
		}
		mark++
		si, wi = star+1, mark
	}
	for si < len(s) {
		switch s[si] {
		case HoleStar, HoleMaybe, HoleText, HoleFields, HoleDecoded, HoleFetched, HoleScript, HoleOutput:
			si++
		default:
			return false
		}
	}
	return true
}
