package configs

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// FuzzLoad: whatever a file holds, Load returns problems or a configuration
// that can be written and read back unchanged.
func FuzzLoad(f *testing.F) {
	for _, name := range []string{"lab.example.yaml", "cluster.example.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{"", "a", "{}", "cluster: {nodes: [1, 2.5, true]}", "run: {timeout: !!int 1}", "? [a]\n: b\n", "cluster.url: 1\ncluster: {url: 2}",
		"log: {level: !!binary aGk=}", "&a [*a]", "state_dir: 2026-01-02", "a: &a [x]\nb: [*a, *a]", "---\n...\n", "\x00", "cluster: {token_secret: redacted}"} {
		f.Add([]byte(text))
	}
	dir := f.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token.secret"), []byte("s"), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(LoadOptions{File: path, Dir: dir})
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || len(e.Problems) == 0 {
				t.Fatalf("not an *Error: %v", err)
			}
			return
		}
		// Relative paths moved with the file, secrets from files stay there.
		if err := WriteWithSecrets(path, c); err != nil {
			t.Fatal(err)
		}
		again, err := Load(LoadOptions{File: path, Dir: dir})
		if err != nil {
			t.Fatalf("not read back: %v", err)
		}
		if d := cmp.Diff(c, again, compare, cmp.Transformer("empty", func(s []string) string {
			return filepath.Join(append([]string{"x"}, s...)...)
		})); d != "" {
			t.Fatalf("(-first +again):\n%s", d)
		}
	})
}
