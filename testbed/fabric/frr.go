package fabric

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"savepoint/testbed/notes"
)

// zebraConf is zebra's configuration before there is any zone. Zones are told
// to the running daemon, as a reload does.
func zebraConf(node, run string) string {
	return "frr defaults datacenter\n" +
		"hostname " + node + "\n" +
		"log file " + filepath.Join(run, "zebra.log") + "\n"
}

// bgpdConf is a node's BGP configuration in the form that PVE's evpn controller
// generates: one peer group of all other nodes. The timers are shorter, so that
// a node that is gone is noticed within ten seconds.
func bgpdConf(asn uint32, node, run string, own netip.Addr, peers []netip.Addr) string {
	var b strings.Builder
	fmt.Fprintf(&b, "frr defaults datacenter\nhostname %s\nlog file %s\n", node, filepath.Join(run, "bgpd.log"))
	fmt.Fprintf(&b, "router bgp %d\n bgp router-id %s\n no bgp default ipv4-unicast\n coalesce-time 1000\n timers bgp 3 10\n", asn, own)
	if len(peers) > 0 {
		fmt.Fprintf(&b, " neighbor VTEP peer-group\n neighbor VTEP remote-as %d\n neighbor VTEP timers connect 1\n", asn)
	}
	for _, p := range peers {
		fmt.Fprintf(&b, " neighbor %s peer-group VTEP\n", p)
	}
	b.WriteString(" address-family l2vpn evpn\n")
	if len(peers) > 0 {
		b.WriteString("  neighbor VTEP activate\n")
	}
	b.WriteString("  advertise-all-vni\n exit-address-family\nexit\n")
	return b.String()
}

// vrfName is how FRR and PVE call a zone's routing instance.
func vrfName(zone string) string { return "vrf_" + zone }

// daemon is a process of ours.
type daemon struct {
	name string
	run  string
	gone chan struct{} // closed when it has ended
}

func (d *daemon) running() bool {
	select {
	case <-d.gone:
		return false
	default:
		return true
	}
}

// startRouting writes a node's configurations and starts zebra and bgpd in its
// namespaces, each of network and of mounts.
func (f *Fabric) startRouting(ctx context.Context, n *node) error {
	owner, err := user.Lookup(frrUser)
	if err != nil {
		return fmt.Errorf("%w: install the Debian package frr: %v", ErrUnavailable, err)
	}
	uid, err := strconv.Atoi(owner.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(owner.Gid)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(n.run, 0o711); err != nil {
		return err
	}
	var peers []netip.Addr
	for _, p := range f.nodes {
		if p != n {
			peers = append(peers, p.address)
		}
	}
	for name, text := range map[string]string{
		"zebra.conf": zebraConf(n.name, n.run),
		"bgpd.conf":  bgpdConf(f.cfg.ASN, n.name, n.run, n.address, peers),
	} {
		path := filepath.Join(n.run, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
		if err := os.Chown(path, uid, gid); err != nil {
			return err
		}
	}
	if err := os.Chown(n.run, uid, gid); err != nil {
		return err
	}
	if n.mounts, err = newMounts(n.run); err != nil {
		return err
	}
	zserv := filepath.Join(n.run, "zserv.api")
	common := func(name string) []string {
		return []string{"-f", filepath.Join(n.run, name+".conf"), "-i", filepath.Join(n.run, name+".pid"), "--vty_socket", n.run, "-z", zserv, "-A", "127.0.0.1", "-P", "0"}
	}
	if n.zebra, err = f.start(ctx, n, "zebra", zebraPath, append(common("zebra"), "--vrfwnetns")...); err != nil {
		return err
	}
	if err := await(ctx, "zebra of node "+n.name, n.zebra.ready); err != nil {
		return err
	}
	// bgpd listens at the node's own address only: it has a socket in each
	// zone otherwise, where guests would reach it.
	if n.bgpd, err = f.start(ctx, n, "bgpd", bgpdPath, append(common("bgpd"), "-l", n.address.String())...); err != nil {
		return err
	}
	return await(ctx, "bgpd of node "+n.name, n.bgpd.ready)
}

// start records a daemon, starts it and notes its id.
func (f *Fabric) start(ctx context.Context, n *node, name, program string, args ...string) (*daemon, error) {
	p := process{Token: filepath.Join(n.run, name+".conf")}
	if err := f.ledger.setProcess(p); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(n.run, name+".out"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, args...) // it outlives the call; Close ends it
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	ns, err := os.Open(nsPath(n.ns)) // the mount namespace does not show it
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	err = n.mounts.within(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return cmd.Start()
	})
	if err != nil {
		return nil, fmt.Errorf("start %s of node %s: %w", name, n.name, err)
	}
	d := &daemon{name: name, run: n.run, gone: make(chan struct{})}
	f.wg.Go(func() {
		defer close(d.gone)
		_ = cmd.Wait() // how it ended is in its log
	})
	p.PID = cmd.Process.Pid
	if p.Started, err = notes.System.Started(p.PID); err != nil {
		return nil, fmt.Errorf("start %s of node %s: it ended at once: %s", name, n.name, d.log())
	}
	return d, f.ledger.setProcess(p)
}

// ready reports whether the daemon answers.
func (d *daemon) ready(ctx context.Context) (bool, error) {
	if !d.running() {
		return false, fmt.Errorf("it ended: %s", d.log())
	}
	_, err := d.ask(ctx)
	return err == nil, nil
}

// log is the end of what the daemon wrote.
func (d *daemon) log() string {
	var b bytes.Buffer
	for _, name := range []string{d.name + ".out", d.name + ".log"} {
		text, err := os.ReadFile(filepath.Join(d.run, name))
		if err == nil {
			b.Write(text[max(0, len(text)-1500):])
		}
	}
	return strings.ReplaceAll(strings.TrimSpace(b.String()), "\n", "; ")
}

// ask gives commands to the daemon; the answer is that of the last.
func (d *daemon) ask(ctx context.Context, commands ...string) ([]byte, error) {
	return vty(ctx, filepath.Join(d.run, d.name+".vty"), append([]string{"enable"}, commands...)...)
}

// configure changes the daemon's configuration.
func (d *daemon) configure(ctx context.Context, commands ...string) error {
	_, err := d.ask(ctx, append([]string{"configure terminal"}, commands...)...)
	if err != nil {
		return fmt.Errorf("configure %s in %s: %w", d.name, d.run, err)
	}
	return nil
}

// await asks until the answer is yes. An error ends it.
func await(ctx context.Context, what string, ready func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 60*time.Second, fmt.Errorf("not within 60 s"))
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		ok, err := ready(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		}
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-poll.C:
		}
	}
}
