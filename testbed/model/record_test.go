package model

import (
	"net/http"
	"reflect"
	"testing"
)

func command(line string) Call {
	return Call{Name: "run", Args: map[string]any{"command": line, "n": 1}}
}

// What came back of each call is found in the conversation; a call that nobody
// heard of, and one without an answer, are told apart from one that was tried.
func TestTrials(t *testing.T) {
	turns := []Turn{{Calls: []Call{command("first")}}, {Calls: []Call{command("lost")}}, {Calls: []Call{command("second")}}, {Calls: []Call{command("third")}}}
	user := `{"role":"user","parts":[{"text":"do"}]}`
	call := func(line string) string {
		return `{"role":"model","parts":[{"functionCall":{"name":"run","args":{"n":1,"command":"` + line + `"}}}]}`
	}
	answer := func(text string) string {
		return `{"role":"user","parts":[{"functionResponse":{"name":"run","response":{"output":"` + text + `"}}}]}`
	}
	s, url, _ := start(t, turns...)
	ask := func(contents string) {
		t.Helper()
		body := `{"contents":[` + contents + `],"tools":[{"functionDeclarations":[{"name":"run"}]}]}`
		if status, text, err := post(t, url+"/v1beta/models/m:generateContent", body); status != http.StatusOK || err != nil {
			t.Fatal(status, text, err)
		}
	}
	if got := s.Trials(); len(got) != 0 {
		t.Errorf("before: %+v", got)
	}
	ask(user)
	if got := s.Trials(); len(got) != 1 || got[0].Taken || got[0].Returned {
		t.Errorf("given only: %+v", got)
	}
	one := user + "," + call("first") + "," + answer("1")
	ask(one)
	ask(one) // the answer was lost: asked again
	ask(one + "," + call("second"))
	side := `{"contents":[` + user + `],"generationConfig":{"responseMimeType":"application/json"}}`
	if status, text, err := post(t, url+"/v1beta/models/m:generateContent", side); status != http.StatusOK || err != nil {
		t.Fatal(status, text, err)
	}
	want := []Trial{
		{Call: command("first"), Taken: true, Returned: true, Answer: `{"output":"1"}`},
		{Call: command("lost")},
		{Call: command("second"), Taken: true},
		{Call: command("third")},
	}
	if got := s.Trials(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Answers go to the call with their id, whatever their order.
func TestHistory(t *testing.T) {
	calls := Message{Calls: []Call{{ID: "a", Name: "run"}, {ID: "b", Name: "run"}, {Name: "read"}}}
	got := history([]Message{calls, {Results: []ToolResult{{ID: "b", Text: "of b"}, {ID: "c", Text: "of nobody", Name: "run"}, {Name: "read", Text: "of read"}}}})
	if len(got) != 3 || got[0].Returned || got[1].Answer != "of b" || got[2].Answer != "of read" {
		t.Errorf("%+v", got)
	}
}
