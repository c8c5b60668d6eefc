package sshexec_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
)

func probeOrder(probes ...orchestrator.Probe) orchestrator.ProbeOrder {
	return orchestrator.ProbeOrder{Own: netip.MustParseAddr("127.0.0.1"), Nonce: "abcdef012345", Wait: 300 * time.Millisecond, Probes: probes}
}

func together(context.Context) error { return nil }

// TestProbeOpenSSH measures with Debian's own sshd, perl and kernel. The only
// address that it tries is the loopback's.
func TestProbeOpenSSH(t *testing.T) {
	lab(t)
	c, sb := realGuest(t)
	open, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	go func() {
		buf := make([]byte, 2000)
		for {
			n, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo(buf[:n], from)
		}
	}()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	lo := netip.MustParseAddr("127.0.0.1")
	port := func(a net.Addr) uint16 {
		p, err := netip.ParseAddrPort(a.String())
		if err != nil {
			t.Fatal(err)
		}
		return p.Port()
	}
	order := probeOrder(
		orchestrator.Probe{ID: 7, Kind: orchestrator.ProbeTCP, Address: lo, Port: port(open.Addr())},
		orchestrator.Probe{ID: 8, Kind: orchestrator.ProbeTCP, Address: lo, Port: port(closed.Addr())},
		orchestrator.Probe{ID: 9, Kind: orchestrator.ProbeUDP, Address: lo, Port: port(udp.LocalAddr())},
		orchestrator.Probe{ID: 10, Kind: orchestrator.ProbeUDP, Address: lo, Port: port(closed.Addr())},
		orchestrator.Probe{ID: 11, Kind: orchestrator.ProbeEcho, Address: lo},
		orchestrator.Probe{ID: 12, Kind: orchestrator.ProbeEcho, Address: lo, Size: 1400},
		orchestrator.Probe{ID: 13, Kind: orchestrator.ProbeEcho, Address: lo, Size: 65535},
		orchestrator.Probe{ID: 15, Kind: orchestrator.ProbeLink, Port: 22},
	)
	want := map[uint64]orchestrator.ProbeAnswer{
		7: orchestrator.ProbeAccepted, 8: orchestrator.ProbeAnswered, 9: orchestrator.ProbeAnswered, 10: orchestrator.ProbeAnswered,
		11: orchestrator.ProbeAnswered, 12: orchestrator.ProbeAnswered, 13: orchestrator.ProbeAnswered, 15: orchestrator.ProbeSilent,
	}
	if mtuOf(t) < 65535 {
		want[13] = orchestrator.ProbeSilent
	}
	for _, listen := range []bool{false, true} {
		order.Listen = listen
		met := 0
		report, err := c.Probe(within(t, 20*time.Second), sb, order, func(context.Context) error { met++; return nil })
		if err != nil || met != 1 {
			t.Fatalf("%v, met %d times", err, met)
		}
		for id, answer := range want {
			if got := report.Results[id]; got.Answer != answer {
				t.Errorf("listening %v: probe %d: %+v, want %s", listen, id, got, answer)
			}
		}
		if listen && (!report.Heard[9] || !report.Heard[11] || report.Heard[7]) {
			t.Errorf("heard %v", report.Heard)
		}
	}
	// Whoever is not met does not begin, and the connection serves the next.
	refusal := errors.New("one is missing")
	if _, err := c.Probe(within(t, 20*time.Second), sb, order, func(context.Context) error { return refusal }); !errors.Is(err, refusal) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = c.Probe(ctx, sb, order, func(ctx context.Context) error { cancel(); <-ctx.Done(); return context.Cause(ctx) })
	if !errors.Is(err, context.Canceled) || !errors.Is(err, orchestrator.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	bad := order
	bad.Own = netip.MustParseAddr("127.9.9.9")
	if _, err := c.Probe(within(t, 20*time.Second), sb, bad, together); err == nil || !strings.Contains(err.Error(), "no interface has the address 127.9.9.9") {
		t.Errorf("got %v", err)
	}
	if _, err := c.Probe(within(t, 20*time.Second), sb, order, together); err != nil {
		t.Error(err)
	}
}

func mtuOf(t *testing.T) int {
	t.Helper()
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	return lo.MTU
}

// conversation plays the program: it answers with a text after the order's end.
type conversation struct {
	io.Reader
	io.Writer
}

func played(t *testing.T, order orchestrator.ProbeOrder, answer string) (orchestrator.ProbeReport, string, error) {
	t.Helper()
	ours, theirs := net.Pipe()
	got := make(chan string, 1)
	go func() {
		defer theirs.Close()
		r := bufio.NewReader(theirs)
		text := ""
		for !strings.HasSuffix(text, "\nend\n") {
			line, err := r.ReadString('\n')
			if err != nil {
				got <- text
				return
			}
			text += line
		}
		for line := range strings.Lines(answer) {
			if _, err := io.WriteString(theirs, line); err != nil {
				break
			}
			if line == "ready\n" {
				line, _ := r.ReadString('\n')
				text += line
			}
		}
		got <- text
	}()
	report, err := sshexec.ProbeOver(t.Context(), conversation{ours, ours}, order, together)
	ours.Close()
	return report, <-got, err
}

const probeHello = "\x00savepoint-probe-1\x00\n"

// What is told is what is done, and every line of it is read.
func TestProbeOver(t *testing.T) {
	order := probeOrder(
		orchestrator.Probe{ID: 1, Kind: orchestrator.ProbeTCP, Address: netip.MustParseAddr("10.1.0.5"), Port: 22},
		orchestrator.Probe{ID: 2, Kind: orchestrator.ProbeForge, Address: netip.MustParseAddr("fd00::5"), MAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}},
	)
	order.Listen = true
	order.Gateways, order.Neighbours = []netip.Addr{netip.MustParseAddr("10.1.0.1"), {}}, []netip.Addr{netip.MustParseAddr("10.1.0.6")}
	order.Jumps, order.JumpPort = []netip.Addr{netip.MustParseAddr("10.1.0.7")}, 2222
	order.Probes[0].ID = 1<<63 - 1
	report, told, err := played(t, order, "motd of a start-up file\n"+probeHello+"facts bc:24:11:00:00:01 fe80::1\nready\n"+
		"result 9223372036854775807 answered refused by it\nresult 2 no-route\nheard 17\nend\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"own 127.0.0.1", "nonce abcdef012345", "wait 300", "listen 1", "gateway 10.1.0.1", "neighbour 10.1.0.6", "jump 10.1.0.7", "ssh 2222",
		"probe 9223372036854775807 tcp 10.1.0.5 22 0 -", "probe 2 forge fd00::5 0 0 02:00:00:00:00:09", "go",
	} {
		if !strings.Contains(told, "\n"+line+"\n") {
			t.Errorf("%q was not told", line)
		}
	}
	if report.MAC.String() != "bc:24:11:00:00:01" || report.LinkLocal != netip.MustParseAddr("fe80::1") || !report.Heard[17] ||
		report.Results[1<<63-1] != (orchestrator.ProbeResult{Answer: orchestrator.ProbeAnswered, Detail: "refused by it"}) || report.Results[2].Answer != orchestrator.ProbeNoRoute {
		t.Errorf("got %+v", report)
	}
}

