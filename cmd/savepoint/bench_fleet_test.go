package main

import (
	"runtime"
	"strings"
	"testing"

	"savepoint/testbed/lab"
)

func TestAvailable(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal:       24000 kB\nMemAvailable:   2048 kB\nBuffers: 1 kB\n": 2 << 20,
		"MemTotal:       24000 kB\n":                                         0,
		"MemAvailable: many\n":                                               0,
	} {
		if got := available(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// The lab carries what its processors and its memory bound; what is no lab is not
// filled up.
func TestRoom(t *testing.T) {
	b := &benchmark{s: &session{}}
	if most, why := b.room(); most != 0 || !strings.Contains(why, "not in the lab") {
		t.Errorf("without a lab: %d, %s", most, why)
	}
	b.lab = &lab.Status{}
	b.s.cfg.Template.Memory = 1 << 20
	if most, why := b.room(); most != 2*runtime.NumCPU() || !strings.Contains(why, "processors") {
		t.Errorf("of small guests: %d, %s", most, why)
	}
	b.s.cfg.Template.Memory = 1 << 40
	if most, why := b.room(); most > 0 || !strings.Contains(why, "memory") {
		t.Errorf("of guests larger than the machine: %d, %s", most, why)
	}
}

// A further sandbox is noted apart from the first one.
func TestNotesOfSandboxes(t *testing.T) {
	b := &benchmark{app: &app{stateDir: t.TempDir()}, flags: benchFlags{sandbox: "bench"}}
	first, err := b.note("bench")
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.note("bench-2")
	if err != nil || first == second || !strings.HasSuffix(first, "/sandbox") || !strings.HasSuffix(second, "/sandbox-2") {
		t.Errorf("%s, %s, %v", first, second, err)
	}
}
