package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"savepoint/testbed/notes"
)

// Past is one line of the history: a run, without its samples. Lines of before may
// have more.
type Past struct {
	Run         string      `json:"run"`
	Started     time.Time   `json:"started"`
	Plan        Plan        `json:"plan"`
	Environment Environment `json:"environment"`
	Targets     []Target    `json:"targets"`
}

// past is a run as a line of the history.
func past(rep *Report) Past {
	return Past{Run: rep.Info.ID, Started: rep.Info.Started, Plan: rep.Info.Plan, Environment: rep.Info.Where(), Targets: Targets(rep)}
}

// whole reports whether a value is of an experiment that was made to its end, and
// enough to say. Lines of before say that it is not in the value's words alone.
func (t Target) whole() bool {
	return !t.Partial && !t.Undecided && !strings.Contains(t.Value, partialText)
}

// maxLine bounds one line of a history.
const maxLine = 16 << 20

// ReadHistory reads JSON Lines of past runs, oldest first.
func ReadHistory(in io.Reader) ([]Past, error) {
	var out []Past
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var p Past
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return nil, fmt.Errorf("read the history: line %d: %w", n, err)
		}
		out = append(out, p)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	slices.SortStableFunc(out, byStart)
	return out, nil
}

func byStart(a, b Past) int {
	return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Run, b.Run))
}

// ReadHistoryFile is ReadHistory of a file; one that is not there is empty.
func ReadHistoryFile(path string) ([]Past, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	defer f.Close()
	return ReadHistory(f)
}

// AppendHistory adds a run to the history in a file, or replaces its line there:
// a run that went on has one. The file is written as a whole, so it is never cut.
// It returns the history up to this run: what came later is no trend of its.
func AppendHistory(path string, rep *Report) ([]Past, error) {
	all, err := ReadHistoryFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w; mend or move %s", err, path)
	}
	p := past(rep)
	same := func(o Past) bool { return o.Run == p.Run && o.Started.Equal(p.Started) }
	all = append(slices.DeleteFunc(all, same), p)
	slices.SortStableFunc(all, byStart)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, o := range all {
		if err := enc.Encode(o); err != nil {
			return nil, fmt.Errorf("write the history: %w", err)
		}
	}
	if err := notes.Write(path, b.Bytes()); err != nil {
		return nil, fmt.Errorf("write the history: %w", err)
	}
	return all[:slices.IndexFunc(all, same)+1], nil
}

// Runs are the directories of the runs below dir, by when they were begun, the
// latest last. One whose file cannot be read comes first: it is no latest run.
func Runs(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the runs: %w", err)
	}
	var out []string
	started := map[string]time.Time{}
	for _, e := range entries {
		run := filepath.Join(dir, e.Name())
		info, err := readInfo(run)
		switch {
		case err == nil:
			started[run] = info.Started
		case errors.Is(err, fs.ErrNotExist) || !e.IsDir():
			continue
		}
		out = append(out, run)
	}
	slices.SortStableFunc(out, func(a, b string) int { return started[a].Compare(started[b]) })
	return out, nil
}

// Before is the run below dir that a run is to be held against: of the earlier
// ones with its plan and on its machine the latest that has finished all of its
// experiments, on the same cluster, else the one that has most of them. Nil when there is none. A run
// that cannot be read is passed over.
func Before(dir string, now *Report) (*Report, error) {
	runs, err := Runs(dir)
	if err != nil {
		return nil, err
	}
	want := shared(now, now)
	var best *Report
	most := 0
	for _, run := range slices.Backward(runs) {
		info, err := readInfo(run)
		if err != nil || !info.Started.Before(now.Info.Started) || !alike(info.Plan, now.Info.Plan, info.Environment, now.Info.Environment) {
			continue
		}
		old, err := Load(run)
		if err != nil {
			continue
		}
		if n := shared(old, now); n > most {
			best, most = old, n
		}
		if most == want {
			break
		}
	}
	return best, nil
}

// shared counts the experiments of now, finished or failed, that old has finished
// where they may be compared. One that failed may not have come to its cluster.
func shared(old, now *Report) int {
	n := 0
	for _, res := range now.Results {
		o := old.Result(res.Experiment)
		if res.Skipped == "" && o != nil && (old == now || o.Finished() && (!res.Finished() || sameMachine(o.Environment, res.Environment))) {
			n++
		}
	}
	return n
}

// alike reports whether figures of two runs belong on one curve.
func alike(planA, planB Plan, a, b Environment) bool { return planA.Same(planB) && sameMachine(a, b) }

// trend draws every target over the runs that may be compared with the last one:
// those of its plan and its machine. Values that are not whole are hollow points.
func trend(history []Past) []chart {
	if len(history) == 0 {
		return nil
	}
	last := history[len(history)-1]
	var out []chart
	for _, t := range last.Targets {
		var points []point
		var names []string
		hollow := ""
		for _, p := range history {
			if !alike(p.Plan, last.Plan, p.Environment, last.Environment) {
				continue
			}
			i := slices.IndexFunc(p.Targets, func(o Target) bool { return o.Name == t.Name })
			if i < 0 || p.Targets[i].Number == nil || !plausible(*p.Targets[i].Number) {
				continue
			}
			v, open := *p.Targets[i].Number, !p.Targets[i].whole()
			if open {
				hollow = openText
			}
			points = append(points, point{x: float64(len(points)), y: v, low: v, high: v, open: open})
			names = append(names, p.Started.UTC().Format("01-02"))
		}
		if len(points) < 2 {
			continue
		}
		var aims []float64
		if t.Limit != nil {
			aims = append(aims, *t.Limit)
		}
		c := newCurve([]line{{name: t.Name, points: points}}, t.Unit, false, aims...)
		c.XTicks = c.XTicks[:0]
		for i, name := range names {
			// Only as many dates as there is room for.
			if i == 0 || i == len(names)-1 || len(names) <= 6 {
				c.XTicks = append(c.XTicks, tick{c.Lines[0].Dots[i].X, name})
			}
		}
		out = append(out, chart{Kind: Lines, Title: t.Name, Note: fmt.Sprintf("Target: %s. Last: %s.", t.Target, t.Value), Hollow: hollow, Curve: c})
	}
	return out
}
