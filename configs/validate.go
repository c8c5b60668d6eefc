package configs

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The forms of names, as Proxmox VE and Linux accept them.
var (
	dnsName     = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
	poolName    = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)
	storageName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]*[A-Za-z0-9]$`)
	bridgeName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$`)
	tokenID     = regexp.MustCompile(`^[^\s:/@!]+@[A-Za-z][A-Za-z0-9._-]+![A-Za-z][A-Za-z0-9._-]+$`)
	userName    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`)
	profileName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	hexDigest   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// checker validates one configuration.
type checker struct {
	c *Config
	r *report
}

// validate brings values into their normal form and reports every problem.
func validate(c *Config, f *file, needCluster bool, r *report) {
	k := checker{c: c, r: r}
	k.standIns()
	k.secrets(f)
	k.cluster()
	k.ranges()
	k.sandbox()
	k.pool()
	k.ssh()
	k.words()
	k.validation()
	k.network()
	k.workspace()
	k.template()
	if needCluster {
		k.required()
		k.files()
	}
}

// bad reports a problem of a key with the value it has now. A key that has a
// problem already is not reported again: the first cause is the useful one.
func (k checker) bad(name, cause, mend string) {
	if slices.ContainsFunc(k.r.problems, func(p Problem) bool { return p.Key == name }) {
		return
	}
	p := Problem{Key: name, Origin: k.c.Source.Keys[name], Cause: cause, Mend: mend}
	for _, leaf := range keys() {
		if leaf.name == name {
			v := reflect.ValueOf(*k.c).FieldByIndex(leaf.index)
			if !v.IsZero() {
				p.Value = fmt.Sprint(v.Interface())
			}
		}
	}
	k.r.add(p)
}

// match reports a set value that does not have the form.
func (k checker) match(name, value string, form *regexp.Regexp, cause, mend string) {
	if value != "" && !form.MatchString(value) {
		k.bad(name, cause, mend)
	}
}

func (k checker) secrets(f *file) {
	cl := &k.c.Cluster
	inFile := strings.HasPrefix(k.c.Source.Keys["cluster.token_secret"], f.path+":")
	switch {
	case !cl.TokenSecret.IsZero() && inFile && f.mode&0o077 != 0:
		k.bad("cluster.token_secret", fmt.Sprintf("stands in a file that others can read (mode %04o)", f.mode),
			"chmod 600 "+f.path+", or use cluster.token_secret_file")
	case cl.TokenSecret.Reveal() == redacted:
		k.bad("cluster.token_secret", "is the placeholder of a printed configuration", "put the token's secret there")
	case !cl.TokenSecret.IsZero() && cl.TokenSecretFile != "":
		k.bad("cluster.token_secret_file", "is set together with cluster.token_secret", "keep one of the two")
	case cl.TokenSecretFile != "":
		secret, cause, mend := readSecret(cl.TokenSecretFile)
		if cause != "" {
			k.bad("cluster.token_secret_file", cause, mend)
			return
		}
		if standInOf(secret.Reveal()) != "" {
			k.bad("cluster.token_secret_file", "holds a stand-in and no secret", "write the token's secret into it; pveum user token add printed it")
			return
		}
		cl.TokenSecret = secret
	}
}

// readSecret reads a file that holds one secret and nothing else.
func readSecret(path string) (secret Secret, cause, mend string) {
	h, err := os.Open(path)
	if err != nil {
		return Secret{}, pathCause(err), "write the token's secret into that file, mode 0600"
	}
	defer h.Close()
	info, err := h.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return Secret{}, "is not a regular file", "write the token's secret into a file, mode 0600"
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return Secret{}, fmt.Sprintf("can be read by others (mode %04o)", mode), "chmod 600 " + path
	}
	text, err := io.ReadAll(io.LimitReader(h, 4097))
	if err != nil {
		return Secret{}, pathCause(err), "write the token's secret into that file, mode 0600"
	}
	line := strings.TrimSpace(string(text))
	if line == "" || len(text) > 4096 || strings.ContainsAny(line, "\r\n") {
		return Secret{}, "does not hold one line", "write only the token's secret into it"
	}
	return NewSecret(line), "", ""
}

func (k checker) cluster() {
	cl := &k.c.Cluster
	if strings.Contains(cl.URL, "@") {
		cl.URL = "" // what it holds must not be shown
		k.bad("cluster.url", "holds credentials", "use cluster.token_id and cluster.token_secret_file")
	} else if cl.URL != "" {
		if origin, cause := apiOrigin(cl.URL); cause != "" {
			k.bad("cluster.url", cause, `write the API's address, like "https://pve1.example:8006"`)
		} else {
			cl.URL = origin
		}
	}
	cl.Fingerprint = strings.ToLower(strings.ReplaceAll(cl.Fingerprint, ":", ""))
	k.match("cluster.fingerprint", cl.Fingerprint, hexDigest, "is not a SHA-256 fingerprint",
		"copy it from the node's certificate: 32 bytes in hexadecimal")
	k.match("cluster.token_id", cl.TokenID, tokenID, "is not a token id", `write "USER@REALM!NAME", like "savepoint@pve!engine"`)
	k.match("cluster.pool", cl.Pool, poolName, "is not a pool's name", "use letters, digits, '.', '_' and '-'")
	k.match("cluster.storage", cl.Storage, storageName, "is not a storage's name", "use the id that `pvesm status` prints")
	k.match("cluster.state_storage", cl.StateStorage, storageName, "is not a storage's name", "use the id that `pvesm status` prints")
	for _, l := range []struct {
		name  string
		nodes []string
	}{{"cluster.nodes", cl.Nodes}, {"cluster.drained_nodes", cl.DrainedNodes}} {
		for _, n := range l.nodes {
			if !dnsName.MatchString(n) {
				k.bad(l.name, fmt.Sprintf("has %q, which is not a node's name", n), "use the names that `pvecm nodes` prints")
			}
		}
	}
	switch {
	case cl.VMIDFirst < 100 || cl.VMIDFirst > 999999999:
		k.bad("cluster.vmid_first", "is outside 100 to 999999999", "choose a range that nothing else uses")
	case cl.VMIDLast < cl.VMIDFirst || cl.VMIDLast > 999999999:
		k.bad("cluster.vmid_last", fmt.Sprintf("is outside %d (cluster.vmid_first) to 999999999", cl.VMIDFirst),
			"choose a range that nothing else uses")
	}
}

