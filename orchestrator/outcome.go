package orchestrator

import (
	"encoding/json"
	"math"
	"time"
)

// Outcome is how a transaction ended. Marshalled as JSON it is the object that
// `savepoint run --output json` prints.
type Outcome struct {
	Transaction TxID      `json:"transaction"`
	SandboxID   SandboxID `json:"-"`
	Sandbox     string    `json:"sandbox"` // its name
	// State is committed, rolled-back, denied or stuck; of a step it is open
	// when the transaction goes on, and denied when only the step was. Next to
	// an error it can be another one: recovery has to settle the transaction.
	State    State     `json:"state"`
	Verdict  Judgement `json:"verdict"`
	Boundary Boundary  `json:"boundary"`
	// ExitCode is nil when the command did not run or its end is not known,
	// and -1 when a signal ended it.
	ExitCode  *int   `json:"exit_code"`
	Signal    string `json:"-"`
	Stdout    string `json:"stdout"` // the bytes as they came, capped by Config.OutputLimit
	Stderr    string `json:"stderr"`
	Truncated bool   `json:"truncated"`
	// Reason is one sentence for a person: why it was denied, rolled back or
	// is stuck, and in the last case what to do. Empty for a plain success.
	Reason string `json:"reason"`
	// Message is, for a denied command, all that the policy has to say to who
	// asked: what was denied, why, and what to do instead.
	Message string  `json:"message,omitempty"`
	Checks  []Check `json:"checks,omitempty"`
	// Changed is what the command did to the files that were compared, the
	// first of ChangedCount; see Guard.
	Changed      []Change `json:"changed,omitempty"`
	ChangedCount int      `json:"changed_count,omitempty"`
	Timings      Timings  `json:"timings_ms"`
	Snapshot     string   `json:"-"` // "" for boundary none
	Tasks        []UPID   `json:"-"`
	// Interrupted is true when the caller's context ended before the commit
	// point; the transaction was rolled back for that reason.
	Interrupted bool `json:"-"`
	// Step is the number of the command in a transaction of several; 0 otherwise.
	Step int `json:"step,omitempty"`
	// Replayed: nothing was run, this is the result of the first request with
	// the same key.
	Replayed bool `json:"replayed,omitempty"`
	// Dir is the session's working directory afterwards, where there is a session.
	Dir string `json:"dir,omitempty"`
}

// Timings says how long the steps took. Steps that did not happen are zero.
type Timings struct {
	Policy, Snapshot, Execute, Validate, Commit, Rollback, Total time.Duration
}

// MarshalJSON writes milliseconds with three decimals.
func (t Timings) MarshalJSON() ([]byte, error) {
	ms := func(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e3 }
	return json.Marshal(struct {
		Policy   float64 `json:"policy"`
		Snapshot float64 `json:"snapshot"`
		Execute  float64 `json:"execute"`
		Validate float64 `json:"validate"`
		Commit   float64 `json:"commit"`
		Rollback float64 `json:"rollback"`
		Total    float64 `json:"total"`
	}{ms(t.Policy), ms(t.Snapshot), ms(t.Execute), ms(t.Validate), ms(t.Commit), ms(t.Rollback), ms(t.Total)})
}
