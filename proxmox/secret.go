package proxmox

import "fmt"

// Secret is a text that must not be seen: a token secret or a password. Every
// way of printing or encoding it gives "redacted"; only this package reads it.
type Secret string

const redacted = "redacted"

// String returns "redacted".
func (Secret) String() string { return redacted }

// GoString returns "redacted", for %#v.
func (Secret) GoString() string { return redacted }

// Format writes "redacted" for every verb, %x and %s included.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText returns "redacted"; encoding/json uses it too.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON returns the JSON string "redacted".
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
