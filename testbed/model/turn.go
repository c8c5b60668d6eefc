package model

import (
	"sync"
	"time"
)

// Name labels the server wherever its answers are seen: in the Server header,
// in the bodies and in every report.
const Name = "savepoint-stand-in-model"

// Call is one tool call of a model. ID may be empty.
type Call struct {
	ID   string         `json:"id,omitempty"`
	Name string         `json:"name"`
	Args map[string]any `json:"args"`
}

// Turn is one answer of the model.
type Turn struct {
	Text  string        // what it says; a <tool_call> may be in it
	Calls []Call        // tools that it wants called
	Think time.Duration // declared inference time, passed before the answer
	Fault Fault         // how the answer goes wrong
}

// Fault is a way in which a server's answer goes wrong.
type Fault string

// The faults.
const (
	None          Fault = ""
	MalformedCall Fault = "malformed-call" // the arguments of calls are not valid
	CutStream     Fault = "cut-stream"     // the connection ends in the middle of the answer
	WrongFinish   Fault = "wrong-finish"   // finish_reason says length, and calls are there
	MissingFields Fault = "missing-fields" // no id, object, model and usage
	Status429     Fault = "429"            // too many requests
	Status500     Fault = "500"            // internal error
	Hang          Fault = "hang"           // no answer until the client leaves
	SlowTokens    Fault = "slow-tokens"    // a stream waits TokenPause before each piece
)

// Faults lists every fault but None.
var Faults = []Fault{MalformedCall, CutStream, WrongFinish, MissingFields, Status429, Status500, Hang, SlowTokens}

// TokenPause is the time between two pieces of a SlowTokens stream.
const TokenPause = 100 * time.Millisecond

// Answer gives the turn that answers a request. It is called for one request
// at a time.
type Answer func(Request) Turn

// Script is a list of turns; each request takes the next one, a request that is
// a client's retry too. When they are used up the model says Finished.
type Script []Turn

// Finished is what a model says whose script has ended.
const Finished = "The script of the stand-in model has ended."

// Answer returns the script as an Answer that starts at the first turn.
func (s Script) Answer() Answer {
	var mu sync.Mutex
	next := 0
	return func(Request) Turn {
		mu.Lock()
		defer mu.Unlock()
		if next == len(s) {
			return Turn{Text: Finished}
		}
		next++
		return s[next-1]
	}
}
