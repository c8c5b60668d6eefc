package pve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"savepoint/testbed/pve/httpd"
	"savepoint/testbed/pve/schema"
)

// maxBody bounds a body that is no upload.
const maxBody = 512 << 10

// place stands where the API's own errors name a place in its code.
const place = " at lab line 1."

// readParams reads the parameters off a request's body. A non-nil response
// refuses the request.
func readParams(r *httpd.Request) (schema.Values, *httpd.Response) {
	v := schema.Values{}
	writes := r.Method == "POST" || r.Method == "PUT"
	if r.Length > 0 && !writes {
		text := fmt.Sprintf("Unexpected content for method '%s'", r.Method)
		return nil, httpd.Text(501, text, text)
	}
	if !writes {
		return v, nil
	}
	if r.Length > maxBody {
		const text = "for data too large"
		return nil, httpd.Text(501, text, text)
	}
	full := r.Header["content-type"]
	kind, _, _ := strings.Cut(full, ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	if kind != "" && kind != "application/x-www-form-urlencoded" && kind != "application/json" {
		if r.Length == 0 {
			return v, nil
		}
		text := fmt.Sprintf("upload 'Content-Type '%s' not implemented", full)
		return nil, httpd.Text(506, text, text)
	}
	body, err := io.ReadAll(r.Body())
	if err != nil {
		return nil, &httpd.Response{Drop: true}
	}
	if kind == "application/json" {
		return readJSON(body)
	}
	readForm(v, string(body))
	return v, nil
}

// readForm adds the pairs of a form or query. A value ends at a second raw '='.
func readForm(v schema.Values, text string) {
	for pair := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '&' || r == ';' }) {
		parts := strings.Split(pair, "=")
		value := ""
		if len(parts) > 1 {
			value = unescape(parts[1])
		}
		name := unescape(parts[0])
		switch old := v[name].(type) {
		case nil:
			v[name] = value
		case []any:
			v[name] = append(old, value)
		default:
			v[name] = []any{old, value}
		}
	}
}

// unescape decodes a form value; what is no escape stays as it is.
func unescape(s string) string {
	if out, err := url.QueryUnescape(s); err == nil {
		return out
	}
	return s
}

func readJSON(body []byte) (schema.Values, *httpd.Response) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var any any
	if err := d.Decode(&any); err != nil {
		at := len(body)
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) && !errors.Is(err, io.ErrUnexpectedEOF) {
			at = max(0, int(syntax.Offset)-1)
		}
		rest := string(body[min(at, len(body)):])
		if rest == "" || strings.Contains(err.Error(), "unexpected end") {
			at, rest = len(body), "(end of string)"
		}
		text := fmt.Sprintf("malformed JSON string, neither tag, array, object, number, string or atom, at character offset %d (before %q)%s", at, rest, place)
		return nil, httpd.Text(500, text, text+"\n")
	}
	object, ok := any.(map[string]interface{})
	if !ok {
		text := "Not a HASH reference" + place
		if any == nil {
			text = `Can't use an undefined value as a HASH reference` + place
		}
		return nil, httpd.Text(500, text, text+"\n")
	}
	return object, nil
}
