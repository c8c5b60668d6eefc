package model

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Whatever is sent, the server answers with JSON or events, refuses with an
// error, and knows no more of a request than was in it.
func FuzzRequest(f *testing.F) {
	for _, path := range []string{chatPath, geminiPath, streamPath, "/v1beta/models/m:countTokens", "/v1beta/models/:", "/v1/models"} {
		for _, body := range []string{chatAsk, chatStream, geminiAsk, "{}", "null", `{"messages":[{"role":"tool","content":null,"tool_calls":[{"function":{"arguments":"["}}]}]}`,
			`{"contents":[{"parts":[{"functionResponse":{"name":"sh","response":{"output":"x"}}}]}],"generationConfig":{"responseMimeType":"application/json","responseSchema":{"anyOf":[{"items":{}}]}}}`} {
			f.Add(path, []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		s := New(Script{call}.Answer())
		q := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		q.URL.Path = path
		w := httptest.NewRecorder()
		s.ServeHTTP(w, q)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		a := w.Result()
		isEvents := a.Header.Get("Content-Type") == "text/event-stream"
		if a.Header.Get("Server") != Name || !isEvents && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%d %q", a.StatusCode, w.Body)
		}
		if (a.StatusCode == http.StatusOK) != (s.Count() == 1) {
			t.Errorf("status %d with %d requests recorded", a.StatusCode, s.Count())
		}
		for _, r := range s.Requests() {
			n := len(r.System)
			for _, m := range r.Messages {
				n += len(m.Text)
			}
			// A system message is counted twice, and a byte that is no UTF-8
			// becomes three.
			if n > 6*len(body) {
				t.Errorf("%d bytes of text out of %d", n, len(body))
			}
		}
	})
}
