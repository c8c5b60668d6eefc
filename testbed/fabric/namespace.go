package fabric

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"savepoint/testbed/thread"
)

// netnsDir is where ip(8) keeps the names of namespaces.
const netnsDir = "/run/netns"

func nsPath(name string) string { return filepath.Join(netnsDir, name) }

// within runs f on an operating-system thread that is in a network namespace.
// What f opens and starts there stays in the namespace; f must not hand work to
// other goroutines. The thread goes back to the host's namespace, and if it
// cannot it ends and is never used again.
func within(name string, f func() error) error {
	done := make(chan error, 1)
	thread.Go(func() {
		err, back := visit(nsPath(name), f)
		if back {
			runtime.UnlockOSThread()
		}
		done <- err
	})
	return <-done
}

func visit(path string, f func() error) (err error, back bool) {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err, true
	}
	defer home.Close()
	ns, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("enter network namespace %s: %w", path, err), true
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", path, err), true
	}
	err = f()
	return err, unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil
}

// run runs a program of the host in a namespace and returns what it printed.
func run(ctx context.Context, ns string, stdin []byte, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdin = bytes.NewReader(stdin)
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	err := within(ns, cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return out.Bytes(), fmt.Errorf("%s in namespace %s: %w: %s", strings.Join(args, " "), ns, err, strings.TrimSpace(diag.String()))
	}
	return out.Bytes(), nil
}

// ip runs ip(8) in a namespace. The arguments are split at spaces; no name of
// ours has one.
func ip(ctx context.Context, ns, line string, a ...any) error {
	_, err := run(ctx, ns, nil, append([]string{"ip"}, strings.Fields(fmt.Sprintf(line, a...))...)...)
	return err
}

// steps runs ip(8) for each line.
func steps(ctx context.Context, ns string, lines ...string) error {
	for _, l := range lines {
		if err := ip(ctx, ns, "%s", l); err != nil {
			return err
		}
	}
	return nil
}

// sysctl writes a namespace's own network settings.
func sysctl(ns string, settings map[string]string) error {
	return within(ns, func() error {
		for key, value := range settings {
			if err := os.WriteFile("/proc/sys/net/"+key, []byte(value), 0); err != nil {
				return fmt.Errorf("set %s in namespace %s: %w", key, ns, err)
			}
		}
		return nil
	})
}

// makeNamespace records a namespace and makes it.
func (l *ledger) makeNamespace(ctx context.Context, name string) error {
	if _, err := os.Lstat(nsPath(name)); err == nil {
		return fmt.Errorf("make network namespace %s: there is one already and it is not ours", name)
	}
	if err := l.addNamespace(name); err != nil {
		return err
	}
	return addNamespace(ctx, name)
}

// addNamespace makes a namespace that is recorded.
func addNamespace(ctx context.Context, name string) error {
	out, err := exec.CommandContext(ctx, "ip", "netns", "add", name).CombinedOutput()
	if err != nil {
		return fmt.Errorf("make network namespace %s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	// The kernel may hand the host's settings to a new namespace.
	err = sysctl(name, map[string]string{
		"ipv4/ip_forward": "0", "ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0",
		"ipv6/conf/all/forwarding": "0",
	})
	if err != nil {
		return err
	}
	return ip(ctx, name, "link set lo up")
}

// namespaceAt reports whether a path is a namespace: a name without one is left
// when who makes or removes it is killed right then.
func namespaceAt(path string) (bool, error) {
	var fsys unix.Statfs_t
	switch err := unix.Statfs(path, &fsys); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at network namespace %s: %w", path, err)
	}
	return fsys.Type == unix.NSFS_MAGIC, nil
}

// removeNamespace empties a namespace and removes its name. A process that
// still holds the namespace is left with nothing in it.
func removeNamespace(ctx context.Context, name string) error {
	if _, err := os.Lstat(nsPath(name)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	there, err := namespaceAt(nsPath(name))
	if err != nil {
		return err
	}
	if there {
		links, err := observe(ctx, name)
		if err != nil {
			return err
		}
		for _, l := range links {
			if l.Name != "lo" && l.Kind != "" {
				_ = ip(ctx, name, "link del %s", l.Name) // the other end of a pair is gone with the first
			}
		}
	}
	out, err := exec.CommandContext(ctx, "ip", "netns", "del", name).CombinedOutput()
	if err != nil {
		return fmt.Errorf("remove network namespace %s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}

// link is one network interface as the kernel has it.
type link struct {
	Name, Kind, Master string
	MAC, Alias         string
	MTU                int
	VNI                uint32
	Addresses          []netip.Prefix // not those of link scope
}

// observe lists the links of a namespace.
func observe(ctx context.Context, ns string) (map[string]link, error) {
	out, err := run(ctx, ns, nil, "ip", "-j", "-d", "addr", "show")
	if err != nil {
		return nil, err
	}
	return parseLinks(out)
}

func parseLinks(text []byte) (map[string]link, error) {
	var raw []struct {
		Ifname, Ifalias, Address, Master string
		MTU                              int
		Linkinfo                         struct {
			Kind string `json:"info_kind"`
			Data struct {
				ID uint32
			} `json:"info_data"`
		}
		Addrs []struct {
			Local     netip.Addr
			Prefixlen int
			Scope     string
		} `json:"addr_info"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("read the output of ip addr: %w", err)
	}
	out := map[string]link{}
	for _, r := range raw {
		if r.Ifname == "" {
			continue // ip prints an empty object for what it leaves out
		}
		l := link{Name: r.Ifname, Kind: r.Linkinfo.Kind, Master: r.Master, MAC: r.Address, Alias: r.Ifalias, MTU: r.MTU}
		if l.Kind == "vxlan" {
			l.VNI = r.Linkinfo.Data.ID
		}
		for _, a := range r.Addrs {
			if a.Scope == "global" {
				l.Addresses = append(l.Addresses, netip.PrefixFrom(a.Local, a.Prefixlen))
			}
		}
		out[l.Name] = l
	}
	return out, nil
}

// literal checks that an address needs no look-up, which would go through the
// host, and gives an interface in it its number in the namespace of the calling
// thread: package net would take the number that the host has for the name.
func literal(network, address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if strings.HasPrefix(network, "ip") {
		host, port, err = address, "", nil
	}
	if err != nil {
		return "", err
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return "", fmt.Errorf("address %s: want an IP address, not a name", address)
	}
	if a.Zone() != "" {
		link, err := net.InterfaceByName(a.Zone())
		if err != nil {
			return "", fmt.Errorf("address %s: %w", address, err)
		}
		a = a.WithZone(strconv.Itoa(link.Index))
	}
	if port == "" {
		return a.String(), nil
	}
	return net.JoinHostPort(a.String(), port), nil
}

// dialIn dials from inside a namespace.
func dialIn(ctx context.Context, ns, network, address string) (net.Conn, error) {
	return open(ns, network, address, func(address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	})
}

func listenIn(ctx context.Context, ns, network, address string) (net.Listener, error) {
	return open(ns, network, address, func(address string) (net.Listener, error) {
		return (&net.ListenConfig{}).Listen(ctx, network, address)
	})
}

func listenPacketIn(ctx context.Context, ns, network, address string) (net.PacketConn, error) {
	return open(ns, network, address, func(address string) (net.PacketConn, error) {
		return (&net.ListenConfig{}).ListenPacket(ctx, network, address)
	})
}

func open[T any](ns, network, address string, f func(string) (T, error)) (T, error) {
	var out T
	err := within(ns, func() error {
		address, err := literal(network, address)
		if err == nil {
			out, err = f(address)
		}
		return err
	})
	return out, err
}
