package pve

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestVMConfRoundTrip(t *testing.T) {
	c := newVMConf()
	c.main = options{"name": "a", "description": "one\ntwo: [x]\r\n100%", "scsi0": "local:1", "empty": ""}
	c.pending = options{"memory": "80"}
	c.drop = []string{"net0", "net1"}
	c.snaps = map[string]options{"s1": {"snaptime": "1", "description": "[PENDING]\nx"}, "Current": {"name": "b"}}
	got, err := parseVMConf(c.encode())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, got, cmp.AllowUnexported(vmConf{})); diff != "" {
		t.Error(diff)
	}
	if got.digest() != c.digest() || len(c.digest()) != 40 {
		t.Errorf("digests %s %s", got.digest(), c.digest())
	}
	n := c.clone()
	n.snaps["s1"]["x"], n.main["x"], n.drop[0] = "y", "y", "z"
	if c.snaps["s1"]["x"] != "" || c.main["x"] != "" || c.drop[0] != "net0" {
		t.Error("a clone shares with its source")
	}
	for _, bad := range []string{"no colon", ": value", "[s1]\nx"} {
		if _, err := parseVMConf([]byte(bad)); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}

// What parses is written in one form that parses to the same.
func FuzzVMConf(f *testing.F) {
	f.Add("cores: 1\n\n[PENDING]\ndelete: a,b\nmemory: 1\n\n[s]\nname: x%0Ay\n")
	f.Add("[]\na:b\n[PENDING]\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseVMConf([]byte(text))
		if err != nil {
			return
		}
		again, err := parseVMConf(c.encode())
		if err != nil {
			t.Fatalf("%q: own form refused: %v", text, err)
		}
		if string(again.encode()) != string(c.encode()) {
			t.Fatalf("%q: two forms:\n%s\n%s", text, c.encode(), again.encode())
		}
	})
}

func TestFlock(t *testing.T) {
	f, ctx := newFlock(), context.Background()
	r1, err := f.acquire(ctx, false, time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	r2, err := f.acquire(ctx, false, time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	waited := false
	if _, err := f.acquire(ctx, true, 10*time.Millisecond, func() { waited = true }); !errors.Is(err, errLockTimeout) || !waited {
		t.Errorf("alone beside two: %v, waited %v", err, waited)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := f.acquire(gone, true, time.Minute, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
	got := make(chan struct{})
	go func() {
		release, err := f.acquire(ctx, true, time.Minute, nil)
		if err == nil {
			release()
			release() // once is enough
		}
		close(got)
	}()
	r1()
	r2()
	<-got

	// nobody is inside with the one who is alone
	var mu sync.Mutex
	var wg sync.WaitGroup
	inside, alone := 0, 0
	for i := range 40 {
		wg.Go(func() {
			release, err := f.acquire(ctx, i%4 == 0, time.Minute, nil)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			inside++
			if i%4 == 0 {
				alone++
			}
			if alone > 0 && inside > 1 {
				t.Errorf("%d inside with one who is alone", inside)
			}
			mu.Unlock()
			mu.Lock()
			inside--
			if i%4 == 0 {
				alone--
			}
			mu.Unlock()
			release()
		})
	}
	wg.Wait()
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"1G": 1 << 30, "512M": 512 << 20, "1.5K": 1536, "7": 7, "2T": 2 << 40} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%s: %d %v", text, got, err)
		}
	}
	for n, want := range map[int64]string{1 << 30: "1G", 1090519040: "1040M", 1536: "1536", 2048: "2K", 0: "0", 3 << 40: "3T"} {
		if got := sizeText(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestSeed(t *testing.T) {
	v := newVMOptions("9")
	o := options{
		"name": "box.example.org", "ciuser": "root", "sshkeys": "ssh-ed25519%20AAA%20it%27s%0Assh-rsa%20BBB%0A", "ciupgrade": "0",
		"net0": "virtio=02:00:00:00:00:01,bridge=vmbr0", "net1": "virtio=02:00:00:00:00:02,bridge=vmbr0",
		"ipconfig0": "ip=10.0.0.2/20,gw=10.0.0.1", "ipconfig1": "ip=dhcp,ip6=auto", "nameserver": "10.0.0.9", "searchdomain": "lab.test",
	}
	s := v.seedOf(100, o)
	const user = `#cloud-config
hostname: box
manage_etc_hosts: true
fqdn: box.example.org
user: 'root'
disable_root: false
ssh_authorized_keys:
  - 'ssh-ed25519 AAA it''s'
  - 'ssh-rsa BBB'
chpasswd:
  expire: false
`
	const network = `version: 1
config:
  - type: physical
    name: eth0
    mac_address: '02:00:00:00:00:01'
    subnets:
      - type: static
        address: '10.0.0.2'
        netmask: '255.255.240.0'
        gateway: '10.0.0.1'
  - type: physical
    name: eth1
    mac_address: '02:00:00:00:00:02'
    subnets:
      - type: dhcp4
      - type: auto6
  - type: nameserver
    address:
      - '10.0.0.9'
    search:
      - 'lab.test'
`
	if diff := cmp.Diff(user, s.user); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(network, s.network); diff != "" {
		t.Error(diff)
	}
	o["ciuser"] = "agent"
	if again := v.seedOf(100, o); again.meta == s.meta || !strings.HasPrefix(again.meta, "instance-id: ") {
		t.Errorf("instance id %s does not follow the content", again.meta)
	}
}

// Every option's description is found under its full name, and no two calls
// of the table are the same.
func TestTable(t *testing.T) {
	for _, major := range []string{"8", "9"} {
		v := newVMOptions(major)
		for _, name := range []string{"scsi30", "virtio15", "sata5", "ide3", "net31", "unused255", "ipconfig0", "numa", "numa7"} {
			if _, ok := v.byName[name]; !ok {
				t.Errorf("%s: no option %s", major, name)
			}
		}
		if _, ok := v.byName["scsi31"]; ok {
			t.Errorf("%s: scsi31 exists", major)
		}
		seen := map[string]bool{}
		for _, r := range table() {
			if r.since > major || r.until != "" && r.until < major {
				continue
			}
			key := r.method + " " + r.path
			if seen[key] {
				t.Errorf("%s: %s twice", major, key)
			}
			seen[key] = true
			if p := r.perm; !p.world && !p.all && p.path == "" && p.and == nil && p.or == nil && p.about == "" {
				t.Errorf("%s: %s needs no permission", major, key)
			}
		}
	}
	slots := diskSlots()
	if len(slots) != 57 || !slices.Contains(slots, "scsi30") {
		t.Errorf("slots %v", slots)
	}
}
