package evpn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"savepoint/orchestrator"
)

// User is the account on the nodes that Setup makes.
const User = "savepoint-evpn"

// Exchange carries one request to savepoint-evpn on a node and returns its whole
// answer.
type Exchange func(ctx context.Context, node string, request []byte) ([]byte, error)

// Client reads routing tables.
type Client struct{ exchange Exchange }

// NewClient returns a client of the nodes that exchange reaches.
func NewClient(exchange Exchange) *Client { return &Client{exchange} }

const greeting = "savepoint-evpn 1"

var zoneID = regexp.MustCompile(`\A[a-zA-Z][a-zA-Z0-9]{0,6}[a-zA-Z0-9]\z`)

// Routes returns the routing table of a zone on a node, in a stable order. Its
// errors have the class of the exchange's, or ErrUnavailable: nothing is changed
// by asking, so asking again is safe.
func (c *Client) Routes(ctx context.Context, node, zone string) ([]orchestrator.ZoneRoute, error) {
	fail := func(err error) error {
		return fmt.Errorf("read the routes of zone %s on node %s: %w", zone, node, err)
	}
	if !zoneID.MatchString(zone) {
		return nil, fail(fmt.Errorf("%w: that is no id of a zone", orchestrator.ErrDenied))
	}
	answer, err := c.exchange(ctx, node, []byte(greeting+"\nzone "+zone+"\ngo\n"))
	if errors.Is(err, orchestrator.ErrUnknownOutcome) {
		err = fmt.Errorf("%w: %v", orchestrator.ErrUnavailable, err)
	}
	if err != nil {
		return nil, fail(err)
	}
	routes, err := read(string(answer))
	if err != nil {
		return nil, fail(fmt.Errorf("%w: %w", orchestrator.ErrUnavailable, err))
	}
	return routes, nil
}

// read takes an answer apart.
func read(answer string) ([]orchestrator.ZoneRoute, error) {
	lines := strings.Split(answer, "\n")
	if lines[0] != greeting {
		return nil, fmt.Errorf("the node answered %.80q; make savepoint-evpn the key's forced command there (see savepoint doctor --setup)", lines[0])
	}
	tables := map[string]string{}
	for _, line := range lines[1:] {
		kind, rest, _ := strings.Cut(line, " ")
		switch kind {
		case "4", "6", "!":
			tables[kind] += rest + "\n"
		case "end":
			if rest != "ok" {
				return nil, fmt.Errorf("%s: %s", rest, strings.TrimSpace(tables["!"]))
			}
			var out []orchestrator.ZoneRoute
			for _, family := range []string{"4", "6"} {
				more, err := Parse([]byte(tables[family]))
				if err != nil {
					return nil, fmt.Errorf("FRR's table is not readable: %w", err)
				}
				out = append(out, more...)
			}
			return out, nil
		}
	}
	return nil, errors.New("the node's answer was cut off")
}

// Parse reads what FRR answers to "show ip route vrf V json": a list of routes
// for each prefix. Only those that are installed count.
func Parse(text []byte) ([]orchestrator.ZoneRoute, error) {
	var table map[string][]struct {
		Protocol  string
		Metric    int
		Installed bool
		Nexthops  []struct {
			IP            string
			InterfaceName string
			Active        bool
		}
	}
	if err := json.Unmarshal(text, &table); err != nil {
		return nil, err
	}
	var out []orchestrator.ZoneRoute
	for prefix, routes := range table {
		p, err := netip.ParsePrefix(prefix)
		if err != nil {
			return nil, err
		}
		if p.Addr().IsLinkLocalUnicast() {
			continue
		}
		for _, r := range routes {
			if !r.Installed {
				continue
			}
			z := orchestrator.ZoneRoute{Prefix: p, Protocol: r.Protocol, Metric: r.Metric}
			for _, h := range r.Nexthops {
				if hop := cmp.Or(h.IP, h.InterfaceName); hop != "" && h.Active {
					z.NextHops = append(z.NextHops, hop)
				}
			}
			out = append(out, z)
		}
	}
	slices.SortStableFunc(out, func(a, b orchestrator.ZoneRoute) int {
		return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
	})
	return out, nil
}
