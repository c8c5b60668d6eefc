package bench

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// saveEvery is the least time between two times that what was measured is kept while
// an experiment goes on: a process that is killed loses what it measured in as much,
// one that is told to stop nothing.
// Where there is so much to write that it takes long, it is by as much less often that
// the writing does not show in what is measured.
const saveEvery, saveShare = 2 * time.Second, 20

// earlier is what an earlier start of a run measured of an experiment that it did
// not finish. Interleave takes from it what it need not measure again; what the
// experiment measures again itself replaces it. The rest is kept while the experiment
// is not finished, so that nothing is lost however often it is stopped.
type earlier struct {
	of    *Result // nil for none
	gone  []bool  // those that were taken or replaced
	byKey map[string][]int
}

func newEarlier(of *Result) earlier {
	e := earlier{of: of, gone: make([]bool, len(of.Samples)), byKey: map[string][]int{}}
	for i, s := range of.Samples {
		e.byKey[s.key()] = append(e.byKey[s.key()], i)
	}
	return e
}

// key names what a sample is a repetition of, and which one it is.
func (s Sample) key() string { return fmt.Sprintf("%s\x00%d", s.Group(), s.Rep) }

// replace drops a sample of which another is the new measurement.
func (e *earlier) replace(s Sample) {
	if e.of == nil {
		return
	}
	key := s.key()
	for all := e.byKey[key]; len(all) > 0; all = all[1:] {
		e.byKey[key] = all[1:]
		if !e.gone[all[0]] {
			e.gone[all[0]] = true
			return
		}
	}
}

// find is where the sample of one of the arms in a round is, -1 when there is none.
// Labels that the arm's Do has added do not matter, unless they make it a sample of
// another of the arms.
func (e *earlier) find(arms []Arm, i, rep int) int {
	for k := range e.gone {
		s := e.of.Samples[k]
		if !e.gone[k] && s.Rep == rep && arms[i].measured(s) && !slices.ContainsFunc(arms, func(other Arm) bool {
			return len(other.Labels) > len(arms[i].Labels) && other.measured(s)
		}) {
			return k
		}
	}
	return -1
}

// measured reports whether a sample has the arm's name and labels.
func (a Arm) measured(s Sample) bool {
	for k, v := range a.Labels {
		if s.Labels[k] != v {
			return false
		}
	}
	return s.Arm == a.Name
}

// rest is what has neither been taken nor measured again.
func (e *earlier) rest() []Sample {
	var out []Sample
	for i, gone := range e.gone {
		if !gone {
			out = append(out, e.of.Samples[i])
		}
	}
	return out
}

// goOn makes r go on from what an earlier start measured.
func (r *Run) goOn(of *Result) { r.earlier = newEarlier(of) }

// had reports whether an earlier start measured an arm in a round, which r has then.
func (r *Run) had(arms []Arm, i, rep int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.earlier.find(arms, i, rep)
	if k < 0 {
		return false
	}
	r.earlier.gone[k] = true
	r.result.Samples = append(r.result.Samples, r.earlier.of.Samples[k])
	r.result.Resumed++
	return true
}

// lacks counts the rounds in which an arm has yet to be measured.
func (r *Run) lacks(arms []Arm, i, reps int) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for rep := range reps {
		if r.earlier.find(arms, i, rep) < 0 {
			n++
		}
	}
	return n
}

// gaveUp keeps that an arm ended with rounds that it lacks.
func (r *Run) gaveUp(a Arm) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if name := a.group(); !slices.Contains(r.result.Ended, name) {
		r.result.Ended = append(r.result.Ended, name)
	}
}

// soFar is the result as it is kept before its end, with everything that an earlier
// start measured and this one has not come to. The caller holds r.mu.
func (r *Run) soFar() *Result {
	res := *r.result
	rest := r.earlier.rest()
	res.Samples = slices.Concat(res.Samples, rest)
	res.Facts = maps.Clone(res.Facts)
	res.Partial = len(res.Samples) > 0
	if res.Took == 0 { // it goes on
		res.Took = max(0, r.now().Sub(res.Started).Seconds())
	}
	r.sumUp(&res, len(rest) > 0)
	return &res
}

// sumUp adds what an earlier start says of the samples that are its own: how long it
// took, what else went on, its notes.
func (r *Run) sumUp(res *Result, rest bool) {
	old := r.earlier.of
	if old == nil || res.Resumed == 0 && !rest {
		return
	}
	res.Started, res.Took = old.Started, res.Took+old.Took
	res.Noise.Load, res.Noise.Steal = max(res.Noise.Load, old.Noise.Load), max(res.Noise.Steal, old.Noise.Steal)
	notes := slices.Clone(old.Notes)
	for _, n := range res.Notes {
		if !slices.Contains(notes, n) {
			notes = append(notes, n)
		}
	}
	if a, b := old.Environment.Versions[VersionSavepoint], res.Environment.Versions[VersionSavepoint]; a != b {
		notes = append(notes, fmt.Sprintf("some samples were measured with savepoint %s, the others with %s", a, b))
	}
	res.Notes = notes
}

// end is the result at its end: as it is, or as far as it came.
func (r *Run) end(finished bool) *Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !finished {
		return r.soFar()
	}
	r.sumUp(r.result, false)
	return r.result
}