// apiOrigin reduces an URL to its origin.
func apiOrigin(text string) (origin, cause string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		return "", "is not an URL"
	case u.Scheme != "https":
		return "", "does not use https"
	case u.RawQuery != "" || u.Fragment != "":
		return "", "has a query or a fragment"
	}
	if path := strings.TrimSuffix(u.Path, "/"); path != "" && path != "/api2/json" {
		return "", "has a path"
	}
	if p := u.Port(); p != "" && !validPort(p) {
		return "", "has a port outside 1 to 65535"
	}
	return "https://" + u.Host, ""
}

func validPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// ranges checks all numbers and durations.
func (k checker) ranges() {
	c := k.c
	for _, d := range []struct {
		name       string
		value      time.Duration
		least, top time.Duration
	}{
		{"cluster.vmid_rest", c.Cluster.VMIDRest, 0, 8760 * time.Hour},
		{"cluster.request_timeout", c.Cluster.RequestTimeout, time.Second, time.Hour},
		{"cluster.task_timeout", c.Cluster.TaskTimeout, time.Second, 24 * time.Hour},
		{"cluster.poll_interval", c.Cluster.PollInterval, 10 * time.Millisecond, 250 * time.Millisecond},
		{"sandbox.boot_timeout", c.Sandbox.BootTimeout, time.Second, time.Hour},
		{"pool.proof_age", c.Pool.ProofAge, time.Minute, 7 * day},
		{"run.timeout", c.Run.Timeout, time.Millisecond, 168 * time.Hour},
		{"run.rollback_timeout", c.Run.RollbackTimeout, time.Second, 24 * time.Hour},
		{"run.snapshot_timeout", c.Run.SnapshotTimeout, time.Millisecond, 24 * time.Hour},
		{"run.validate_timeout", c.Run.ValidateTimeout, time.Millisecond, 24 * time.Hour},
		{"validate.max_clock_skew", c.Validate.MaxClockSkew, 10 * time.Millisecond, time.Hour},
		{"transaction.idle", c.Transaction.Idle, time.Second, 30 * day},
		{"workspace.freeze", c.Workspace.Freeze, time.Second, 5 * time.Minute},
		{"journal.keep_for", c.Journal.KeepFor, time.Minute, 36500 * day},
	} {
		if d.value < d.least || d.value > d.top {
			k.bad(d.name, fmt.Sprintf("is outside %s to %s", d.least, d.top), "choose a duration in that range")
		}
	}
	for _, n := range []struct {
		name       string
		value      int64
		least, top int64
	}{
		{"cluster.max_per_node", int64(c.Cluster.MaxPerNode), 0, 100_000},
		{"cluster.memory_reserve", int64(c.Cluster.MemoryReserve), 0, 1 << 50},
		{"cluster.clones_per_storage", int64(c.Cluster.ClonesPerStorage), 1, 64},
		{"cluster.limits.full_clones", int64(c.Cluster.Limits.FullClones), 1, 64},
		{"cluster.limits.linked_clones", int64(c.Cluster.Limits.LinkedClones), 1, 64},
		{"cluster.limits.per_node", int64(c.Cluster.Limits.PerNode), 1, 256},
		{"pool.size", int64(c.Pool.Size), 0, 1000},
		{"pool.max_per_node", int64(c.Pool.MaxPerNode), 0, 1000},
		{"run.output_limit", int64(c.Run.OutputLimit), 1, 1 << 30},
		{"network.underlay_mtu", int64(c.Network.UnderlayMTU), 1280, 65535},
		{"network.vni_first", int64(c.Network.VNIFirst), 1, 1<<24 - 1},
		{"network.vni_last", int64(c.Network.VNILast), 1, 1<<24 - 1},
		{"network.asn", int64(c.Network.ASN), 1, 1<<32 - 1},
		{"workspace.size", int64(c.Workspace.Size), 64 << 20, 1 << 50},
		{"workspace.reserve", int64(c.Workspace.Reserve), 1 << 20, 1 << 50},
		{"template.cores", int64(c.Template.Cores), 1, 512},
		{"template.memory", int64(c.Template.Memory), 128 << 20, 1 << 42},
		{"validate.max_entries", int64(c.Validate.MaxEntries), 1, 10_000_000},
	} {
		if n.value < n.least || n.value > n.top {
			k.bad(n.name, fmt.Sprintf("is outside %d to %d", n.least, n.top), "choose a number in that range")
		}
	}
}

