package chaos

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"go.uber.org/goleak"
)

var (
	seedFlag   = flag.Uint64("chaos.seed", 0, "the seed of the rounds; 0: from the clock, or always the same without "+roundsVar)
	roundFlag  = flag.Int("chaos.round", -1, "play only this round of the seed")
	binaryFlag = flag.String("chaos.binary", "", "the savepoint program to try; empty: it is built")
	kindFlag   = flag.String("chaos.fault", "", "play only rounds with this fault")
	plansFlag  = flag.String("chaos.plans", "", "choose among these transactions only, by name and separated by commas")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// roundsVar says how many rounds to play; few of them belong to the lab tier.
const roundsVar = "SAVEPOINT_CHAOS_ROUNDS"

// The lab tier plays one round for each of the first kinds of fault, the same
// ones each time.
const (
	labRounds = 5
	labSeed   = 1891957
)

// TestChaos plays the rounds on a lab whose disks are images.
func TestChaos(t *testing.T) { chaos(t, false, faults, plans, []plan{plans[0], plans[3]}) }

// TestChaosZFS plays them on ZFS, where the agent's files have a volume and
// snapshots of their own, and where others take snapshots and fill the pool.
func TestChaosZFS(t *testing.T) { chaos(t, true, zfsFaults, zfsPlans, zfsPlans[:2]) }

func chaos(t *testing.T, zfs bool, faults []fault, plans, few []plan) {
	if os.Getenv("SAVEPOINT_LAB") != "1" {
		t.Skip("kills real guests under QEMU: set SAVEPOINT_LAB=1")
	}
	rounds, usable, seed := labRounds, few, *seedFlag
	if text := os.Getenv(roundsVar); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s=%q: must be a number of rounds", roundsVar, text)
		}
		rounds, usable = n, plans
	} else if seed == 0 {
		seed = labSeed
	}
	if *plansFlag != "" {
		usable = slices.DeleteFunc(slices.Clone(plans), func(p plan) bool {
			return !slices.Contains(strings.Split(*plansFlag, ","), p.name)
		})
		if len(usable) == 0 {
			t.Fatalf("-chaos.plans=%s: no transaction has that name", *plansFlag)
		}
	}
	if seed == 0 {
		seed = uint64(time.Now().UnixNano() % 1_000_000_000)
	}
	if *kindFlag != "" && !slices.Contains(faults, fault(*kindFlag)) {
		t.Fatalf("-chaos.fault=%s: there are %q", *kindFlag, faults)
	}
	t.Logf("-chaos.seed=%d, %d rounds", seed, rounds)

	w := newWorld(lifetime(t), t, *binaryFlag, zfs)
	var reports []report
	defer func() {
		missed := neverHit(faults, reports, fault(*kindFlag))
		t.Logf("-chaos.seed=%d\n%s", seed, summary(faults, reports, missed))
		for _, m := range missed {
			t.Error(m)
		}
	}()
	for i := range uint64(rounds) {
		s := newSchedule(seed, i, faults, usable)
		if *roundFlag >= 0 && uint64(*roundFlag) != i || *kindFlag != "" && *kindFlag != string(s.fault) {
			continue
		}
		if !w.measured(s.plan) {
			return
		}
		r := w.play(s)
		if w.ctx.Err() != nil {
			t.Errorf("stopped in round %d: %v", i, context.Cause(w.ctx))
			return
		}
		reports = append(reports, r)
		w.tell(r)
		if r.broken && !w.renew() {
			return
		}
	}
}

// lifetime ends before the test's deadline and at an interrupt, so that what
// was started can be ended.
func lifetime(t *testing.T) context.Context {
	ctx, cancel := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(cancel)
	if at, ok := t.Deadline(); ok {
		ctx, cancel = context.WithDeadlineCause(ctx, at.Add(-time.Minute), errors.New("the test's time is over"))
		t.Cleanup(cancel)
	}
	return ctx
}

