package sshexec

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"savepoint/orchestrator"
)

//go:embed probe.pl
var probeText string

const probeGreeting = "\x00savepoint-probe-1\x00\n"

// ProbeCommand is the command line that measures. It holds no data but the
// length of the program, which follows on stdin, and then the order.
func ProbeCommand() string {
	return fmt.Sprintf(`exec perl -e 'my ($n, $t) = (%d, ""); while (length $t < $n) { sysread STDIN, $t, $n - length $t, length $t or exit 97 } eval $t; print STDERR $@; exit 98'`, len(probeText))
}

// Probe measures from inside a guest, over its kept connection and beside
// whatever else runs there. meet is called when the guest listens and has sent
// nothing yet; the guest begins when it returns, so that several can begin
// together. An error of meet ends the measurement.
//
// It waits for nothing but the guest's own time: an answer is there within
// order.Wait and a few round trips. Errors are those of Inspect; every one says
// that nothing was measured.
func (c *Client) Probe(ctx context.Context, sb orchestrator.Sandbox, order orchestrator.ProbeOrder, meet func(context.Context) error) (orchestrator.ProbeReport, error) {
	const what = "measure from sandbox"
	g, err := c.guest(sb)
	if err != nil {
		return orchestrator.ProbeReport{}, unreached(what, sb, err)
	}
	select { // it counts as a session: sshd has only so many
	case g.turns <- struct{}{}:
		defer func() { <-g.turns }()
	case <-ctx.Done():
		return orchestrator.ProbeReport{}, unreached(what, sb, context.Cause(ctx))
	case <-g.slot.done:
		return orchestrator.ProbeReport{}, unreached(what, sb, errDisconnected)
	}
	ch, err := c.probeChannel(ctx, g)
	if err != nil {
		return orchestrator.ProbeReport{}, unreached(what, sb, err)
	}
	report, err := converseProbe(ctx, ch, order, meet)
	if err != nil {
		return orchestrator.ProbeReport{}, unreached(what, sb, err)
	}
	return report, nil
}

// probeChannel opens a session channel to the guest. A connection that died
// since its last use is replaced once.
func (c *Client) probeChannel(ctx context.Context, g *guest) (ssh.Channel, error) {
	for attempt := 0; ; attempt++ {
		l, err := g.slot.get(ctx, func(ctx context.Context) (*link, error) { return c.dialGuest(ctx, g.sb) })
		if err != nil {
			return nil, err
		}
		ch, reqs, err := l.client.OpenChannel("session", nil)
		if err == nil {
			go ssh.DiscardRequests(reqs)
			return ch, nil
		}
		if attempt > 0 || ctx.Err() != nil || !l.died(err) {
			return nil, err
		}
		l.close(err)
	}
}

// converseProbe starts the program and collects its report. The channel is
// closed when it returns or when ctx ends; the program ends with it.
func converseProbe(ctx context.Context, ch ssh.Channel, order orchestrator.ProbeOrder, meet func(context.Context) error) (orchestrator.ProbeReport, error) {
	stop := context.AfterFunc(ctx, func() { _ = ch.Close() })
	defer stop()
	defer ch.Close()
	var complaint tail
	go io.Copy(&complaint, ch.Stderr()) //nolint:errcheck // ends with the channel
	ok, err := ch.SendRequest("exec", true, ssh.Marshal(struct{ Command string }{ProbeCommand()}))
	if err == nil && !ok {
		err = errors.New("sshd refuses to run commands")
	}
	var report orchestrator.ProbeReport
	if err == nil {
		report, err = ProbeOver(ctx, ch, order, meet)
	}
	switch {
	case err == nil:
		return report, nil
	case ctx.Err() != nil:
		return report, context.Cause(ctx)
	case errors.Is(err, io.EOF):
		return report, fmt.Errorf("the program ended in the guest (it needs perl-base): %s", complaint.String())
	}
	return report, err
}

// ProbeOver sends the program that ProbeCommand waits for, and the order, and
// reads the report. It does not notice by itself that ctx ended: close the
// stream. io.EOF says that the program ended too early.
func ProbeOver(ctx context.Context, stream io.ReadWriter, order orchestrator.ProbeOrder, meet func(context.Context) error) (orchestrator.ProbeReport, error) {
	text, err := probeOrder(order)
	if err != nil {
		return orchestrator.ProbeReport{}, fmt.Errorf("%w: %w", orchestrator.ErrDenied, err)
	}
	if _, err := io.WriteString(stream, probeText+text); err != nil {
		return orchestrator.ProbeReport{}, err
	}
	return readProbe(io.LimitReader(stream, 1<<20), order, func() error {
		if err := meet(ctx); err != nil {
			return err
		}
		_, err := io.WriteString(stream, "go\n")
		return err
	})
}

var probeNonce = regexp.MustCompile(`\A[a-z0-9]{12}\z`)