func (k checker) sandbox() {
	s := &k.c.Sandbox
	k.match("sandbox.template", s.Template, dnsName, "is not a VM's name", "use the name that `savepoint template list` prints")
	k.match("sandbox.bridge", s.Bridge, bridgeName, "is not the name of a bridge or vnet", "use at most 15 letters, digits, '.', '_' and '-'")
	if s.Subnet.IsValid() {
		hostBits := s.Subnet.Addr().BitLen() - s.Subnet.Bits()
		switch {
		case s.Subnet.Masked() != s.Subnet:
			k.bad("sandbox.subnet", "has host bits set", fmt.Sprintf("write %q", s.Subnet.Masked()))
		case hostBits < 2:
			k.bad("sandbox.subnet", "has no room for guests", "choose a /30 or larger")
		case s.Subnet.Addr().IsMulticast() || s.Subnet.Addr().IsLoopback() || s.Subnet.Addr().IsUnspecified():
			k.bad("sandbox.subnet", "is not a network for guests", "choose a private network")
		}
	}
	if s.Gateway.IsValid() && s.Subnet.IsValid() {
		switch {
		case !s.Subnet.Contains(s.Gateway):
			k.bad("sandbox.gateway", fmt.Sprintf("is outside sandbox.subnet %s", s.Subnet), "choose an address in the subnet, or remove it for sealed guests")
		case s.Gateway == s.Subnet.Addr() || s.Subnet.Addr().Is4() && s.Gateway == LastAddr(s.Subnet):
			k.bad("sandbox.gateway", "is the network's own or its broadcast address", "choose a host address in the subnet")
		}
	}
	k.word("sandbox.root_boundary", s.RootBoundary, "machine", "disk")
}

// LastAddr is the highest address of a prefix; that of an IPv4 network is its
// broadcast address.
func LastAddr(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}

