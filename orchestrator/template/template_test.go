package template

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
)

// vm is a guest and its agent in memory; it keeps what was asked of it.
type vm struct {
	asked     []string
	shown     string // by sshd
	agent     string // by the agent
	fails     string // what fails
	lines     []string
	hold      string
	connected bool
}

func newVM() *vm {
	return &vm{shown: "ssh-ed25519 AAAA", agent: "ssh-ed25519 AAAA root@guest", hold: "cgroup", lines: []string{"ok perl", "ok cgroup"}}
}

func (m *vm) ask(ctx context.Context, what string) error {
	m.asked = append(m.asked, what)
	if m.fails == what {
		return fmt.Errorf("%s: %w", what, orchestrator.ErrUnavailable)
	}
	if _, bounded := ctx.Deadline(); !bounded {
		return errors.New(what + " could take for ever")
	}
	return nil
}

func (m *vm) FirstHostKey(ctx context.Context, _ netip.Addr) (string, error) {
	return m.shown, m.ask(ctx, "first key")
}

func (m *vm) HostKey(ctx context.Context, _ orchestrator.VMRef) (string, error) {
	return m.agent, m.ask(ctx, "agent's key")
}

func (m *vm) Template(ctx context.Context, sb orchestrator.Sandbox, step string, workspace int64, say func(string)) error {
	if sb.HostKey != m.shown || sb.Address != netip.MustParseAddr("10.9.0.254") {
		return fmt.Errorf("%s at %s with key %q", step, sb.Address, sb.HostKey)
	}
	if step == "check" {
		for _, l := range m.lines {
			say(l)
		}
	}
	return m.ask(ctx, fmt.Sprintf("%s %d", step, workspace))
}

func (m *vm) Prepare(ctx context.Context, _ orchestrator.Sandbox, keys []string) error {
	m.connected = true
	return m.ask(ctx, fmt.Sprintf("prepare with %d keys", len(keys)))
}

func (m *vm) Hold(ctx context.Context, _ orchestrator.Sandbox) (string, error) {
	return m.hold, m.ask(ctx, "hold")
}

func (m *vm) Disconnect(orchestrator.SandboxID) { m.connected = false }

func (m *vm) run(t *testing.T) error {
	return Preparer{
		Guest: m, Identity: m, Address: netip.MustParseAddr("10.9.0.254"), Workspace: 4 << 30, Boot: time.Minute, Step: time.Minute,
	}.Run(t.Context(), orchestrator.VMRef{Node: "pve1", ID: 9000})
}

var inOrder = []string{"first key", "provision 4294967296", "agent's key", "prepare with 0 keys", "hold", "check 4294967296", "clean 4294967296"}

func TestPrepare(t *testing.T) {
	m := newVM()
	if err := m.run(t); err != nil || !slices.Equal(m.asked, inOrder) || m.connected {
		t.Errorf("%v, asked %q, connected %v", err, m.asked, m.connected)
	}
}

// A workspace volume that is a btrfs is made by a step of its own; the rest is as ever.
func TestPrepareBtrfs(t *testing.T) {
	m := newVM()
	err := Preparer{
		Guest: m, Identity: m, Address: netip.MustParseAddr("10.9.0.254"), Workspace: 4 << 30, Btrfs: true, Boot: time.Minute, Step: time.Minute,
	}.Run(t.Context(), orchestrator.VMRef{Node: "pve1", ID: 9000})
	want := slices.Clone(inOrder)
	want[1] = "provision-btrfs 4294967296"
	if err != nil || !slices.Equal(m.asked, want) {
		t.Errorf("%v, asked %q", err, m.asked)
	}
}

// Each step that fails is the last.
func TestPrepareFails(t *testing.T) {
	for i, what := range inOrder {
		m := newVM()
		m.fails = what
		if err := m.run(t); !errors.Is(err, orchestrator.ErrUnavailable) || !slices.Equal(m.asked, inOrder[:i+1]) || m.connected {
			t.Errorf("%s fails: %v, asked %q", what, err, m.asked)
		}
	}
}

// The VM that answered is not the one that was made. It is not
// cleaned, not checked, and not believed.
func TestAnotherMachineAnswers(t *testing.T) {
	m := newVM()
	m.agent = "ssh-ed25519 BBBB root@guest"
	err := m.run(t)
	var key *orchestrator.HostKeyError
	if !errors.As(err, &key) || !slices.Equal(m.asked, inOrder[:3]) {
		t.Errorf("%v, asked %q", err, m.asked)
	}
}

// What the image has not is said by name, all of it at once.
func TestImageIsNotFit(t *testing.T) {
	for name, change := range map[string]func(*vm){
		"missing perl (the helper is written in it), cgroup (not mounted)": func(m *vm) {
			m.lines = []string{"ok bash", "missing perl: the helper is written in it", "missing cgroup: not mounted"}
		},
		"missing cgroup (control groups": func(m *vm) { m.hold = "tree" },
		"it said nothing":                func(m *vm) { m.lines = nil },
	} {
		m := newVM()
		change(m)
		err := m.run(t)
		want := strings.TrimPrefix(name, "missing ")
		if err == nil || !strings.Contains(err.Error(), want) || slices.Contains(m.asked, inOrder[6]) {
			t.Errorf("got %v, want %q", err, want)
		}
		if _, unfit := errors.AsType[*orchestrator.UnsupportedError](err); unfit != (name != want) {
			t.Errorf("%s: class of %v", name, err)
		}
	}
}
