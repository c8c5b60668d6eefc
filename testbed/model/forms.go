package model

import (
	"encoding/json"
	"fmt"
)

type object = map[string]any

// broken stands where the arguments of a call should be: a model that stopped in
// the middle of them.
const broken = `{"command": "ls`

// form writes turns in one protocol.
type form struct {
	whole  func(Request, Turn) object
	events func(Request, Turn) []string
}

var chatForm = form{chatWhole, chatEvents}
var geminiForm = form{geminiWhole, geminiEvents}

// tokens is a count of tokens that depends on the text alone.
func tokens(bytes int) int { return (bytes + 3) / 4 }

func encode(v any) string {
	raw, _ := json.Marshal(v) // of maps from JSON and of strings: a script with more has nothing to say
	return string(raw)
}

// pieces cuts text the way tokens come: a few runes at a time.
func pieces(text string) []string {
	const size = 8
	var out []string
	for r := []rune(text); len(r) > 0; {
		n := min(size, len(r))
		out = append(out, string(r[:n]))
		r = r[n:]
	}
	return out
}

func callID(r Request, c Call, i int) string {
	if c.ID != "" {
		return c.ID
	}
	return fmt.Sprintf("call_%d_%d", r.N, i)
}

func chatCalls(r Request, t Turn) []object {
	var out []object
	for i, c := range t.Calls {
		args := encode(c.Args)
		if t.Fault == MalformedCall {
			args = broken
		}
		out = append(out, object{"index": i, "id": callID(r, c, i), "type": "function",
			"function": object{"name": c.Name, "arguments": args}})
	}
	return out
}

func chatFinish(t Turn) string {
	switch {
	case t.Fault == WrongFinish:
		return "length"
	case len(t.Calls) > 0:
		return "tool_calls"
	}
	return "stop"
}

func chatUsage(r Request, t Turn) object {
	in, out := tokens(len(r.Raw)), tokens(len(t.Text)+len(encode(t.Calls)))
	return object{"prompt_tokens": in, "completion_tokens": out, "total_tokens": in + out}
}

// chatHead is what each object of the protocol has around its choices.
func chatHead(r Request, t Turn, kind string, choice object) object {
	o := object{"choices": []object{choice}}
	if t.Fault != MissingFields {
		o["id"], o["object"], o["created"] = fmt.Sprintf("chatcmpl-%d", r.N), kind, 0
		o["model"], o["system_fingerprint"] = r.Model, Name
	}
	return o
}

func chatWhole(r Request, t Turn) object {
	message := object{"role": "assistant", "content": t.Text}
	if calls := chatCalls(r, t); calls != nil {
		message["tool_calls"] = calls
		if t.Text == "" {
			message["content"] = nil
		}
	}
	o := chatHead(r, t, "chat.completion", object{"index": 0, "message": message, "finish_reason": chatFinish(t)})
	if t.Fault != MissingFields {
		o["usage"] = chatUsage(r, t)
	}
	return o
}

func chatEvents(r Request, t Turn) []string {
	chunk := func(delta object, finish any) string {
		return encode(chatHead(r, t, "chat.completion.chunk", object{"index": 0, "delta": delta, "finish_reason": finish}))
	}
	out := []string{chunk(object{"role": "assistant", "content": ""}, nil)}
	for _, p := range pieces(t.Text) {
		out = append(out, chunk(object{"content": p}, nil))
	}
	for _, c := range chatCalls(r, t) { // each call in two: who, then with what
		f := c["function"].(object)
		args := f["arguments"]
		f["arguments"] = ""
		out = append(out, chunk(object{"tool_calls": []object{c}}, nil),
			chunk(object{"tool_calls": []object{{"index": c["index"], "function": object{"arguments": args}}}}, nil))
	}
	last := chatHead(r, t, "chat.completion.chunk", object{"index": 0, "delta": object{}, "finish_reason": chatFinish(t)})
	if t.Fault != MissingFields {
		last["usage"] = chatUsage(r, t)
	}
	return append(out, encode(last), "[DONE]")
}

func geminiUsage(r Request, t Turn) object {
	in, out := tokens(len(r.Raw)), tokens(len(t.Text)+len(encode(t.Calls)))
	return object{"promptTokenCount": in, "candidatesTokenCount": out, "totalTokenCount": in + out}
}

// geminiBody is one object of the protocol; finish is empty for all but the last.
func geminiBody(r Request, t Turn, parts []object, finish string) object {
	candidate := object{"content": object{"role": "model", "parts": parts}, "index": 0}
	if finish != "" {
		candidate["finishReason"] = finish
	}
	o := object{"candidates": []object{candidate}}
	if t.Fault != MissingFields {
		o["modelVersion"], o["responseId"], o["usageMetadata"] = Name, fmt.Sprintf("response-%d", r.N), geminiUsage(r, t)
	}
	return o
}

func geminiCalls(t Turn) []object {
	var out []object
	for _, c := range t.Calls {
		call := object{"name": c.Name, "args": c.Args}
		if c.ID != "" {
			call["id"] = c.ID
		}
		if t.Fault == MalformedCall {
			call["args"] = broken
		}
		out = append(out, object{"functionCall": call})
	}
	return out
}

func geminiFinish(t Turn) string {
	if t.Fault == WrongFinish {
		return "MAX_TOKENS"
	}
	return "STOP"
}

func geminiWhole(r Request, t Turn) object {
	if r.Count {
		return object{"totalTokens": tokens(len(r.Raw))}
	}
	var parts []object
	if t.Text != "" || len(t.Calls) == 0 {
		parts = append(parts, object{"text": t.Text})
	}
	return geminiBody(r, t, append(parts, geminiCalls(t)...), geminiFinish(t))
}

func geminiEvents(r Request, t Turn) []string {
	var out []string
	for _, p := range pieces(t.Text) {
		out = append(out, encode(geminiBody(r, t, []object{{"text": p}}, "")))
	}
	calls := geminiCalls(t)
	if calls == nil {
		calls = []object{{"text": ""}}
	}
	return append(out, encode(geminiBody(r, t, calls, geminiFinish(t))))
}
