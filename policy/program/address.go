package program

import (
	"net/netip"
	"strconv"
	"strings"
)

// FactMetadata is a request to the service of a cloud that tells a machine its
// secrets.
const FactMetadata = "metadata-service"

// isMetadata reports whether a host is the metadata service of a cloud,
// whatever way the address is written in.
func isMetadata(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	switch host {
	case "metadata", "metadata.google.internal", "metadata.goog", "metadata.azure.com", "instance-data", "instance-data.ec2.internal", "metadata.tencentyun.com", "metadata.packet.net":
		return true
	}
	for _, suffix := range [...]string{".nip.io", ".sslip.io", ".xip.io"} { // names that spell an address
		if front, ok := strings.CutSuffix(host, suffix); ok {
			parts := strings.FieldsFunc(front, func(r rune) bool { return r == '.' || r == '-' })
			if n := len(parts); n >= 4 {
				host = strings.Join(parts[n-4:], ".")
			}
		}
	}
	addr, ok := address(host)
	if !ok {
		return false
	}
	if addr.Is4() {
		switch addr.String() {
		case "100.100.100.200", "168.63.129.16", "192.0.0.192":
			return true
		}
		return addr.IsLinkLocalUnicast() // 169.254.0.0/16, where all the others are
	}
	return addr == netip.MustParseAddr("fd00:ec2::254") || addr == netip.MustParseAddr("fd20:ce::254")
}

// address reads a numeric host as resolvers do: one to four numbers, each
// decimal, octal or hexadecimal, of which the last one fills the rest; or an
// address of IPv6, of which one that holds an address of IPv4 is that one.
func address(host string) (netip.Addr, bool) {
	if strings.Contains(host, ":") {
		host, _, _ = strings.Cut(host, "%")
		a, err := netip.ParseAddr(host)
		if err != nil {
			return netip.Addr{}, false
		}
		if b := a.As16(); a.Is6() && !a.Is4In6() && (strings.HasPrefix(string(b[:]), "\x00\x64\xff\x9b\x00\x00\x00\x00\x00\x00\x00\x00") || strings.HasPrefix(string(b[:]), "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00") && b[12] != 0) {
			return netip.AddrFrom4([4]byte(b[12:])), true
		}
		return a.Unmap(), true
	}
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var value uint64
	for i, p := range parts {
		base := 10
		switch {
		case strings.HasPrefix(p, "0x"):
			p, base = p[2:], 16
		case len(p) > 1 && p[0] == '0':
			p, base = p[1:], 8
		}
		n, err := strconv.ParseUint(p, base, 32)
		room := uint64(255)
		if i == len(parts)-1 {
			room = 1<<(8*(5-len(parts))) - 1
		}
		if err != nil || n > room {
			return netip.Addr{}, false
		}
		if i == len(parts)-1 {
			value |= n
		} else {
			value |= n << (8 * (3 - i))
		}
	}
	return netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)}), true
}
