package program

import (
	"regexp"
	"slices"
	"strings"

	"savepoint/policy/shell"
)

// loopback is an address of this machine, written so that no program can take
// it for another: no account, no list in braces, no other spelling.
var loopback = regexp.MustCompile(`^(?:https?://)?(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\]|0\.0\.0\.0)(?::([0-9]+))?(?:[/?#].*)?$`)

// staysHere reports whether a request changes at most what the machine's own
// services hold, and hands them text of the line or test material only. Any
// other file may be one that somebody posts, and a request that an option or a
// variable turns aside may end anywhere.
func staysHere(sc *shell.Scope, c shell.Call, u *Use, p parsed, address string) bool {
	m := loopback.FindStringSubmatch(address)
	if m == nil || p.odd || carries(address) || engineDoor.MatchString(m[1]) {
		return false
	}
	r := &reacher{sc: sc, call: c, name: u.Name}
	return !r.turned() && !slices.ContainsFunc(p.options, func(o Option) bool { return turns(r, o) })
}

// turns reports whether an option of curl or wget may send a request, or a
// file, elsewhere than the address says.
func turns(r *reacher, o Option) bool {
	switch o.Name {
	case "-x", "--proxy", "--preproxy", "--resolve", "--connect-to", "-K", "--config", "--execute", "--location-trusted", "--input-file", "--base",
		"-Q", "--quote", "--mail-from", "--mail-rcpt", "--unix-socket", "--abstract-unix-socket", "--interface":
		return true
	case "-L", "--location":
		return r.name == "curl"
	case "-e", "-i", "-B": // for curl the referer, the head of the answer, plain text
		return r.name != "curl"
	case "-T", "--upload-file":
		return r.name == "curl" && !sendable(r.sc, o.Value)
	case "--post-file", "--body-file":
		return !sendable(r.sc, o.Value)
	case "-F", "--form":
		_, value, _ := strings.Cut(o.Value, "=")
		if strings.HasPrefix(value, "@") || strings.HasPrefix(value, "<") {
			file, _, _ := strings.Cut(value[1:], ";")
			return !sendable(r.sc, file)
		}
	case "-H", "--header", "-b", "--cookie", "-u", "--user", "-A", "--user-agent":
		// A token that the service itself gave is a header, as a rule.
		return strings.HasPrefix(o.Value, "@") || shell.Has(o.Value, shell.HoleDecoded) || shell.Has(o.Value, shell.HoleFields) ||
			shell.Has(o.Value, shell.HoleOutput) && !strings.HasPrefix(o.Value, "Authorization: ")
	case "--form-string":
		return !said(o.Value)
	}
	if strings.HasPrefix(o.Name, "--socks") {
		return true
	}
	if o.kind != Send {
		return false
	}
	if o.Name == "--post-data" || o.Name == "--body-data" || o.Name == "--data-raw" {
		return !said(o.Value)
	}
	file, found := strings.CutPrefix(o.Value, "@")
	if !found && o.Name == "--data-urlencode" {
		name, rest, at := strings.Cut(o.Value, "@")
		found, file = at && !strings.Contains(name, "="), rest
	}
	if found && file == "-" {
		return !r.said()
	}
	return found && !sendable(r.sc, file) || !found && !said(o.Value)
}

// said reports whether a value holds what the line shows, and at most numbers
// and variables that nobody set.
func said(v string) bool { return shell.Known(leftOut.Replace(v)) }

var leftOut = strings.NewReplacer(string(shell.HoleText), "", string(shell.HoleMaybe), "")
