package fabric

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
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

// What is no namespace is told from one, and what cannot be looked at from both.
func TestNamespaceAt(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "name")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{filepath.Join(dir, "nothing"): false, name: false, "/proc/self/ns/net": true} {
		if got, err := namespaceAt(path); got != want || err != nil {
			t.Errorf("%s: %t, %v", path, got, err)
		}
	}
	if _, err := namespaceAt(filepath.Join(name, "below")); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("what cannot be looked at: %v", err)
	}
	if taps, err := tapsIn(t.Context(), nsPrefix(testInstance)+"nothing"); len(taps) > 0 || err != nil {
		t.Errorf("a namespace that was not made has %q, %v", taps, err)
	}
}

// A tap is ours by the mark that it was given, not by its name.
func TestParkedIn(t *testing.T) {
	const text = `[{"ifname":"tap100i0","ifalias":"sp-unit0011aabb-parked","linkinfo":{"info_kind":"tun"}},{"ifname":"tap101i0","linkinfo":{"info_kind":"tun"}},
	{"ifname":"tap102i0","ifalias":"sp-unit0011aabb-parked","linkinfo":{"info_kind":"veth"}},{"ifname":"tap103i0","ifalias":"sp-other1234-parked","linkinfo":{"info_kind":"tun"}}]`
	have, err := parseLinks([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"tap100i0": true, "tap101i0": false, "tap102i0": false, "tap103i0": false, "tap104i0": false} {
		if have[name].parkedIn(nsPrefix(testInstance)+"parked") != want || have[name].parkedIn("") {
			t.Errorf("%s: ours must be %t", name, want)
		}
	}
}

// F98: an interface that only has the name of a tap is not removed for it, and
// taps that cannot be looked at are not taken for none.
func TestLabParkRemovesOursOnly(t *testing.T) {
	if os.Getenv("SAVEPOINT_LAB") != "1" || os.Geteuid() != 0 {
		t.Skip("makes network namespaces: set SAVEPOINT_LAB=1, and run it as root")
	}
	ctx := t.Context()
	l := &ledger{dir: t.TempDir(), r: testRecord()}
	l.r.Instance = strings.ToLower(rand.Text()[:10])
	l.r.Run = runDir(l.r.Instance)
	node, other := nsPrefix(l.r.Instance)+"node", nsPrefix(l.r.Instance)+"other"
	defer func() {
		if err := Sweep(context.WithoutCancel(ctx), l.dir); err != nil {
			t.Error(err)
		}
		noTraceOf(t, l.r.Instance)
	}()
	tap := func(ns string) {
		t.Helper()
		var file *os.File
		err := within(ns, func() (err error) { file, err = openTap("tap100i0"); return err })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
	}
	for _, ns := range []string{node, other} {
		if err := l.makeNamespace(ctx, ns); err != nil {
			t.Fatal(err)
		}
		tap(ns)
	}
	parked, err := park(ctx, l.dir) // the second in the place of the first, which is ours
	if have, terr := tapsIn(ctx, parked); err != nil || terr != nil || !slices.Equal(have, []string{"tap100i0"}) {
		t.Fatalf("parked in %q: %v, %v, %v", parked, have, err, terr)
	}
	l.r.Parked = parked
	l.r.Namespaces = nil
	if err := l.makeNamespace(ctx, node); err != nil {
		t.Fatal(err)
	}
	tap(node)
	if err := ip(ctx, parked, "link set tap100i0 alias somebody"); err != nil {
		t.Fatal(err)
	}
	if _, err := park(ctx, l.dir); err == nil || !strings.Contains(err.Error(), "tap100i0") || !strings.Contains(err.Error(), parked) {
		t.Errorf("parked beside another's: %v", err)
	}
	for _, ns := range []string{parked, node} {
		if have, err := tapsIn(ctx, ns); err != nil || !slices.Equal(have, []string{"tap100i0"}) {
			t.Errorf("%s has %v, %v", ns, have, err)
		}
	}
	path := os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	if have, err := tapsIn(ctx, node); err == nil {
		t.Errorf("without a look: %v", have)
	}
	if _, err := park(ctx, l.dir); err == nil {
		t.Error("parked without a look")
	}
	t.Setenv("PATH", path)
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
