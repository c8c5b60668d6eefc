package policy

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// corpora returns the directory of test data that is kept outside of the
// repository.
func corpora(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("SAVEPOINT_POLICY_CORPORA")
	if dir == "" {
		t.Skip("SAVEPOINT_POLICY_CORPORA does not name the directory with the policy corpora")
	}
	return dir
}

// rows reads a tab-separated file with a header and decodes its last column.
func rows(t testing.TB, file string) [][]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out [][]string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for first := true; lines.Scan(); first = false {
		if first {
			continue
		}
		cols := strings.SplitN(lines.Text(), "\t", 3)
		if len(cols) == 2 {
			cols = []string{"", cols[0], cols[1]}
		}
		cols[2] = decodeColumn(cols[2])
		out = append(out, cols)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func decodeColumn(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			if k := strings.IndexByte(`\ntr0e`, s[i+1]); k >= 0 {
				b.WriteByte("\\\n\t\r\x00\x1b"[k])
				i++
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// F01 F02 F04 F06 F07 F08 F09 F109 F110 F111: the labelled cases of every bypass class.
func TestLabelledCases(t *testing.T) {
	file := filepath.Join(corpora(t), "cases.tsv")
	e := newEngine(t)
	count := map[string]int{}
	for _, r := range rows(t, file) {
		want, class, cmd := r[0], r[1], r[2]
		v := e.Decide(Request{Command: cmd})
		got := v.Decision.String()
		count[want+" -> "+got]++
		switch {
		case want == got:
		case want == "allow" && got == "snapshot":
			t.Logf("report %s: want %s, got %s (%s): %s", class, want, got, v.Rule, cmd)
		default:
			t.Errorf("%s: want %s, got %s (%s): %q", class, want, got, v.Rule, cmd)
		}
	}
	t.Log(count)
}

func TestBenignCorpora(t *testing.T) {
	dir := corpora(t)
	e := newEngine(t)
	for _, name := range []string{"benign-nl2bash.tsv", "benign-tldr.tsv"} {
		t.Run(name, func(t *testing.T) {
			count := map[Decision]int{}
			denied := map[string][]string{}
			n := 0
			for _, r := range rows(t, filepath.Join(dir, name)) {
				v := e.Decide(Request{Command: r[2]})
				n++
				count[v.Decision]++
				if v.Decision == Deny {
					denied[v.Rule] = append(denied[v.Rule], r[2])
				}
			}
			t.Logf("%d lines: allow %d, snapshot %d, deny %d (%.1f per 1,000)", n, count[Allow], count[Snapshot], count[Deny], float64(count[Deny])*1000/float64(n))
			report(t, denied)
		})
	}
}

func report(t *testing.T, by map[string][]string) {
	t.Helper()
	rules := make([]string, 0, len(by))
	for r := range by {
		rules = append(rules, r)
	}
	slices.SortFunc(rules, func(a, b string) int { return len(by[b]) - len(by[a]) })
	for _, r := range rules {
		var b strings.Builder
		for _, c := range by[r] {
			fmt.Fprintf(&b, "\n    %q", c)
		}
		t.Logf("%s: %d%s", r, len(by[r]), b.String())
	}
}

func TestAttackCorpus(t *testing.T) {
	file := filepath.Join(corpora(t), "attack-redcode.tsv")
	e := newEngine(t)
	count := map[string]int{}
	for _, r := range rows(t, file) {
		v := e.Decide(Request{Command: r[2], User: Root})
		count[r[1]+" "+v.Decision.String()+" "+v.Rule]++
		readers := r[1] == "index 5" || r[1] == "index 7"
		if v.Decision == Allow && !readers {
			t.Errorf("%s is allowed: %q", r[1], r[2])
		}
	}
	keys := make([]string, 0, len(count))
	for k := range count {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		t.Logf("%4d %s", count[k], k)
	}
}
