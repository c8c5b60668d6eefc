package pve

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"savepoint/testbed/pve/httpd"
)

// apiError is an error that a client sees.
type apiError struct {
	code   int
	text   string            // without the final line break
	params map[string]string // complaints by parameter
	bare   bool              // the text has no final line break on the wire
	cause  error
}

func (e *apiError) Error() string { return e.text }
func (e *apiError) Unwrap() error { return e.cause }

// fail makes the usual error, a 500.
func fail(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &apiError{code: 500, text: err.Error(), cause: errors.Unwrap(err)}
}

// badParams complains about parameters.
func badParams(params map[string]string) error {
	return &apiError{code: 400, text: "Parameter verification failed.", params: params}
}

// badParam complains about one parameter.
func badParam(name, format string, args ...any) error {
	return badParams(map[string]string{name: fmt.Sprintf(format, args...)})
}

// forbidden refuses; detail may be empty.
func forbidden(detail string) error {
	text := "Permission check failed"
	if detail != "" {
		text += " (" + detail + ")"
	}
	return &apiError{code: 403, text: text}
}

// asAPI makes any error one that a client sees.
func asAPI(err error) *apiError {
	var e *apiError
	if errors.As(err, &e) {
		return e
	}
	return &apiError{code: 500, text: strings.TrimRight(err.Error(), "\n")}
}

const jsonType = "application/json;charset=UTF-8"

// result is what a call answered.
type result struct {
	data  any
	total *int
	// raw replaces everything else: a body of its own type.
	raw     []byte
	rawType string
}

// answer renders a result or an error for a formatter ("json" or "extjs").
func (s *Server) answer(formatter string, r result, err error) *httpd.Response {
	if err == nil && r.raw != nil {
		return &httpd.Response{Status: 200, ContentType: r.rawType, Body: r.raw}
	}
	if err != nil && asAPI(err).code >= 595 { // the proxy's own, not the API's
		e := asAPI(err)
		return httpd.Text(e.code, e.text, "")
	}
	body := map[string]any{"data": r.data}
	a := &httpd.Response{Status: 200, ContentType: jsonType}
	if r.total != nil {
		body["total"] = *r.total
	}
	ext := formatter == "extjs"
	if ext {
		body["success"] = 1
	}
	if err != nil {
		e := asAPI(err)
		a.Status, a.Reason = e.code, e.text
		body["data"] = nil
		if !s.cfg.OmitMessage || ext {
			body["message"] = e.text + "\n"
			if e.bare {
				body["message"] = e.text
			}
		}
		if e.params != nil {
			body["errors"] = e.params
		}
		if ext {
			a.Status, a.Reason = 200, "OK"
			body["success"] = 0
			body["status"] = statusValue(e.code)
		}
	}
	b, jerr := encodeJSON(body)
	if jerr != nil {
		s.cfg.Logger.Error().Err(jerr).Msg("encode answer")
		return httpd.Text(500, "encode answer", "")
	}
	a.Body = b
	return a
}

// statusValue is a status as the ext formatter gives it: text, but a number for 500.
func statusValue(code int) any {
	if code == 500 {
		return code
	}
	return fmt.Sprint(code)
}

func encodeJSON(v any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}