// A report that is not whole, or that says something unknown, is none.
func TestProbeReportsAreChecked(t *testing.T) {
	order := probeOrder(orchestrator.Probe{ID: 1, Kind: orchestrator.ProbeEcho, Address: netip.MustParseAddr("10.1.0.5")})
	for _, tt := range []struct{ name, answer, want string }{
		{"nothing", "", "EOF"},
		{"no greeting", "bash: perl: command not found\n", "EOF"},
		{"cut off", probeHello + "facts bc:24:11:00:00:01 -\nready\nresult 1 answered x\n", "EOF"},
		{"a probe is missing", probeHello + "facts bc:24:11:00:00:01 -\nready\nend\n", "probe 1 is missing"},
		{"broken", probeHello + "broken packet socket: Operation not permitted\n", "in the guest: packet socket: Operation not permitted"},
		{"unknown answer", probeHello + "ready\nresult 1 splendid\nend\n", "not readable"},
		{"unknown word", probeHello + "ready\nresult 1 silent\nsung 1\nend\n", "not readable"},
		{"no MAC address", probeHello + "facts x -\n", "not readable"},
		{"no address", probeHello + "facts bc:24:11:00:00:01 x\n", "not readable"},
		{"no number", probeHello + "ready\nheard me\n", "not readable"},
	} {
		if report, _, err := played(t, order, tt.answer); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %+v, %v, want %q", tt.name, report, err, tt.want)
		}
	}
}

// An order that is not complete is not sent.
func TestProbeOrdersAreChecked(t *testing.T) {
	a := netip.MustParseAddr("10.1.0.5")
	many := make([]orchestrator.Probe, orchestrator.MaxProbes+1)
	for name, change := range map[string]func(*orchestrator.ProbeOrder){
		"no address":     func(o *orchestrator.ProbeOrder) { o.Own = netip.Addr{} },
		"nonce":          func(o *orchestrator.ProbeOrder) { o.Nonce = "abc\nprobe 1 2" },
		"no wait":        func(o *orchestrator.ProbeOrder) { o.Wait = 0 },
		"too many":       func(o *orchestrator.ProbeOrder) { o.Probes = many },
		"twice":          func(o *orchestrator.ProbeOrder) { o.Probes = append(o.Probes, o.Probes...) },
		"a guest's own":  func(o *orchestrator.ProbeOrder) { o.Probes[0].ID = 1 << 63 },
		"no port":        func(o *orchestrator.ProbeOrder) { o.Probes[0].Port = 0 },
		"unknown kind":   func(o *orchestrator.ProbeOrder) { o.Probes[0].Kind = "tcp 1\nprobe" },
		"no MAC address": func(o *orchestrator.ProbeOrder) { o.Probes[0].Kind = orchestrator.ProbeForge },
		"no target":      func(o *orchestrator.ProbeOrder) { o.Probes[0].Address = netip.Addr{} },
	} {
		order := probeOrder(orchestrator.Probe{ID: 1, Kind: orchestrator.ProbeTCP, Address: a, Port: 22})
		change(&order)
		if _, told, err := played(t, order, ""); !errors.Is(err, orchestrator.ErrDenied) || told != "" {
			t.Errorf("%s: %v, %q was told", name, err, told)
		}
	}
}
