package shell

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxSource is the size in bytes above which a text is refused unread.
const MaxSource = 64 << 10

// Filter returns the kind of Fact that forbids the text before it is parsed,
// with a detail for a person, or "" when there is none. What it refuses is
// shown by terminals, or read by the parser, differently from what bash does.
func Filter(src string) (kind, detail string) {
	if len(src) > MaxSource {
		return FactTooLarge, fmt.Sprintf("%d bytes, at most %d are read", len(src), MaxSource)
	}
	if !utf8.ValidString(src) {
		return FactControlBytes, "not valid UTF-8"
	}
	before := rune(0)
	for i, r := range src {
		if forbidden(r) || selector(r) && !styled(before, r) {
			return FactControlBytes, fmt.Sprintf("%U at byte %d", r, i)
		}
		before = r
	}
	return "", ""
}

// forbidden reports whether a character is invisible, moves what stands around
// it, or is one that this package keeps for itself. Blanks that only bash does
// not split at stay: people write them, and no command word may hold one.
func forbidden(r rune) bool {
	switch {
	case r == '\t' || r == '\n':
		return false
	case r < 0x20, r >= 0x7f && r <= 0x9f:
		return true
	case r < 0xad:
		return false
	case r >= 0x200b && r <= 0x200f, // zero width and direction marks
		r >= 0x2028 && r <= 0x202e,   // line separators, bidi embedding
		r >= 0x2060 && r <= 0x206f,   // invisible operators, bidi isolates
		r >= 0xe0000 && r <= 0xe0fff, // tags, the rarer variation selectors
		r >= 0xe000 && r <= 0xe0ff,   // private use: stands for control bytes inside this package
		r >= 0xfdd0 && r <= 0xfdef,   // not characters
		r >= 0xfff9 && r <= 0xfffb,   // interlinear annotation
		r >= 0x180b && r <= 0x180f,   // Mongolian selectors and vowel separator
		r >= 0x1bca0 && r <= 0x1bca3, // shorthand format controls
		r >= 0x1d173 && r <= 0x1d17a, // musical format controls
		r&0xfffe == 0xfffe:           // not characters
		return true
	}
	switch r {
	case 0xad, 0x34f, 0x61c, 0x70f, 0x17b4, 0x17b5, 0xfeff, // soft hyphen, joiners, marks without a shape
		0x2800, 0x3164, 0x115f, 0x1160, 0xffa0, // letters that are blank
		0x1d159:
		return true
	}
	return false
}

// selector reports whether a character only picks the look of the one before.
func selector(r rune) bool { return r >= 0xfe00 && r <= 0xfe0f }

// styled reports whether a selector stands behind a symbol that has two looks,
// as in most emoji. Behind anything else it hides in the text.
func styled(before, r rune) bool {
	if r != 0xfe0e && r != 0xfe0f {
		return false
	}
	return unicode.Is(unicode.So, before) || unicode.Is(unicode.Sm, before) && before > 0x7f || unicode.Is(unicode.Po, before) && before > 0x7f ||
		strings.ContainsRune("#*0123456789", before) && r == 0xfe0f
}
