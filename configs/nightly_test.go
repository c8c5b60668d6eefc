package configs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The examples for a nightly run call what there is.
func TestNightlyExamples(t *testing.T) {
	read := func(path ...string) string {
		text, err := os.ReadFile(filepath.Join(path...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	makefile := read("..", "Makefile")
	called := regexp.MustCompile(`(?m)^[^#\n]*\bmake (?:--no-print-directory )?([a-z-]+)((?: [A-Z_]+=\S*)*)`)
	for _, name := range []string{"savepoint-nightly.service", "github-actions.yml"} {
		calls := called.FindAllStringSubmatch(read("nightly", name), -1)
		nightly := false
		for _, c := range calls {
			nightly = nightly || c[1] == "nightly"
			if !regexp.MustCompile(`(?m)^` + c[1] + `:`).MatchString(makefile) {
				t.Errorf("%s: make %s: there is no such target", name, c[1])
			}
			for _, set := range strings.Fields(c[2]) {
				if variable, _, _ := strings.Cut(set, "="); !strings.Contains(makefile, "\n"+variable+" ?=") {
					t.Errorf("%s: make %s: there is no variable %s", name, c[1], variable)
				}
			}
		}
		if !nightly {
			t.Errorf("%s does not run make nightly", name)
		}
	}
	var ci struct {
		Jobs map[string]struct {
			Steps []map[string]any
		}
	}
	if err := yaml.Unmarshal([]byte(read("nightly", "github-actions.yml")), &ci); err != nil || len(ci.Jobs["nightly"].Steps) == 0 {
		t.Errorf("github-actions.yml: %v, %+v", err, ci)
	}
}
