package bench

import (
	"fmt"
	"io"
	"time"
)

// Progress is how far a run is.
type Progress struct {
	Experiment   string
	Index, Count int // which experiment of how many, from 1
	Done, Total  int // within the experiment; Total is 0 while unknown
	// What is being done, or how the experiment ended when Ended.
	What  string
	Ended bool
	// Elapsed is the time of the experiment so far, Left an estimate for the
	// rest of the run.
	Elapsed, Left time.Duration
}

// progress estimates from what the experiments say of themselves, corrected by
// how long the finished ones took instead.
type progress struct {
	r              *Runner
	began          time.Time
	expected       []time.Duration // per experiment; 0 once it has ended
	said, measured time.Duration   // of those that ran, earlier starts included
	part           stage
}

// stage is a part of an experiment that counts by itself: there may be several, one
// after the other, and nobody knows how many.
type stage struct {
	began       time.Time
	done, total int
	pace        time.Duration // of a sample; 0 = not known yet
}

// unsaid is the estimate for an experiment that says nothing.
const unsaid = time.Minute

func newProgress(r *Runner) *progress {
	p := &progress{r: r, expected: make([]time.Duration, len(r.Experiments))}
	for i, e := range r.Experiments {
		p.expected[i] = e.Full
		if r.Plan.Quick {
			p.expected[i] = e.Quick
		}
		if p.expected[i] <= 0 {
			p.expected[i] = unsaid
		}
		// What is kept is not waited for. A file that cannot be read is
		// reported when its turn comes.
		if kept, err := r.finished(e.Name); err == nil && kept {
			p.expected[i] = 0
		}
	}
	return p
}

func (p *progress) tell(i int, e Progress) {
	if p.r.Progress == nil {
		return
	}
	e.Experiment, e.Index, e.Count = p.r.Experiments[i].Name, i+1, len(p.r.Experiments)
	p.r.Progress(e)
}

// begin returns what experiment i calls with its own progress, and with how many
// samples of an earlier start it did not measure again. old is what it goes on from,
// nil for nothing.
func (p *progress) begin(i int, old *Result) func(done, total int, what string, resumed int) {
	p.began, p.part = p.r.Now(), stage{}
	before := 0 // samples of an earlier start
	if old != nil {
		before = len(old.Samples)
	}
	report := func(done, total int, what string, resumed int) {
		now := p.r.Now()
		if p.part.began.IsZero() || done < p.part.done || total != p.part.total {
			p.part.began = now
		}
		p.part.done, p.part.total, p.part.pace = done, total, 0
		switch {
		case !p.r.Experiments[i].OneStage:
			if done > 0 && 20*done >= total {
				p.part.pace = now.Sub(p.part.began) / time.Duration(done)
			}
		case done >= 3:
			p.part.pace = now.Sub(p.part.began) / time.Duration(done)
		case before > 0:
			p.part.pace = time.Duration(old.Took * float64(time.Second) / float64(before))
		}
		elapsed := now.Sub(p.began)
		spent := elapsed
		if resumed > 0 {
			spent += time.Duration(old.Took * float64(time.Second))
		}
		p.tell(i, Progress{Done: done, Total: total, What: what, Elapsed: elapsed, Left: p.left(i, spent)})
	}
	what := ""
	if old != nil {
		what = "goes on: " + counted(float64(len(old.Samples)), "sample", "samples") + " of an earlier start"
	}
	report(0, 0, what, 0)
	return report
}

// end tells how experiment i ended, and keeps how long it took for the others. An
// earlier start of which samples were used is in that.
func (p *progress) end(i int, how string, took time.Duration) {
	e := Progress{What: how, Ended: true}
	if said := p.expected[i]; said > 0 && how != "kept" {
		e.Elapsed = p.r.Now().Sub(p.began)
		if how == "done" {
			p.said, p.measured = p.said+said, p.measured+took
		}
	}
	p.expected[i] = 0
	e.Left = p.rest(i)
	p.tell(i, e)
}

// left is the rest of experiment i, on which so much time was spent, and of those after
// it. By its pace what is left of the present part is known better; there may be parts
// after it, but for OneStage.
func (p *progress) left(i int, spent time.Duration) time.Duration {
	here := max(0, p.corrected(p.expected[i])-spent)
	if pace := p.part.pace; pace > 0 {
		if p.r.Experiments[i].OneStage {
			here = 0
		}
		here = max(here, pace*time.Duration(max(0, p.part.total-p.part.done)))
	}
	return here + p.rest(i)
}

func (p *progress) rest(i int) time.Duration {
	var sum time.Duration
	for _, d := range p.expected[i+1:] {
		sum += d
	}
	return p.corrected(sum)
}

// corrected is an estimate by how long the others took instead of theirs.
func (p *progress) corrected(d time.Duration) time.Duration {
	if p.said > 0 {
		d = time.Duration(float64(d) * min(10, max(0.1, float64(p.measured)/float64(p.said))))
	}
	return d
}

// ProgressLines returns a Progress that writes a line per step to a log or a terminal;
// steps that follow each other within a second are left out.
func ProgressLines(w io.Writer, now func() time.Time) func(Progress) {
	var last time.Time
	return func(p Progress) {
		at := now()
		if !p.Ended && p.Done > 0 && at.Sub(last) < time.Second {
			return
		}
		last = at
		line := fmt.Sprintf("[%d/%d] %s", p.Index, p.Count, p.Experiment)
		switch {
		case p.Ended && p.Elapsed > 0:
			line += fmt.Sprintf(": %s, %s", p.What, round(p.Elapsed))
		case p.Ended:
			line += ": " + p.What
		default:
			if p.Total > 0 {
				line += fmt.Sprintf(" %d/%d", p.Done, p.Total)
			}
			if p.What != "" {
				line += " " + p.What
			}
		}
		if p.Left > 0 {
			line += fmt.Sprintf(" (about %s left)", round(p.Left))
		}
		// A line that cannot be shown is no reason to stop measuring.
		_, _ = fmt.Fprintln(w, line)
	}
}

func round(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}
