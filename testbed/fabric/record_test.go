package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"savepoint/testbed/notes"
)

const testInstance = "unit0011aabb"

func testRecord() record {
	return record{Instance: testInstance, Run: runDir(testInstance), Namespaces: []string{}, Processes: []process{}}
}

// Every entry is on disk when the call returns: what is made next is known.
func TestLedger(t *testing.T) {
	l := &ledger{dir: t.TempDir(), r: testRecord()}
	token := runDir(testInstance) + "/pve1/zebra.conf"
	for i, step := range []func() error{
		func() error { return l.addNamespace(nsPrefix(testInstance) + "a") },
		func() error { return l.setProcess(process{Token: token}) },
		func() error { return l.setProcess(process{Token: token, PID: 7, Started: 9}) },
		func() error { return l.addNamespace(nsPrefix(testInstance) + "b") },
		func() error { return l.dropNamespace(nsPrefix(testInstance) + "a") },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		got, err := loadRecord(l.dir)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(l.r) {
			t.Errorf("after step %d: %+v, %v; want %+v", i, got, err, l.r)
		}
	}
	if len(l.r.Processes) != 1 || l.r.Processes[0].PID != 7 || len(l.r.Namespaces) != 1 {
		t.Errorf("in the end: %+v", l.r)
	}
}

// A record that names what is not the fabric's removes nothing.
func TestSweepRefusesDamage(t *testing.T) {
	for name, change := range map[string]func(*record){
		"instance":          func(r *record) { r.Instance = "" },
		"run directory":     func(r *record) { r.Run = "/run" },
		"foreign namespace": func(r *record) { r.Namespaces = []string{"production"} },
		"other instance":    func(r *record) { r.Namespaces = []string{"sp-other1234-node-a"} },
		"path":              func(r *record) { r.Namespaces = []string{nsPrefix(testInstance) + "/../../x"} },
		"foreign parking":   func(r *record) { r.Parked = "production" },
		"parking of a node": func(r *record) { r.Parked = "sp-other1234-node-a" },
		"parking by path":   func(r *record) { r.Parked = "sp-other1234/../x-parked" },
		"foreign process":   func(r *record) { r.Processes = []process{{Token: "/etc/frr/zebra.conf"}} },
	} {
		dir := t.TempDir()
		r := testRecord()
		change(&r)
		if err := notes.WriteJSON(recordFile(dir), r); err != nil {
			t.Fatal(err)
		}
		if err := Sweep(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(recordFile(dir)); err != nil {
			t.Errorf("%s: the record is gone: %v", name, err)
		}
	}
	dir := t.TempDir()
	if err := Sweep(t.Context(), dir); err != nil {
		t.Errorf("without a record: %v", err)
	}
	if err := os.WriteFile(recordFile(dir), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Sweep(t.Context(), dir); err == nil || !strings.Contains(err.Error(), recordFile(dir)) {
		t.Errorf("half a record: %v", err)
	}
}

// sleeper is a process with an argument that a record can name.
func sleeper(t *testing.T, token string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", "read line", token)
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		hold.Close()
		_ = cmd.Wait()
	})
	return cmd
}

