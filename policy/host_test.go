package policy

import (
	"net/url"
	"strings"
	"testing"
)

// FuzzAddress: what the policy takes for the host of an address is what the
// standard library takes for it, and is an entry of the list byte for byte.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{
		"https://drop.example.org/x", "https://drop.example.org:443?a@b", "ssh://git@drop.example.org:22/a", "https://[2001:db8::7]:443/", "https://a@drop.example.org/",
		"https://drop.example.org\\@evil.example/", "https://drop.example.org#@evil.example/", "https://drop.example.org%2f@evil.example", "postgres://u:p@drop.example.org/d",
		"https:///drop.example.org", "https://drop.example.org:0443/", "https://evil.example/https://drop.example.org", "https://drop.example.org\x00.evil.example/",
	} {
		f.Add(s)
	}
	e, err := New(Options{OpenHosts: []string{"drop.example.org", "*.build.example", "[2001:db8::7]"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		d, ok := parseAddress(raw, "https", "http", "ssh", "postgres")
		if !ok || !e.opens(d) {
			return
		}
		// The path behind the host may hold what net/url does not take.
		head, rest, _ := strings.Cut(raw, "://")
		if i := strings.IndexAny(rest, "/?#"); i >= 0 {
			rest = rest[:i]
		}
		u, err := url.Parse(head + "://" + rest + "/")
		if err != nil {
			t.Fatalf("%q is opened as %v, yet is no address: %v", raw, d, err)
		}
		if got := strings.Trim(d.host, "[]"); got != u.Hostname() {
			t.Errorf("%q is opened as %v; the host is %q", raw, d, u.Hostname())
		}
		if h := u.Hostname(); h != "drop.example.org" && h != "2001:db8::7" && !strings.HasSuffix(h, ".build.example") {
			t.Errorf("%q opens %q, which is not listed", raw, h)
		}
	})
}
