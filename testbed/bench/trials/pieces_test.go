package trials

import (
	"archive/zip"
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"savepoint/policy"
)

// What is sent to the guest is text that a shell reads, and an archive that pip
// can read.
func TestPieces(t *testing.T) {
	files := pieces()
	if n := len(agentDamages()); n < 20 { // those that every boundary covers
		t.Errorf("%d damages of the agent's account, want at least 20", n)
	}
	seen := map[string]bool{}
	for _, d := range damages() {
		if seen[d.name] {
			t.Errorf("two damages are named %s", d.name)
		}
		seen[d.name] = true
	}
	for name, text := range files {
		switch {
		case strings.HasSuffix(name, ".sh"):
			cmd := exec.Command("sh", "-n")
			cmd.Stdin = strings.NewReader(text)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", name, err, out)
			}
		case strings.HasSuffix(name, ".whl"):
			z, err := zip.NewReader(bytes.NewReader([]byte(text)), int64(len(text)))
			if err != nil || len(z.File) < wheelModules {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// The policy lets the experiments' own commands into a boundary: one that it
// denied would measure nothing.
func TestCommandsPass(t *testing.T) {
	e := engine(t)
	var commands []string
	for _, d := range damages() {
		commands = append(commands, d.command())
	}
	for _, w := range workloads() {
		commands = append(commands, w.command)
		v := e.Decide(policy.Request{Command: w.command, User: policy.Agent})
		if reads := v.Decision == policy.Allow; reads != w.reads {
			t.Errorf("%s: %v, read-only %v is wanted", w.command, v.Decision, w.reads)
		}
	}
	commands = append(commands, "mkdir -p "+stage, "tar -x -f - -C "+stage+" --no-same-owner", "sh "+stage+"/copy.sh", "perl "+stage+"/"+treeFile+" -/proc '~/usr' / | gzip -1", "python3 -m pip --version")
	for _, c := range commands {
		for _, as := range []policy.User{policy.Agent, policy.Root} {
			if v := e.Decide(policy.Request{Command: c, User: as}); v.Decision == policy.Deny {
				t.Errorf("%s as %s: denied (%s): %s", c, as, v.Rule, v.Reason)
			}
		}
	}
}

// Scripts end with the exit codes that the experiment knows.
func TestDamageEnds(t *testing.T) {
	for name, want := range map[string]int{"took": take, "failed": noTake} {
		err := exec.Command("sh", "-c", damageHead+name).Run()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != want {
			t.Errorf("%s: %v, want exit %d", name, err, want)
		}
	}
}
