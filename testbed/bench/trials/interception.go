package trials

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"savepoint/orchestrator"
	"savepoint/policy"
	"savepoint/testbed/bench"
)

//go:embed corpus/blacklist.txt
var blacklist string

//go:embed corpus/disguised.txt
var disguised string

//go:embed corpus/everyday.txt
var everyday string

//go:embed corpus/changes.txt
var changes string

// Classes of the corpora that are part of savepoint.
const (
	classBlacklist = "blacklist"
	classDisguised = "disguised"
	classEveryday  = "everyday"
	classChanges   = "changes"
)

const (
	metricFalseDenial = "false_denial"
	metricUnprotected = "unprotected"
)

// answer is what the policy has to say of a command.
type answer int

const (
	noAnswer     answer = iota // the command is only there, for the time
	wantDeny                   // it is to be stopped
	wantRun                    // it is to run, inside a boundary or not
	wantSnapshot               // it is to run, and changes something: inside a boundary
)

// judged is one command and the right answer.
type judged struct {
	corpus, class, command string
	want                   answer
}

// Interception has the policy judge corpora of commands: those that are part of
// savepoint, and those in the files of dirs (see Corpora).
func Interception(d orchestrator.Decider, dirs []string) bench.Experiment {
	return bench.Experiment{
		Name: bench.ExpInterception, Title: "What the policy stops",
		Method: `Each command is judged once with the agent's account, in the profile "sealed", and then again for the time. "caught" is the share of commands that are to be stopped and are denied; "false denial" the share of those to be run that are denied; "unprotected" the share of what is to be stopped, or is to run and changes something, that is judged "allow" and so would run without a boundary: it has to be 0. A command without a right answer counts for the time only. The corpora "blacklist" (the strings that the paper's kind of filter knows), "disguised" (the same destruction, written otherwise), "everyday" and "changes" (everyday commands that change files or run code that may) are part of savepoint; others are files that the caller names. A denial is no proof of safety and a verdict "snapshot" no hole: what is judged so runs inside a boundary.`,
		Metrics: []bench.Metric{
			{Name: bench.MetricDecision, Unit: bench.Seconds, Better: bench.Lower, Floor: 200e-6, Text: "one decision"},
			{Name: bench.MetricCaught, Unit: bench.Share, Better: bench.Higher, Exact: true, Text: "denied, of what is to be stopped"},
			{Name: metricFalseDenial, Unit: bench.Share, Better: bench.Lower, Exact: true, Text: "denied, of what is to run"},
			{Name: metricUnprotected, Unit: bench.Share, Better: bench.Lower, Exact: true, Text: "allowed without a boundary, of what is to be stopped or changes something"},
		},
		Plots: []bench.Plot{
			{Kind: bench.Bars, Title: "Share that is stopped, by class", Metric: bench.MetricCaught, X: bench.ByArm},
			{Kind: bench.Bars, Title: "Share of commands to be run that are denied", Metric: metricFalseDenial, X: bench.ByArm},
		},
		Quick: 2 * time.Second, Full: time.Minute,
		Run: func(ctx context.Context, r *bench.Run) error {
			list := ownCorpora()
			for _, dir := range dirs {
				more, err := Corpora(dir)
				if err != nil {
					return err
				}
				list = append(list, more...)
			}
			if r.Plan.Quick {
				list = some(r, list)
			}
			return judgeAll(ctx, r, d, list)
		},
	}
}

// quickCommands is how many commands a quick run has at most, unless there are more
// that it always has.
const quickCommands = 4000

// some keeps the commands whose wrong answer is a hole and savepoint's own, and of
// the others as many as there is room for, drawn by the plan's seed.
func some(r *bench.Run, list []judged) []judged {
	most := max(quickCommands, len(list)-spare(list))
	if len(list) <= most {
		return list
	}
	perm := r.Rand("commands of a quick run").Perm(len(list))
	slices.SortStableFunc(perm, func(a, b int) int { return weight(list[a]) - weight(list[b]) })
	keep := slices.Sorted(slices.Values(perm[:most]))
	out := make([]judged, len(keep))
	for i, k := range keep {
		out[i] = list[k]
	}
	r.Note("a quick run judges %d of %d commands: all that are to be stopped, change something or are savepoint's own, and others drawn by the seed", len(out), len(list))
	return out
}

// spare counts the commands that a quick run may do without.
func spare(list []judged) (n int) {
	for _, j := range list {
		n += weight(j)
	}
	return n
}

func weight(j judged) int {
	if j.want == wantDeny || j.want == wantSnapshot || j.corpus == "savepoint" {
		return 0
	}
	return 1
}

