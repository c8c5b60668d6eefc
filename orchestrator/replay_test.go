package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"savepoint/orchestrator"
	"savepoint/policy"
)

// reads has a form that provably only reads, which runs in its place.
const reads = "git log --oneline -5"

// What runs in place of what was asked for is in the record beside it, for the
// command and for validations.
func TestHardenedFormRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := boot(t, newWorld())
		o, _ := l.run(orchestrator.Spec{Command: reads, OnFailure: orchestrator.OnFailureKeep, Validate: []orchestrator.Validation{{Command: reads}}})
		form, ok := newDecider(t).Decide(policy.Request{Command: reads, User: policy.Agent}).Hardened()
		if !ok || form == reads {
			t.Fatalf("no hardened form of %q", reads)
		}
		if o.Verdict.Decision != "allow" || o.Boundary != orchestrator.BoundaryNone || l.w.ran[form] == 0 || l.w.ran[reads] != 0 {
			t.Errorf("%s, boundary %s, ran %v", o.Verdict.Decision, o.Boundary, l.w.ran)
		}
		shown, err := orchestrator.Show(context.Background(), l.p, o.Transaction)
		if err != nil || shown.Command != reads || shown.Runs != form {
			t.Errorf("recorded %q as %q, %v", shown.Command, shown.Runs, err)
		}
		if len(shown.Validate) != 1 || shown.Validate[0].Command != reads || shown.Validate[0].Runs != form {
			t.Errorf("validation recorded: %+v", shown.Validate)
		}
		if o, err = l.run(orchestrator.Spec{Command: "cat /workspace/a"}); err != nil {
			t.Fatal(err)
		}
		if shown, err = orchestrator.Show(context.Background(), l.p, o.Transaction); err != nil || shown.Runs != "" {
			t.Errorf("an unchanged command runs %q, %v", shown.Runs, err)
		}
	})
}

// swapped answers with the verdict of another command.
type swapped struct {
	d    orchestrator.Decider
	from string
	to   policy.Request
}

func (s swapped) Decide(r policy.Request) policy.Verdict {
	if r.Command == s.from {
		return s.d.Decide(s.to)
	}
	return s.d.Decide(r)
}

// A permit for anything else than the command or its hardened form is refused,
// also when it is itself a hardened one, or another account's.
func TestPermitIsForTheCommand(t *testing.T) {
	for _, to := range []policy.Request{
		{Command: "cat /workspace/b", User: policy.Agent},
		{Command: "cat /workspace/a", User: policy.Root},
		{Command: "cat /workspace/a ", User: policy.Agent},
	} {
		for _, asProbe := range []bool{false, true} {
			t.Run(fmt.Sprintf("%q as %s, validation %t", to.Command, to.User, asProbe), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					l := boot(t, newWorld(), func(c *orchestrator.Config) { c.Decider = swapped{c.Decider, "cat /workspace/a", to} })
					spec := orchestrator.Spec{Command: "cat /workspace/a"}
					if asProbe {
						spec = orchestrator.Spec{Command: "cat /workspace/c", Validate: []orchestrator.Validation{{Command: "cat /workspace/a"}}}
					}
					if _, err := l.run(spec); !errors.Is(err, orchestrator.ErrDenied) {
						t.Errorf("got %v, want a refusal", err)
					}
					if len(l.w.records) != 0 || len(l.w.ran) != 0 {
						t.Errorf("recorded %d, ran %v", len(l.w.records), l.w.ran)
					}
				})
			})
		}
	}
}

// A denial says to who asked all that the policy has to say.
func TestDenialHasMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := boot(t, newWorld())
		o, err := l.run(orchestrator.Spec{Command: forbidden})
		want := newDecider(t).Decide(policy.Request{Command: forbidden, User: policy.Agent}).Message()
		if err != nil || o.Message == "" || o.Message != want {
			t.Errorf("message %q, %v; want %q", o.Message, err, want)
		}
		if o, err = l.run(orchestrator.Spec{Command: overwrite}); err != nil || o.Message != "" {
			t.Errorf("message of a committed one: %q, %v", o.Message, err)
		}
	})
}

// All that was asked is told, with who asked as whom and what a grant lifted,
// also from a journal that can only be read as a whole.
func TestJudged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld()
		w.grant(t, "gr-1")
		l := boot(t, w)
		for _, s := range []orchestrator.Spec{
			{Command: forbidden},
			{Command: forbidden},
			{Command: overwrite, As: policy.Root, Profile: policy.OpenEgress, Validate: []orchestrator.Validation{{Command: "cat /workspace/a"}, {Command: "cat /workspace/b", As: policy.Root}}},
		} {
			if _, err := l.run(s); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for q, err := range orchestrator.Judged(context.Background(), simple{l.p}) {
			if err != nil {
				t.Fatal(err)
			}
			lifted := ""
			for _, g := range q.Grants {
				lifted += " " + g.ID + " lifts " + g.Rule
				v := newDecider(t).Decide(policy.Request{Command: q.Command, User: q.As, Grants: q.Grants, Now: q.At})
				if v.Decision.String() != q.Decision {
					t.Errorf("judged again with its grants: %s, want %s", v.Decision, q.Decision)
				}
			}
			got = append(got, fmt.Sprintf("%d %s %s %s %q%s", q.Validation, q.As, q.Profile, q.Decision, q.Command, lifted))
		}
		want := []string{
			fmt.Sprintf(`0 agent  snapshot %q gr-1 lifts %s`, forbidden, forbids(t)),
			fmt.Sprintf(`0 agent  deny %q`, forbidden),
			fmt.Sprintf(`0 root open-egress snapshot %q`, overwrite),
			`1 agent open-egress allow "cat /workspace/a"`,
			`2 root open-egress allow "cat /workspace/b"`,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		w.records[0].Data = []byte("{")
		for _, err := range orchestrator.Judged(context.Background(), l.p) {
			if err == nil {
				t.Error("a damaged record was passed over")
			}
		}
	})
}
