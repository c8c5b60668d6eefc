package policy

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// F01 F02 F03 F04 F05 F06 F07 F08 F09 F109 F110 F111: every bypass class has
// rows of its own; the class is the subtest.
func TestGoldenVerdicts(t *testing.T) {
	e := newEngine(t)
	byClass := map[string][][]string{}
	var order []string
	for _, r := range golden(t) {
		if byClass[r[1]] == nil {
			order = append(order, r[1])
		}
		byClass[r[1]] = append(byClass[r[1]], r)
	}
	for _, class := range order {
		t.Run(class, func(t *testing.T) {
			for _, r := range byClass[class] {
				v := e.Decide(Request{Command: r[2]})
				if got := v.Decision.String(); got != r[0] {
					t.Errorf("got %s (%s), want %s: %q", got, v.Rule, r[0], r[2])
				}
			}
		})
	}
}

// The number of rows that the README names is that of the tables.
func TestTheReadmeCountsTheVerdicts(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("\\(`testdata/verdicts`\\) \\| ([0-9,]+) \\|").FindStringSubmatch(string(text))
	if m == nil {
		t.Fatal("README.md has no row for testdata/verdicts")
	}
	if got, want := strings.ReplaceAll(m[1], ",", ""), strconv.Itoa(len(golden(t))); got != want {
		t.Errorf("README.md names %s rows, the tables have %s: correct the figure", got, want)
	}
}

// golden reads the verdict tables. Characters that would hide in the file are
// written as {U+XXXX}.
func golden(t testing.TB) [][]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "verdicts", "*.tsv"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no verdict tables: %v", err)
	}
	var list [][]string
	for _, f := range files {
		list = append(list, rows(t, f)...)
	}
	for _, r := range list {
		r[2] = named.ReplaceAllStringFunc(r[2], func(m string) string {
			n, err := strconv.ParseUint(m[3:len(m)-1], 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			return string(rune(n))
		})
	}
	return list
}

var named = regexp.MustCompile(`\{U\+[0-9A-F]{4,6}\}`)
