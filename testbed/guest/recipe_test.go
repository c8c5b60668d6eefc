package guest

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustHash(t *testing.T, o Options, release string) (recipe, string) {
	t.Helper()
	r, err := o.recipe(release)
	if err != nil {
		t.Fatal(err)
	}
	h, err := r.hash()
	if err != nil {
		t.Fatal(err)
	}
	return r, h
}

func TestHashNamesTheRecipe(t *testing.T) {
	base, want := mustHash(t, Options{CacheDir: "/a"}, "bookworm")
	if _, got := mustHash(t, Options{CacheDir: "/b", Progress: func(string) {}, DiskMiB: 4096, Packages: []string{"git", "curl"}}, "bookworm"); got != want {
		t.Errorf("an equal recipe: got %s, want %s", got, want)
	}
	seen := map[string]string{want: "base"}
	for name, o := range map[string]Options{
		"package": {Packages: []string{"jq"}},
		"size":    {DiskMiB: 2048},
		"sources": {Sources: []string{"deb file:/srv/debian bookworm main"}},
	} {
		_, h := mustHash(t, o, "bookworm")
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have the same hash", name, other)
		}
		seen[h] = name
	}
	if _, h := mustHash(t, Options{}, "trixie"); seen[h] != "" {
		t.Errorf("another release has the hash of %s", seen[h])
	}
	// A change of size needs no new download.
	small, _ := mustHash(t, Options{DiskMiB: 2048}, "bookworm")
	if small.rootfsHash() != base.rootfsHash() {
		t.Error("the disk's size changes the archive of packages")
	}
	if a, b := base.uuid("x"), base.uuid("y"); a == b || len(a) != 36 || a != base.uuid("x") {
		t.Errorf("uuids: %s, %s", a, b)
	}
}

func TestRecipeRefuses(t *testing.T) {
	for name, o := range map[string]Options{
		"option as package": {Packages: []string{"--help"}},
		"two in one":        {Packages: []string{"a,b"}},
		"path":              {Packages: []string{"./x.deb"}},
		"small disk":        {DiskMiB: 100},
	} {
		if _, err := o.recipe("bookworm"); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := (Options{}).recipe("book worm"); err == nil {
		t.Error("release with a space: no error")
	}
}

// What is missing is named with its Debian package and what it is for.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // nothing is installed
	missing, err := Missing()
	if err != nil {
		t.Fatal(err)
	}
	want := Requirement{Need: "mcopy", Package: "mtools", Why: "fills the guest's boot partition"}
	if !slices.Contains(missing, want) {
		t.Errorf("missing %+v, want %+v among them", missing, want)
	}
	for _, r := range missing {
		if r.Need == "gcc" || r.Why == "" {
			t.Errorf("missing %+v", r)
		}
	}
	text := missingError(missing).Error()
	if !strings.Contains(text, "; install ") || !strings.Contains(text, "mtools") {
		t.Errorf("error: %s", text)
	}
}

func TestParseTargets(t *testing.T) {
	srcs := parseTargets(strings.Join([]string{
		"Debian|http://mirror.test/debian/|oldstable|bookworm|main|amd64|bookworm",
		"Debian|http://mirror.test/debian/|oldstable|bookworm|contrib|amd64|bookworm",
		"Debian|http://mirror.test/debian/|oldstable|bookworm|main|i386|bookworm",
		"Debian|http://mirror.test/debian/|oldstable-updates|bookworm-updates|main|amd64|bookworm-updates",
		"Debian|http://mirror.test/security/|oldstable-security|bookworm-security|main|amd64|bookworm-security",
		"Debian Backports|http://mirror.test/debian/|x|bookworm-backports|main|amd64|bookworm-backports",
		"Example|http://other.test/|stable|bookworm|main|amd64|stable",
	}, "\n"))
	if got := codename(srcs); got != "bookworm" {
		t.Errorf("codename: %q", got)
	}
	var lines []string
	for _, s := range forRelease(srcs, "bookworm") {
		lines = append(lines, s.line())
	}
	want := []string{
		"deb http://mirror.test/debian/ bookworm main",
		"deb http://mirror.test/debian/ bookworm-updates main",
		"deb http://mirror.test/security/ bookworm-security main",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
	if got := forRelease(srcs, "trixie"); len(got) != 0 {
		t.Errorf("sources of another release: %v", got)
	}
}

func TestParseAptOptions(t *testing.T) {
	got := parseAptOptions("Acquire \"\";\nAcquire::AllowInsecureRepositories \"0\";\nAcquire::http::Proxy \"http://proxy.test:3128\";\nAcquire::Check-Date \"false\";\nAcquire::Languages:: \"none\";\n")
	want := []string{`Acquire::Check-Date "false"`, `Acquire::http::Proxy "http://proxy.test:3128"`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDebianRelease(t *testing.T) {
	for text, want := range map[string]string{
		"ID=debian\nVERSION_CODENAME=bookworm\n":                 "bookworm",
		"ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n":    "",
		"VERSION_CODENAME=\"trixie\"\nID=\"debian\"\nNAME='x'\n": "trixie",
	} {
		if got := debianRelease(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
