package wire_test

import (
	"bufio"
	"bytes"
	"slices"
	"strings"
	"testing"

	"savepoint/orchestrator/sshexec/wire"
)

func TestFrames(t *testing.T) {
	stream := "noise of a profile\x00savepoint-\n" + wire.Greeting + string(wire.Encode(wire.Stdout, []byte("a\x00b"))) + string(wire.Encode(wire.Hello, nil))
	r := bufio.NewReader(strings.NewReader(stream))
	if err := wire.ReadGreeting(r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []wire.Frame{{Kind: wire.Stdout, Payload: []byte("a\x00b")}, {Kind: wire.Hello}} {
		if got, err := wire.Read(r); err != nil || got.Kind != want.Kind || !bytes.Equal(got.Payload, want.Payload) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	for name, text := range map[string]string{"no greeting": strings.Repeat("noise", 100_000), "end": "noise"} {
		if err := wire.ReadGreeting(bufio.NewReader(strings.NewReader(text))); err == nil {
			t.Errorf("%s: was accepted", name)
		}
	}
	for name, text := range map[string]string{"cut head": "O\x00", "cut payload": "O\x00\x00\x00\x05ab", "giant": "O\xff\xff\xff\xff"} {
		if f, err := wire.Read(bufio.NewReader(strings.NewReader(text))); err == nil {
			t.Errorf("%s: got %+v", name, f)
		}
	}
}

func FuzzFields(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01a"))
	f.Add([]byte("\xff\xff\xff\xffa"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fields, err := wire.DecodeFields(b)
		if err != nil {
			return
		}
		if again := wire.EncodeFields(fields...); !bytes.Equal(again, b) {
			t.Errorf("%q decodes to %q, which encodes to %q", b, fields, again)
		}
		if back, err := wire.DecodeFields(wire.EncodeFields(fields...)); err != nil || !slices.Equal(back, fields) {
			t.Errorf("got %q, %v, want %q", back, err, fields)
		}
	})
}
