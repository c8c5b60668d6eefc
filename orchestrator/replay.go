package orchestrator

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"savepoint/policy"
)

// Beginner is what a Journal may offer besides: only the records "begin", "adopt",
// "deny" and "run", with which transactions and their commands begin, in the order they
// were appended; those of "run" without data may be left out. Without it Judged
// reads everything.
type Beginner interface {
	Beginnings(ctx context.Context) iter.Seq2[Record, error]
}

// Judgment is one question that the policy was asked for a transaction, and
// its answer then.
type Judgment struct {
	Tx         TxID
	At         time.Time
	Sandbox    string // its name then
	Step       int    // the number of the command in a transaction of several, else 0
	Validation int    // 0: the command; n: its n-th validation
	Command    string
	As         policy.User
	Dir        string // where the command began; "" = the home, and for validations
	Profile    string
	Decision   string
	Rule       string
	// Grants are those that lifted a rule then, one for each rule.
	Grants []policy.Grant
}

// beginning is the part of beginData that was judged.
type beginning struct {
	Box struct {
		Name string `json:"name"`
	} `json:"sandbox"`
	judgedData
	Profile  string       `json:"profile"`
	Validate []judgedData `json:"validate"`
	Dir      string       `json:"dir"`
	Step     int          `json:"step"`
	Several  *struct{}    `json:"several"` // it has no command of its own
	Ahead    bool         `json:"ahead"`   // it has none yet
}

type judgedData struct {
	Command []byte      `json:"command"`
	As      policy.User `json:"as"`
	Verdict struct {
		Decision string        `json:"decision"`
		Rule     string        `json:"rule"`
		Lifted   []policy.Lift `json:"lifted"`
	} `json:"verdict"`
}

// Judged yields all that the policy was ever asked, oldest first, a
// transaction's validations behind its command. It holds one record at a time.
// After an error it ends.
func Judged(ctx context.Context, j Journal) iter.Seq2[Judgment, error] {
	records := j.Records(ctx, "")
	if b, ok := j.(Beginner); ok {
		records = b.Beginnings(ctx)
	}
	return func(yield func(Judgment, error) bool) {
		for r, err := range records {
			if err == nil && r.Event != evBegin && r.Event != evAdopt && r.Event != evDeny && (r.Event != evRun || len(r.Data) == 0) {
				continue
			}
			var d beginning
			if err == nil {
				if err = json.Unmarshal(r.Data, &d); err != nil {
					err = fmt.Errorf("read %s record %d of transaction %s: %w", r.Event, r.Seq, r.Tx, err)
				}
			}
			if err != nil {
				yield(Judgment{}, err)
				return
			}
			for n, c := range append([]judgedData{d.judgedData}, d.Validate...) {
				if n == 0 && (d.Several != nil || d.Ahead) {
					continue
				}
				if !yield(c.judgment(r, d, n), nil) {
					return
				}
			}
		}
	}
}

func (c judgedData) judgment(r Record, d beginning, n int) Judgment {
	q := Judgment{
		Tx: r.Tx, At: r.At, Sandbox: d.Box.Name, Step: d.Step, Validation: n, Command: string(c.Command), As: c.As, Profile: d.Profile,
		Decision: c.Verdict.Decision, Rule: c.Verdict.Rule,
	}
	if n == 0 {
		q.Dir = d.Dir
	}
	for _, l := range c.Verdict.Lifted {
		if id, ok := GrantOf(l); ok {
			q.Grants = append(q.Grants, policy.Grant{ID: string(id), Rule: l.Rule, Command: q.Command, User: q.As, Expires: r.At.Add(time.Second)})
		}
	}
	return q
}
