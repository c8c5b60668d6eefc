package proxmox

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
)

const (
	goodKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
	fileKey = "GET /nodes/pve1/qemu/100/agent/file-read"
)

func content(s string) answer { return answer{data: map[string]any{"content": s}} }

// F89 F90: nothing that a booting guest answers ends the wait.
func TestHostKeyWaitsForTheBoot(t *testing.T) {
	s := newScripted(t)
	s.inTurn(fileKey,
		answer{status: 500, message: "VM 100 is not running"},
		answer{status: 500, message: "QEMU guest agent is not running"},
		answer{status: 500, message: "VM 100 qmp command 'guest-ping' failed - got timeout"},
		answer{status: 596, message: "Broken pipe"},
		answer{status: 597, message: "Broken pipe"},
		answer{drop: true},
		answer{status: 500, message: "Agent error: failed to open file '/etc/ssh/ssh_host_ed25519_key.pub': No such file or directory"},
		answer{data: map[string]any{"result": map[string]any{"error": map[string]any{"desc": "not yet"}}}},
		content(""), content("ssh-ed25519"), content(goodKey[:60]), content(goodKey+" root@guest\n"))
	got, err := s.open(t).HostKey(t.Context(), testVM)
	if err != nil || got != goodKey {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestHostKeyGivesUp(t *testing.T) {
	s := newScripted(t)
	s.always(fileKey, answer{status: 500, message: "QEMU guest agent is not running"})
	start := time.Now()
	_, err := s.open(t, func(c *Config) { c.AgentTimeout = 2 * time.Second }).HostKey(t.Context(), testVM)
	wantClass(t, err, orchestrator.ErrUnavailable)
	wantText(t, err, "QEMU guest agent is not running", "qemu-guest-agent")
	if d := time.Since(start); d > 8*time.Second {
		t.Errorf("took %v", d)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = s.open(t).HostKey(ctx, testVM)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestHostKeyDoesNotWaitInVain(t *testing.T) {
	for _, tc := range []struct {
		a    answer
		want error
		says string
	}{
		{answer{status: 403, message: "Permission check failed (/vms/100, VM.GuestAgent.FileRead|VM.GuestAgent.Unrestricted)"}, orchestrator.ErrDenied, "VM.GuestAgent.FileRead or VM.GuestAgent.Unrestricted"}, // F117
		{answer{status: 401, message: "No ticket"}, orchestrator.ErrDenied, "credentials"},
		{answer{status: 500, message: "Configuration file 'nodes/pve1/qemu-server/100.conf' does not exist"}, orchestrator.ErrNotFound, "does not exist"},
		{answer{status: 500, message: "No QEMU guest agent configured"}, nil, "agent: 1"},
	} {
		s := newScripted(t)
		s.always(fileKey, tc.a)
		_, err := s.open(t).HostKey(t.Context(), testVM)
		if tc.want != nil {
			wantClass(t, err, tc.want)
		} else if u := (*orchestrator.UnsupportedError)(nil); !errors.As(err, &u) {
			t.Errorf("got %v", err)
		}
		wantText(t, err, tc.says)
		if n := s.count(fileKey); n != 1 {
			t.Errorf("%s: asked %d times", tc.says, n)
		}
	}
}

func TestHostKeyAsksForTheFile(t *testing.T) {
	s := newScripted(t)
	s.on(fileKey, func(r *http.Request, _ []byte) answer {
		if r.URL.Query().Get("file") != "/etc/ssh/ssh_host_ed25519_key.pub" || len(r.URL.Query()) != 1 {
			return answer{status: 400, message: "Parameter verification failed."}
		}
		return content(goodKey)
	})
	if _, err := s.open(t).HostKey(t.Context(), testVM); err != nil {
		t.Error(err)
	}
}

func TestParseHostKey(t *testing.T) {
	for _, good := range []string{goodKey, goodKey + "\n", goodKey + " a comment\n"} {
		if got, err := parseHostKey(good); err != nil || got != goodKey {
			t.Errorf("%q: %q, %v", good, got, err)
		}
	}
	for _, bad := range []string{
		"", "\n", "ssh-rsa AAAA", "ssh-ed25519", "ssh-ed25519 !!!!", goodKey[:len(goodKey)-4], goodKey + "AAAA", goodKey + "\n" + goodKey,
		strings.Replace(goodKey, "ssh-ed25519", "ssh-ed25518", 1), "ssh-ed25519 AAAAB3NzaC1yc2EAAAADAQABAAAAgQC", "ssh-ed25519 //////////8=",
		"options " + goodKey,
	} {
		if got, err := parseHostKey(bad); err == nil {
			t.Errorf("%q was taken as %q", bad, got)
		}
	}
}
