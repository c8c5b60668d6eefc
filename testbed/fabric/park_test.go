package fabric

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// arpRequest asks for an address as a guest on a tap does: virtio's header,
// which is empty, and the frame.
func arpRequest(mac net.HardwareAddr, from, to netip.Addr) []byte {
	var b bytes.Buffer
	b.Write(make([]byte, 10))
	b.Write([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	b.Write(mac)
	for _, v := range []any{uint16(0x0806), uint16(1), uint16(0x0800), uint8(6), uint8(4), uint16(1)} {
		_ = binary.Write(&b, binary.BigEndian, v)
	}
	b.Write(mac)
	b.Write(from.AsSlice())
	b.Write(make([]byte, 6))
	b.Write(to.AsSlice())
	return b.Bytes()
}

// answers asks over a tap until the answer comes, or fails.
func answers(ctx context.Context, tap *os.File, p Port, gateway netip.Addr) error {
	return await(ctx, "the gateway to answer", func(context.Context) (bool, error) {
		if _, err := tap.Write(arpRequest(p.MAC, p.Addresses[0], gateway)); err != nil {
			return false, nil // the interface is down for as long as it is moved
		}
		buf := make([]byte, 2048)
		for {
			if err := tap.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
				return false, err
			}
			n, err := tap.Read(buf)
			if err != nil {
				return false, nil
			}
			// An ARP reply, to us, from the gateway's address.
			if f := buf[10:n]; len(f) >= 42 && f[12] == 8 && f[13] == 6 && f[21] == 2 && bytes.Equal(f[:6], p.MAC) && bytes.Equal(f[28:32], gateway.AsSlice()) {
				return true, nil
			}
		}
	})
}

// F98: a machine on a tap outlives its fabric. The next one finds the tap,
// keeps it apart until its vnet is there, and puts it back; what nobody wants is
// removed, and nothing is left in the end.
func TestLabAdopt(t *testing.T) {
	l := newLab(t)
	l.apply(tenants())
	port := func(n int) Port {
		p := Port{Name: "tap10" + string(rune('0'+n)) + "i0", MAC: net.HardwareAddr{0xbc, 0x24, 0x11, 0, 1, byte(n)}}
		p.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 1, byte(10 + n)})}
		return p
	}
	gateway := tenants()[0].VNets[0].Gateways[0].Addr()
	var taps []*os.File
	for n := range 2 {
		tap, err := l.f.Tap(l.ctx, "pve1", "bluea", port(n))
		if err != nil {
			t.Fatal(err)
		}
		defer tap.Close()
		taps = append(taps, tap)
		if err := answers(l.ctx, tap, port(n), gateway); err != nil {
			t.Fatal(err)
		}
	}

	// The owner is gone without a word; its successor has the same directory.
	next, err := New(l.ctx, Config{Dir: l.dir, Nodes: []string{"pve1", "pve2"}, Instance: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := next.Close(l.ctx); err != nil {
			t.Error(err)
		}
		noTraceOf(t, next.instance)
		noTraceOf(t, l.f.instance)
	}()
	parked := next.ledger.parked()
	if have, err := tapsIn(l.ctx, parked); err != nil || !slices.Equal(have, []string{"tap100i0", "tap101i0"}) {
		t.Fatalf("parked in %q: %v, %v", parked, have, err)
	}
	if err := next.Adopt(l.ctx, "pve1", "bluea", port(0)); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("adopt before the zone is there: %v; want that it can be tried again", err)
	}
	if err := next.Apply(l.ctx, "pve1", tenants()); err != nil {
		t.Fatal(err)
	}
	if err := next.Adopt(l.ctx, "pve1", "bluea", port(0)); err != nil {
		t.Fatal(err)
	}
	if err := answers(l.ctx, taps[0], port(0), gateway); err != nil {
		t.Error(err)
	}
	if err := next.Adopt(l.ctx, "pve1", "bluea", port(7)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("adopt what was never there: %v", err)
	}
	if err := next.Settle(l.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(nsPath(parked)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", parked, err)
	}
	if err := answers(l.ctx, taps[0], port(0), gateway); err != nil {
		t.Errorf("after the others were removed: %v", err)
	}
	short, cancel := context.WithTimeout(l.ctx, 300*time.Millisecond)
	defer cancel()
	if answers(short, taps[1], port(1), gateway) == nil {
		t.Error("a tap that nobody adopted has a network")
	}
}

// noTraceOf fails when something of a fabric is left.
func noTraceOf(t *testing.T, instance string) {
	t.Helper()
	entries, err := os.ReadDir(netnsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), nsPrefix(instance)) {
			t.Errorf("namespace %s is left", e.Name())
		}
	}
	if _, err := os.Stat(runDir(instance)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", runDir(instance), err)
	}
}
