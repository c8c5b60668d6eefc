package evpn

import (
	_ "embed"
	"fmt"
	"strings"
)

// Program is savepoint-evpn, the forced command on a node.
//
//go:embed savepoint-evpn.sh
var Program []byte

// ProgramPath is where Setup expects Program.
const ProgramPath = "/usr/local/lib/savepoint/savepoint-evpn"

// Setup returns the commands that root runs once on each node so that the
// holder of key can read the zones' routing tables. Program has to be at
// ProgramPath. FRR's group lets the account ask; it may change nothing, because
// the forced command is all that it can run.
func Setup(key string) ([]string, error) {
	if key == "" || strings.ContainsAny(key, "'\"\\\n`$") {
		return nil, fmt.Errorf("set up the reading of routes on a node: the key %q cannot be used; use one line of an authorized_keys file without options", key)
	}
	home := "/var/lib/" + User
	return []string{
		"chown root:root " + ProgramPath + " && chmod 0755 " + ProgramPath,
		fmt.Sprintf("useradd --system --create-home --home-dir %s --shell /bin/sh --groups frrvty %s", home, User),
		fmt.Sprintf("install -d -m 0755 -o root -g root %s/.ssh", home),
		fmt.Sprintf("printf '%%s\\n' 'restrict,command=\"%s\" %s' > %s/.ssh/authorized_keys", ProgramPath, key, home),
	}, nil
}
