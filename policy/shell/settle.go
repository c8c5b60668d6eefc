package shell

import (
	"slices"
	"strings"
)

// maxRounds is the number of rounds of a loop that are walked. Values that merely
// grow or shrink are followed for one round more than the least.
const maxRounds = 10

// settle walks rounds of a loop, a number of them at least, until no variable
// gets a value that it has not had. What goes on changing is not known.
func (w *Walker) settle(sc *Scope, least int, round func()) {
	var last map[string][]string
	for n := 1; ; n++ {
		before := sc.vars
		round()
		if w.done {
			return
		}
		news := fresh(before, sc.vars)
		moving, slow := unlike(last, news)
		if n >= least && len(moving) == 0 && (!slow || n > least) {
			return
		}
		if n >= maxRounds {
			for _, name := range moving {
				v := sc.vars[name]
				v.values, v.list, v.isList = []string{string(HoleFields)}, nil, false
				sc.vars[name] = v
			}
			return
		}
		last = news
	}
}

// fresh lists the values that variables have after a round and did not have
// before.
func fresh(before, after map[string]variable) map[string][]string {
	out := map[string][]string{}
	for name, v := range after {
		old, ok := before[name]
		if name == "_" || ok && same(old, v) {
			continue
		}
		counter := len(old.values) > 0 && !slices.ContainsFunc(old.values, func(x string) bool { _, isNumber := number(x); return !isNumber })
		for _, x := range v.values {
			if counter && strings.Trim(x, holes) == "" {
				continue // it counts on
			}
			if _, isNumber := number(x); !isNumber && !slices.Contains(old.values, x) {
				out[name] = append(out[name], x)
			}
		}
		if v.isList && !slices.Equal(v.list, old.list) {
			out[name] = append(out[name], strings.Join(v.list[:min(len(v.list), 64)], " "))
		}
	}
	return out
}

// unlike lists the variables whose new values have nothing to do with those of
// the round before. slow reports whether there are others.
func unlike(last, news map[string][]string) (moving []string, slow bool) {
	for name, values := range news {
		if slices.ContainsFunc(values, func(x string) bool {
			return !slices.ContainsFunc(last[name], func(y string) bool { return y != "" && (strings.Contains(x, y) || strings.Contains(y, x)) })
		}) {
			moving = append(moving, name)
		} else {
			slow = true
		}
	}
	return moving, slow
}
