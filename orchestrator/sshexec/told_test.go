package sshexec_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"savepoint/orchestrator"
	"savepoint/orchestrator/sshexec"
	"savepoint/policy"
	"savepoint/testbed/sim"
)

// tellsHealth checks that a command's end says what a question after it would.
func tellsHealth(t *testing.T, c *sshexec.Client, sb orchestrator.Sandbox) {
	t.Helper()
	ctx := within(t, time.Minute)
	if _, err := c.Mark(ctx, sb, "sp-told"); err != nil {
		t.Fatal(err)
	}
	ask := func(command string, r orchestrator.ExecRequest) orchestrator.ExecResult {
		t.Helper()
		res, err := c.Run(ctx, sb, permit(command, policy.Agent), r)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	want, err := c.Health(ctx, sb)
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"echo out; echo err >&2", "exit 3", "sleep 1000 & true", "kill -TERM $$"} {
		before := time.Now()
		res := ask(command, orchestrator.ExecRequest{Health: true, Capture: true})
		h := res.Health
		if h == nil {
			t.Fatalf("%q: nothing was said", command)
		}
		if h.BootID != want.BootID || h.Generation != "sp-told" || h.RoundTrip != res.Duration || len(h.Free) != len(want.Free) || h.Free[0].TotalBytes != want.Free[0].TotalBytes ||
			h.Services[orchestrator.ServiceSSH] != want.Services[orchestrator.ServiceSSH] || len(h.Services) != len(want.Services) {
			t.Errorf("%q: got %+v, want about %+v", command, *h, want)
		}
		if early := h.Clock.Sub(before); early < -time.Second || early > res.Duration+time.Second {
			t.Errorf("%q: the clock is %s after the command was sent", command, early)
		}
	}
	if h := ask("true", orchestrator.ExecRequest{}).Health; h != nil {
		t.Errorf("nobody asked, and it said %+v", h)
	}
	if res := ask("sleep 1000", orchestrator.ExecRequest{Health: true, Timeout: 20 * time.Millisecond}); !res.TimedOut || res.Health != nil {
		t.Errorf("of a command that was ended: %+v", res)
	}
	if h := ask("true", orchestrator.ExecRequest{Health: true}).Health; h == nil {
		t.Error("nothing was said after one that was ended")
	}
}

func TestRunTellsHealth(t *testing.T) {
	w := newWorld(t, sim.Behaviour{}, nil)
	_, sb := w.sandbox(t, 101)
	tellsHealth(t, w.Client, sb)
}

// The real helper says it as the simulated one does.
func TestOpenSSHTellsHealth(t *testing.T) {
	lab(t)
	c, sb := realGuest(t)
	tellsHealth(t, c, sb)
}

// Files of all sizes have their digests, whether the kernel takes them or
// sha256sum, many at once or alone, and to take them reads without a trace.
func TestOpenSSHDigests(t *testing.T) {
	lab(t)
	t.Run("as this kernel can", func(t *testing.T) {
		c, sb := realGuest(t)
		takesDigests(t, c, sb)
	})
	t.Run("sha256sum", func(t *testing.T) {
		sshexec.ChangeHelper(t, "socket my $alg, 38,", "socket my $alg, 9999,") // no such family
		c, sb := realGuest(t)
		takesDigests(t, c, sb)
	})
}

// The kernel of Debian takes them: without sha256sum they are the same.
func TestQEMUDigests(t *testing.T) {
	r := newReal(t)
	res, err := r.Run(within(t, time.Minute), r.sb, permit("mv /usr/bin/sha256sum /usr/bin/sum256", policy.Root), orchestrator.ExecRequest{})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("exit %d, %s, %v", res.ExitCode, res.Stderr, err)
	}
	takesDigests(t, r.Client, r.sb)
}

func takesDigests(t *testing.T, c *sshexec.Client, sb orchestrator.Sandbox) {
	t.Helper()
	ctx := within(t, 3*time.Minute)
	sizes := []int{0, 1, 65535, 65536, 65537, 1 << 20, 3 << 20, 4<<20 - 1, 4 << 20, 4<<20 + 1, 9 << 20}
	for i := range 150 {
		sizes = append(sizes, 100+i)
	}
	var script strings.Builder
	script.WriteString("mkdir /workspace/d && cd /workspace/d\n")
	for i, n := range sizes {
		fmt.Fprintf(&script, "head -c %d /dev/zero | tr '\\0' '\\%o' > %03d\n", n, 'a'+i%26, i)
	}
	script.WriteString("find . -type f -exec touch -a -d @1000 {} +\n")
	run := func(command string) string {
		t.Helper()
		res, err := c.Run(ctx, sb, permit(command, policy.Agent), orchestrator.ExecRequest{})
		if err != nil || res.ExitCode != 0 {
			t.Fatalf("exit %d, %s, %v", res.ExitCode, res.Stderr, err)
		}
		return string(res.Stdout)
	}
	run(script.String())
	m, err := c.Manifest(ctx, sb, orchestrator.ManifestRequest{Roots: []string{"/workspace/d"}, Hash: true})
	if err != nil || len(m.Entries) != len(sizes)+1 {
		t.Fatalf("%d entries, %v", len(m.Entries), err)
	}
	for _, e := range m.Entries {
		i, err := strconv.Atoi(e.Path[max(0, len(e.Path)-3):])
		if err != nil {
			continue // the directory
		}
		sum := sha256.Sum256(slices.Repeat([]byte{byte('a' + i%26)}, sizes[i]))
		if e.SHA256 != hex.EncodeToString(sum[:]) || e.Size != int64(sizes[i]) || e.Problem != "" {
			t.Errorf("%s of %d bytes: %+v", e.Path, sizes[i], e)
		}
	}
	if read := run("find /workspace/d -type f -newerat @1000"); read != "" {
		t.Errorf("reading left a trace at %s", read)
	}
}

// The helper is one text of several files: of two subs with one name perl takes
// the later for both, without a word.
func TestHelperNamesAreItsOwn(t *testing.T) {
	seen := map[string]string{}
	for _, file := range []string{"helper.pl", "examine.pl", "workspace.pl", "workspace_btrfs.pl"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^sub (\w+)`).FindAllStringSubmatch(string(text), -1) {
			if other := seen[m[1]]; other != "" {
				t.Errorf("sub %s is in %s and in %s", m[1], other, file)
			}
			seen[m[1]] = file
		}
	}
	if len(seen) < 50 {
		t.Errorf("only %d subs were found", len(seen))
	}
}
