package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"savepoint/configs"
)

// What is logged holds no secret, whatever field it is in, and a line without
// one is as it was.
func TestLogHoldsNoSecret(t *testing.T) {
	clean := cleaner([]*regexp.Regexp{regexp.MustCompile(`cust-\d+`)})
	for _, format := range []string{"json", "console"} {
		var out bytes.Buffer
		log := newLogger(&out, configs.Log{Format: format}, clean)
		log.Warn().Err(errors.New(`the cluster said: {"password":"hunter2"} cust-4711`)).Str("token", "hunter2").
			Strs("list", []string{"plain", "secret=hunter2"}).Interface("deep", map[string]any{"a": []any{"token=hunter2"}, "n": 12345678901234567}).
			Msg("plain: password=hunter2")
		said := out.String()
		if strings.Contains(said, "hunter2") || strings.Contains(said, "4711") || strings.Count(said, "plain") != 2 || !strings.Contains(said, "12345678901234567") {
			t.Errorf("%s: %s", format, said)
		}
		if format == "json" && !json.Valid(out.Bytes()) {
			t.Errorf("no JSON any more: %s", said)
		}
		out.Reset()
		log.Info().Str("upid", "UPID:pve1:0000:qmstart:9000:").Int("vm", 9000).Msg("z before a")
		if format == "json" && !strings.HasPrefix(out.String(), `{"level":"info","upid":"UPID:pve1:0000:qmstart:9000:","vm":9000,"time":`) {
			t.Errorf("a line without a secret: %s", out.String())
		}
	}
	var out bytes.Buffer
	if n, err := (cleanLog{&out, clean}).Write([]byte("no JSON: password=hunter2")); err != nil || n != 25 || strings.Contains(out.String(), "hunter2") {
		t.Errorf("%d, %v: %s", n, err, out.String())
	}
}
