package fabric

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"regexp"
	"slices"
	"strings"
)

// ErrUnavailable is wrapped by every error that says that this machine or user
// cannot have a fabric at all: no root, or programs that are not installed.
var ErrUnavailable = errors.New("no fabric on this machine")

// Outside names the namespace that plays everything beyond the cluster,
// wherever a node's name is expected by Dial, Listen and Exec.
const Outside = "outside"

// Addresses that the outside has besides its own on the underlay. Nothing of
// the real network is ever reached under them.
var (
	Web      = netip.MustParseAddr("203.0.113.80")    // a web server
	Metadata = netip.MustParseAddr("169.254.169.254") // a cloud's metadata service
)

// Config is what a fabric needs.
type Config struct {
	// Dir keeps the record of what was made; it must exist. One fabric at a
	// time may use it: the caller holds a lock.
	Dir string
	// Nodes are the names of the nodes, at least one.
	Nodes []string
	// Underlay is the network between the nodes, IPv4 with a prefix of 8 to 28
	// bits. The zero value means one that the host does not use.
	Underlay netip.Prefix
	// Instance begins the name of every namespace, before a random part. It may
	// be empty.
	Instance string
	// MTU of the underlay; 0 means 1500.
	MTU int
	// ASN is the autonomous system of all nodes; 0 means 65000.
	ASN uint32
}

var (
	nodeName     = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	instanceName = regexp.MustCompile(`^[a-z0-9]{0,12}$`)
)

func (c *Config) complete() error {
	if st, err := os.Stat(c.Dir); err != nil || !st.IsDir() {
		return fmt.Errorf("state directory %q is no directory; make it first", c.Dir)
	}
	if len(c.Nodes) == 0 || len(c.Nodes) > 64 {
		return fmt.Errorf("%d nodes; want 1 to 64", len(c.Nodes))
	}
	for i, n := range c.Nodes {
		if !nodeName.MatchString(n) || n == Outside {
			return fmt.Errorf("node name %q: want a letter, then letters, digits and dashes, and not %q", n, Outside)
		}
		if slices.Contains(c.Nodes[:i], n) {
			return fmt.Errorf("node %q is given twice", n)
		}
	}
	if !instanceName.MatchString(c.Instance) {
		return fmt.Errorf("instance %q: want at most 12 lower-case letters and digits", c.Instance)
	}
	if c.MTU == 0 {
		c.MTU = 1500
	}
	if c.MTU < 1330 || c.MTU > 9216 {
		return fmt.Errorf("underlay MTU %d: want 1330 to 9216, so that IPv6 fits into a tunnel", c.MTU)
	}
	if c.ASN == 0 {
		c.ASN = 65000
	}
	used, err := hostNetworks()
	if err != nil {
		return err
	}
	if !c.Underlay.IsValid() {
		c.Underlay, err = freeUnderlay(used)
		return err
	}
	return checkUnderlay(c.Underlay, used)
}

// hostNetworks are the networks of the host's own interfaces. The fabric never
// meets them; choosing others keeps the two apart in every log.
func hostNetworks() ([]netip.Prefix, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("read the host's addresses: %w", err)
	}
	var out []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out, nil
}

// freeUnderlay chooses from the range that is shared address space (RFC 6598).
func freeUnderlay(used []netip.Prefix) (netip.Prefix, error) {
	for third := 127; third >= 64; third-- {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(third), 0, 0}), 24)
		if checkUnderlay(p, used) == nil {
			return p, nil
		}
	}
	return netip.Prefix{}, errors.New("the host uses all of 100.64.0.0/10; give an underlay network")
}

func checkUnderlay(p netip.Prefix, used []netip.Prefix) error {
	if !p.Addr().Is4() || p.Bits() < 8 || p.Bits() > 28 || p != p.Masked() {
		return fmt.Errorf("underlay %s: want an IPv4 network of 8 to 28 bits without host bits", p)
	}
	for _, u := range append(used, outsideNetworks()...) {
		if u.Overlaps(p) {
			return fmt.Errorf("underlay %s overlaps %s, which is in use; choose another", p, u)
		}
	}
	return nil
}

func outsideNetworks() []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(Web, 32), netip.PrefixFrom(Metadata, 32)}
}

// hostOf is the n-th address of the underlay.
func hostOf(underlay netip.Prefix, n int) (netip.Addr, error) {
	a := underlay.Masked().Addr()
	for range n {
		a = a.Next()
	}
	if n < 1 || !underlay.Contains(a.Next()) {
		return a, fmt.Errorf("underlay %s is too small for %d addresses", underlay, n)
	}
	return a, nil
}

func newInstance(prefix string) string {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // never fails, by its contract
	return prefix + hex.EncodeToString(b)
}

const (
	zebraPath = "/usr/lib/frr/zebra"
	bgpdPath  = "/usr/lib/frr/bgpd"
	frrUser   = "frr"
)

// Check reports why this process cannot have a fabric, or nil. The error wraps
// ErrUnavailable and names the Debian packages that are missing.
func Check() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: network namespaces need root; run it as root", ErrUnavailable)
	}
	var missing []string
	need := func(pkg string, there bool) {
		if !there && !slices.Contains(missing, pkg) {
			missing = append(missing, pkg)
		}
	}
	for program, pkg := range map[string]string{"ip": "iproute2", "bridge": "iproute2", "nft": "nftables", zebraPath: "frr", bgpdPath: "frr"} {
		_, err := exec.LookPath(program)
		need(pkg, err == nil)
	}
	_, err := user.Lookup(frrUser)
	need("frr", err == nil)
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("%w: install the Debian packages %s", ErrUnavailable, strings.Join(missing, " "))
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return fmt.Errorf("%w: /dev/net/tun is missing; load the kernel module tun", ErrUnavailable)
	}
	return nil
}