// Sweep ends a recorded process, by its id or by its argument alone, and no
// other one that has the id now.
func TestSweepProcesses(t *testing.T) {
	token := runDir(testInstance) + "/pve1/zebra.conf"
	noted, unnoted, other := sleeper(t, token), sleeper(t, token+"2"), sleeper(t, "innocent")
	start := func(c *exec.Cmd) uint64 {
		at, err := notes.System.Started(c.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	r := testRecord()
	r.Processes = []process{
		{Token: token, PID: noted.Process.Pid, Started: start(noted)},
		{Token: token + "2"},
		{Token: token + "3", PID: other.Process.Pid, Started: start(other)}, // its argument differs
		{Token: token + "4", PID: other.Process.Pid, Started: start(other) + 1},
	}
	dir := t.TempDir()
	if err := notes.WriteJSON(recordFile(dir), r); err != nil {
		t.Fatal(err)
	}
	if err := Sweep(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*exec.Cmd{noted, unnoted} {
		if _, err := notes.System.Started(c.Process.Pid); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("process %d still runs: %v", c.Process.Pid, err)
		}
	}
	if _, err := notes.System.Started(other.Process.Pid); err != nil {
		t.Errorf("another process was hit: %v", err)
	}
	if _, err := os.Stat(recordFile(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record is left: %v", err)
	}
}

func TestParseRoutes(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "routes.json"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseRoutes(text, netip.MustParseAddr("100.127.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Route{
		{Type: 2, VNIs: []uint32{10001, 20000}, MAC: "62:20:7c:15:20:72", IP: "10.1.1.11", NextHop: "100.127.0.1", Local: true},
		{Type: 3, VNIs: []uint32{10001}, IP: "100.127.0.2", NextHop: "100.127.0.2"},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, err := parseRoutes([]byte("% no"), netip.Addr{}); err == nil {
		t.Error("what is not JSON was accepted")
	}
}

func TestParseLinks(t *testing.T) {
	const text = `[{},{"ifname":"lo","mtu":65536,"address":"00:00:00:00:00:00","addr_info":[{"local":"127.0.0.1","prefixlen":8,"scope":"host"}]},
	{"ifname":"a","mtu":1450,"address":"bc:24:11:00:00:01","linkinfo":{"info_kind":"bridge","info_data":{"forward_delay":0}},"addr_info":[{"local":"10.1.1.1","prefixlen":24,"scope":"global"},{"local":"fe80::1","prefixlen":64,"scope":"link"}]},
	{"ifname":"vxlan_a","mtu":1450,"master":"a","linkinfo":{"info_kind":"vxlan","info_data":{"id":10001}},"addr_info":[]}]`
	got, err := parseLinks([]byte(text))
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	if a := got["a"]; a.Kind != "bridge" || !slices.Equal(a.Addresses, prefixes("10.1.1.1/24")) || a.VNI != 0 {
		t.Errorf("bridge: %+v", a)
	}
	if v := got["vxlan_a"]; v.VNI != 10001 || v.Master != "a" || v.MTU != 1450 {
		t.Errorf("tunnel: %+v", v)
	}
}

// The command socket's framing, and its errors.
func TestVTY(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "d.vty")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	answers := map[string]string{"enable": "\x00\x00\x00\x00", "show": "all\n\x00\x00\x00\x00", "wrong": "% Unknown\n\x00\x00\x00\x02", "hang": ""}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 100)
			for {
				n, err := c.Read(buf)
				if err != nil {
					break
				}
				answer := answers[strings.TrimRight(string(buf[:n]), "\x00")]
				if len(answer) > 4 { // in two pieces
					_, _ = c.Write([]byte(answer[:len(answer)-2]))
					answer = answer[len(answer)-2:]
				}
				_, _ = c.Write([]byte(answer))
			}
			c.Close()
		}
	}()
	if got, err := vty(t.Context(), socket, "enable", "show"); err != nil || string(got) != "all\n" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := vty(t.Context(), socket, "enable", "wrong", "show"); err == nil || !strings.Contains(err.Error(), `"wrong" was refused (code 2): % Unknown`) {
		t.Errorf("%v", err)
	}
	if _, err := vty(t.Context(), socket, "show\x00wrong"); err == nil {
		t.Error("two commands in one were sent")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	go cancel(reason)
	if _, err := vty(ctx, socket, "hang"); err == nil {
		t.Error("no answer, no error")
	}
	l.Close()
	<-done
}

// What a command line may hold of ours has no space and no dash in front.
func TestNamesAreWords(t *testing.T) {
	for _, name := range []string{"", "-x", "a b", "a/b", "a\nb", "tap100i0tap100i0"} {
		if (Port{Name: name, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}}).check(Zone{ID: "zz"}) == nil {
			t.Errorf("port %q was accepted", name)
		}
		if name != "tap100i0tap100i0" && nodeName.MatchString(name) || name != "" && instanceName.MatchString(name) && strings.ContainsAny(name, " -/\n") {
			t.Errorf("%q was accepted", name)
		}
	}
}

// Without root the refusal says so and what it is.
func TestCheck(t *testing.T) {
	err := Check()
	if os.Geteuid() != 0 && (!errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "root")) {
		t.Errorf("without root: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if os.Geteuid() == 0 {
		if err := Check(); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "iproute2 nftables") {
			t.Errorf("without programs: %v", err)
		}
	}
	var r record
	if json.Unmarshal([]byte(`{"instance":"x"}`), &r) != nil || r.check() == nil {
		t.Error("a short instance was accepted")
	}
}