// probeOrder writes the order as probe.pl reads it. Every value is an address,
// a number or a fixed word.
func probeOrder(o orchestrator.ProbeOrder) (string, error) {
	switch {
	case !o.Own.IsValid():
		return "", errors.New("the guest has no address")
	case !probeNonce.MatchString(o.Nonce):
		return "", fmt.Errorf("nonce %q: want 12 lower-case letters and digits", o.Nonce)
	case o.Wait <= 0 || o.Wait > time.Minute:
		return "", fmt.Errorf("a wait of %s: want up to a minute", o.Wait)
	case len(o.Probes) > orchestrator.MaxProbes:
		return "", fmt.Errorf("%d probes at once: at most %d", len(o.Probes), orchestrator.MaxProbes)
	}
	var b strings.Builder
	listen := "0"
	if o.Listen {
		listen = "1"
	}
	fmt.Fprintf(&b, "own %s\nnonce %s\nwait %d\nlisten %s\nssh %d\n", o.Own.WithZone(""), o.Nonce, o.Wait.Milliseconds(), listen, o.JumpPort)
	for key, list := range map[string][]netip.Addr{"gateway": o.Gateways, "neighbour": o.Neighbours, "jump": o.Jumps} {
		for _, a := range list {
			if a.IsValid() {
				fmt.Fprintf(&b, "%s %s\n", key, a.WithZone(""))
			}
		}
	}
	seen := map[uint64]bool{}
	for _, p := range o.Probes {
		if seen[p.ID] || p.ID >= 1<<63 {
			return "", fmt.Errorf("probe %d is there twice, or has too large an id", p.ID)
		}
		seen[p.ID] = true
		address, mac := "-", "-"
		if p.Address.IsValid() {
			address = p.Address.WithZone("").String()
		}
		if len(p.MAC) == 6 {
			mac = p.MAC.String()
		}
		needs := map[orchestrator.ProbeKind]bool{
			orchestrator.ProbeTCP: address != "-" && p.Port > 0, orchestrator.ProbeUDP: address != "-" && p.Port > 0,
			orchestrator.ProbeEcho: address != "-" && p.Size >= 0 && p.Size < 65536, orchestrator.ProbeLink: p.Port > 0,
			orchestrator.ProbeClaim: address != "-", orchestrator.ProbeForge: address != "-" && mac != "-",
		}
		if !needs[p.Kind] {
			return "", fmt.Errorf("probe %d of kind %q is not complete", p.ID, p.Kind)
		}
		fmt.Fprintf(&b, "probe %d %s %s %d %d %s\n", p.ID, p.Kind, address, p.Port, p.Size, mac)
	}
	b.WriteString("end\n")
	return b.String(), nil
}

// readProbe reads what probe.pl says. ready is called once, when it listens.
func readProbe(r io.Reader, o orchestrator.ProbeOrder, ready func() error) (orchestrator.ProbeReport, error) {
	report := orchestrator.ProbeReport{Results: map[uint64]orchestrator.ProbeResult{}, Heard: map[uint64]bool{}}
	lines := bufio.NewReader(r)
	if err := skipTo(lines, probeGreeting); err != nil {
		return report, err
	}
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return report, err
		}
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch word {
		case "ready":
			err = ready()
		case "broken":
			err = errors.New("in the guest: " + rest)
		case "end":
			for _, p := range o.Probes {
				if _, found := report.Results[p.ID]; !found {
					return report, fmt.Errorf("the guest's report is not whole: probe %d is missing", p.ID)
				}
			}
			return report, nil
		default:
			err = learnProbe(&report, word, rest)
		}
		if err != nil {
			return report, err
		}
	}
}

// skipTo reads past what a start-up file may have said.
func skipTo(r *bufio.Reader, mark string) error {
	var seen []byte
	for len(seen) < 64<<10 {
		b, err := r.ReadByte()
		if err != nil {
			return err
		}
		if seen = append(seen, b); bytes.HasSuffix(seen, []byte(mark)) {
			return nil
		}
	}
	return errors.New("no greeting from the program in the guest")
}

// learnProbe reads one line of a report.
func learnProbe(report *orchestrator.ProbeReport, word, rest string) error {
	f := strings.SplitN(rest, " ", 3)
	unreadable := fmt.Errorf("the guest's report is not readable: %.80q", word+" "+rest)
	switch {
	case word == "facts" && len(f) == 2:
		var err error
		if report.MAC, err = net.ParseMAC(f[0]); err != nil {
			return unreadable
		}
		if f[1] != "-" {
			if report.LinkLocal, err = netip.ParseAddr(f[1]); err != nil {
				return unreadable
			}
		}
	case word == "result" && len(f) >= 2:
		id, err := strconv.ParseUint(f[0], 10, 64)
		if err != nil {
			return unreadable
		}
		res := orchestrator.ProbeResult{Answer: orchestrator.ProbeAnswer(f[1])}
		if len(f) == 3 {
			res.Detail = f[2]
		}
		switch res.Answer {
		case orchestrator.ProbeAccepted, orchestrator.ProbeAnswered, orchestrator.ProbeSilent, orchestrator.ProbeNoRoute, orchestrator.ProbeFailed:
		default:
			return unreadable
		}
		report.Results[id] = res
	case word == "heard" && len(f) == 1:
		id, err := strconv.ParseUint(f[0], 10, 64)
		if err != nil {
			return unreadable
		}
		report.Heard[id] = true
	default:
		return unreadable
	}
	return nil
}
