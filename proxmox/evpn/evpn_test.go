package evpn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"savepoint/orchestrator"
	"savepoint/orchestrator/proof"
	"savepoint/proxmox/evpn"
)

var _ proof.Router = (*evpn.Client)(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is the real program with a vtysh that answers from files and notes what
// it was asked.
type node struct {
	t       *testing.T
	dir     string
	program string
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir()}
	n.program = filepath.Join(n.dir, "savepoint-evpn")
	n.write("savepoint-evpn", evpn.Program)
	n.write("vtysh", fmt.Appendf(nil, "#!/bin/sh\nprintf '%%s\\n' \"$*\" >> %[1]s/asked\ncase \"$*\" in\n"+
		"*' ip route'*) cat %[1]s/four ;;\n*' ipv6 route'*) cat %[1]s/six ;;\nesac\n", n.dir))
	for name, file := range map[string]string{"four": "route-ip.json", "six": "route-ipv6.json"} {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		n.write(name, text)
	}
	return n
}

func (n *node) write(name string, text []byte) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, name), text, 0o700); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) exchange(ctx context.Context, _ string, request []byte) ([]byte, error) {
	cmd := exec.CommandContext(ctx, n.program, "-v", filepath.Join(n.dir, "vtysh"), "-d", "/run/frr")
	cmd.Stdin = bytes.NewReader(request)
	return cmd.Output()
}

func (n *node) asked() string {
	text, _ := os.ReadFile(filepath.Join(n.dir, "asked"))
	return string(text)
}

// The tables are those that FRR 8.4 gave of a zone with guests on two nodes,
// and of one whose default route leads out.
func TestRoutes(t *testing.T) {
	n := newNode(t)
	got, err := evpn.NewClient(n.exchange).Routes(t.Context(), "pve1", "z8h2k001")
	if err != nil {
		t.Fatal(err)
	}
	route := func(prefix, protocol string, hops ...string) orchestrator.ZoneRoute {
		return orchestrator.ZoneRoute{Prefix: netip.MustParsePrefix(prefix), Protocol: protocol, NextHops: hops}
	}
	want := []orchestrator.ZoneRoute{
		route("0.0.0.0/0", "kernel", "leak"), route("10.1.1.0/24", "connected", "bluea"), route("10.1.1.12/32", "bgp", "100.127.0.2"), route("10.1.2.0/24", "connected", "blueb"),
		route("fd00:1:1::/64", "connected", "bluea"), route("fd00:1:1::c/128", "bgp", "::ffff:647f:2"), route("fd00:1:2::/64", "connected", "blueb"),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, line := range []string{"--vty_socket /run/frr -d zebra -c show ip route vrf vrf_z8h2k001 json", "--vty_socket /run/frr -d zebra -c show ipv6 route vrf vrf_z8h2k001 json"} {
		if !strings.Contains(n.asked(), line) {
			t.Errorf("%q was not asked: %s", line, n.asked())
		}
	}
}

// A request that is not the program's own reaches no FRR.
func TestRequestsAreChecked(t *testing.T) {
	for name, request := range map[string]string{
		"nothing": "", "another version": "savepoint-evpn 2\nzone z1\ngo\n", "cut off": "savepoint-evpn 1\nzone z1\n", "cut in a line": "savepoint-evpn 1\nzone z1\ng",
		"no zone": "savepoint-evpn 1\ngo\n", "an option": "savepoint-evpn 1\nzone -c\ngo\n", "two words": "savepoint-evpn 1\nzone z1 json\ngo\n",
		"a command": "savepoint-evpn 1\nzone z1;reboot\ngo\n", "unknown": "savepoint-evpn 1\nshell sh\ngo\n",
	} {
		n := newNode(t)
		answer, err := n.exchange(t.Context(), "", []byte(request))
		if err != nil || !strings.HasSuffix(string(answer), "\nend refused\n") || n.asked() != "" {
			t.Errorf("%s: %q, %v, asked %q", name, answer, err, n.asked())
		}
	}
	called := false
	c := evpn.NewClient(func(context.Context, string, []byte) ([]byte, error) { called = true; return nil, nil })
	for _, zone := range []string{"", "z", "z1\ngo", "waytoolongid", "z-1"} {
		if _, err := c.Routes(t.Context(), "pve1", zone); !errors.Is(err, orchestrator.ErrDenied) || called {
			t.Errorf("zone %q: %v, called %v", zone, err, called)
		}
	}
}

// What FRR refuses, what is cut off and what is no answer is an error, never an
// empty table.
func TestAnswersAreChecked(t *testing.T) {
	n := newNode(t)
	n.write("vtysh", []byte("#!/bin/sh\necho 'failed to connect to any daemons.'\nexit 1\n"))
	if _, err := evpn.NewClient(n.exchange).Routes(t.Context(), "pve1", "z1"); !errors.Is(err, orchestrator.ErrUnavailable) || !strings.Contains(err.Error(), "failed to connect to any daemons") {
		t.Errorf("got %v", err)
	}
	for _, tt := range []struct{ answer, want string }{
		{"", "make savepoint-evpn the key's forced command"},
		{"savepoint-zfs 1\nend ok\n", "make savepoint-evpn the key's forced command"},
		{"savepoint-evpn 1\n4 {}\n6 {}\n", "cut off"},
		{"savepoint-evpn 1\n4 {\n6 {}\nend ok\n", "not readable"},
		{"savepoint-evpn 1\n4 {\"x\":[]}\n6 {}\nend ok\n", "not readable"},
		{"savepoint-evpn 1\n4 {}\nend ok\n", "not readable"},
		{"savepoint-evpn 1\n! no\nend refused\n", "refused: no"},
	} {
		c := evpn.NewClient(func(context.Context, string, []byte) ([]byte, error) { return []byte(tt.answer), nil })
		if got, err := c.Routes(t.Context(), "pve1", "z1"); !errors.Is(err, orchestrator.ErrUnavailable) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %+v, %v", tt.answer, got, err)
		}
	}
	for class, want := range map[error]error{
		orchestrator.ErrUnknownOutcome: orchestrator.ErrUnavailable, orchestrator.ErrUnavailable: orchestrator.ErrUnavailable, orchestrator.ErrDenied: orchestrator.ErrDenied,
	} {
		c := evpn.NewClient(func(context.Context, string, []byte) ([]byte, error) { return nil, fmt.Errorf("ssh: %w", class) })
		if _, err := c.Routes(t.Context(), "pve1", "z1"); !errors.Is(err, want) || errors.Is(err, orchestrator.ErrUnknownOutcome) {
			t.Errorf("%v: got %v", class, err)
		}
	}
}

// A table without a zone's routes is an empty one.
func TestEmpty(t *testing.T) {
	c := evpn.NewClient(func(context.Context, string, []byte) ([]byte, error) {
		return []byte("savepoint-evpn 1\n4 {}\n6 {\n6 }\nend ok\n"), nil
	})
	if got, err := c.Routes(t.Context(), "pve1", "z1"); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

// What an administrator is told to run cannot be made to say something else.
func TestSetup(t *testing.T) {
	got, err := evpn.Setup("ssh-ed25519 AAAA savepoint")
	if err != nil || !strings.Contains(strings.Join(got, "\n"), `restrict,command="`+evpn.ProgramPath+`" ssh-ed25519 AAAA savepoint`) {
		t.Errorf("got %q, %v", got, err)
	}
	for _, key := range []string{"", "ssh-ed25519 A'; reboot; '", "a\nb", "a\"b", "$(reboot)"} {
		if got, err := evpn.Setup(key); err == nil {
			t.Errorf("%q: got %q", key, got)
		}
	}
}
