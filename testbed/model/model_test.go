package model

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves turns on loopback. What the server waits for is recorded and
// takes no time.
func start(t *testing.T, turns ...Turn) (*Server, string, func() []time.Duration) {
	t.Helper()
	var mu sync.Mutex
	var waits []time.Duration
	s := New(Script(turns).Answer(), WithWait(func(ctx context.Context, d time.Duration) error {
		mu.Lock()
		defer mu.Unlock()
		waits = append(waits, d)
		return ctx.Err()
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := s.Serve(l)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, url, func() []time.Duration { mu.Lock(); defer mu.Unlock(); return waits }
}

// post returns status, body and the error with which reading the body ended.
func post(t *testing.T, url, body string) (int, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, "", err
	}
	defer a.Body.Close()
	if a.Header.Get("Server") != Name {
		t.Errorf("Server: %q, want the label %q", a.Header.Get("Server"), Name)
	}
	raw, err := io.ReadAll(a.Body)
	return a.StatusCode, string(raw), err
}

// events are the data lines of a stream.
func events(t *testing.T, body string) []string {
	t.Helper()
	var out []string
	for lines := bufio.NewScanner(strings.NewReader(body)); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			out = append(out, data)
		} else if lines.Text() != "" {
			t.Errorf("line %q is no event", lines.Text())
		}
	}
	return out
}

