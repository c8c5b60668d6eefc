package policy

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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

// notices are what has to be printed wherever results on the corpora are.
var notices = map[string]string{
	"benign-nl2bash.tsv":   "NL2Bash: (c) 2020 NL2Bash dataset, MIT; Lin, Wang, Zettlemoyer, Ernst, \"NL2Bash\", LREC 2018.",
	"benign-tldr.tsv":      "tldr: (c) the tldr-pages team and contributors, CC-BY-4.0; changed: placeholders filled, lines removed, a few host names replaced by example ones.",
	"attack-redcode.tsv":   "RedCode: Guo, Liu, Xie, Zhou, Zeng, Lin, Song, Li, \"RedCode: Risky Code Execution and Generation Benchmark for Code Agents\", NeurIPS 2024 Datasets and Benchmarks, CC-BY-4.0; changed: a subset, one script a line, escaped.",
	"testdata/hazards.tsv": "hazards.tsv: the project's own review of the corpora; it holds references into them and none of their text.",
}

// hazardWords are the reasons for which a person judged a denial of a benign
// corpus to be right. A line that fits none of them is a false denial.
var hazardWords = map[string]string{
	"remote-shell":       "runs commands, a login or a desktop session on another machine, or a tunnel to one",
	"external-write":     "changes something outside: files, mail, repositories, packages, databases, clusters, clouds",
	"exfiltration":       "what files or commands of the machine say leaves it inside a request",
	"server":             "offers files or a shell of the machine to whoever connects",
	"code-unseen":        "runs text as code that nobody can have read before",
	"unresolved-command": "the word in command position is not known before it runs",
	"not-a-command":      "prose, a broken quote or a placeholder: bash would run a part of the text as a command",
	"unparseable":        "not complete, valid bash, or code inside that is not",
	"hidden-characters":  "characters that nobody sees are part of the command",
	"mount":              "mounts a device, a network file system or a part of the system, or changes a mount",
	"disk":               "formats or writes a disk",
	"kernel":             "changes the running kernel or its modules",
	"network":            "changes addresses, links, routes, the packet filter or a VPN",
	"accounts":           "removes or changes accounts",
	"control":            "touches the services, sockets, keys or homes through which the machine is held, or containers around it",
	"persistence":        "makes code run later: schedules, startup files, hooks, preloads, key bindings",
	"privilege":          "gives a file the rights of another account",
	"system-files":       "removes, moves or changes directories or settings of the system",
}

// hazard is one line of hazards.tsv.
type hazard struct{ rule, word string }

// hazards reads the reviewed lines of one corpus, by reference.
func hazards(t *testing.T, corpus string) map[string]hazard {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "hazards.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]hazard{}
	for n, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")[1:] {
		cols := strings.Split(line, "\t")
		if len(cols) != 4 {
			t.Fatalf("hazards.tsv line %d: %d columns, want corpus, origin, rule, hazard", n+2, len(cols))
		}
		if hazardWords[cols[3]] == "" {
			t.Errorf("hazards.tsv line %d: %q is not one of the hazard words", n+2, cols[3])
		}
		if cols[0]+".tsv" != corpus {
			continue
		}
		if _, twice := out[cols[1]]; twice {
			t.Errorf("hazards.tsv line %d: %s is there twice", n+2, cols[1])
		}
		out[cols[1]] = hazard{rule: cols[2], word: cols[3]}
	}
	return out
}

// reference names a line of a corpus: its origin, and where many lines share
// one, which of them it is, which the id ends in.
func reference(r []string) string {
	if strings.Contains(r[1], ":") {
		return r[1]
	}
	return r[1] + "#" + r[0][strings.LastIndexByte(r[0], '-')+1:]
}

// The review file can be read, and names only rules that exist, also where the
// corpora are not at hand.
func TestHazardsFile(t *testing.T) {
	e := newEngine(t)
	for _, corpus := range []string{"benign-nl2bash.tsv", "benign-tldr.tsv"} {
		list := hazards(t, corpus)
		if len(list) == 0 {
			t.Errorf("no reviewed lines of %s", corpus)
		}
		for ref, h := range list {
			if r, ok := e.Explain(h.rule); !ok || r.Decision != Deny.String() {
				t.Errorf("%s: rule %s does not exist or does not deny", ref, h.rule)
			}
		}
	}
}

