package zfs

import (
	_ "embed"
	"fmt"
	"strings"
)

// Program is savepoint-zfs, the forced command on a node.
//
//go:embed savepoint-zfs.sh
var Program []byte

// ProgramPath is where Setup installs Program.
const ProgramPath = "/usr/local/lib/savepoint/savepoint-zfs"

// Setup returns the commands that root runs once on each node so that the
// holder of key can do what this package needs, below the given datasets and
// nowhere else. Program has to be at ProgramPath. The arguments come from the
// configuration, which checks them; a quote in one is refused here.
func Setup(user, key string, datasets []string) ([]string, error) {
	for _, s := range append([]string{user, key}, datasets...) {
		if s == "" || strings.ContainsAny(s, "'\"\\\n`$") {
			return nil, fmt.Errorf("set up ZFS on a node: %q cannot be used; use a name without quotes", s)
		}
	}
	if len(datasets) == 0 {
		return nil, fmt.Errorf("set up ZFS on a node: no dataset is named")
	}
	home := "/var/lib/" + user
	line := fmt.Sprintf(`restrict,command="%s %s" %s`, ProgramPath, strings.Join(datasets, " "), key)
	commands := []string{
		"chown root:root " + ProgramPath + " && chmod 0755 " + ProgramPath,
		fmt.Sprintf("useradd --system --create-home --home-dir %s --shell /bin/sh %s", home, user),
		fmt.Sprintf("install -d -m 0755 -o root -g root %s/.ssh", home),
		fmt.Sprintf("printf '%%s\\n' '%s' > %s/.ssh/authorized_keys", line, home),
	}
	for _, d := range datasets {
		commands = append(commands, fmt.Sprintf("zfs allow -u %s snapshot,rollback,destroy,mount,userprop %s", user, d))
	}
	return commands, nil
}