// measured plays the plan undisturbed, once, to know how long it takes.
func (w *world) measured(p plan) bool {
	if w.took[p.name] > 0 {
		return true
	}
	r := w.play(schedule{plan: p, round: 1_000_000 + uint64(len(w.took))})
	w.t.Logf("%s takes %.1f s", p.name, w.took[p.name].Seconds())
	w.tell(r)
	return len(r.violations) == 0
}

func (w *world) tell(r report) {
	w.t.Helper()
	if r.fault != "" {
		w.t.Logf("round %d: %s (%.1f s) hit %t: %s %.1f s%s", r.round, r.schedule, r.moment.Seconds(), r.hit,
			cmp.Or(string(r.state), "nothing begun"), r.took.Seconds(), strings.Join(append([]string{""}, r.stuck...), "; stuck: "))
	}
	if len(r.violations) > 0 {
		w.t.Errorf("-chaos.seed=%d -chaos.round=%d: %s:\n  %s\n%s", r.seed, r.round, r.schedule,
			strings.Join(r.violations, "\n  "), strings.Join(r.trail, "\n"))
	}
}

// renew makes another sandbox when the old one does not work any more: the
// rounds that follow must not suffer from it.
func (w *world) renew() bool {
	if r := w.savepoint("sandbox", "destroy", "--force", box); r.code != 0 {
		w.t.Logf("remove the sandbox: %s", r)
		return false
	}
	w.create()
	return true
}

// enough rounds let each kind of fault hit; fewer may miss by chance.
const enough = 30

// neverHit names the kinds of fault that met no transaction in enough rounds,
// so that a run shows nothing about them. Only is the one kind that was asked
// for, if there is one.
func neverHit(faults []fault, all []report, only fault) []string {
	if len(all) < enough {
		return nil
	}
	var out []string
	for _, f := range faults {
		rounds, hit := 0, false
		for _, r := range all {
			if r.fault == f {
				rounds++
				hit = hit || r.hit
			}
		}
		if !hit && (only == "" || only == f) {
			out = append(out, fmt.Sprintf("fault %s never hit a transaction, in %d rounds", f, rounds))
		}
	}
	return out
}

// summary is the table of all rounds by fault, and what was missed.
func summary(faults []fault, all []report, missed []string) string {
	var out strings.Builder
	tw := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "FAULT\tROUNDS\tHIT\tCOMMITTED\tROLLED BACK\tNOTHING BEGUN\tWOKEN\tUNLOCKED BY THE OPERATOR\tCLEARED BY THE OPERATOR\tSTUCK, MENDED BY RECOVER\tSTUCK\tJOURNAL PROVED\tBYSTANDER UNTOUCHED\tVIOLATIONS\tMEDIAN s")
	row := func(name string, rs []report) {
		var hit, woken, unlocked, cleared, mended, stuck, proofs, apart, violations int
		states := map[string]int{}
		var seconds []float64
		for _, r := range rs {
			states[string(r.state)]++
			seconds = append(seconds, r.took.Seconds())
			violations += len(r.violations)
			proofs += r.proofs
			if r.hit {
				hit++
			}
			if r.apart {
				apart++
			}
			if r.woken {
				woken++
			}
			switch {
			case r.state == "stuck":
				stuck++
			case r.unlocked:
				unlocked++
			case r.cleared:
				cleared++
			case len(r.stuck) > 0:
				mended++
			}
		}
		slices.Sort(seconds)
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f\n", name, len(rs), hit, states["committed"],
			states["rolled-back"], states[""], woken, unlocked, cleared, mended, stuck, proofs, apart, violations, seconds[len(seconds)/2])
	}
	for _, f := range faults {
		if rs := slices.DeleteFunc(slices.Clone(all), func(r report) bool { return r.fault != f }); len(rs) > 0 {
			row(string(f), rs)
		}
	}
	if len(all) > 0 {
		row("all", all)
	}
	_ = tw.Flush()
	for _, m := range missed {
		fmt.Fprintln(&out, m)
	}
	for _, r := range all {
		for _, why := range r.stuck {
			fmt.Fprintf(&out, "round %d was stuck: %s\n", r.round, why)
		}
	}
	return out.String()
}
