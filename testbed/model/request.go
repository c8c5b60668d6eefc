package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// API names a protocol.
type API string

// The protocols.
const (
	OpenAI API = "openai"
	Gemini API = "gemini"
)

// Request is what a client asked, in one form for both protocols.
type Request struct {
	N        int // 1 for the first request that the server got
	API      API
	Model    string
	Stream   bool
	Count    bool // wants the number of tokens only
	System   string
	Messages []Message
	Tools    []string        // names of the tools that are declared
	JSON     bool            // wants JSON
	Schema   json.RawMessage // of the JSON that it wants, if it says so
	Raw      []byte          // the body
}

// Message is one message of a conversation.
type Message struct {
	Role  string // as the client wrote it
	Text  string
	Calls []Call
	// Results are answers of tools. In OpenAI's form each is a message.
	Results []ToolResult
}

// ToolResult is what a tool answered.
type ToolResult struct {
	ID, Name string
	Text     string // as it is, or JSON
}

// Side reports whether the request is a client's question of its own, which the
// server answers without taking a turn.
func (r Request) Side() bool { return r.Count || r.JSON && len(r.Tools) == 0 }

// Last returns the last message, or an empty one.
func (r Request) Last() Message {
	if len(r.Messages) == 0 {
		return Message{}
	}
	return r.Messages[len(r.Messages)-1]
}

// text is a JSON string, a list of parts with text, or null.
type text string

func (t *text) UnmarshalJSON(raw []byte) error {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		*t = text(s)
		return nil
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return errors.New("content is neither a string nor a list of parts")
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	*t = text(b.String())
	return nil
}

type chatMessage struct {
	Role       string `json:"role"`
	Content    text   `json:"content"`
	ToolCallID string `json:"tool_call_id"`
	Name       string `json:"name"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

type chatRequest struct {
	Model    string        `json:"model"`
	Stream   bool          `json:"stream"`
	Messages []chatMessage `json:"messages"`
	Tools    []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
	ResponseFormat struct {
		Type       string `json:"type"`
		JSONSchema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	} `json:"response_format"`
}

// parseChat reads a body of /v1/chat/completions.
func parseChat(body []byte) (Request, error) {
	var in chatRequest
	if err := json.Unmarshal(body, &in); err != nil {
		return Request{}, fmt.Errorf("read the chat request: %w", err)
	}
	if len(in.Messages) == 0 {
		return Request{}, errors.New("read the chat request: messages is empty; send at least one")
	}
	r := Request{API: OpenAI, Model: in.Model, Stream: in.Stream, Raw: body,
		JSON: strings.HasPrefix(in.ResponseFormat.Type, "json"), Schema: in.ResponseFormat.JSONSchema.Schema}
	for _, t := range in.Tools {
		r.Tools = append(r.Tools, t.Function.Name)
	}
	for _, m := range in.Messages {
		out := Message{Role: m.Role, Text: string(m.Content)}
		switch m.Role {
		case "system", "developer":
			r.System += string(m.Content)
		case "tool":
			out.Text, out.Results = "", []ToolResult{{ID: m.ToolCallID, Name: m.Name, Text: string(m.Content)}}
		}
		for _, c := range m.ToolCalls {
			call := Call{ID: c.ID, Name: c.Function.Name}
			// What a model wrote comes back as it was, so it may be no JSON.
			_ = json.Unmarshal([]byte(c.Function.Arguments), &call.Args)
			out.Calls = append(out.Calls, call)
		}
		r.Messages = append(r.Messages, out)
	}
	return r, nil
}

type geminiContent struct {
	Role  string `json:"role"`
	Parts []struct {
		Text         string `json:"text"`
		FunctionCall *Call  `json:"functionCall"`
		Response     *struct {
			ID       string          `json:"id"`
			Name     string          `json:"name"`
			Response json.RawMessage `json:"response"`
		} `json:"functionResponse"`
	} `json:"parts"`
}

func (c geminiContent) message() Message {
	m := Message{Role: c.Role}
	for _, p := range c.Parts {
		m.Text += p.Text
		if p.FunctionCall != nil {
			m.Calls = append(m.Calls, *p.FunctionCall)
		}
		if f := p.Response; f != nil {
			m.Results = append(m.Results, ToolResult{ID: f.ID, Name: f.Name, Text: string(f.Response)})
		}
	}
	return m
}

type geminiRequest struct {
	Contents []geminiContent `json:"contents"`
	System   geminiContent   `json:"systemInstruction"`
	Tools    []struct {
		Functions []struct {
			Name string `json:"name"`
		} `json:"functionDeclarations"`
	} `json:"tools"`
	Config struct {
		MIME       string          `json:"responseMimeType"`
		Schema     json.RawMessage `json:"responseSchema"`
		JSONSchema json.RawMessage `json:"responseJsonSchema"`
	} `json:"generationConfig"`
}

// parseGemini reads a body of /v1beta/models/MODEL:METHOD; target is the last
// part of the path.
func parseGemini(target string, body []byte) (Request, error) {
	model, method, _ := strings.Cut(target, ":")
	r := Request{API: Gemini, Model: model, Raw: body}
	switch method {
	case "generateContent":
	case "streamGenerateContent":
		r.Stream = true
	case "countTokens":
		r.Count = true
	default:
		return Request{}, fmt.Errorf("method %q is not known; it is generateContent, streamGenerateContent or countTokens", method)
	}
	var in geminiRequest
	if err := json.Unmarshal(body, &in); err != nil {
		return Request{}, fmt.Errorf("read the %s request: %w", method, err)
	}
	if len(in.Contents) == 0 && !r.Count {
		return Request{}, fmt.Errorf("read the %s request: contents is empty; send at least one", method)
	}
	r.System = in.System.message().Text
	for _, c := range in.Contents {
		r.Messages = append(r.Messages, c.message())
	}
	for _, t := range in.Tools {
		for _, f := range t.Functions {
			r.Tools = append(r.Tools, f.Name)
		}
	}
	r.JSON = in.Config.MIME == "application/json"
	if r.Schema = in.Config.JSONSchema; r.Schema == nil {
		r.Schema = in.Config.Schema
	}
	return r, nil
}