type completion struct {
	ID, Object, Model string
	Choices           []struct {
		Message, Delta struct {
			Content   string
			ToolCalls []struct {
				Index    int
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		FinishReason string `json:"finish_reason"`
	}
	Usage *struct {
		Total int `json:"total_tokens"`
	}
}

type generated struct {
	Candidates []struct {
		Content struct {
			Parts []struct {
				Text         string
				FunctionCall *struct {
					Name string
					Args json.RawMessage
				}
			}
		}
		FinishReason string
	}
	ModelVersion  string
	UsageMetadata *struct{ TotalTokenCount int }
}

func decode[T any](t *testing.T, raw string) T {
	t.Helper()
	var out T
	if err := json.Unmarshal([]byte(raw), &out); err != nil {
		t.Fatalf("%v in %q", err, raw)
	}
	return out
}

const (
	chatPath   = "/v1/chat/completions"
	geminiPath = "/v1beta/models/some-model:generateContent"
	streamPath = "/v1beta/models/some-model:streamGenerateContent?alt=sse"
	chatAsk    = `{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":[{"type":"text","text":"hello"}]}],"tools":[{"type":"function","function":{"name":"sh"}}]}`
	chatStream = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}],"tools":[{"type":"function","function":{"name":"sh"}}]}`
	geminiAsk  = `{"systemInstruction":{"parts":[{"text":"be brief"}]},"contents":[{"role":"user","parts":[{"text":"hello"}]}],"tools":[{"functionDeclarations":[{"name":"sh"}]}]}`
)

var call = Turn{Text: "I make a file, quite quickly.", Calls: []Call{{Name: "sh", Args: map[string]any{"command": "touch a"}}}}

func TestChat(t *testing.T) {
	s, url, _ := start(t, call, Turn{Text: "done"})
	status, body, err := post(t, url+chatPath, chatAsk)
	if status != 200 || err != nil {
		t.Fatal(status, body, err)
	}
	c := decode[completion](t, body)
	m := c.Choices[0].Message
	if m.Content != call.Text || len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Arguments != `{"command":"touch a"}` ||
		m.ToolCalls[0].ID == "" || c.Choices[0].FinishReason != "tool_calls" || c.Usage.Total == 0 {
		t.Errorf("answer %s", body)
	}
	again := `{"messages":[{"role":"user","content":"hello"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"sh","arguments":"{\"command\":\"touch a\"}"}}]},{"role":"tool","tool_call_id":"1","content":"ok"}]}`
	if _, body, _ = post(t, url+chatPath, again); decode[completion](t, body).Choices[0].FinishReason != "stop" {
		t.Errorf("answer %s", body)
	}
	rs := s.Requests()
	if s.Count() != 2 || rs[0].System != "be brief" || rs[0].Last().Text != "hello" || rs[0].Tools[0] != "sh" || rs[1].N != 2 {
		t.Errorf("requests %+v", rs)
	}
	if last := rs[1].Last(); last.Results[0] != (ToolResult{ID: "1", Text: "ok"}) || rs[1].Messages[1].Calls[0].Args["command"] != "touch a" {
		t.Errorf("messages %+v", rs[1].Messages)
	}
	if _, body, _ = post(t, url+chatPath, again); decode[completion](t, body).Choices[0].Message.Content != Finished {
		t.Errorf("after the script's end: %s", body)
	}
}

func TestChatStream(t *testing.T) {
	_, url, _ := start(t, call)
	_, body, err := post(t, url+chatPath, chatStream)
	if err != nil {
		t.Fatal(err)
	}
	var text, args, finish string
	all := events(t, body)
	for _, e := range all[:len(all)-1] {
		c := decode[completion](t, e)
		d := c.Choices[0].Delta
		text += d.Content
		for _, tc := range d.ToolCalls {
			args += tc.Function.Arguments
		}
		finish = c.Choices[0].FinishReason
	}
	if all[len(all)-1] != "[DONE]" || text != call.Text || args != `{"command":"touch a"}` || finish != "tool_calls" {
		t.Errorf("stream %s", body)
	}
}

func TestGemini(t *testing.T) {
	s, url, waits := start(t, Turn{Calls: call.Calls, Think: 3 * time.Second}, call)
	_, body, _ := post(t, url+geminiPath, geminiAsk)
	g := decode[generated](t, body)
	if p := g.Candidates[0].Content.Parts; len(p) != 1 || p[0].FunctionCall.Name != "sh" || g.ModelVersion != Name || g.Candidates[0].FinishReason != "STOP" {
		t.Errorf("answer %s", body)
	}
	if w := waits(); len(w) != 1 || w[0] != 3*time.Second {
		t.Errorf("waited %v, want the declared think time", w)
	}
	_, body, _ = post(t, url+streamPath, geminiAsk)
	text, calls := "", 0
	for _, e := range events(t, body) {
		for _, p := range decode[generated](t, e).Candidates[0].Content.Parts {
			text += p.Text
			if p.FunctionCall != nil {
				calls++
			}
		}
	}
	if text != call.Text || calls != 1 {
		t.Errorf("stream %s", body)
	}
	if r := s.Requests()[1]; r.API != Gemini || r.Model != "some-model" || !r.Stream || r.System != "be brief" || r.Tools[0] != "sh" {
		t.Errorf("request %+v", r)
	}
}

// Side questions of a client take no turn of the script.
func TestSideQuestions(t *testing.T) {
	s, url, _ := start(t, Turn{Text: "the only turn"})
	_, body, _ := post(t, url+"/v1beta/models/m:countTokens", `{"contents":[{"parts":[{"text":"12345678"}]}]}`)
	if n := decode[struct{ TotalTokens int }](t, body).TotalTokens; n == 0 {
		t.Errorf("count %s", body)
	}
	ask := `{"contents":[{"parts":[{"text":"how hard"}]}],"generationConfig":{"responseMimeType":"application/json","responseJsonSchema":
		{"type":"object","properties":{"why":{"type":"string"},"score":{"type":"INTEGER","minimum":7},"who":{"enum":["user","model"]},"list":{"type":["array","null"]}}}}}`
	_, body, _ = post(t, url+geminiPath, ask)
	got := decode[struct {
		Why, Who string
		Score    int
		List     []any
	}](t, decode[generated](t, body).Candidates[0].Content.Parts[0].Text)
	if got.Why != Name || got.Score != 7 || got.Who != "user" || got.List == nil {
		t.Errorf("side answer %+v", got)
	}
	if _, body, _ = post(t, url+chatPath, chatAsk); decode[completion](t, body).Choices[0].Message.Content != "the only turn" || s.Count() != 3 {
		t.Errorf("answer %s after %d requests", body, s.Count())
	}
}

func TestRefusals(t *testing.T) {
	s, url, _ := start(t)
	for _, tt := range []struct {
		path, body string
		status     int
	}{
		{chatPath, "{", 400},
		{chatPath, `{"messages":[]}`, 400},
		{chatPath, `{"messages":[{"content":7}]}`, 400},
		{"/v1/models", "{}", 404},
		{"/v1beta/models/m:embed", "{}", 400},
		{geminiPath, `{"contents":7}`, 400},
	} {
		status, body, err := post(t, url+tt.path, tt.body)
		if err != nil || status != tt.status || !strings.Contains(body, `"error"`) {
			t.Errorf("%s %.40s: %d %s, want %d", tt.path, tt.body, status, body, tt.status)
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(strings.Repeat(" ", MaxBody+1))))
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body over the limit: %d", w.Code)
	}
	if s.Count() != 0 {
		t.Errorf("%d requests are counted that were not understood", s.Count())
	}
}

// Every fault is what it says, in each protocol, streamed or not.
func TestFaults(t *testing.T) {
	for _, tt := range []struct{ name, path, body string }{
		{"chat", chatPath, chatAsk}, {"chat stream", chatPath, chatStream}, {"gemini", geminiPath, geminiAsk}, {"gemini stream", streamPath, geminiAsk},
	} {
		for _, f := range Faults {
			if f == Hang {
				continue // TestHang
			}
			t.Run(tt.name+" "+string(f), func(t *testing.T) {
				turn := call
				turn.Fault = f
				_, url, waits := start(t, turn)
				status, body, err := post(t, url+tt.path, tt.body)
				seen := map[Fault]bool{
					Status429:     status == 429,
					Status500:     status == 500,
					CutStream:     errors.Is(err, io.ErrUnexpectedEOF),
					MalformedCall: strings.Contains(body, `{\"command\": \"ls"`),
					WrongFinish:   strings.Contains(body, `"length"`) || strings.Contains(body, `"MAX_TOKENS"`),
					MissingFields: status == 200 && err == nil && !strings.Contains(body, `"usage`) && !strings.Contains(body, Name) && !strings.Contains(body, `"model":`),
					SlowTokens:    len(waits()) > 2 || !strings.Contains(tt.name, "stream"),
				}
				for other, is := range seen {
					if is != (other == f) && other != SlowTokens {
						t.Errorf("%s shows as %s: %v (%d %v %s)", f, other, is, status, err, body)
					}
				}
				if !seen[f] {
					t.Errorf("%s is not seen: %d %v %s", f, status, err, body)
				}
			})
		}
	}
}

// A request without an answer ends when the client leaves, and when the server
// is closed.
func TestHang(t *testing.T) {
	asked := make(chan bool, 1)
	s := New(func(Request) Turn { asked <- true; return Turn{Fault: Hang} })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := s.Serve(l)
	hung := func(ctx context.Context) chan error {
		done := make(chan error, 1)
		go func() {
			q, err := http.NewRequestWithContext(ctx, http.MethodPost, url+chatPath, strings.NewReader(chatAsk))
			if err == nil {
				_, err = http.DefaultClient.Do(q)
			}
			done <- err
		}()
		<-asked
		return done
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := hung(ctx)
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("a client that left: %v", err)
	}
	closed := hung(t.Context())
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-closed; err == nil {
		t.Error("a hanging request was answered")
	}
}
