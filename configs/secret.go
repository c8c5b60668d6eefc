package configs

import (
	"fmt"
	"io"
)

const redacted = "redacted"

// Secret is a text that must not be shown. Formatting, marshalling and logging
// print "redacted" ("" when it is empty); only Reveal returns the text. The
// text is held behind a pointer so that printing a struct with an unexported
// Secret field, where fmt cannot call methods, shows an address and no secret.
type Secret struct{ text *string }

// NewSecret makes a Secret of text.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{text: &text}
}

// Reveal returns the text itself.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.text == nil }

// Equal reports whether both hold the same text.
func (s Secret) Equal(o Secret) bool { return s.Reveal() == o.Reveal() }

// String returns "redacted", or "" for an empty secret.
func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return redacted
}

// GoString is String.
func (s Secret) GoString() string { return s.String() }

// Format prints String for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText writes String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON writes String, quoted.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + s.String() + `"`), nil }

// MarshalYAML writes String.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }
