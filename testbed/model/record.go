package model

// Trial is a tool call that the server gave out, and what the client says became
// of it.
type Trial struct {
	Call Call
	// Taken: the client holds the call for a part of the conversation.
	Taken bool
	// Returned: the client sent the tool's answer back, which is Answer.
	Returned bool
	Answer   string
}

// Trials are the calls that the server gave out, in order. What became of them is
// told by the last request of the conversation, in which clients send all that was
// said before. A call that was lost on the way is not taken, and given out again
// it is a trial of its own.
func (s *Server) Trials() []Trial {
	s.mu.Lock()
	defer s.mu.Unlock()
	var heard []Trial
	for _, r := range s.requests {
		if !r.Side() {
			heard = history(r.Messages)
		}
	}
	out := make([]Trial, 0, len(s.given))
	for _, call := range s.given {
		t := Trial{Call: call}
		for i, h := range heard {
			if h.Call.Name == call.Name && encode(h.Call.Args) == encode(call.Args) {
				t.Taken, t.Returned, t.Answer = true, h.Returned, h.Answer
				heard = heard[i+1:]
				break
			}
		}
		out = append(out, t)
	}
	return out
}

// history are the calls in a conversation, with the answers that came to them: by
// id where there is one, else by order.
func history(messages []Message) []Trial {
	var out []Trial
	for _, m := range messages {
		for _, c := range m.Calls {
			out = append(out, Trial{Call: c, Taken: true})
		}
		for _, r := range m.Results {
			if i := answered(out, r); i >= 0 {
				out[i].Returned, out[i].Answer = true, r.Text
			}
		}
	}
	return out
}

// answered is the call that a result belongs to, or -1.
func answered(calls []Trial, r ToolResult) int {
	first := -1
	for i, t := range calls {
		switch {
		case t.Returned:
		case r.ID != "" && t.Call.ID == r.ID:
			return i
		case first < 0 && (r.ID == "" || t.Call.ID == "") && (r.Name == "" || r.Name == t.Call.Name):
			first = i
		}
	}
	return first
}
