package pve_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Another client than the product's, in another language, that reads the
// reason of the status line.
func TestProxmoxer(t *testing.T) {
	if os.Getenv("SAVEPOINT_LAB") != "1" {
		t.Skip("SAVEPOINT_LAB is not 1: needs Debian's python3-proxmoxer")
	}
	const python = "/usr/bin/python3" // the one that Debian's packages are for
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import proxmoxer").CombinedOutput(); err != nil {
		t.Skipf("no proxmoxer: %s", out)
	}
	n := newNode(t, nil)
	n.makeVM("100", "")
	n.run("POST", "/nodes/pve1/qemu/100/template", "")
	cmd := exec.CommandContext(t.Context(), python, "testdata/life.py", strings.TrimPrefix(n.url, "https://"), n.srv.CAFile())
	cmd.Env = append(os.Environ(), "TOKEN="+n.srv.Credentials().Tokens["sp@pve!t1"].Reveal(), "PASSWORD="+n.srv.Credentials().Passwords["root@pam"].Reveal())
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "ok" {
		t.Fatalf("%v\n%s", err, out)
	}
}
