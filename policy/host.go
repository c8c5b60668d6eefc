package policy

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"savepoint/policy/shell"
)

// destination is one place outside that a command writes to.
type destination struct {
	host string // as written, without a port
	port string // "" for the default one
}

func (d destination) String() string {
	if d.port == "" {
		return d.host
	}
	return d.host + ":" + d.port
}

// hostName is a host in plain lower-case letters: what else could look like a
// listed name is not one. There is no dot at the end.
var hostName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9])?)*$`)

// userPart is an account in front of a host, with a password or without. A
// second @ is not in it, so nobody has to know which one counts.
var userPart = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._~+-]*(:[A-Za-z0-9._~+!*-]*)?$`)

// defaultPorts are the ports that an address of a scheme means when it names
// none.
var defaultPorts = map[string]string{
	"http": "80", "https": "443", "ssh": "22", "git": "9418", "ftp": "21", "ftps": "990", "sftp": "22", "scp": "22", "rsync": "873",
	"postgres": "5432", "postgresql": "5432", "mysql": "3306", "mariadb": "3306", "redis": "6379", "rediss": "6379", "mongodb": "27017",
}

// parseAddress takes an address with a scheme apart. Only the part up to the
// path has to be known. Of web addresses an account in front of the host is
// refused; scheme names are lower-case.
func parseAddress(raw string, schemes ...string) (destination, bool) {
	for _, s := range schemes {
		rest, ok := strings.CutPrefix(raw, s+"://")
		if !ok {
			continue
		}
		i := strings.IndexAny(rest, "/?#")
		if i < 0 {
			i = len(rest)
		}
		authority := rest[:i]
		if user, host, ok := strings.Cut(authority, "@"); ok {
			if s == "http" || s == "https" || !userPart.MatchString(user) {
				return destination{}, false
			}
			authority = host
		}
		return parseHost(authority, defaultPorts[s])
	}
	return destination{}, false
}

// parseHost reads host, host:port or [address]:port. The default port is the
// same as none.
func parseHost(s, defaultPort string) (destination, bool) {
	if !shell.Known(s) {
		return destination{}, false
	}
	var d destination
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return destination{}, false
		}
		if a, err := netip.ParseAddr(s[1:end]); err != nil || !a.Is6() || a.Zone() != "" {
			return destination{}, false
		}
		d.host, s = s[:end+1], s[end+1:]
		if s != "" && s[0] != ':' {
			return destination{}, false
		}
		if s == ":" {
			return destination{}, false
		}
		d.port = strings.TrimPrefix(s, ":")
	} else {
		d.host, d.port, _ = strings.Cut(s, ":")
		if strings.HasSuffix(s, ":") || !hostName.MatchString(d.host) || len(d.host) > 253 {
			return destination{}, false
		}
	}
	if d.port != "" {
		n, err := strconv.ParseUint(d.port, 10, 16)
		if err != nil || n == 0 || strconv.FormatUint(n, 10) != d.port {
			return destination{}, false
		}
	}
	if d.port == defaultPort {
		d.port = ""
	}
	return d, true
}

// parseRemote reads host, user@host and either with ":path" behind it, as scp
// and git take them.
func parseRemote(raw string) (destination, bool) {
	host, path, _ := strings.Cut(raw, ":")
	if strings.HasPrefix(path, "//") {
		return destination{}, false
	}
	if user, rest, ok := strings.Cut(host, "@"); ok {
		if !userPart.MatchString(user) {
			return destination{}, false
		}
		host = rest
	}
	if !hostName.MatchString(host) {
		return destination{}, false
	}
	return destination{host: host}, true
}

// checkOpenHost refuses an entry of Options.OpenHosts that no host could match.
func checkOpenHost(entry string) error {
	d, ok := parseHost(strings.TrimPrefix(entry, "*."), "")
	if !ok || strings.HasPrefix(entry, "*.") && (strings.HasPrefix(d.host, "[") || !strings.Contains(d.host, ".")) {
		return fmt.Errorf("open host %q: want a host in lower case, host:port, or *.domain for every name below a domain; an IPv6 address stands in brackets", readable(entry))
	}
	return nil
}

// opens reports whether the deployment listed a destination. An entry without
// a port is for the default port alone.
func (e *Engine) opens(d destination) bool {
	for _, o := range e.open {
		domain, below := strings.CutPrefix(o, "*.")
		if !below {
			if o == d.String() {
				return true
			}
			continue
		}
		domain, port, _ := strings.Cut(domain, ":")
		name, ok := strings.CutSuffix(d.host, "."+domain)
		if ok && name != "" && port == d.port && hostName.MatchString(d.host) {
			return true
		}
	}
	return false
}
