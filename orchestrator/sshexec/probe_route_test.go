package sshexec_test

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
)

// gateless is a guest without any route but its own network's, and a neighbour that
// has another address besides. Both are gone when the program's stdin is closed.
// The last line says what the program left behind.
const gateless = `set -e
unshare -n sh -c 'echo up; exec cat' <"$1" >"$2" & guest=$!
exec 4>"$1" 5<"$2"
read -r up <&5
ip link add outer type veth peer name inner
ip link set inner netns $guest
ip link set lo up
ip addr add 192.0.2.1/32 dev lo
ip addr add 10.9.0.1/24 dev outer
ip link set outer up
inside() { nsenter -t $guest -n "$@"; }
inside ip link set lo up
inside ip addr add 10.9.0.10/24 dev inner
inside ip link set inner addrgenmode none || : # an address of its own would come and settle meanwhile
inside ip link set inner up
state() { inside ip -o route; inside ip -o addr; inside ip rule; inside ip neigh show nud permanent; }
before=$(state)
inside sh -c "$3"
[ "$before" = "$(state)" ] && echo unchanged || echo changed
exec 4>&-
`

// F108: where a guest has no route the network is tried all the same: a neighbour
// that would lead on, or that has the address itself, is found over TCP, UDP and
// ICMP. The guest's configuration stays as it was.
func TestProbeWithoutRoute(t *testing.T) {
	lab(t)
	for _, tool := range []string{"ip", "unshare", "nsenter", "mkfifo", "perl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "mkfifo", dir+"/in", dir+"/out").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ctx := within(t, 20*time.Second)
	cmd := exec.CommandContext(ctx, "unshare", "-n", "sh", "-c", gateless, "sh", dir+"/in", dir+"/out", sshexec.ProbeCommand())
	var complaint strings.Builder
	cmd.Stderr, cmd.WaitDelay = &complaint, time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	near, far := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")
	order := orchestrator.ProbeOrder{
		Own: netip.MustParseAddr("10.9.0.10"), Nonce: "abcdef012345", Wait: time.Second, Listen: true,
		Gateways: []netip.Addr{netip.MustParseAddr("10.9.0.1")},
		Probes: []orchestrator.Probe{
			{ID: 1, Kind: orchestrator.ProbeTCP, Address: near, Port: 22}, {ID: 2, Kind: orchestrator.ProbeUDP, Address: near, Port: 33434}, {ID: 3, Kind: orchestrator.ProbeEcho, Address: near},
			{ID: 4, Kind: orchestrator.ProbeTCP, Address: far, Port: 22}, {ID: 5, Kind: orchestrator.ProbeUDP, Address: far, Port: 53}, {ID: 6, Kind: orchestrator.ProbeEcho, Address: far},
			{ID: 7, Kind: orchestrator.ProbeEcho, Address: netip.MustParseAddr("10.9.0.1")},
		},
	}
	report, err := sshexec.ProbeOver(ctx, conversation{out, in}, order, together)
	if err != nil {
		t.Fatalf("%v: %s", err, complaint.String())
	}
	var rest strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := out.Read(buf)
		rest.Write(buf[:n])
		if err != nil {
			break
		}
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, complaint.String())
	}
	for id, want := range map[uint64]orchestrator.ProbeAnswer{
		1: orchestrator.ProbeAnswered, 2: orchestrator.ProbeAnswered, 3: orchestrator.ProbeAnswered,
		4: orchestrator.ProbeNoRoute, 5: orchestrator.ProbeNoRoute, 6: orchestrator.ProbeNoRoute, 7: orchestrator.ProbeAnswered,
	} {
		if got := report.Results[id]; got.Answer != want {
			t.Errorf("probe %d: %+v, want %s", id, got, want)
		}
	}
	if !strings.Contains(rest.String(), "unchanged") {
		t.Errorf("the guest is not as it was: %q", rest.String())
	}
}
