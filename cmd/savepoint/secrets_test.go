package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"savepoint/configs"
	"savepoint/orchestrator"
	"savepoint/orchestrator/provision"
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

// Nor does the line that says what is being done, whoever says it, and nothing
// in it steers the terminal.
func TestProgressHoldsNoSecret(t *testing.T) {
	var out bytes.Buffer
	s := &session{app: &app{err: &out}, secrets: []*regexp.Regexp{regexp.MustCompile(`cust-\d+`)}}
	p := s.narrate()
	defer p.stop()
	const evil = "token=hunter2 of cust-4711\x1b[2J\nplain"
	for name, say := range map[string]func(){
		"provision": func() { s.onStep(provision.Step{Name: "boot", Detail: evil}) },
		"engine": func() {
			s.onEvent(orchestrator.Event{Step: orchestrator.StepRollback, Phase: orchestrator.PhaseStarted, Detail: evil})
		},
		"turn": func() { s.onEvent(orchestrator.Event{Step: stepWait, Phase: orchestrator.PhaseProgress, Detail: evil}) },
		"gc":   func() { p.say("%s %s", "snapshot", evil) },
		"demo": func() { sayStep(func(text string) { p.say("%s", text) })(provision.Step{Name: "boot", Detail: evil}) },
	} {
		out.Reset()
		say()
		p.width, p.since = 200, time.Now().Add(-time.Minute)
		p.draw()
		said := strings.TrimPrefix(out.String(), "\r\x1b[K")
		if strings.Contains(said, "hunter2") || strings.Contains(said, "4711") || strings.ContainsAny(said, "\x1b\n") || !strings.Contains(said, "plain … ") {
			t.Errorf("%s: %q", name, said)
		}
	}
	// What went wrong is the caller's to tell, who has the error redacted or not.
	out.Reset()
	s.onEvent(orchestrator.Event{Step: orchestrator.StepSnapshot, Phase: orchestrator.PhaseFinished, Err: errors.New("unredacted")})
	p.draw()
	if strings.Contains(out.String(), "unredacted") {
		t.Errorf("the error of an event: %q", out.String())
	}
}

// An error that quotes the user or a guest does not steer the terminal either.
func TestErrorIsPrintable(t *testing.T) {
	var out, errs bytes.Buffer
	if code := Run(t.Context(), []string{"tx", "list", "--state", "a\x1b[2Jb"}, nil, &out, &errs); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(errs.String(), "a�[2Jb") || strings.Contains(errs.String(), "\x1b") || out.Len() > 0 {
		t.Errorf("%q %q", out.String(), errs.String())
	}
}