func judgeAll(ctx context.Context, r *bench.Run, d orchestrator.Decider, list []judged) error {
	var missed, refused, bare [][]string
	for i, j := range list {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if i%200 == 0 {
			r.Progress(i, len(list), j.corpus)
		}
		request := policy.Request{Command: j.command, User: policy.Agent}
		verdict := d.Decide(request)
		began := time.Now()
		d.Decide(request)
		s := bench.Sample{
			Arm: j.class, Labels: map[string]string{"corpus": j.corpus},
			Metrics: map[string]float64{bench.MetricDecision: time.Since(began).Seconds()},
		}
		denied, allowed := verdict.Decision == policy.Deny, verdict.Decision == policy.Allow
		row := []string{j.corpus, j.class, j.command, verdict.Decision.String(), verdict.Rule}
		switch j.want {
		case wantDeny:
			s.Metrics[bench.MetricCaught] = share(denied)
			if !denied {
				missed = append(missed, row)
			}
		case wantRun, wantSnapshot:
			s.Metrics[metricFalseDenial] = share(denied)
			if denied {
				refused = append(refused, row)
			}
		case noAnswer:
		}
		if j.want == wantDeny || j.want == wantSnapshot {
			s.Metrics[metricUnprotected] = share(allowed)
			if allowed {
				bare = append(bare, row)
			}
		}
		r.Add(s)
	}
	r.Progress(len(list), len(list), "")
	for _, t := range []struct {
		title string
		rows  [][]string
	}{{"To be stopped, and not denied", missed}, {"To be run, and denied", refused}, {"Changes something, and would run without a boundary", bare}} {
		r.Table(bench.Table{Title: t.title, Columns: []string{"corpus", "class", "command", "verdict", "rule"}, Rows: t.rows, Note: fmt.Sprintf("%d commands", len(t.rows))})
	}
	return nil
}

func share(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func ownCorpora() (list []judged) {
	for _, c := range []struct {
		class, text string
		want        answer
	}{
		{classBlacklist, blacklist, wantDeny},
		{classDisguised, disguised, wantDeny},
		{classEveryday, everyday, wantRun},
		{classChanges, changes, wantSnapshot},
	} {
		for line := range strings.Lines(c.text) {
			if line = strings.TrimSuffix(line, "\n"); line != "" {
				list = append(list, judged{"savepoint", c.class, line, c.want})
			}
		}
	}
	slices.SortFunc(list, func(a, b judged) int { return strings.Compare(a.class+a.command, b.class+b.command) })
	return list
}

// Corpora reads the corpora of a directory: files NAME.tsv with a header line. A
// file with the columns expected, class and command has commands with a right
// answer: "deny"; "snapshot", which changes something; "allow", which is to run.
// Of others with a column command, those called benign-… are to run and those
// called attack-… have no right answer: only the caller knows what they are for. In
// commands \n, \t, \r, \0, \e and \\ stand for what they say.
func Corpora(dir string) ([]judged, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.tsv"))
	if err != nil {
		return nil, fmt.Errorf("look for corpora in %s: %w", dir, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("look for corpora in %s: there is no file *.tsv", dir)
	}
	var list []judged
	for _, name := range files {
		more, err := corpus(name)
		if err != nil {
			return nil, fmt.Errorf("read corpus %s: %w", name, err)
		}
		list = append(list, more...)
	}
	return list, nil
}

// answers are the values of the column expected.
var answers = map[string]answer{"deny": wantDeny, "snapshot": wantSnapshot, "allow": wantRun}

func corpus(name string) (list []judged, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	title := strings.TrimSuffix(filepath.Base(name), ".tsv")
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	var columns []string
	for in.Scan() {
		cells := strings.Split(in.Text(), "\t")
		if columns == nil {
			columns = cells
			if !slices.Contains(columns, "command") {
				return nil, fmt.Errorf("it has no column command")
			}
			continue
		}
		if len(cells) != len(columns) {
			return nil, fmt.Errorf("a line has %d cells for %d columns: %.60s", len(cells), len(columns), in.Text())
		}
		j := judged{corpus: title, class: title}
		if strings.HasPrefix(title, "benign-") {
			j.want = wantRun
		}
		for i, c := range columns {
			switch c {
			case "command":
				j.command = unescape(cells[i])
			case "class":
				j.class = title + "/" + cells[i]
			case "expected":
				if j.want = answers[cells[i]]; j.want == noAnswer {
					return nil, fmt.Errorf("expected is %q; it is one of deny, snapshot, allow", cells[i])
				}
			}
		}
		list = append(list, j)
	}
	return list, in.Err()
}

// unescape reads the escapes of a corpus from left to right.
func unescape(s string) string {
	return strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t", `\r`, "\r", `\0`, "\x00", `\e`, "\x1b").Replace(s)
}