func (k checker) ssh() {
	j := &k.c.SSH.Jump
	if *j == (Jump{}) {
		return
	}
	// A jump host that is set by halves must not turn into a direct dial.
	if host, port, err := net.SplitHostPort(j.Address); j.Address == "" {
		k.bad("ssh.jump.address", "is missing although other keys of ssh.jump are set", `write "HOST:PORT", or remove ssh.jump`)
	} else if err != nil || host == "" || !validPort(port) {
		k.bad("ssh.jump.address", "is not HOST:PORT", `write it like "pve1.example:22"`)
	}
	if j.User == "" {
		k.bad("ssh.jump.user", "is missing", "name the account on the jump host")
	}
	k.match("ssh.jump.user", j.User, userName, "is not an account's name", "name the account on the jump host")
	if j.HostKey == "" {
		k.bad("ssh.jump.host_key", "is missing", "copy the line of /etc/ssh/ssh_host_ed25519_key.pub from the jump host")
	} else if key, ok := hostKey(j.HostKey); ok {
		j.HostKey = key
	} else {
		k.bad("ssh.jump.host_key", "is not a public SSH key", "copy the line of /etc/ssh/ssh_host_ed25519_key.pub from the jump host")
	}
	if j.IdentityFile == "" {
		j.IdentityFile = k.c.SSH.IdentityFile
	}
}

// hostKey checks the form "ALGORITHM BASE64 [COMMENT]" and drops the comment.
// The blob begins with the length and the name of the algorithm.
func hostKey(line string) (string, bool) {
	fields := strings.Fields(line)
	if len(fields) < 2 || strings.ContainsAny(line, "\r\n") {
		return "", false
	}
	blob, err := base64.StdEncoding.DecodeString(fields[1])
	if err != nil || len(blob) < 4 {
		return "", false
	}
	n := binary.BigEndian.Uint32(blob)
	if uint64(n)+4 >= uint64(len(blob)) || string(blob[4:4+n]) != fields[0] {
		return "", false
	}
	return fields[0] + " " + fields[1], true
}

// words checks the remaining names.
func (k checker) words() {
	k.match("policy.profile", k.c.Policy.Profile, profileName, "is not a profile's name", `use lower-case letters, digits and '-', like "sealed"`)
	k.word("log.level", k.c.Log.Level, "debug", "info", "warn", "error")
	k.word("log.format", k.c.Log.Format, "text", "json")
	for _, e := range []struct{ name, value string }{
		{"cluster.pool", k.c.Cluster.Pool},
		{"sandbox.template", k.c.Sandbox.Template},
		{"sandbox.bridge", k.c.Sandbox.Bridge},
		{"policy.profile", k.c.Policy.Profile},
	} {
		if e.value == "" {
			k.bad(e.name, "is empty", "remove the key for its default, or give it a value")
		}
	}
}

func (k checker) word(name, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		k.bad(name, "is not a known word", "choose one of: "+strings.Join(allowed, ", "))
	}
}

// required reports what is missing for talking to a cluster.
func (k checker) required() {
	cl := k.c.Cluster
	missing := func(name, mend string) { k.bad(name, "is missing", mend) }
	if cl.URL == "" {
		missing("cluster.url", `start the lab with "savepoint lab up", or write a savepoint.yaml as configs/cluster.example.yaml shows`)
	}
	if cl.TokenID == "" {
		missing("cluster.token_id", `write the API token's id, "USER@REALM!NAME"`)
	}
	if cl.TokenSecret.IsZero() && cl.TokenSecretFile == "" {
		missing("cluster.token_secret", "set it, cluster.token_secret_file or SAVEPOINT_CLUSTER_TOKEN_SECRET")
	}
	if !k.c.Sandbox.Subnet.IsValid() && len(k.c.Network.Tenants) == 0 {
		missing("sandbox.subnet", "write the network that guests get their addresses from")
	}
}

// files looks at the files that talking to a cluster needs.
func (k checker) files() {
	readable := func(name, path, mend string) {
		if path == "" {
			return
		}
		h, err := os.Open(path)
		if err != nil {
			k.bad(name, pathCause(err), mend)
			return
		}
		h.Close()
	}
	readable("cluster.ca_file", k.c.Cluster.CAFile, "copy /etc/pve/pve-root-ca.pem from a node")
	for _, path := range k.c.Policy.Rules {
		readable("policy.rules", path, fmt.Sprintf("mend the path %s", path))
	}
	for _, id := range []struct{ name, path string }{
		{"ssh.identity_file", k.c.SSH.IdentityFile},
		{"ssh.jump.identity_file", k.c.SSH.Jump.IdentityFile},
		{"workspace.identity_file", k.c.Workspace.IdentityFile},
	} {
		// A missing identity is for the command to make or to ask for.
		if info, err := os.Stat(id.path); err == nil && info.Mode().Perm()&0o077 != 0 {
			k.bad(id.name, fmt.Sprintf("can be read by others (mode %04o)", info.Mode().Perm()), "chmod 600 "+id.path)
		}
	}
}
