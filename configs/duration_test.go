package configs

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for _, tt := range []struct {
		text string
		want time.Duration // -1: refused
	}{
		{"90d", 2160 * time.Hour},
		{"1d12h", 36 * time.Hour},
		{"0d1s", time.Second},
		{"90s", 90 * time.Second},
		{"1h30m", 90 * time.Minute},
		{"-2h", -2 * time.Hour},
		{"106751d", 106751 * 24 * time.Hour},
		{"106751d24h", -1},
		{"106752d", -1},
		{"d", -1},
		{"-1d", -1},
		{"1.5d", -1},
		{"1d-2h", -1},
		{"1d+2h", -1},
		{"1d2", -1},
		{"1dd", -1},
		{"1d 2h", -1},
		{"12", -1},
		{"", -1},
	} {
		got, err := ParseDuration(tt.text)
		if tt.want == -1 {
			if err == nil {
				t.Errorf("%q: got %s, want it refused", tt.text, got)
			}
			continue
		}
		if err != nil || got != tt.want {
			t.Errorf("%q: got %s, %v, want %s", tt.text, got, err, tt.want)
		}
	}
}