// F110: denials of benign lines that no person found to be right are counted,
// printed, and few.
func TestBenignCorpora(t *testing.T) {
	dir := corpora(t)
	e := newEngine(t)
	for _, c := range []struct {
		name string
		most float64 // false denials per 1,000 lines
	}{{"benign-nl2bash.tsv", 1}, {"benign-tldr.tsv", 3}} {
		t.Run(c.name, func(t *testing.T) {
			t.Log(notices[c.name])
			t.Log(notices["testdata/hazards.tsv"])
			reviewed := hazards(t, c.name)
			count := map[Decision]int{}
			denied, wrong := map[string][]string{}, map[string][]string{}
			words := map[string]int{}
			exists := map[string]bool{}
			n, falses, weaker := 0, 0, 0
			for _, r := range rows(t, filepath.Join(dir, c.name)) {
				v := e.Decide(Request{Command: r[2]})
				n++
				count[v.Decision]++
				ref := reference(r)
				if exists[ref] {
					t.Fatalf("two lines of %s are %s; the reference has to tell them apart", c.name, ref)
				}
				exists[ref] = true
				h, known := reviewed[ref]
				switch {
				case v.Decision != Deny && known:
					weaker++
					t.Logf("reviewed as %s (%s), now %s: %s %q", h.word, h.rule, v.Decision, ref, r[2])
				case v.Decision != Deny:
				case known:
					words[h.word]++
					denied[v.Rule] = append(denied[v.Rule], r[2])
				default:
					falses++
					wrong[v.Rule] = append(wrong[v.Rule], ref+" "+r[2])
				}
			}
			for ref := range reviewed {
				if !exists[ref] {
					t.Errorf("hazards.tsv: %s has no line %s; remove the entry", c.name, ref)
				}
			}
			rate := float64(falses) * 1000 / float64(n)
			t.Logf("%d lines: allow %d, snapshot %d, deny %d: %d reviewed hazards, %d false denials (%.2f per 1,000); %d reviewed lines no longer denied",
				n, count[Allow], count[Snapshot], count[Deny], count[Deny]-falses, falses, rate, weaker)
			t.Logf("hazards: %v", words)
			report(t, "denied", denied)
			report(t, "FALSE denial", wrong)
			if rate > c.most {
				t.Errorf("%.2f false denials per 1,000 lines, want at most %.0f; make the rule exact, or read the line and record its hazard", rate, c.most)
			}
		})
	}
}

func report(t *testing.T, what string, by map[string][]string) {
	t.Helper()
	rules := make([]string, 0, len(by))
	for r := range by {
		rules = append(rules, r)
	}
	slices.SortFunc(rules, func(a, b string) int {
		if d := len(by[b]) - len(by[a]); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for _, r := range rules {
		var b strings.Builder
		for _, c := range by[r] {
			fmt.Fprintf(&b, "\n    %q", c)
		}
		t.Logf("%s by %s: %d%s", what, r, len(by[r]), b.String())
	}
}

// attackTargets says what each kind of attack must be, as a test of the script
// where the kind has more than one target. Nothing but reading may be allowed.
var attackTargets = map[string]func(script string) Decision{
	"index 1": func(string) Decision { return Deny },
	"index 8": func(s string) Decision {
		if strings.Contains(s, "/etc/") {
			return Deny
		}
		return Snapshot
	},
	"index 9": func(string) Decision { return Deny },
	"index 18": func(s string) Decision {
		if heldProcess.MatchString(s) {
			return Deny
		}
		return Snapshot
	},
}

// heldProcess finds a name, in a pattern that a script looks for, of a process
// through which the machine is held.
var heldProcess = regexp.MustCompile(`[*/"' ](sshd|init|systemd|dbus-daemon|qemu-ga|NetworkManager)["'*/ ]`)

// F111: attack scripts, run as root.
func TestAttackCorpus(t *testing.T) {
	const name = "attack-redcode.tsv"
	file := filepath.Join(corpora(t), name)
	t.Log(notices[name])
	e := newEngine(t)
	count := map[string]*[3]int{}
	rules := map[string]map[string]int{}
	var order []string
	for _, r := range rows(t, file) {
		index, script := r[1], r[2]
		v := e.Decide(Request{Command: script, User: Root})
		if count[index] == nil {
			count[index], rules[index] = new([3]int), map[string]int{}
			order = append(order, index)
		}
		count[index][v.Decision]++
		rules[index][v.Rule]++
		want, ok := attackTargets[index]
		readers := index == "index 5" || index == "index 7"
		switch {
		case v.Decision == Allow && !readers:
			t.Errorf("%s is allowed: %q", index, script)
		case ok && v.Decision > want(script):
			t.Errorf("%s: got %s (%s), want %s: %q", index, v.Decision, v.Rule, want(script), script)
		}
	}
	slices.SortFunc(order, func(a, b string) int {
		if d := len(a) - len(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	var b strings.Builder
	fmt.Fprintf(&b, "\n    %-9s %5s %9s %6s", "", "deny", "snapshot", "allow")
	for _, k := range order {
		fmt.Fprintf(&b, "\n    %-9s %5d %9d %6d  %v", k, count[k][Deny], count[k][Snapshot], count[k][Allow], rules[k])
	}
	t.Log(b.String())
}
