package shell

import (
	"fmt"
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
	for i, r := range src {
		if forbidden(r) {
			return FactControlBytes, fmt.Sprintf("%U at byte %d", r, i)
		}
	}
	return "", ""
}

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
		r >= 0xe0000 && r <= 0xe0fff, // tags
		r >= 0xe000 && r <= 0xe0ff,   // private use: stands for control bytes inside this package
		r >= 0xfff9 && r <= 0xfffb:   // interlinear annotation
		return true
	case r == 0xad, r == 0x61c, r == 0x180e, r == 0xfeff, r == 0x2800, r == 0x3164, r == 0x115f, r == 0x1160, r == 0xffa0:
		return true
	}
	return false
}
