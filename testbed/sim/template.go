package sim

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"savepoint/orchestrator/sshexec"
)

// lacksFile lists what the image of a guest has not, a name a line: programs,
// and "sources" for package sources to install them from. No guest looks at it.
const lacksFile = "/usr/lib/sim-lacks"

// workspaceFile is what a template has that waits for its workspace volume.
const workspaceFile = "/var/lib/savepoint/workspace"

// readLacks takes the lines "lacks NAME" over from an image file.
func (t *tree) readLacks(path string, now time.Time) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return err
	}
	var names []string
	for line := range bytes.Lines(head) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "lacks "); ok {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return t.write(rootUser, lacksFile, strings.Join(names, "\n")+"\n", false, 0o644, now)
}

// lacks reports whether the guest has not what the name says.
func (t *tree) lacks(name string) bool {
	if t == nil {
		return false
	}
	text, err := t.read(rootUser, lacksFile)
	return err == nil && slices.Contains(strings.Split(text, "\n"), name)
}

// templateStep recognises the command of a step that makes a template.
func templateStep(command string) (step string, workspace int64, ok bool) {
	for _, step := range []string{sshexec.TemplateProvisionBtrfs, sshexec.TemplateProvision, sshexec.TemplateCheck, sshexec.TemplateClean} {
		rest, is := strings.CutPrefix(command, sshexec.TemplateCommand(step, 0))
		if !is {
			continue
		}
		if rest != "" {
			if _, err := fmt.Sscan(rest, &workspace); err != nil {
				continue
			}
		}
		return step, workspace, true
	}
	return "", 0, false
}

// template does what template.sh does, as far as there is anything to do here,
// and returns its exit status.
func (g *guest) template(step string, workspace int64, ch ssh.Channel) int {
	r := bufio.NewReader(ch)
	if _, err := io.CopyN(io.Discard, r, int64(sshexec.TemplateLength())); err != nil {
		return 1
	}
	var err error
	switch step {
	case sshexec.TemplateProvision:
		err = g.provision(workspace, ch)
	case sshexec.TemplateCheck:
		g.check(workspace, ch)
	case sshexec.TemplateClean:
		err = g.clean()
	}
	if err != nil {
		fmt.Fprintln(ch.Stderr(), err)
		return 1
	}
	return 0
}

// provision installs what is missing, if there is somewhere to install it from.
func (g *guest) provision(workspace int64, out io.Writer) error {
	now := g.now()
	if g.tree.lacks("qemu-ga") || g.tree.lacks("perl") {
		fmt.Fprintln(out, "installing qemu-guest-agent")
		if g.tree.lacks("sources") {
			return errors.New("the image has no qemu-guest-agent, and its package sources did not give it")
		}
		if err := g.tree.remove(rootUser, lacksFile); err != nil {
			return err
		}
	}
	if workspace == 0 {
		return nil
	}
	disk := ""
	for _, d := range g.machine.Disks {
		size, _, err := g.b.Disks().Size(g.ctx, d)
		if err == nil && !d.CDROM && d.Slot != g.machine.BootSlot && size == workspace {
			disk = d.Slot
		}
	}
	if disk == "" {
		return fmt.Errorf("which disk the workspace volume is cannot be told: of %d bytes and empty are: none", workspace)
	}
	return g.tree.write(rootUser, workspaceFile, "", false, 0o644, now)
}

func (g *guest) check(workspace int64, out io.Writer) {
	for _, name := range []string{"bash", "perl", "qemu-ga", "cgroup"} {
		if g.tree.lacks(name) {
			fmt.Fprintf(out, "missing %s: it is not there\n", name)
			continue
		}
		fmt.Fprintf(out, "ok %s\n", name)
	}
	if _, err := g.tree.stat(rootUser, workspaceFile, true); workspace > 0 && err != nil {
		fmt.Fprintln(out, "missing workspace-volume: it is not there")
	}
}

// clean removes what tells the machine from its copies; the server goes on with
// the key that it has in memory.
func (g *guest) clean() error {
	for _, name := range []string{hostKeyFile, hostKeyFile + ".pub", "/etc/machine-id", "/root/.ssh/authorized_keys", instanceFile, generation} {
		if err := g.tree.remove(rootUser, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return g.tree.write(rootUser, "/var/log/syslog", "", false, 0o644, g.now())
}
