package orchestrator

import (
	"net"
	"net/netip"
	"time"
)

// ProbeKind is how a guest tries something.
type ProbeKind string

// The kinds of probes.
const (
	// ProbeTCP connects to Address and Port.
	ProbeTCP ProbeKind = "tcp"
	// ProbeUDP sends a question to Address and Port.
	ProbeUDP ProbeKind = "udp"
	// ProbeEcho sends an ICMP or ICMPv6 echo request to Address: a packet of Size
	// bytes that must not be fragmented, or a small one if Size is 0. The answer
	// has to be whole.
	ProbeEcho ProbeKind = "echo"
	// ProbeLink connects to Port at the link-local address of everything on the
	// guest's link that is neither the guest nor a known neighbour: its node.
	ProbeLink ProbeKind = "link"
	// ProbeClaim claims Address by ARP or neighbour advertisements. What it comes to
	// is told by those who hear it.
	ProbeClaim ProbeKind = "claim"
	// ProbeForge sends frames that bear MAC as their sender; as ProbeClaim.
	ProbeForge ProbeKind = "forge"
)

// ProbeAnswer is what came back.
type ProbeAnswer string

// The answers.
const (
	// ProbeAccepted: a TCP connection was accepted.
	ProbeAccepted ProbeAnswer = "accepted"
	// ProbeAnswered: the target answered in another way; a refused connection and
	// an ICMP error of the target count.
	ProbeAnswered ProbeAnswer = "answered"
	// ProbeSilent: nothing came back in time.
	ProbeSilent ProbeAnswer = "silent"
	// ProbeNoRoute: the guest has no route to the target. One that listens put the
	// packets on its link all the same, and nothing came back.
	ProbeNoRoute ProbeAnswer = "no-route"
	// ProbeFailed: it could not be tried, so nothing is known.
	ProbeFailed ProbeAnswer = "failed"
)

// Probe is one thing that a guest is to try.
type Probe struct {
	// ID is in every packet. It is random, below 1<<63, and told to nobody but the
	// guest that sends: another one can know it only from a packet that arrived.
	ID      uint64
	Kind    ProbeKind
	Address netip.Addr
	Port    uint16
	Size    int
	MAC     net.HardwareAddr
}

// MaxProbes is how many probes one order may have.
const MaxProbes = 400

// ProbeOrder is what a guest is to measure, all at once.
type ProbeOrder struct {
	Own   netip.Addr    // of the guest; the interface that has it is measured
	Nonce string        // 12 letters and digits before the ID, the same for all guests that measure at a time
	Wait  time.Duration // how long an answer is waited for
	// Listen makes the guest tell what arrives meanwhile.
	Listen     bool
	Gateways   []netip.Addr
	Neighbours []netip.Addr // known guests on its link
	// Jumps are the addresses of jump hosts on its link, and JumpPort is the port
	// that ProbeLink leaves out there; 0 = there are none.
	Jumps    []netip.Addr
	JumpPort uint16
	Probes   []Probe
}

// ProbeResult is the answer to one probe.
type ProbeResult struct {
	Answer ProbeAnswer
	Detail string // for people
}

// ProbeReport is what a guest measured.
type ProbeReport struct {
	MAC       net.HardwareAddr
	LinkLocal netip.Addr // the zero value: it has none
	Results   map[uint64]ProbeResult
	Heard     map[uint64]bool // probes of any guest of which a packet arrived
}

// ZoneRoute is one route of a zone's routing table on a node.
type ZoneRoute struct {
	Prefix   netip.Prefix
	Protocol string // "bgp" for those that EVPN brought
	Metric   int
	// NextHops are addresses or interfaces; a route without any leads nowhere.
	NextHops []string
}
